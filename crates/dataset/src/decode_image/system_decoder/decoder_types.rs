//! The interface of a system's image decoder.

use crate::image_header::ImageHeader;
use image::metadata::Orientation;

/// A format that only a system decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SystemFormat {
    /// High Efficiency Image File Format with HEVC, as phones write it.
    Heic,
    /// High Efficiency Image File Format with AV1.
    Avif,
}

impl SystemFormat {
    /// The name for display.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SystemFormat::Heic => "HEIC",
            SystemFormat::Avif => "AVIF",
        }
    }
}

/// A system's decoder. Both functions take the bytes of a complete file and work on its primary
/// image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SystemDecoder {
    /// Reads the properties without decoding pixels.
    pub describe: fn(&[u8]) -> Result<ImageProperties, Unreadable>,
    /// Decodes and draws the image if it has the described size.
    pub draw: fn(&[u8], &ImageProperties) -> Result<RenderedImage, Unreadable>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct ImageProperties {
    /// Its size before any rotation.
    pub header: ImageHeader,
    /// Its EXIF orientation, if it has one.
    pub orientation: Option<i64>,
}

impl ImageProperties {
    /// Converts the numbers of a file. More than 8 bits per channel decode to 16.
    #[cfg_attr(
        not(any(test, target_os = "macos")),
        expect(dead_code, reason = "only a system decoder describes files")
    )]
    pub(crate) fn new(
        sides: [Option<i64>; 2],
        depth: Option<i64>,
        orientation: Option<i64>,
    ) -> Self {
        let [width, height] = sides.map(|side| side.and_then(|n| n.try_into().ok()).unwrap_or(0));
        let deep = depth.is_some_and(|bits| bits > 8);
        Self {
            header: ImageHeader {
                width,
                height,
                bytes_per_pixel: if deep { 8 } else { 4 },
            },
            orientation,
        }
    }

    /// Refuses an image whose size differs from the described one, since the limits were checked
    /// for the described size.
    #[cfg_attr(
        not(any(test, target_os = "macos")),
        expect(dead_code, reason = "only a system decoder draws files")
    )]
    pub(crate) fn check_size(&self, width: usize, height: usize) -> Result<(), Unreadable> {
        if (self.header.width as usize, self.header.height as usize) == (width, height) {
            Ok(())
        } else {
            Err(damaged(
                "its decoded size differs from the size in its header",
            ))
        }
    }

    /// The orientation to apply; none if the number is not a valid one.
    pub(crate) fn orientation(&self) -> Orientation {
        let number = self.orientation.and_then(|n| u8::try_from(n).ok());
        number
            .and_then(Orientation::from_exif)
            .unwrap_or(Orientation::NoTransforms)
    }
}

/// An image drawn by the system on a transparent canvas.
#[derive(Debug, PartialEq)]
pub(crate) struct RenderedImage {
    /// Red, green, blue and alpha of each pixel in sRGB, with colors premultiplied by alpha; rows
    /// from the top.
    pub rgba: Vec<u8>,
    /// Whether pixels may be transparent.
    pub alpha: Alpha,
}

/// Whether a file has transparency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(
    not(any(test, target_os = "macos")),
    expect(dead_code, reason = "only a system decoder draws files")
)]
pub(crate) enum Alpha {
    /// No. A transparent pixel means that a part was not drawn.
    Opaque,
    Channel,
}

/// Why a file cannot be decoded.
#[derive(Debug, PartialEq)]
pub(crate) enum Unreadable {
    /// This machine has no decoder for its format.
    Format,
    /// This file cannot be used. The text names the problem and how to fix it.
    File(String),
}

impl Unreadable {
    /// The reason as sentences, for a file of the named format.
    pub(crate) fn reason(self, format: &str) -> String {
        match self {
            Unreadable::Format => {
                let article = article(format);
                format!(
                    "This is {article} {format} file, which is not supported. Save the image as JPEG or PNG."
                )
            }
            Unreadable::File(reason) => reason,
        }
    }
}

/// The article before a format's name as it is spoken: "an ICO", "a GIF".
fn article(format: &str) -> &'static str {
    if format.starts_with(['A', 'I']) {
        "an"
    } else {
        "a"
    }
}

/// The decoder failed on this file, for this reason.
pub(crate) fn damaged(why: &str) -> Unreadable {
    Unreadable::File(format!(
        "The image cannot be decoded ({why}). Copy the file here again, or remove it."
    ))
}
