//! Optimizer passes: one walk over a parameter, its moments and its gradient, in place on the CPU; elsewhere new tensors
//! take the old ones' place. Refuses to know names, schedules and checkpoints.

mod adamw;
mod adamw8bit;
mod byte_moment;
mod sgd;
mod together;
mod average;
mod health;

pub use adamw::{AdamW, adamw};
pub use adamw8bit::adamw8bit;
pub use average::average;
pub use byte_moment::{BLOCK, ByteMoment};
pub use health::{Health, NonFinite, global_norm, health};
pub use sgd::{Sgd, sgd};
pub use together::{Member, adamw_together, sgd_together};

use crate::cpu::Float;
use crate::inplace::SliceMut;

/// Elements a task takes: a multiple of a byte moment's block.
const CHUNK: usize = 64 * 1024;

/// What a pass needs of an element type beside arithmetic.
pub(crate) trait Element: Float {
    /// The numbers of a lent tensor of this type.
    fn lent(slice: SliceMut<'_>) -> candle_core::Result<&mut [Self]>;
    /// In double precision.
    fn widen(self) -> f64;
    /// In single precision.
    fn single(self) -> f32;
    /// From single precision.
    fn of_single(value: f32) -> Self;
    /// From a code.
    fn of_byte(code: u8) -> Self;
    /// To a code; what lies outside `0..=255` goes to its end.
    fn byte(self) -> u8;
}

/// A tensor was lent to a pass that works on another element type.
fn differ<T>() -> candle_core::Result<T> {
    candle_core::bail!("the tensors of an in-place pass differ in element type")
}

impl Element for f32 {
    fn lent(slice: SliceMut<'_>) -> candle_core::Result<&mut [f32]> {
        match slice {
            SliceMut::F32(values) => Ok(values),
            _ => differ(),
        }
    }

    #[inline(always)]
    fn widen(self) -> f64 {
        f64::from(self)
    }

    #[inline(always)]
    fn single(self) -> f32 {
        self
    }

    #[inline(always)]
    fn of_single(value: f32) -> f32 {
        value
    }

    #[inline(always)]
    fn of_byte(code: u8) -> f32 {
        f32::from(code)
    }

    #[inline(always)]
    fn byte(self) -> u8 {
        self as u8
    }
}

impl Element for f64 {
    fn lent(slice: SliceMut<'_>) -> candle_core::Result<&mut [f64]> {
        match slice {
            SliceMut::F64(values) => Ok(values),
            _ => differ(),
        }
    }

    #[inline(always)]
    fn widen(self) -> f64 {
        self
    }

    #[inline(always)]
    fn single(self) -> f32 {
        self as f32
    }

    #[inline(always)]
    fn of_single(value: f32) -> f64 {
        f64::from(value)
    }

    #[inline(always)]
    fn of_byte(code: u8) -> f64 {
        f64::from(code)
    }

    #[inline(always)]
    fn byte(self) -> u8 {
        self as u8
    }
}
