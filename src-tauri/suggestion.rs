//! The plan that Ebb suggests for a folder, and the config that the page's settings make. Only known numbers: what is not
//! measured or counted is absent.

use crate::readings::Told;
use crate::view::{PlanSettings, PlanView};
use dataset::Inspection;
use runlog::RunConfig;
use trainer::models::Network;
use trainer::{Augmentation, ModelKind, OptimizerKind, Plan};

/// Sides that suit every model.
const IMAGE_SIZES: [u32; 8] = [32, 48, 64, 96, 128, 160, 192, 224];
/// Weights and gradients in f32.
const BYTES_A_PARAMETER: u64 = 8;

/// What Ebb would do with this folder if nobody said anything.
pub fn of(inspection: &Inspection, machine: &Told) -> trainer::Result<PlanView> {
    let plan = Plan::check(&RunConfig::default(), inspection)?;
    let parameters = Network::count(plan.model, plan.image_size, plan.classes.len())?;
    let moments_bytes = match plan.optimizer {
        OptimizerKind::AdamW => 8,
        OptimizerKind::AdamW8bit => 2,
        OptimizerKind::Sgd => 4,
    };
    Ok(PlanView {
        settings: PlanSettings {
            model: plan.model.name().to_owned(),
            image_size: plan.image_size,
            effective_batch: plan.effective_batch,
            epochs: plan.epochs(),
            learning_rate: plan.learning_rate,
            augment: match plan.augment {
                Augmentation::None => "none",
                Augmentation::Standard => "standard",
            }
            .to_owned(),
            checkpoint_every: plan.config.checkpoint_every.clone().unwrap_or_default(),
            seed: plan.seed,
        },
        models: ModelKind::ALL
            .map(|model| (model.name().to_owned(), model.label().to_owned()))
            .to_vec(),
        image_sizes: IMAGE_SIZES.to_vec(),
        train_samples: plan.train_samples,
        held_out_samples: plan.held_out_samples,
        parameters,
        machine: machine.view(),
        state_bytes: parameters * (BYTES_A_PARAMETER + moments_bytes),
        activations_bytes: None,
        budget_line_bytes: machine.budget_line_bytes(),
    })
}

/// The config that these settings make; what the page cannot set is Ebb's choice.
pub fn config(settings: &PlanSettings) -> RunConfig {
    RunConfig {
        model: Some(settings.model.clone()),
        image_size: Some(settings.image_size),
        effective_batch: Some(settings.effective_batch),
        epochs: Some(settings.epochs),
        learning_rate: Some(settings.learning_rate),
        augment: Some(settings.augment.clone()),
        checkpoint_every: Some(settings.checkpoint_every.clone()),
        seed: Some(settings.seed),
        ..RunConfig::default()
    }
}
