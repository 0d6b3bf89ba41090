#!/usr/bin/env python3
"""Predicts with an image baseline that Ebb trained. Needs the Python packages numpy and Pillow.

    python3 image_baseline.py IMAGE [IMAGE ...]

    from image_baseline import Baseline
    baseline = Baseline("baseline.safetensors")
    baseline.probabilities("cat.jpg")  # {"cat": 0.98, "dog": 0.02}
    baseline.targets("plate.jpg")  # {"calories": 312.4}, in the units of the columns

Pillow shrinks images slightly differently than Ebb, so that probabilities may differ a little.
"""
import json
import os
import struct
import sys

import numpy
from PIL import Image, ImageOps

SIDE = 64
CELLS = [(8, 1.0), (16, 0.7)]
DIRECTIONS = 9
COLOR_LEVELS = (18, 5, 4)
NEIGHBORS = [(0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1)]
PATTERNS = 59


def center(path, size):
    """The largest square in the center of an image, [size, size, 3]."""
    image = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
    side = min(image.size)
    left, top = (image.width - side) / 2, (image.height - side) / 2
    box = (left, top, left + side, top + side)
    return numpy.asarray(image.resize((size, size), Image.BILINEAR, box=box))


def resized(pixels):
    """The image with a side of 64 pixels: each pixel is a mean of those that it covers."""
    side = pixels.shape[0]
    if side == SIDE:
        return pixels.astype(numpy.float32)
    step = side / SIDE
    centers = (numpy.arange(SIDE)[:, None] + 0.5) * step - 0.5
    weights = numpy.maximum(1 - abs(numpy.arange(side)[None] - centers) / max(step, 1), 0)
    weights /= weights.sum(1, keepdims=True)
    narrow = numpy.einsum("ta,yac->ytc", weights, pixels.astype(float))
    return numpy.einsum("ty,yxc->txc", weights, narrow).astype(numpy.float32)


def normalized(block, length):
    return block * length / numpy.sqrt((block * block).sum(-1, keepdims=True) + 1e-3)


def edges(gray, cell):
    """Histograms of the directions of edges, normalized in blocks of 2x2 cells."""
    across, down = numpy.zeros_like(gray), numpy.zeros_like(gray)
    across[1:-1, 1:-1] = gray[1:-1, 2:] - gray[1:-1, :-2]
    down[1:-1, 1:-1] = gray[2:, 1:-1] - gray[:-2, 1:-1]
    length = numpy.sqrt(across**2 + down**2)
    angles = numpy.pi * numpy.arange(DIRECTIONS) / DIRECTIONS
    along = across[..., None] * numpy.cos(angles) + down[..., None] * numpy.sin(angles)
    votes = length[..., None] * (along / numpy.maximum(length, 1e-20)[..., None]) ** 8
    cells = SIDE // cell
    histograms = votes.reshape(cells, cell, cells, cell, DIRECTIONS).sum((1, 3))
    parts = histograms[:-1, :-1], histograms[:-1, 1:], histograms[1:, :-1], histograms[1:, 1:]
    blocks = numpy.concatenate(parts, -1)
    blocks = numpy.minimum(normalized(blocks, 1), 0.2)
    return normalized(blocks, 1 / (cells - 1)).reshape(-1)


def pattern_places():
    """The place of each pattern of brighter neighbors in a histogram."""
    changes = [bin(pattern ^ (pattern >> 1 | (pattern & 1) << 7)).count("1") for pattern in range(256)]
    places, free = [], iter(range(PATTERNS - 1))
    for count in changes:
        places.append(next(free) if count <= 2 else PATTERNS - 1)
    return numpy.array(places)


def patterns(gray):
    """Histograms of the patterns of brighter neighbors, in 16 parts of the image."""
    inner, found = SIDE - 2, numpy.zeros((SIDE - 2, SIDE - 2), int)
    for bit, (down, across) in enumerate(NEIGHBORS):
        other = gray[1 + down : SIDE - 1 + down, 1 + across : SIDE - 1 + across]
        found |= (other > gray[1:-1, 1:-1] + numpy.float32(0.1)).astype(int) << bit
    part = numpy.arange(inner) * 4 // inner
    places = (part[:, None] * 4 + part[None]) * PATTERNS + pattern_places()[found]
    counts = numpy.bincount(places.reshape(-1), minlength=16 * PATTERNS).reshape(16, PATTERNS)
    return (numpy.sqrt(counts / counts.sum(1, keepdims=True)) * 0.8 / 4).reshape(-1)


def region_colors(pixels):
    """Mean and standard deviation of each channel in each region of 16 pixels."""
    regions = pixels.reshape(4, 16, 4, 16, 3)
    means, deviations = regions.mean((1, 3)), regions.std((1, 3))
    both = numpy.stack([means, deviations], -1).transpose(2, 0, 1, 3)
    return both.reshape(-1) * 0.4 / 4 / 64


def color_histograms(pixels):
    """How frequent each color is, in the image and in each quarter."""
    red, green, blue = (pixels[..., channel] for channel in range(3))
    most, least = pixels.max(-1), pixels.min(-1)
    spread = numpy.maximum(most - least, 1)
    hue = numpy.where(
        most == red,
        (green - blue) / spread + numpy.where(green < blue, 6, 0),
        numpy.where(most == green, (blue - red) / spread + 2, (red - green) / spread + 4),
    )
    hue = numpy.where(most - least < 1, 0, hue) / 6
    values = hue, (most - least) / numpy.maximum(most, 1), most / 255
    levels = [
        numpy.minimum((value * count).astype(int), count - 1)
        for value, count in zip(values, COLOR_LEVELS)
    ]
    colors = (levels[0] * COLOR_LEVELS[1] + levels[1]) * COLOR_LEVELS[2] + levels[2]
    count, found = int(numpy.prod(COLOR_LEVELS)), []
    for grid in (1, 2):
        part = SIDE // grid
        for y in range(grid):
            for x in range(grid):
                own = colors[y * part : (y + 1) * part, x * part : (x + 1) * part].reshape(-1)
                shares = numpy.bincount(own, minlength=count) / own.size
                found.append(numpy.sqrt(shares) * 0.56 / grid)
    return numpy.concatenate(found)


def features(pixels):
    """The features of an image with a side of 64 pixels."""
    gray = numpy.sqrt(pixels @ numpy.array([0.299, 0.587, 0.114], numpy.float32))
    parts = [weight * edges(gray, cell) for cell, weight in CELLS]
    return numpy.concatenate([*parts, patterns(gray), region_colors(pixels), color_histograms(pixels)])


class Baseline:
    def __init__(self, path, image_size=SIDE):
        """`image_size` is the side of the images that the network of the run reads."""
        self.image_size = image_size
        with open(path, "rb") as file:
            size = struct.unpack("<Q", file.read(8))[0]
            header, data = json.loads(file.read(size)), file.read()

        def tensor(name):
            start, end = header[name]["data_offsets"]
            return numpy.frombuffer(data[start:end], "<f4").reshape(header[name]["shape"])

        description = json.loads(header["__metadata__"]["ebb_baseline"])
        if description["version"] != 1:
            raise ValueError("another version of Ebb wrote this baseline; export it again")
        self.classes, self.columns = description["classes"], description["targets"]
        self.is_symmetric = description["symmetric"]
        self.gamma, self.means, self.scale = description["gamma"], tensor("means"), tensor("scale")[0]
        self.images, self.coefficients = tensor("images"), tensor("coefficients")
        self.bias = tensor("bias")

    def outputs(self, pixels):
        """For pixels [side, side, 3] the class scores, then the targets in standard deviations."""
        pixels = resized(pixels)
        sides = [pixels, pixels[:, ::-1]] if self.is_symmetric else [pixels]
        kernels = []
        for side in sides:
            own = (features(side) - self.means) * self.scale
            kernels.append(numpy.exp(-self.gamma * ((self.images - own) ** 2).sum(1)))
        return self.coefficients @ numpy.mean(kernels, 0) + self.bias

    def probabilities(self, path):
        """The probability of each class, by name."""
        scores = self.outputs(center(path, self.image_size))[: len(self.classes)]
        powers = numpy.exp(scores - scores.max())
        return {name: float(power / powers.sum()) for name, power in zip(self.classes, powers)}

    def targets(self, path):
        """Each regression target in the unit of its column, by name."""
        outputs = self.outputs(center(path, self.image_size))[len(self.classes) :]
        pairs = zip(self.columns, outputs)
        return {column["name"]: column["mean"] + column["deviation"] * float(value) for column, value in pairs}


def show(predictor, paths):
    """Prints the prediction for each image."""
    for path in paths:
        ranked = sorted(predictor.probabilities(path).items(), key=lambda item: -item[1])[:3] if predictor.classes else []
        found = [f"{name} {100 * value:.1f} %" for name, value in ranked]
        found += [f"{name} {value:.4g}" for name, value in predictor.targets(path).items()]
        print(f"{path}: " + ", ".join(found))


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    show(Baseline(os.path.join(here, "baseline.safetensors")), sys.argv[1:])
