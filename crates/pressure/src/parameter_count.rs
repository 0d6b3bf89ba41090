//! The estimated need of a transformer of which only the number of parameters is known, and the
//! settings to start with on one or several devices.

use crate::optimizer_state_room::WholeStateNeed;
use crate::suggest_config::{
    BatchConfig, DeviceLimits, DoesNotFit, ModelNeed, ModelVariant, Peak, Processes,
    SuggestedConfig, sensible_sizes, suggest_config,
};
use serde::Serialize;

/// Weights of a block per square of its width: 4 of the attention, 8 of the MLP.
const WEIGHTS_PER_SQUARE: f64 = 12.0;
/// Width of a block over the number of blocks. It is 43 to 128 in GPT-3 (Brown et al. 2020); the
/// activations change only with its cube root.
const WIDTH_PER_BLOCK: f64 = 85.0;
/// The width is a multiple of this.
const WIDTH_MULTIPLE: u32 = 64;
/// Activations of a block per token and width, if attention scores are not stored (Korthikanti et
/// al. 2022: 34 bytes with 16 bits).
const ACTIVATIONS_PER_BLOCK: u64 = 17;
/// Bytes of a gradient, which is f32 or f64.
const LEAST_GRADIENT_BYTES: u64 = 4;
/// Memory of the program itself, in bytes.
const PROGRAM_BYTES: u64 = 256 << 20;
/// Time of recomputing every block, as a fraction of a step: one more forward pass.
const RECOMPUTE_FRACTION: f64 = 0.33;

/// A transformer that is trained, known by its number of parameters only.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ParameterCount {
    /// Trained parameters.
    pub parameters: u64,
    /// Tokens of a sample.
    pub tokens: u32,
    /// Element type of the computation: `f32`.
    pub precision: String,
    /// Bytes of an activation: 4 in `f32`.
    pub element_bytes: u64,
    /// Bytes per parameter between steps: the weight, its copy in 16 bits, moments, average, and
    /// what several devices that rarely exchange weights need. Devices that divide the moments have
    /// a fraction of a byte.
    pub state_bytes_per_parameter: f64,
}

/// The probable shape of a transformer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TransformerShape {
    /// Number of blocks.
    pub blocks: u32,
    /// Values per token.
    pub width: u32,
}

/// The settings of each of several devices that hold the same model and share each batch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceShare {
    /// Number of devices.
    pub devices: u32,
    /// Samples per step that one device computes.
    pub samples_per_device: u32,
    /// Samples per step of all devices together.
    pub effective_batch: u32,
    /// The settings of one device.
    pub config: SuggestedConfig,
}

impl ParameterCount {
    /// The shape that a transformer of this size usually has.
    pub fn shape(&self) -> TransformerShape {
        let per_cube = WEIGHTS_PER_SQUARE * WIDTH_PER_BLOCK * WIDTH_PER_BLOCK;
        let blocks = (self.parameters as f64 / per_cube).cbrt().round().max(1.0);
        let width = (self.parameters as f64 / (WEIGHTS_PER_SQUARE * blocks)).sqrt();
        TransformerShape {
            blocks: blocks as u32,
            width: (width as u32).next_multiple_of(WIDTH_MULTIPLE),
        }
    }

    /// The need at these micro-batches, without and with all blocks checkpointed.
    pub fn need(&self, micro_batches: &[u32]) -> ModelNeed {
        let shape = self.shape();
        let state_bytes = PROGRAM_BYTES + self.parameter_bytes();
        let gradients = self.gradients_bytes();
        let variant = |checkpoint_blocks: u32| {
            let peak = |&micro_batch: &u32| {
                let activations = u64::from(micro_batch) * self.sample_bytes(checkpoint_blocks);
                // Backward frees activations while it computes the gradients that are then added
                // to the sums.
                let peak_bytes = state_bytes + gradients + activations.max(gradients);
                Peak {
                    micro_batch,
                    peak_bytes,
                }
            };
            ModelVariant {
                checkpoint_blocks,
                extra_time_fraction: match checkpoint_blocks {
                    0 => 0.0,
                    _ => RECOMPUTE_FRACTION,
                },
                peaks: micro_batches.iter().map(peak).collect(),
            }
        };
        ModelNeed {
            state_bytes,
            precision: self.precision.clone(),
            variants: vec![variant(0), variant(shape.blocks)],
        }
    }

    /// What a device needs that computes `samples` of each step and has the whole optimizer state,
    /// which `state_bytes_per_parameter` must then include.
    pub fn whole_state(&self, samples: u32) -> WholeStateNeed {
        let data = BatchConfig {
            effective_batch: samples,
            fixed_micro_batch: None,
        };
        let need = self.need(&sensible_sizes(samples));
        WholeStateNeed {
            state_bytes: self.parameter_bytes() + 2 * self.gradients_bytes(),
            peak_bytes: need.least_peak(&data).0,
        }
    }

    fn parameter_bytes(&self) -> u64 {
        (self.parameters as f64 * self.state_bytes_per_parameter).round() as u64
    }

    fn gradients_bytes(&self) -> u64 {
        self.parameters * self.element_bytes.max(LEAST_GRADIENT_BYTES)
    }

    /// Bytes of the activations of a sample if no block is checkpointed, or all are. A checkpointed
    /// block stores its input; one block at a time is computed again.
    fn sample_bytes(&self, checkpoint_blocks: u32) -> u64 {
        let TransformerShape { blocks, width } = self.shape();
        let per_token = match checkpoint_blocks {
            0 => ACTIVATIONS_PER_BLOCK * u64::from(blocks),
            _ => ACTIVATIONS_PER_BLOCK + u64::from(blocks),
        };
        u64::from(self.tokens) * u64::from(width) * self.element_bytes * per_token
    }

    /// The settings for devices that are all like `device`. Each holds the whole model and computes
    /// its share of the effective batch, rounded up.
    ///
    /// # Errors
    /// Not even one sample fits on a device. More devices do not change that.
    pub fn suggest_config(
        &self,
        effective_batch: u32,
        devices: u32,
        device: &DeviceLimits,
        processes: &Processes,
    ) -> Result<DeviceShare, DoesNotFit> {
        let devices = devices.max(1);
        let samples_per_device = effective_batch.div_ceil(devices).max(1);
        let data = BatchConfig {
            effective_batch: samples_per_device,
            fixed_micro_batch: None,
        };
        let need = self.need(&sensible_sizes(samples_per_device));
        let config = suggest_config(&need, &data, device, processes)?;
        Ok(DeviceShare {
            devices,
            samples_per_device,
            effective_batch: samples_per_device.saturating_mul(devices),
            config,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::GB;

    fn adamw(parameters: u64) -> ParameterCount {
        ParameterCount {
            parameters,
            tokens: 1024,
            precision: "f32".to_owned(),
            element_bytes: 4,
            state_bytes_per_parameter: 12.0,
        }
    }

    fn device(memory_cap_bytes: u64) -> DeviceLimits {
        DeviceLimits {
            total_bytes: 512 * GB,
            limit_bytes: 0,
            memory_cap_bytes: Some(memory_cap_bytes),
            max_system_fraction: 0.9,
        }
    }

    fn suggest(batch: u32, devices: u32, cap_bytes: u64) -> Result<DeviceShare, DoesNotFit> {
        let model = adamw(1_000_000_000);
        model.suggest_config(batch, devices, &device(cap_bytes), &Processes::default())
    }

    #[test]
    fn the_shape_is_near_that_of_published_transformers() {
        // GPT-3 (Brown et al. 2020), without embeddings: blocks and width.
        for (parameters, blocks, width) in [
            (85_000_000, 12, 768),
            (1_208_000_000, 24, 2048),
            (6_442_000_000, 32, 4096),
        ] {
            let shape = adamw(parameters).shape();
            let ratio = |found: u32, published: u32| f64::from(found) / f64::from(published);
            assert!(
                (0.75..1.35).contains(&ratio(shape.blocks, blocks)),
                "{shape:?}"
            );
            assert!(
                (0.75..1.35).contains(&ratio(shape.width, width)),
                "{shape:?}"
            );
            let weights = 12 * u64::from(shape.blocks) * u64::from(shape.width).pow(2);
            let off = weights as f64 / parameters as f64;
            assert!(
                (0.99..1.2).contains(&off),
                "{shape:?} has {off} times the parameters"
            );
        }
    }

    #[test]
    fn each_of_two_devices_computes_half_of_the_batch() {
        let one = suggest(32, 1, 400 * GB).expect("it fits");
        let two = suggest(32, 2, 400 * GB).expect("it fits");
        assert_eq!((one.samples_per_device, one.config.micro_batch), (32, 32));
        assert_eq!((two.samples_per_device, two.config.micro_batch), (16, 16));
        assert_eq!((two.devices, two.effective_batch), (2, 32));
        assert!(two.config.predicted_peak_bytes < one.config.predicted_peak_bytes);
        let odd = suggest(5, 2, 400 * GB).expect("it fits");
        assert_eq!((odd.samples_per_device, odd.effective_batch), (3, 6));
    }

    #[test]
    fn blocks_are_checkpointed_if_one_sample_needs_it() {
        // Weights and moments take 12 GB, gradients and their sums 8 GB, and the activations of a
        // sample of 4,096 tokens 12 GB.
        let long = ParameterCount {
            tokens: 4096,
            ..adamw(1_000_000_000)
        };
        let suggest_for = |cap_bytes| {
            let found = long.suggest_config(32, 2, &device(cap_bytes), &Processes::default());
            found.expect("it fits").config
        };
        assert_eq!(suggest_for(32 * GB).checkpoint_blocks, 0);
        let tight = suggest_for(20 * GB);
        assert_eq!(tight.checkpoint_blocks, long.shape().blocks);
        assert!(tight.predicted_peak_bytes <= 20 * GB);
    }

    #[test]
    fn more_devices_do_not_make_a_model_fit() {
        for devices in [1, 2, 8] {
            let refused = suggest(32, devices, 16 * GB).expect_err("the state alone is larger");
            assert!(refused.enough_bytes > 19 * GB, "{refused:?}");
        }
    }

    #[test]
    fn checkpointing_frees_most_of_the_activations() {
        let need = adamw(1_000_000_000).need(&[16]);
        let [none, all] = [0, 1].map(|i| need.variants[i].peak_bytes(16).expect("estimated"));
        let base = need.state_bytes + 4_000_000_000;
        assert!(all - base < (none - base) / 5, "{none} {all} {base}");
    }
}
