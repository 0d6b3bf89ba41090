//! A decoded image in memory: 8-bit RGB, resampled, rotated, and laid on white if it is
//! transparent.

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};
use image::metadata::Orientation;
use image::{ColorType, DynamicImage, ImageBuffer};

/// A decoded image: rows from the top, each pixel red, green, blue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DecodedImage {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// `width * height * 3` bytes.
    pub rgb: Vec<u8>,
}

/// A rectangle inside an image, in pixels; its edges may lie between pixels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Region {
    /// Distance from the left edge.
    pub left: f64,
    /// Distance from the top edge.
    pub top: f64,
    /// Width, above 0.
    pub width: f64,
    /// Height, above 0.
    pub height: f64,
}

impl DecodedImage {
    /// Converts to 8-bit RGB. Transparent pixels are laid on white.
    pub(crate) fn from_dynamic(image: DynamicImage) -> Self {
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
                .flat_map(|p| [0, 1, 2].map(|c| over_white(p[c], p[3])))
                .collect()
        } else {
            image.into_rgb8().into_raw()
        };
        Self { width, height, rgb }
    }

    /// Shrinks the image so that its shorter side is at most `short_side` pixels.
    pub(crate) fn shrink(self, short_side: u32) -> Self {
        let short = self.width.min(self.height);
        if short <= short_side {
            return self;
        }
        let scaled = |side: u32| {
            let exact = u64::from(side) * u64::from(short_side);
            ((exact + u64::from(short) / 2) / u64::from(short)).max(1) as u32
        };
        let all = Region {
            left: 0.0,
            top: 0.0,
            width: f64::from(self.width),
            height: f64::from(self.height),
        };
        self.resample(all, scaled(self.width), scaled(self.height))
    }

    /// Resamples a region to another size. Each new pixel is a weighted mean of the pixels it
    /// covers.
    pub(crate) fn resample(&self, region: Region, width: u32, height: u32) -> Self {
        let source = TypedImageRef::<U8x3>::from_buffer(self.width, self.height, &self.rgb)
            .expect("a decoded image holds width * height * 3 bytes");
        let mut rgb = vec![0; width as usize * height as usize * 3];
        let mut target = TypedImage::<U8x3>::from_buffer(width, height, &mut rgb)
            .expect("the buffer was made for this size");
        let options = ResizeOptions::new()
            .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
            .crop(region.left, region.top, region.width, region.height);
        // `resize` would compile the code of all 13 pixel types into the program: 3 MB.
        Resizer::new()
            .resize_typed(&source, &mut target, &options)
            .expect("the region lies inside the image");
        drop(target);
        Self { width, height, rgb }
    }

    /// Rotates and mirrors the image so that it is upright.
    pub(crate) fn apply_orientation(self, orientation: Orientation) -> Self {
        if orientation == Orientation::NoTransforms {
            return self;
        }
        let buffer = ImageBuffer::from_raw(self.width, self.height, self.rgb)
            .expect("a decoded image holds width * height * 3 bytes");
        let mut image = DynamicImage::ImageRgb8(buffer);
        image.apply_orientation(orientation);
        Self {
            width: image.width(),
            height: image.height(),
            rgb: image.into_rgb8().into_raw(),
        }
    }
}
