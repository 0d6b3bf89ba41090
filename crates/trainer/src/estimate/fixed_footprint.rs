//! The part of the footprint that does not depend on the micro-batch, by purpose. It is computed
//! from the shapes of tensors.

use super::Target;
use crate::error::Result;
use crate::optimizer::{OptimizerKind, state_sizes};
use crate::run_group::Owners;
use serde::Serialize;
use tape::Parameters;

/// Footprint that does not depend on the micro-batch, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Baseline {
    /// Code, stacks, libraries, and what kernels keep for themselves.
    pub base_bytes: u64,
    /// Weights in the optimizer's precision, including frozen ones.
    pub weights_bytes: u64,
    /// Copy of the weights in a half precision.
    pub copy_bytes: u64,
    /// The optimizer's moments. Of several devices that have them in parts, the largest part.
    pub moments_bytes: u64,
    /// Moving average of the weights.
    pub averages_bytes: u64,
    /// Weights of the newest synchronization and momentum of the outer steps, if several devices
    /// exchange weights only every few steps.
    pub outer_bytes: u64,
    /// Gradients of all parameters, which exist while micro-batches are accumulated.
    pub gradients_bytes: u64,
    /// Samples decoded ahead, and cached images.
    pub prefetch_bytes: u64,
    /// Texts as tokens, which stay for the whole run.
    pub texts_bytes: u64,
}

impl Baseline {
    /// Weights, gradients and moments of a network that trains on `target`.
    pub(super) fn new(masters: &Parameters, kind: OptimizerKind, target: Target) -> Result<Self> {
        let sizes = state_sizes(kind, masters);
        let moments_bytes = Owners::largest_part(&sizes, target.moments_divided_by());
        Ok(Baseline {
            base_bytes: target.base_bytes,
            weights_bytes: masters.bytes() + masters.frozen_bytes(),
            moments_bytes,
            outer_bytes: if target.has_outer_steps() {
                2 * masters.bytes()
            } else {
                0
            },
            gradients_bytes: masters.bytes(),
            ..Baseline::default()
        })
    }

    /// Footprint between steps, when no gradients are accumulated.
    pub fn state_bytes(&self) -> u64 {
        self.base_bytes + self.heap_bytes()
    }

    /// Weights, moments and everything of their size that exists between micro-batches. While
    /// gradients are accumulated, a micro-batch has its own.
    pub(super) fn parameter_bytes(&self) -> u64 {
        self.weights_bytes
            + self.copy_bytes
            + self.moments_bytes
            + self.averages_bytes
            + self.outer_bytes
            + 2 * self.gradients_bytes
    }

    /// The part of the state that is on the heap.
    pub(super) fn heap_bytes(&self) -> u64 {
        self.weights_bytes
            + self.copy_bytes
            + self.moments_bytes
            + self.averages_bytes
            + self.outer_bytes
            + self.prefetch_bytes
            + self.texts_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device};

    /// 1,100 parameters in three tensors.
    fn parameters() -> Result<Parameters> {
        let mut parameters = Parameters::default();
        for (name, count) in [("first", 600), ("second", 300), ("third", 200)] {
            let values = vec![0.0; count];
            parameters.add(name.to_owned(), values, &[count], DType::F32, &Device::Cpu)?;
        }
        Ok(parameters)
    }

    #[test]
    fn outer_steps_need_8_bytes_per_parameter() -> Result<()> {
        let parameters = parameters()?;
        let target = Target::new(crate::DeviceKind::Cpu, 1, 0);
        let state_bytes = |has_outer_steps| -> Result<u64> {
            let target = target.with_outer_steps(has_outer_steps);
            Ok(Baseline::new(&parameters, OptimizerKind::AdamW, target)?.state_bytes())
        };
        assert_eq!(state_bytes(true)?, state_bytes(false)? + 8 * 1100);
        Ok(())
    }

    #[test]
    fn devices_that_divide_the_moments_have_less_of_them_and_the_same_weights() -> Result<()> {
        let parameters = parameters()?;
        let target = Target::new(crate::DeviceKind::Cpu, 1, 0);
        let estimate = |devices| {
            let target = target.with_moments_divided_by(devices);
            Baseline::new(&parameters, OptimizerKind::AdamW, target)
        };
        let whole = estimate(1)?;
        assert_eq!(whole.moments_bytes, 2 * 4 * 1100);
        for (devices, values) in [(0, 1100), (2, 600), (3, 600)] {
            let part = estimate(devices)?;
            assert_eq!(part.moments_bytes, 2 * 4 * values, "{devices} devices");
            let saved = whole.moments_bytes - part.moments_bytes;
            assert_eq!(part.state_bytes(), whole.state_bytes() - saved);
            assert_eq!(part.gradients_bytes, whole.gradients_bytes);
        }
        Ok(())
    }
}
