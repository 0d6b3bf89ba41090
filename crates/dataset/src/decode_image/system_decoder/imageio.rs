//! macOS: ImageIO reads a file's properties and decodes it, and Core Graphics draws it in 8-bit
//! sRGB. Only calls to the system are here; the caller handles limits, orientation and
//! transparency.

use super::decoder_types::{
    Alpha, ImageProperties, RenderedImage, SystemDecoder, Unreadable, damaged,
};
use objc2::exception::catch;
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
use std::panic::AssertUnwindSafe;

/// The system's decoder for every format that it supports.
pub(super) const DECODER: Option<SystemDecoder> = Some(SystemDecoder { describe, draw });

/// 8-bit red, green, blue and alpha.
const BYTES_PER_PIXEL: usize = 4;

fn describe(file: &[u8]) -> Result<ImageProperties, Unreadable> {
    guarded(|| Opened::new(file)?.describe())
}

fn draw(file: &[u8], properties: &ImageProperties) -> Result<RenderedImage, Unreadable> {
    guarded(|| draw_on_transparent(&*Opened::new(file)?.image(properties)?, properties))
}

/// Runs `work` inside an autorelease pool: loader threads have none of their own, so ImageIO's
/// objects would otherwise stay as long as the thread lives. An Objective-C exception, which would
/// abort the process, means that the file is damaged.
fn guarded<R>(work: impl FnOnce() -> Result<R, Unreadable>) -> Result<R, Unreadable> {
    autoreleasepool(|_| {
        catch(AssertUnwindSafe(work))
            .unwrap_or_else(|_| Err(damaged("the system's decoder raised an exception")))
    })
}

/// A file whose primary image is complete.
struct Opened {
    source: CFRetained<CGImageSource>,
    primary: usize,
}

impl Opened {
    fn new(file: &[u8]) -> Result<Self, Unreadable> {
        let data = CFData::from_bytes(file);
        // SAFETY: the source retains the data, which never changes; there are no options.
        let source = unsafe { CGImageSource::with_data(&data, None) }.ok_or(Unreadable::Format)?;
        // SAFETY: the source is valid; these calls only read its state.
        let (status, count, primary) = unsafe {
            (
                source.status(),
                source.count(),
                source.primary_image_index(),
            )
        };
        if status == CGImageSourceStatus::StatusUnknownType {
            return Err(Unreadable::Format);
        }
        if status != CGImageSourceStatus::StatusComplete || primary >= count {
            return Err(incomplete(status));
        }
        let opened = Self { source, primary };
        opened.is_complete()?;
        Ok(opened)
    }

    fn is_complete(&self) -> Result<(), Unreadable> {
        // SAFETY: the index is that of an image in the source.
        let status = unsafe { self.source.status_at_index(self.primary) };
        if status == CGImageSourceStatus::StatusComplete {
            Ok(())
        } else {
            Err(incomplete(status))
        }
    }

    fn describe(&self) -> Result<ImageProperties, Unreadable> {
        // SAFETY: the key is the system's own constant.
        let options = switches(&[(unsafe { kCGImageSourceShouldCache }, false)]);
        // SAFETY: the index is that of an image in the source; the options map strings to booleans.
        let properties = unsafe {
            self.source
                .properties_at_index(self.primary, Some(options.as_opaque()))
        };
        let properties = properties.ok_or_else(|| damaged("it has no properties"))?;
        // SAFETY: these properties map strings to Core Foundation objects (CGImageSource.h).
        let properties =
            unsafe { CFRetained::cast_unchecked::<CFDictionary<CFString, CFType>>(properties) };
        let number = |key: &CFString| {
            let value = properties.get(key)?;
            value.downcast_ref::<CFNumber>()?.as_i64()
        };
        // SAFETY: these are the system's own constants.
        let (width, height, depth, orientation) = unsafe {
            (
                kCGImagePropertyPixelWidth,
                kCGImagePropertyPixelHeight,
                kCGImagePropertyDepth,
                kCGImagePropertyOrientation,
            )
        };
        let sides = [width, height].map(number);
        Ok(ImageProperties::new(
            sides,
            number(depth),
            number(orientation),
        ))
    }

    /// Decodes the image at once, so that a failure is known before drawing. Does not rotate it.
    fn image(&self, properties: &ImageProperties) -> Result<CFRetained<CGImage>, Unreadable> {
        // SAFETY: the key is the system's own constant.
        let options = switches(&[(unsafe { kCGImageSourceShouldCacheImmediately }, true)]);
        // SAFETY: the index is that of an image in the source; the options map strings to booleans.
        let image = unsafe {
            self.source
                .image_at_index(self.primary, Some(options.as_opaque()))
        };
        let image = image.ok_or_else(|| damaged("the system returned no image"))?;
        self.is_complete()?;
        let (width, height) = (CGImage::width(Some(&image)), CGImage::height(Some(&image)));
        properties.check_size(width, height)?;
        Ok(image)
    }
}

/// Draws an image at its own size on a transparent canvas.
fn draw_on_transparent(
    image: &CGImage,
    properties: &ImageProperties,
) -> Result<RenderedImage, Unreadable> {
    let (width, height) = (
        properties.header.width as usize,
        properties.header.height as usize,
    );
    let mut rgba = vec![0; width * height * BYTES_PER_PIXEL];
    // SAFETY: the name is the system's own constant.
    let space = CGColorSpace::with_name(Some(unsafe { kCGColorSpaceSRGB }));
    // Red comes first in memory, on any byte order.
    let layout = CGImageAlphaInfo::PremultipliedLast.0 | CGImageByteOrderInfo::Order32Big.0;
    // SAFETY: the buffer holds `height` rows of `width` pixels and outlives the context, which
    // alone uses it until it is dropped after drawing.
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
    let context =
        context.ok_or_else(|| damaged("the system could not allocate memory for the pixels"))?;
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
    Ok(RenderedImage { rgba, alpha })
}

/// Boolean options of ImageIO.
fn switches(options: &[(&CFString, bool)]) -> CFRetained<CFDictionary<CFString, CFBoolean>> {
    let (keys, values): (Vec<&CFString>, Vec<&CFBoolean>) = options
        .iter()
        .map(|(key, on)| (*key, CFBoolean::new(*on)))
        .unzip();
    CFDictionary::from_slices(&keys, &values)
}

fn incomplete(status: CGImageSourceStatus) -> Unreadable {
    damaged(match status {
        CGImageSourceStatus::StatusUnexpectedEOF => "it ends too early",
        CGImageSourceStatus::StatusIncomplete | CGImageSourceStatus::StatusReadingHeader => {
            "parts of it are missing"
        }
        _ => "the system cannot read its format",
    })
}
