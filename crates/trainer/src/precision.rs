//! What a run computes in. Weights, moments and sums of gradients are f32 in every precision but f64, which only proves; a
//! half computes its pieces on a rounded copy of the matrices, made once a step. A loss scale exists in f16 alone, because
//! gradients fall below its smallest number; bf16 reaches as far as f32 and needs none.
//!
//! The first law in halves: a sample's forward pass is its own, so no split changes the loss of an effective batch by more than
//! a hundredth of a spacing of the half type (bf16 2^-7, f16 2^-10; in the tests the bits are equal). A piece's weight gradients
//! are rounded before they are added up in f32, so two splits differ by at most two spacings in the gradient of any parameter,
//! relative to its norm. And in f16 a large piece may overflow where small ones do not, which costs a step and halves the scale.

use crate::error::{Result, TrainError};
use crate::plan::Plan;
use candle_core::DType;
use serde::{Deserialize, Serialize};
use tape::device::{DevicePreference, SelectedDevice, predict_device_kind, select_device};

/// What a piece is computed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// Single precision.
    F32,
    /// Eight bits of fraction, the reach of f32.
    Bf16,
    /// Eleven bits of fraction, a short reach, and so a loss scale.
    F16(LossScale),
    /// Double precision, on the CPU: for proofs.
    F64,
}

impl Precision {
    /// All of them, at their start, the default first.
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

    /// Element type of a piece.
    pub fn dtype(self) -> DType {
        match self {
            Precision::F32 => DType::F32,
            Precision::Bf16 => DType::BF16,
            Precision::F16(_) => DType::F16,
            Precision::F64 => DType::F64,
        }
    }

    /// Element type of the weights that the optimizer moves.
    pub fn master_dtype(self) -> DType {
        match self {
            Precision::F64 => DType::F64,
            Precision::F32 | Precision::Bf16 | Precision::F16(_) => DType::F32,
        }
    }

    /// The unit in the last place of 1: the spacing of the numbers that pieces are computed in.
    pub fn epsilon(self) -> f64 {
        match self {
            Precision::F32 => f64::from(f32::EPSILON),
            Precision::Bf16 => 2f64.powi(-7),
            Precision::F16(_) => 2f64.powi(-10),
            Precision::F64 => f64::EPSILON,
        }
    }

    /// Pieces are computed on a rounded copy of the weights.
    pub fn is_half(self) -> bool {
        self.dtype() != self.master_dtype()
    }

    /// The loss scale, where there is one.
    pub fn loss_scale(self) -> Option<LossScale> {
        match self {
            Precision::F16(scale) => Some(scale),
            Precision::F32 | Precision::Bf16 | Precision::F64 => None,
        }
    }

    /// The same precision with the scale of a checkpoint, where both have one.
    pub fn with_loss_scale(self, saved: Option<LossScale>) -> Self {
        match (self, saved) {
            (Precision::F16(_), Some(scale)) => Precision::F16(scale),
            (other, _) => other,
        }
    }

    /// Factor on the summed loss of a piece before backward. A piece gives sums, not means: in f16 the scale is divided by a
    /// power of two near the effective batch, so that what is scaled has the size of the mean's gradient. Exact to undo.
    pub fn loss_factor(self, effective_batch: u32) -> f64 {
        self.loss_scale().map_or(1.0, |scale| {
            scale.value() / f64::from(effective_batch.next_power_of_two())
        })
    }

    /// Whether this device may compute in it: a half on the CPU only if that was asked for by name, and then with a warning.
    pub(crate) fn allowed_on(
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
                    "the device would be the CPU ({}), where {name} is many times slower than f32; choose f32, or add --device cpu to compute in {name} all the same",
                    chosen.reason
                ),
            });
        }
        Ok(Some(format!(
            "{name} on the CPU is many times slower than f32 and saves little; it is meant for checking. Choose f32 to train here"
        )))
    }
}

impl Plan {
    /// Refuses a precision in which the device would not compute, before anything of a run is made, a GPU included. One that turns
    /// out to be wrong in it is refused when the run begins.
    ///
    /// # Errors
    /// A half precision where the device can only be the CPU and was not asked for by name.
    pub fn expect_computable(&self) -> Result<()> {
        if self.precision.is_half() && predict_device_kind(self.device) == crate::DeviceKind::Cpu {
            self.precision
                .allowed_on(&select_device(self.device)?, self.device)?;
        }
        Ok(())
    }
}

/// Dynamic loss scale (Micikevicius et al. 2018): a power of two that is halved when a scaled gradient overflows and doubled
/// after many clean steps, so that it stays as large as the gradients allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossScale {
    /// The scale is two to this power.
    exponent: u8,
    /// Steps since the scale changed last, all of them finite.
    clean_steps: u32,
}

impl LossScale {
    /// 65,536: where a run begins.
    pub const START: LossScale = LossScale {
        exponent: 16,
        clean_steps: 0,
    };
    /// Clean steps after which the scale is doubled.
    pub const DOUBLES_AFTER: u32 = 2000;
    /// The scale stays between 1 and 16,777,216.
    const CEILING_EXPONENT: u8 = 24;

    /// The scale.
    pub fn value(self) -> f64 {
        2f64.powi(i32::from(self.exponent))
    }

    /// Halving has come to its end: what overflows now is not the scale's doing.
    pub fn is_at_floor(self) -> bool {
        self.exponent == 0
    }

    /// After a step whose gradients were finite.
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

    /// After a step with a gradient that was not finite.
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
    fn a_scale_doubles_after_two_thousand_clean_steps_in_a_row() {
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
    fn a_scale_is_halved_by_every_overflow_down_to_one() {
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
    fn a_scale_never_rises_over_its_ceiling() {
        let scale = clean(LossScale::START, 30 * 2000);
        assert_eq!(scale.value(), 16_777_216.0);
    }

    #[test]
    fn only_f16_has_a_scale_and_takes_one_from_a_checkpoint() {
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
    fn halves_run_on_the_cpu_only_when_asked_for_by_name_and_then_warn() {
        let cpu = select_device(DevicePreference::Cpu).unwrap();
        for precision in Precision::ALL {
            let by_name = precision.allowed_on(&cpu, DevicePreference::Cpu).unwrap();
            assert_eq!(by_name.is_some(), precision.is_half());
            let by_default = precision.allowed_on(&cpu, DevicePreference::Auto);
            assert_eq!(by_default.is_err(), precision.is_half());
            if let Err(error) = by_default {
                let said = error.to_string();
                assert_eq!(error.code(), "invalid_setting");
                for word in ["precision", precision.name(), "--device cpu", "f32"] {
                    assert!(said.contains(word), "{said}: no {word}");
                }
            }
        }
    }
}
