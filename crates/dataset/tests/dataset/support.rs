//! Creates temporary folders of small images, complete and broken.

use dataset::{
    Augment, ImageDataset, ImageInspection, ImageOptions, InspectOptions, Split, inspect_images,
};
use image::codecs::jpeg::JpegEncoder;
use image::codecs::webp::WebPEncoder;
use image::{DynamicImage, ImageEncoder, ImageFormat, Rgb, RgbImage};
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A temporary folder.
pub struct Folder {
    root: TempDir,
}

impl Folder {
    /// An empty folder.
    pub fn new() -> Self {
        Self {
            root: tempfile::tempdir().expect("a temporary folder can be created"),
        }
    }

    /// A folder with a JPEG at each path.
    pub fn with_images(paths: &[&str]) -> Self {
        let folder = Self::new();
        for path in paths {
            folder.put(path, &jpeg(&scene(40, 30)));
        }
        folder
    }

    pub fn path(&self) -> &Path {
        self.root.path()
    }

    /// Writes a file, and creates the folders above it.
    pub fn put(&self, path: &str, bytes: &[u8]) -> PathBuf {
        let file = self.root.path().join(path);
        fs::create_dir_all(file.parent().expect("the file is inside the folder"))
            .expect("a folder can be created");
        fs::write(&file, bytes).expect("a file can be written");
        file
    }

    pub fn inspect(&self) -> ImageInspection {
        self.inspect_with(InspectOptions {
            held_out_fraction: 0.2,
            seed: 7,
            ..InspectOptions::default()
        })
    }

    pub fn inspect_with(&self, options: InspectOptions) -> ImageInspection {
        inspect_images(self.path(), &options, &|_| {}).expect("the folder can be read")
    }
}

/// The training images, without augmentation and cache.
pub fn plain(inspection: &ImageInspection, size: u32) -> ImageDataset {
    let options = ImageOptions {
        size,
        augment: Augment::None,
        mix: dataset::Mix::None,
        seed: 1,
    };
    ImageDataset::open(inspection, Split::Train, options, None, 0)
}

/// Four quarters, red and green above blue and white, so that no rotation or mirroring leaves the
/// image unchanged.
pub fn scene(width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| {
        match (x * 2 < width, y * 2 < height) {
            (true, true) => Rgb([220, 30, 30]),
            (false, true) => Rgb([30, 200, 30]),
            (true, false) => Rgb([30, 30, 220]),
            (false, false) => Rgb([240, 240, 240]),
        }
    })
}

pub fn jpeg(image: &RgbImage) -> Vec<u8> {
    let mut bytes = Vec::new();
    JpegEncoder::new_with_quality(&mut bytes, 92)
        .encode_image(image)
        .expect("memory can be written");
    bytes
}

pub fn encoded(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    image
        .write_to(&mut bytes, format)
        .expect("memory can be written");
    bytes.into_inner()
}

pub fn png(image: &RgbImage) -> Vec<u8> {
    encoded(&DynamicImage::ImageRgb8(image.clone()), ImageFormat::Png)
}

/// The smallest EXIF data with an orientation.
pub fn exif(orientation: u8) -> Vec<u8> {
    let mut bytes = b"MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".to_vec();
    bytes.extend([orientation, 0, 0, 0, 0, 0, 0]);
    bytes
}

/// A JPEG with an EXIF orientation.
pub fn rotated_jpeg(image: &RgbImage, orientation: u8) -> Vec<u8> {
    let payload = [b"Exif\0\0".as_slice(), &exif(orientation)].concat();
    let mut bytes = jpeg(image);
    let segment = [
        &[0xFF, 0xE1, 0, payload.len() as u8 + 2],
        payload.as_slice(),
    ]
    .concat();
    bytes.splice(2..2, segment);
    bytes
}

/// A WebP with `before` in front of its EXIF orientation.
pub fn rotated_webp(image: &RgbImage, before: &[u8], orientation: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = WebPEncoder::new_lossless(&mut bytes);
    encoder
        .set_exif_metadata([before, &exif(orientation)].concat())
        .expect("WebP supports EXIF");
    encoder
        .write_image(
            image.as_raw(),
            image.width(),
            image.height(),
            image::ExtendedColorType::Rgb8,
        )
        .expect("memory can be written");
    bytes
}

/// A JPEG whose frame header declares another size.
pub fn jpeg_declaring(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = jpeg(&scene(40, 30));
    let frame = bytes
        .windows(2)
        .position(|w| w == [0xFF, 0xC0])
        .expect("every JPEG has a frame header");
    bytes[frame + 5..frame + 7].copy_from_slice(&height.to_be_bytes());
    bytes[frame + 7..frame + 9].copy_from_slice(&width.to_be_bytes());
    bytes
}

/// A PNG whose header declares another size, with a correct checksum.
pub fn png_declaring(width: u32, height: u32, bits: u8, color_type: u8) -> Vec<u8> {
    let mut bytes = png(&scene(40, 30));
    bytes[16..20].copy_from_slice(&width.to_be_bytes());
    bytes[20..24].copy_from_slice(&height.to_be_bytes());
    bytes[24..26].copy_from_slice(&[bits, color_type]);
    let checksum = checksum(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

/// The CRC-32 of a PNG chunk.
fn checksum(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| {
        if crc & 1 == 1 {
            crc >> 1 ^ 0xEDB8_8320
        } else {
            crc >> 1
        }
    };
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), step)
    })
}

/// A CMYK JPEG of eight by eight pixels of one color. Every block is "no change, end of block".
pub fn cmyk_jpeg() -> Vec<u8> {
    let one_code = |class: u8| [&[0xFF, 0xC4, 0, 20, class, 1], [0; 16].as_slice()].concat();
    [
        [0xFF, 0xD8, 0xFF, 0xEE, 0, 14].as_slice(),
        b"Adobe\0\x64\0\0\0\0\0",
        &[0xFF, 0xDB, 0, 67, 0],
        &[1; 64],
        &[0xFF, 0xC0, 0, 20, 8, 0, 8, 0, 8, 4],
        &[1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0, 4, 0x11, 0],
        &one_code(0x00),
        &one_code(0x10),
        &[0xFF, 0xDA, 0, 14, 4, 1, 0, 2, 0, 3, 0, 4, 0, 0, 63, 0],
        &[0x00, 0xFF, 0xD9],
    ]
    .concat()
}
