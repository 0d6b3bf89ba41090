//! Element types of in-place passes.

use crate::cpu::Float;
use crate::inplace::SliceMut;

/// Conversions that a pass needs of an element type.
pub(crate) trait Element: Float {
    /// The values of a borrowed tensor of this type.
    ///
    /// # Errors
    /// The tensor has another type.
    fn borrowed(slice: SliceMut<'_>) -> candle_core::Result<&mut [Self]>;
    fn as_f64(self) -> f64;
    fn as_f32(self) -> f32;
    fn from_f32(value: f32) -> Self;
    fn from_byte(code: u8) -> Self;
    /// Saturates to `0..=255` and truncates.
    fn to_byte(self) -> u8;
}

/// The error of a pass whose tensors differ in element type.
pub(super) fn type_mismatch<T>() -> candle_core::Result<T> {
    candle_core::bail!("the tensors of an in-place operation differ in element type")
}

impl Element for f32 {
    fn borrowed(slice: SliceMut<'_>) -> candle_core::Result<&mut [f32]> {
        match slice {
            SliceMut::F32(values) => Ok(values),
            _ => type_mismatch(),
        }
    }

    #[inline(always)]
    fn as_f64(self) -> f64 {
        f64::from(self)
    }

    #[inline(always)]
    fn as_f32(self) -> f32 {
        self
    }

    #[inline(always)]
    fn from_f32(value: f32) -> f32 {
        value
    }

    #[inline(always)]
    fn from_byte(code: u8) -> f32 {
        f32::from(code)
    }

    #[inline(always)]
    fn to_byte(self) -> u8 {
        self as u8
    }
}

impl Element for f64 {
    fn borrowed(slice: SliceMut<'_>) -> candle_core::Result<&mut [f64]> {
        match slice {
            SliceMut::F64(values) => Ok(values),
            _ => type_mismatch(),
        }
    }

    #[inline(always)]
    fn as_f64(self) -> f64 {
        self
    }

    #[inline(always)]
    fn as_f32(self) -> f32 {
        self as f32
    }

    #[inline(always)]
    fn from_f32(value: f32) -> f64 {
        f64::from(value)
    }

    #[inline(always)]
    fn from_byte(code: u8) -> f64 {
        f64::from(code)
    }

    #[inline(always)]
    fn to_byte(self) -> u8 {
        self as u8
    }
}
