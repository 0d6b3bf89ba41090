//! A run before it starts: the network of a config, how much memory each part of the training
//! needs, what to start with, and what would help if that does not fit. `ebb plan` and the window
//! use it.
//!
//! ```
//! use dataset::{InspectOptions, inspect_images};
//! use pressure::{DeviceLimits, Processes};
//! use runlog::RunConfig;
//! use trainer::ModelBuilder;
//! use trainer::estimate::{Variants, Target};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sample/groceries");
//! let found = inspect_images(folder.as_ref(), &InspectOptions::default(), &|_| {})?;
//! let config = RunConfig {
//!     model: Some("convnet".to_owned()),
//!     image_size: Some(64),
//!     ..RunConfig::default()
//! };
//! let builder = ModelBuilder::from_config(&config, &found)?;
//!
//! // What it needs, by part.
//! let target = Target::new(trainer::DeviceKind::Cpu, 2, 8 << 30);
//! let estimate = builder.estimate(target, Variants::Planned)?;
//! let parts = estimate.parts(&[1, 4, 16]);
//! assert_eq!(parts.weights_bytes, 4 * parts.parameters);
//! assert_eq!(parts.gradients_bytes, parts.weights_bytes);
//! assert_eq!(parts.optimizer_bytes, 2 * parts.weights_bytes, "AdamW keeps two moments");
//! assert!(parts.activations.is_sorted_by_key(|(_, bytes)| *bytes));
//!
//! // What to start with on a machine of 8 GB if other apps use 4 GB and two runs share the
//! // rest.
//! let device = DeviceLimits {
//!     total_bytes: 8 << 30,
//!     limit_bytes: 0,
//!     memory_cap_bytes: None,
//!     max_system_fraction: 0.9,
//! };
//! let others = Processes { others_bytes: 4 << 30 };
//! let suggested = estimate.suggest_config(&device, &others, 2).expect("it fits");
//! assert!(2 * suggested.predicted_peak_bytes <= device.budget_bytes(&others));
//!
//! // What would help if nothing fits.
//! let capped = DeviceLimits { memory_cap_bytes: Some(16 << 20), ..device };
//! let no = estimate.suggest_config(&capped, &others, 1).expect_err("16 MB are too few");
//! assert!(!estimate.suggest_recovery(&no).is_empty());
//!
//! // And the network itself.
//! let (network, parameters) = builder.build(&candle_core::Device::Cpu)?;
//! assert_eq!(parameters.count() as u64, parts.parameters);
//! assert_eq!(network.depth(), 4);
//! # Ok(())
//! # }
//! ```

use crate::error::Result;
use crate::estimate::{MemoryEstimate, Target, Variants};
use crate::plan::{DatasetRef, Plan};
use candle_core::Device;
use models::{ModelId, Network};
use pressure::{
    BatchConfig, DeviceLimits, DoesNotFit, ModelNeed, Processes, RecoveryOption, SuggestedConfig,
    suggest_config, suggest_recovery,
};
use runlog::RunConfig;
use serde::Serialize;
use tape::Parameters;

/// A checked config, from which networks are built and estimated.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelBuilder {
    plan: Plan,
}

/// Memory that a run needs.
#[derive(Debug, Clone)]
pub struct Estimate {
    /// Memory by micro-batch.
    pub memory: MemoryEstimate,
    data: BatchConfig,
}

/// Memory that a run needs, by part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Parts {
    /// Number of trained parameters.
    pub parameters: u64,
    /// Weights, including frozen ones, in bytes.
    pub weights_bytes: u64,
    /// One gradient of every trained parameter, in bytes.
    pub gradients_bytes: u64,
    /// The optimizer's moments, in bytes.
    pub optimizer_bytes: u64,
    /// Everything else that stays in memory, in bytes: a moving average, the copy for half
    /// precision, prefetched samples, the program itself.
    pub other_bytes: u64,
    /// Size of a micro-batch in samples, and its activations in bytes with the fewest checkpointed
    /// blocks of the estimate.
    pub activations: Vec<(u32, u64)>,
}

impl ModelBuilder {
    /// Checks a config against a dataset.
    pub fn from_config<'d>(config: &RunConfig, found: impl Into<DatasetRef<'d>>) -> Result<Self> {
        Plan::resolve(config, found).map(ModelBuilder::from_plan)
    }

    /// Uses a plan that was checked before.
    pub(crate) fn from_plan(plan: Plan) -> Self {
        ModelBuilder { plan }
    }

    /// The checked plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The network and its initial parameters.
    ///
    /// # Errors
    /// Pretrained weights cannot be read, or the device has no memory.
    pub fn build(&self, device: &Device) -> Result<(Network, Parameters)> {
        self.plan.network(device)
    }

    /// Estimates the training on `target` by dry runs, which take up to two seconds.
    ///
    /// # Errors
    /// The dry run of a micro-batch fails.
    pub fn estimate(&self, target: Target, forms: Variants) -> Result<Estimate> {
        self.estimate_as(self.plan.model, self.plan.input_size, target, forms)
    }

    /// Like [`ModelBuilder::estimate`] for another model, or for images of another side in pixels.
    pub fn estimate_as(
        &self,
        model: ModelId,
        image_size: u32,
        target: Target,
        forms: Variants,
    ) -> Result<Estimate> {
        let data = BatchConfig {
            effective_batch: self.plan.effective_batch,
            fixed_micro_batch: self.plan.fixed_micro_batch,
        };
        let memory = MemoryEstimate::for_plan(&self.plan, model, image_size, target, forms)?;
        Ok(Estimate { memory, data })
    }
}

impl Estimate {
    /// Combines a memory estimate with the size of an effective batch.
    pub fn new(memory: MemoryEstimate, data: BatchConfig) -> Self {
        Estimate { memory, data }
    }

    /// This estimate, multiplied by `factor`, because earlier runs needed that much more or less.
    #[must_use]
    pub fn corrected(self, factor: f64) -> Self {
        Estimate {
            memory: self.memory.corrected(factor),
            ..self
        }
    }

    /// Memory by part, for micro-batches of these sizes.
    pub fn parts(&self, micro_batches: &[u32]) -> Parts {
        let baseline = &self.memory.baseline;
        let named = baseline.weights_bytes + baseline.moments_bytes;
        let form = self.need(micro_batches).variants.into_iter().next();
        let blocks = form.map_or(0, |form| form.checkpoint_blocks);
        let activations = |&micro_batch: &u32| {
            let bytes = self.memory.micro_batch_bytes(blocks, micro_batch)?;
            Some((micro_batch, bytes))
        };
        Parts {
            parameters: self.memory.parameters,
            weights_bytes: baseline.weights_bytes,
            gradients_bytes: baseline.gradients_bytes,
            optimizer_bytes: baseline.moments_bytes,
            other_bytes: baseline.state_bytes().saturating_sub(named),
            activations: micro_batches.iter().filter_map(activations).collect(),
        }
    }

    /// The footprint by micro-batch size: useful sizes, the one the user fixed, and these.
    pub fn need(&self, also: &[u32]) -> ModelNeed {
        let fixed = self.data.fixed_micro_batch.into_iter();
        let also: Vec<u32> = also.iter().copied().chain(fixed).collect();
        self.memory.need(self.data.effective_batch, &also)
    }

    /// What to start with next to other `processes`, if this many equal `trainings` share the rest.
    ///
    /// # Errors
    /// Not even the smallest micro-batch fits; the error says what would.
    pub fn suggest_config(
        &self,
        device: &DeviceLimits,
        processes: &Processes,
        trainings: u32,
    ) -> std::result::Result<SuggestedConfig, DoesNotFit> {
        let device = match trainings {
            0 | 1 => *device,
            // Each training is capped at its share, so that none takes memory from another.
            many => DeviceLimits {
                memory_cap_bytes: Some(device.budget_bytes(processes) / u64::from(many)),
                ..*device
            },
        };
        suggest_config(&self.need(&[]), &self.data, &device, processes)
    }

    /// What would help, cheapest first, each with the bytes it frees.
    pub fn suggest_recovery(&self, no: &DoesNotFit) -> Vec<(RecoveryOption, u64)> {
        suggest_recovery(&self.memory.stuck(no))
    }
}
