"""Writes rotated.heic and rotated.avif: four quarters of different colors, stored a quarter turn away from upright.

pip install pillow pillow-heif  (made with Pillow 13.0.0 and pillow_heif 1.8.1)
"""

from pathlib import Path

import pillow_heif
from PIL import Image

pillow_heif.register_heif_opener()
upright = Image.new("RGB", (64, 48))
for left, top, color in [
    (0, 0, (220, 30, 30)),
    (32, 0, (30, 200, 30)),
    (0, 24, (30, 30, 220)),
    (32, 24, (240, 240, 240)),
]:
    upright.paste(color, (left, top, left + 32, top + 24))
stored = upright.transpose(Image.Transpose.ROTATE_90)
exif = Image.Exif()
exif[0x0112] = 6
for name, kind in [("rotated.heic", "HEIF"), ("rotated.avif", "AVIF")]:
    stored.save(Path(__file__).parent / name, format=kind, exif=exif.tobytes(), quality=60)
