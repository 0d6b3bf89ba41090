//! The gray level of a pixel.

/// The gray level of an RGB pixel, in thousandths (ITU-R BT.601).
pub(crate) fn gray_thousandths(pixel: &[u8]) -> u64 {
    299 * u64::from(pixel[0]) + 587 * u64::from(pixel[1]) + 114 * u64::from(pixel[2])
}
