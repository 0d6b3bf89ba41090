//! A training before it begins: the network that a config makes, what it needs by part, what to begin with and what would help
//! where that does not fit. `ebb plan` and the window ask here.
//!
//! Refuses to know how a forecast is made ([`crate::forecast`]) and which rungs there are ([`pressure::suggest_recovery`]).
//!
//! ```
//! use dataset::{InspectOptions, inspect};
//! use pressure::{DeviceLimits, Processes};
//! use runlog::RunConfig;
//! use trainer::ModelBuilder;
//! use trainer::forecast::{Forms, Target};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sample/groceries");
//! let found = inspect(folder.as_ref(), &InspectOptions::default(), &|_| {})?;
//! let config = RunConfig {
//!     model: Some("convnet".to_owned()),
//!     image_size: Some(64),
//!     ..RunConfig::default()
//! };
//! let builder = ModelBuilder::from_config(&config, &found)?;
//!
//! // What it needs, by part.
//! let target = Target::of("cpu", 2, 8 << 30);
//! let estimate = builder.estimate(target, Forms::Planned)?;
//! let parts = estimate.parts(&[1, 4, 16]);
//! assert_eq!(parts.weights_bytes, 4 * parts.parameters);
//! assert_eq!(parts.gradients_bytes, parts.weights_bytes);
//! assert_eq!(parts.optimizer_bytes, 2 * parts.weights_bytes, "AdamW keeps two moments");
//! assert!(parts.activations.is_sorted_by_key(|(_, bytes)| *bytes));
//!
//! // What to begin with on a machine of 8 GB, where other apps use 4 GB and two trainings share the rest.
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
//! // What would help where nothing fits.
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
use crate::forecast::{Forecast, Forms, Target};
use crate::models::Network;
use crate::plan::{Dropped, ModelKind, Plan};
use candle_core::Device;
use pressure::{
    DataNeed, DeviceLimits, DoesNotFit, ModelNeed, Processes, RecoveryOption, SuggestedConfig,
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

/// What a training needs.
#[derive(Debug, Clone)]
pub struct Estimate {
    /// Where the numbers come from.
    pub forecast: Forecast,
    data: DataNeed,
}

/// What a training needs, by what it is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Parts {
    /// Parameters that train.
    pub parameters: u64,
    /// Weights, frozen ones among them, in bytes.
    pub weights_bytes: u64,
    /// One gradient of everything that trains, in bytes.
    pub gradients_bytes: u64,
    /// The optimizer's moments, in bytes.
    pub optimizer_bytes: u64,
    /// What else stays: a moving average, a half precision's copy, samples decoded ahead, the program itself; in bytes.
    pub other_bytes: u64,
    /// Samples a piece, and what such a piece takes beside all that, in bytes, with as few blocks computed twice as were forecast.
    pub activations: Vec<(u32, u64)>,
}

impl ModelBuilder {
    /// Checks a config against what was found.
    ///
    /// # Errors
    /// As [`Plan::check`].
    pub fn from_config<'d>(config: &RunConfig, found: impl Into<Dropped<'d>>) -> Result<Self> {
        Plan::check(config, found).map(ModelBuilder::of_plan)
    }

    /// The same of a config that was checked before.
    pub fn of_plan(plan: Plan) -> Self {
        ModelBuilder { plan }
    }

    /// Everything that a training would do.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The network and its parameters as training begins with them.
    ///
    /// # Errors
    /// Published weights cannot be read, or the device has no room.
    pub fn build(&self, device: &Device) -> Result<(Network, Parameters)> {
        self.plan.network(device)
    }

    /// What the training needs on `target`. Takes up to a second or two: pieces are rehearsed.
    ///
    /// # Errors
    /// A piece cannot be rehearsed.
    pub fn estimate(&self, target: Target, forms: Forms) -> Result<Estimate> {
        self.estimate_as(self.plan.model, self.plan.image_size, target, forms)
    }

    /// The same with another model, or for images of another side in pixels.
    ///
    /// # Errors
    /// As [`ModelBuilder::estimate`].
    pub fn estimate_as(
        &self,
        model: ModelKind,
        image_size: u32,
        target: Target,
        forms: Forms,
    ) -> Result<Estimate> {
        let data = DataNeed {
            effective_batch: self.plan.effective_batch,
            fixed_micro_batch: self.plan.fixed_micro_batch,
        };
        let forecast = Forecast::of_plan(&self.plan, model, image_size, target, forms)?;
        Ok(Estimate { forecast, data })
    }
}

impl Estimate {
    /// Of a forecast that was made, for what is trained on.
    pub fn of(forecast: Forecast, data: DataNeed) -> Self {
        Estimate { forecast, data }
    }

    /// By part, for pieces of these sizes.
    pub fn parts(&self, micro_batches: &[u32]) -> Parts {
        let standing = &self.forecast.standing;
        let named = standing.weights_bytes + standing.moments_bytes;
        let form = self.need(micro_batches).variants.into_iter().next();
        let blocks = form.map_or(0, |form| form.checkpoint_blocks);
        let piece = |&micro_batch: &u32| {
            let bytes = self.forecast.piece_bytes(blocks, micro_batch)?;
            Some((micro_batch, bytes))
        };
        Parts {
            parameters: self.forecast.parameters,
            weights_bytes: standing.weights_bytes,
            gradients_bytes: standing.gradients_bytes,
            optimizer_bytes: standing.moments_bytes,
            other_bytes: standing.state_bytes().saturating_sub(named),
            activations: micro_batches.iter().filter_map(piece).collect(),
        }
    }

    /// The footprint by micro-batch: the sensible ones, the one that the user fixed, and these.
    pub fn need(&self, also: &[u32]) -> ModelNeed {
        let fixed = self.data.fixed_micro_batch.into_iter();
        let also: Vec<u32> = also.iter().copied().chain(fixed).collect();
        self.forecast.need(self.data.effective_batch, &also)
    }

    /// What to begin with beside other `processes`, where so many `trainings` like this one share what is left in equal parts.
    ///
    /// # Errors
    /// Not even the smallest piece fits, with what would do.
    pub fn suggest_config(
        &self,
        device: &DeviceLimits,
        processes: &Processes,
        trainings: u32,
    ) -> std::result::Result<SuggestedConfig, DoesNotFit> {
        let device = match trainings {
            0 | 1 => *device,
            // None of them may reach into the part of another: a share of the budget is a cap.
            many => DeviceLimits {
                memory_cap_bytes: Some(device.budget_bytes(processes) / u64::from(many)),
                ..*device
            },
        };
        suggest_config(&self.need(&[]), &self.data, &device, processes)
    }

    /// What would help, cheapest first, each with the bytes that it frees.
    pub fn suggest_recovery(&self, no: &DoesNotFit) -> Vec<(RecoveryOption, u64)> {
        suggest_recovery(&self.forecast.stuck(no))
    }
}
