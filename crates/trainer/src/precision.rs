//! The precision of a run. Weights, optimizer state and sums of gradients are f32, or f64 in f64,
//! which exists for proofs. In a half precision, micro-batches are computed on a copy of the
//! weights that is rounded once per step. Only f16 has a loss scale, because gradients fall below
//! its smallest value; bf16 has the range of f32 and needs none.
//!
//! The split law in half precision: the forward pass of a sample depends on no other sample, so no
//! split changes the loss of an effective batch by more than a hundredth of the type's spacing
//! (bf16 2^-7, f16 2^-10; in the tests the bits are equal). The weight gradients of a micro-batch
//! are rounded before they are added in f32, so two splits differ by at most two spacings in the
//! gradient of a parameter, relative to its norm. In f16 a large micro-batch may overflow if small
//! ones do not, which costs a step and halves the scale.

use crate::error::{Result, TrainError};
use candle_core::DType;
use runlog::PrecisionChoice;
use serde::{Deserialize, Serialize};
use tape::device::{DevicePreference, SelectedDevice};

/// The type that micro-batches are computed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// Single precision.
    F32,
    /// bfloat16: eight bits of precision, the range of f32.
    Bf16,
    /// Half precision: eleven bits of precision and a small range, hence a loss scale.
    F16(LossScale),
    /// Double precision on the CPU, for proofs.
    F64,
}

impl From<PrecisionChoice> for Precision {
    fn from(choice: PrecisionChoice) -> Self {
        match choice {
            PrecisionChoice::F32 => Precision::F32,
            PrecisionChoice::Bf16 => Precision::Bf16,
            PrecisionChoice::F16 => Precision::F16(LossScale::START),
            PrecisionChoice::F64 => Precision::F64,
        }
    }
}

impl From<Precision> for PrecisionChoice {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::F32 => PrecisionChoice::F32,
            Precision::Bf16 => PrecisionChoice::Bf16,
            Precision::F16(_) => PrecisionChoice::F16,
            Precision::F64 => PrecisionChoice::F64,
        }
    }
}

impl Precision {
    /// All of them, with an initial loss scale; the default first.
    pub const ALL: [Precision; 4] = [
        Precision::F32,
        Precision::Bf16,
        Precision::F16(LossScale::START),
        Precision::F64,
    ];

    /// The name in configs and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
            Precision::F16(_) => "f16",
            Precision::F64 => "f64",
        }
    }

    /// Element type of a micro-batch.
    pub fn dtype(self) -> DType {
        match self {
            Precision::F32 => DType::F32,
            Precision::Bf16 => DType::BF16,
            Precision::F16(_) => DType::F16,
            Precision::F64 => DType::F64,
        }
    }

    /// Element type of the weights that the optimizer updates.
    pub fn master_dtype(self) -> DType {
        match self {
            Precision::F64 => DType::F64,
            Precision::F32 | Precision::Bf16 | Precision::F16(_) => DType::F32,
        }
    }

    /// The distance from 1 to the next larger value of [`Precision::dtype`].
    pub fn epsilon(self) -> f64 {
        match self {
            Precision::F32 => f64::from(f32::EPSILON),
            Precision::Bf16 => 2f64.powi(-7),
            Precision::F16(_) => 2f64.powi(-10),
            Precision::F64 => f64::EPSILON,
        }
    }

    /// True if micro-batches are computed on a rounded copy of the weights.
    pub fn is_half(self) -> bool {
        self.dtype() != self.master_dtype()
    }

    /// The loss scale, in f16.
    pub fn loss_scale(self) -> Option<LossScale> {
        match self {
            Precision::F16(scale) => Some(scale),
            Precision::F32 | Precision::Bf16 | Precision::F64 => None,
        }
    }

    /// Takes over the loss scale of a checkpoint, in f16.
    pub(crate) fn with_loss_scale(self, saved: Option<LossScale>) -> Self {
        match (self, saved) {
            (Precision::F16(_), Some(scale)) => Precision::F16(scale),
            (other, _) => other,
        }
    }

    /// Factor on the summed loss of a micro-batch before the backward pass. Because losses are
    /// sums, the f16 scale is divided by a power of two near the effective batch, so that scaled
    /// gradients have the size of the mean's. Dividing by it is exact.
    pub fn loss_factor(self, effective_batch: u32) -> f64 {
        self.loss_scale().map_or(1.0, |scale| {
            scale.value() / f64::from(effective_batch.next_power_of_two())
        })
    }

    /// The warning for computing in this precision on a device, if there is one.
    ///
    /// # Errors
    /// A half precision on the CPU, unless the user asked for the CPU by name.
    pub(crate) fn device_warning(
        self,
        chosen: &SelectedDevice,
        wanted: DevicePreference,
    ) -> Result<Option<String>> {
        let name = self.name();
        if !self.is_half() || !chosen.device.is_cpu() {
            return Ok(None);
        }
        if wanted != DevicePreference::Cpu {
            return Err(TrainError::Setting {
                key: "precision",
                value: name.to_owned(),
                allowed: format!(
                    "the training would run on the CPU ({}), where {name} is many times slower than f32; choose f32, or add --device cpu to compute in {name} anyway",
                    chosen.reason
                ),
            });
        }
        Ok(Some(format!(
            "{name} on the CPU is many times slower than f32 and saves little memory; use {name} on the CPU only for checks. To train on the CPU, choose f32"
        )))
    }
}

/// A dynamic loss scale (Micikevicius et al. 2018): a power of two that is halved when a scaled
/// gradient overflows and doubled after many steps without overflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossScale {
    /// The scale is two to this power.
    exponent: u8,
    /// Steps without overflow since the scale last changed.
    clean_steps: u32,
}

impl LossScale {
    /// The initial scale, 65,536.
    pub const START: LossScale = LossScale {
        exponent: 16,
        clean_steps: 0,
    };
    /// Steps without overflow after which the scale is doubled.
    pub const DOUBLES_AFTER: u32 = 2000;
    /// The largest scale is 16,777,216; the smallest is 1.
    const CEILING_EXPONENT: u8 = 24;

    /// The scale.
    pub fn value(self) -> f64 {
        2f64.powi(i32::from(self.exponent))
    }

    /// Whether the scale is 1. Then it cannot be the reason why a gradient overflowed.
    pub(crate) fn is_at_floor(self) -> bool {
        self.exponent == 0
    }

    /// The scale after a step with finite gradients.
    #[must_use]
    pub fn after_clean(self) -> Self {
        if self.clean_steps + 1 < Self::DOUBLES_AFTER {
            return LossScale {
                clean_steps: self.clean_steps + 1,
                ..self
            };
        }
        LossScale {
            exponent: (self.exponent + 1).min(Self::CEILING_EXPONENT),
            clean_steps: 0,
        }
    }

    /// The scale after a step with a non-finite gradient.
    #[must_use]
    pub fn after_overflow(self) -> Self {
        LossScale {
            exponent: self.exponent.saturating_sub(1),
            clean_steps: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tape::device::select_device;

    fn clean(scale: LossScale, steps: u32) -> LossScale {
        (0..steps).fold(scale, |scale, _| scale.after_clean())
    }

    #[test]
    fn the_scale_doubles_after_2000_steps_without_overflow() {
        let start = LossScale::START;
        assert_eq!(start.value(), 65_536.0);
        assert_eq!(clean(start, 1999).value(), 65_536.0);
        assert_eq!(clean(start, 2000).value(), 131_072.0);
        assert_eq!(clean(start, 3999).value(), 131_072.0);
        assert_eq!(clean(start, 4000).value(), 262_144.0);
        let broken = clean(clean(start, 1999).after_overflow(), 1999);
        assert_eq!(broken.value(), 32_768.0);
        assert_eq!(broken.after_clean().value(), 65_536.0);
    }

    #[test]
    fn the_scale_is_halved_by_every_overflow_down_to_one() {
        let mut scale = LossScale::START;
        for halvings in 1..=16 {
            assert!(!scale.is_at_floor());
            scale = scale.after_overflow();
            assert_eq!(scale.value(), 65_536.0 / 2f64.powi(halvings));
        }
        assert!(scale.is_at_floor());
        assert_eq!(scale.after_overflow(), scale);
        assert!(!clean(scale, 2000).is_at_floor());
    }

    #[test]
    fn the_scale_never_exceeds_its_ceiling() {
        let scale = clean(LossScale::START, 30 * 2000);
        assert_eq!(scale.value(), 16_777_216.0);
    }

    #[test]
    fn only_f16_has_a_scale_and_restores_it() {
        let saved = clean(LossScale::START.after_overflow(), 7);
        for precision in Precision::ALL {
            let loaded = precision.with_loss_scale(Some(saved));
            if precision.name() == "f16" {
                assert_eq!(loaded.loss_scale(), Some(saved));
                assert_eq!(loaded.loss_factor(24), 1024.0);
            } else {
                assert_eq!((loaded, loaded.loss_scale()), (precision, None));
                assert_eq!(loaded.loss_factor(24), 1.0);
            }
            assert_eq!(precision.with_loss_scale(None), precision);
        }
    }

    #[test]
    fn half_precision_needs_an_explicit_cpu_and_warns() {
        let cpu = select_device(DevicePreference::Cpu).unwrap();
        for precision in Precision::ALL {
            let by_name = precision
                .device_warning(&cpu, DevicePreference::Cpu)
                .unwrap();
            assert_eq!(by_name.is_some(), precision.is_half());
            let by_default = precision.device_warning(&cpu, DevicePreference::Auto);
            assert_eq!(by_default.is_err(), precision.is_half());
            if let Err(error) = by_default {
                let message = error.to_string();
                assert_eq!(error.code(), "invalid_setting");
                for word in ["precision", precision.name(), "--device cpu", "f32"] {
                    assert!(message.contains(word), "{message}: no {word}");
                }
            }
        }
    }
}
