//! macOS: ImageIO reads a file's properties and decodes it, Core Graphics draws it in 8-bit sRGB. Only what must be asked
//! of the system stands here; limits, orientation and transparency are the caller's.

use super::{Alpha, Described, Drawn, SystemDecoder, Unread, damaged};
use objc2::rc::autoreleasepool;
use objc2_core_foundation::{
    CFBoolean, CFData, CFDictionary, CFNumber, CFRetained, CFString, CFType, CGPoint, CGRect,
    CGSize,
};
use objc2_core_graphics::{
    CGBitmapContextCreate, CGColorSpace, CGContext, CGImage, CGImageAlphaInfo,
    CGImageByteOrderInfo, CGInterpolationQuality, kCGColorSpaceSRGB,
};
use objc2_image_io::{
    CGImageSource, CGImageSourceStatus, kCGImagePropertyDepth, kCGImagePropertyOrientation,
    kCGImagePropertyPixelHeight, kCGImagePropertyPixelWidth, kCGImageSourceShouldCache,
    kCGImageSourceShouldCacheImmediately,
};

/// The system's own decoders, whatever formats it has.
pub(super) const DECODER: Option<SystemDecoder> = Some(SystemDecoder { describe, draw });

/// Of 8-bit red, green, blue and alpha.
const BYTES_PER_PIXEL: usize = 4;

fn describe(file: &[u8]) -> Result<Described, Unread> {
    // Loader threads have no pool of their own, and what ImageIO leaves in one would stay as long as they live.
    autoreleasepool(|_| Opened::new(file)?.describe())
}

fn draw(file: &[u8], described: &Described) -> Result<Drawn, Unread> {
    autoreleasepool(|_| on_nothing(&*Opened::new(file)?.image(described)?, described))
}

/// A file whose primary image is there as a whole.
struct Opened {
    source: CFRetained<CGImageSource>,
    primary: usize,
}

impl Opened {
    fn new(file: &[u8]) -> Result<Self, Unread> {
        let data = CFData::from_bytes(file);
        // SAFETY: the source keeps the data, which nobody changes; there are no options.
        let source = unsafe { CGImageSource::with_data(&data, None) }.ok_or(Unread::Format)?;
        // SAFETY: the source is whole; these calls read what it has found.
        let (status, count, primary) = unsafe {
            (
                source.status(),
                source.count(),
                source.primary_image_index(),
            )
        };
        if status == CGImageSourceStatus::StatusUnknownType {
            return Err(Unread::Format);
        }
        if status != CGImageSourceStatus::StatusComplete || primary >= count {
            return Err(incomplete(status));
        }
        let opened = Self { source, primary };
        opened.is_complete()?;
        Ok(opened)
    }

    fn is_complete(&self) -> Result<(), Unread> {
        // SAFETY: the index is that of an image which the source has.
        let status = unsafe { self.source.status_at_index(self.primary) };
        match status == CGImageSourceStatus::StatusComplete {
            true => Ok(()),
            false => Err(incomplete(status)),
        }
    }

    fn describe(&self) -> Result<Described, Unread> {
        // SAFETY: the key is the system's own constant.
        let options = switches(&[(unsafe { kCGImageSourceShouldCache }, false)]);
        // SAFETY: the index is that of an image which the source has; the options are a dictionary of strings to booleans.
        let properties = unsafe {
            self.source
                .properties_at_index(self.primary, Some(options.as_opaque()))
        };
        let properties = properties.ok_or_else(|| damaged("it has no properties"))?;
        // SAFETY: the keys of these properties are strings and their values objects of the system's (CGImageSource.h).
        let properties =
            unsafe { CFRetained::cast_unchecked::<CFDictionary<CFString, CFType>>(properties) };
        let number = |key: &CFString| {
            let value = properties.get(key)?;
            value.downcast_ref::<CFNumber>()?.as_i64()
        };
        // SAFETY: these are the system's own constants.
        let (width, height, depth, turn) = unsafe {
            (
                kCGImagePropertyPixelWidth,
                kCGImagePropertyPixelHeight,
                kCGImagePropertyDepth,
                kCGImagePropertyOrientation,
            )
        };
        let sides = [width, height].map(number);
        Ok(Described::new(sides, number(depth), number(turn)))
    }

    /// Decoded at once, so that what cannot be decoded is known before it is drawn. Not turned yet.
    fn image(&self, described: &Described) -> Result<CFRetained<CGImage>, Unread> {
        // SAFETY: the key is the system's own constant.
        let options = switches(&[(unsafe { kCGImageSourceShouldCacheImmediately }, true)]);
        // SAFETY: the index is that of an image which the source has; the options are a dictionary of strings to booleans.
        let image = unsafe {
            self.source
                .image_at_index(self.primary, Some(options.as_opaque()))
        };
        let image = image.ok_or_else(|| damaged("the system gives no image"))?;
        self.is_complete()?;
        let (width, height) = (CGImage::width(Some(&image)), CGImage::height(Some(&image)));
        described.agrees(width, height)?;
        Ok(image)
    }
}

/// Draws an image, pixel upon pixel, over nothing.
fn on_nothing(image: &CGImage, described: &Described) -> Result<Drawn, Unread> {
    let (width, height) = (
        described.promise.width as usize,
        described.promise.height as usize,
    );
    let mut rgba = vec![0; width * height * BYTES_PER_PIXEL];
    // SAFETY: the name is the system's own constant.
    let space = CGColorSpace::with_name(Some(unsafe { kCGColorSpaceSRGB }));
    // Red first in memory, whatever the processor's byte order.
    let layout = CGImageAlphaInfo::PremultipliedLast.0 | CGImageByteOrderInfo::Order32Big.0;
    // SAFETY: the buffer holds `height` rows of `width` pixels and outlives the context, which alone touches it until it
    // is dropped at the end of this function's drawing.
    let context = unsafe {
        CGBitmapContextCreate(
            rgba.as_mut_ptr().cast(),
            width,
            height,
            8,
            width * BYTES_PER_PIXEL,
            space.as_deref(),
            layout,
        )
    };
    let context = context.ok_or_else(|| damaged("the system gives no canvas for it"))?;
    let whole = CGRect {
        origin: CGPoint { x: 0.0, y: 0.0 },
        size: CGSize {
            width: width as f64,
            height: height as f64,
        },
    };
    CGContext::set_interpolation_quality(Some(&context), CGInterpolationQuality::None);
    CGContext::draw_image(Some(&context), whole, Some(image));
    CGContext::flush(Some(&context));
    drop(context);
    let alpha = match CGImage::alpha_info(Some(image)) {
        CGImageAlphaInfo::None
        | CGImageAlphaInfo::NoneSkipFirst
        | CGImageAlphaInfo::NoneSkipLast => Alpha::Opaque,
        _ => Alpha::Channel,
    };
    Ok(Drawn { rgba, alpha })
}

/// Options of ImageIO that are on or off.
fn switches(options: &[(&CFString, bool)]) -> CFRetained<CFDictionary<CFString, CFBoolean>> {
    let (keys, values): (Vec<&CFString>, Vec<&CFBoolean>) = options
        .iter()
        .map(|(key, on)| (*key, CFBoolean::new(*on)))
        .unzip();
    CFDictionary::from_slices(&keys, &values)
}

fn incomplete(status: CGImageSourceStatus) -> Unread {
    damaged(match status {
        CGImageSourceStatus::StatusUnexpectedEOF => "it ends too early",
        CGImageSourceStatus::StatusIncomplete | CGImageSourceStatus::StatusReadingHeader => {
            "parts of it are missing"
        }
        _ => "the system does not know what is in it",
    })
}
