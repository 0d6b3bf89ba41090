//! One file to 8-bit RGB: bounded before it is decoded, turned as its EXIF says, laid on white where it is transparent,
//! and shrunk to little more than training needs. Knows nothing of labels, seeds or crops.

pub(crate) mod system;

use crate::header::{beyond_limits, lost};
use fast_image_resize::images::{Image, ImageRef};
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use image::metadata::Orientation;
use image::{ColorType, DynamicImage, ImageBuffer, ImageDecoder, ImageReader};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use system::Decoders;

/// A decoded photograph: rows of red, green, blue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Picture {
    pub width: u32,
    pub height: u32,
    /// `width * height * 3` bytes.
    pub rgb: Vec<u8>,
}

/// Decodes a file so that its shorter side is at most `short_side` pixels; smaller ones stay as they are.
pub(crate) fn decode(path: &Path, short_side: u32, decoders: Decoders) -> Result<Picture, String> {
    let file = File::open(path).map_err(|source| lost(&source))?;
    let mut reader = BufReader::new(file);
    let start = reader.fill_buf().map_err(|source| lost(&source))?;
    let (picture, orientation) = match system::format(start) {
        Some(format) => system::picture(decoders(format), &mut reader)
            .map_err(|unread| unread.reason(format.name()))?,
        None => own(reader)?,
    };
    Ok(turn(shrink(picture, short_side), orientation))
}

/// The picture as stored in a JPEG, PNG or WebP, and how it is to be turned.
fn own(reader: BufReader<File>) -> Result<(Picture, Orientation), String> {
    let damaged = |error: image::ImageError| {
        format!("It cannot be decoded ({error}). Copy it here again, or remove it.")
    };
    let reader = ImageReader::new(reader)
        .with_guessed_format()
        .map_err(|source| lost(&source))?;
    let mut decoder = reader.into_decoder().map_err(damaged)?;
    // The decoder would not ask: `from_decoder` allocates whatever a header promises, and a refusal aborts the process.
    let (width, height) = decoder.dimensions();
    if let Some(reason) = beyond_limits(width, height, decoder.total_bytes()) {
        return Err(reason);
    }
    let orientation = orientation(&mut decoder);
    let picture = flatten(DynamicImage::from_decoder(decoder).map_err(damaged)?);
    Ok((picture, orientation))
}

/// What the EXIF says. WebP files carry the six bytes `Exif\0\0` before it that belong to JPEG only.
fn orientation(decoder: &mut impl ImageDecoder) -> Orientation {
    let plain = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let chunk = match plain {
        Orientation::NoTransforms => decoder.exif_metadata().ok().flatten(),
        _ => None,
    };
    let exif = chunk.as_deref().and_then(|c| c.strip_prefix(b"Exif\0\0"));
    exif.and_then(Orientation::from_exif_chunk).unwrap_or(plain)
}

/// To 8-bit RGB, transparent pixels over white.
fn flatten(image: DynamicImage) -> Picture {
    let (width, height) = (image.width(), image.height());
    let transparent = matches!(
        image.color(),
        ColorType::La8
            | ColorType::La16
            | ColorType::Rgba8
            | ColorType::Rgba16
            | ColorType::Rgba32F
    );
    let rgb = if transparent {
        let over_white = |c: u8, a: u8| {
            ((u32::from(c) * u32::from(a) + 255 * (255 - u32::from(a)) + 127) / 255) as u8
        };
        image
            .into_rgba8()
            .pixels()
            .flat_map(|p| {
                [
                    over_white(p[0], p[3]),
                    over_white(p[1], p[3]),
                    over_white(p[2], p[3]),
                ]
            })
            .collect()
    } else {
        image.into_rgb8().into_raw()
    };
    Picture { width, height, rgb }
}

fn shrink(picture: Picture, short_side: u32) -> Picture {
    let short = picture.width.min(picture.height);
    if short <= short_side {
        return picture;
    }
    let scaled = |side: u32| {
        let exact = u64::from(side) * u64::from(short_side);
        ((exact + u64::from(short) / 2) / u64::from(short)).max(1) as u32
    };
    let (width, height) = (scaled(picture.width), scaled(picture.height));
    let whole = (
        0.0,
        0.0,
        f64::from(picture.width),
        f64::from(picture.height),
    );
    resample(&picture, whole, width, height)
}

/// The part (left, top, width, height) of a picture at another size, each new pixel a weighted mean of all it covers.
pub(crate) fn resample(
    picture: &Picture,
    part: (f64, f64, f64, f64),
    width: u32,
    height: u32,
) -> Picture {
    let source = ImageRef::new(picture.width, picture.height, &picture.rgb, PixelType::U8x3)
        .expect("a picture holds width * height * 3 bytes");
    let mut target = Image::new(width, height, PixelType::U8x3);
    let options = ResizeOptions::new()
        .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
        .crop(part.0, part.1, part.2, part.3);
    Resizer::new()
        .resize(&source, &mut target, &options)
        .expect("the part lies inside the picture, and both are 8-bit RGB");
    Picture {
        width,
        height,
        rgb: target.into_vec(),
    }
}

fn turn(picture: Picture, orientation: Orientation) -> Picture {
    if orientation == Orientation::NoTransforms {
        return picture;
    }
    let buffer = ImageBuffer::from_raw(picture.width, picture.height, picture.rgb)
        .expect("a picture holds width * height * 3 bytes");
    let mut image = DynamicImage::ImageRgb8(buffer);
    image.apply_orientation(orientation);
    Picture {
        width: image.width(),
        height: image.height(),
        rgb: image.into_rgb8().into_raw(),
    }
}
