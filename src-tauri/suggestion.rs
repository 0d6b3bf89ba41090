//! The plan that Ebb suggests for a folder, and the config that the page's settings make. Only known numbers: what is not
//! measured or counted is absent.

use crate::readings::Told;
use crate::view::{ForecastView, PlanSettings, PlanView};
use dataset::Inspection;
use pressure::{DataNeed, DeviceRoom, ModelNeed, Policy, Processes, suggest_config};
use runlog::RunConfig;
use trainer::forecast::{Fit, Forecast, Forms, IMAGE_SIZES, Target, Waiting, does_not_fit};
use trainer::{Augmentation, ModelKind, Plan, foresee_kind};

/// What Ebb would do with this folder if nobody said anything.
pub fn of(inspection: &Inspection, machine: &Told) -> trainer::Result<PlanView> {
    let plan = Plan::check(&RunConfig::default(), inspection)?;
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
            politeness: plan.politeness.unwrap_or(Policy::default().politeness),
            seed: plan.seed,
        },
        models: ModelKind::ALL
            .map(|model| (model.name().to_owned(), model.label().to_owned()))
            .to_vec(),
        image_sizes: IMAGE_SIZES.to_vec(),
        train_samples: plan.train_samples,
        held_out_samples: plan.held_out_samples,
        machine: machine.view(),
        budget_line_bytes: machine.budget_line_bytes(),
        leave_least_bytes: Policy::default().reserve_least_bytes(machine.sample.total_bytes),
    })
}

/// What these settings will need on this machine as it is now. Takes about a second: it rehearses pieces.
pub fn forecast(
    settings: &PlanSettings,
    inspection: &Inspection,
    machine: &Told,
) -> trainer::Result<ForecastView> {
    let plan = Plan::check(&config(settings), inspection)?;
    let sample = &machine.sample;
    let device = DeviceRoom {
        total_bytes: sample.total_bytes,
        limit_bytes: sample.device_limit_bytes,
        memory_cap_bytes: None,
        politeness: settings.politeness,
    };
    let others_bytes = sample.system_bytes + sample.others_bytes();
    let data = DataNeed {
        effective_batch: plan.effective_batch,
        fixed_micro_batch: None,
    };
    let kind = foresee_kind(plan.device);
    // What an earlier forecast left with the allocator is no part of the program.
    crate::allocator::purge();
    let target = Target::of(kind, plan.threads as usize, sample.total_bytes);
    let processes = Processes { others_bytes };
    let forms = Forms::Fewest(Fit {
        budget_bytes: device.budget_bytes(&processes),
        micro_batch: 1,
        effective_batch: plan.effective_batch,
        waiting: Waiting::Counts,
    });
    let forecast = Forecast::of_plan(&plan, plan.model, plan.image_size, target, forms)?;
    let need = forecast.need(plan.effective_batch, &[]);
    let found = suggest_config(&need, &data, &device, &processes);
    let view = ForecastView {
        parameters: forecast.parameters,
        state_bytes: need.state_bytes,
        activations_bytes: 0,
        peak_bytes: need.state_bytes,
        micro_batch: 0,
        accumulation: 0,
        checkpoint_blocks: 0,
        peaks: Vec::new(),
        refusal: None,
    };
    Ok(match found {
        Ok(found) => ForecastView {
            activations_bytes: found.predicted_peak_bytes.saturating_sub(need.state_bytes),
            peak_bytes: found.predicted_peak_bytes,
            micro_batch: found.micro_batch,
            accumulation: found.accumulation,
            checkpoint_blocks: found.checkpoint_blocks,
            peaks: peaks(&need, found.checkpoint_blocks),
            ..view
        },
        Err(no) => ForecastView {
            refusal: Some(does_not_fit(&forecast, &no, None).to_string()),
            ..view
        },
    })
}

/// What the pieces of this form reach, smallest first.
fn peaks(need: &ModelNeed, checkpoint_blocks: u32) -> Vec<(u32, u64)> {
    let form = need
        .forms
        .iter()
        .find(|form| form.checkpoint_blocks == checkpoint_blocks);
    let peaks = form.into_iter().flat_map(|form| &form.peaks);
    let mut peaks: Vec<_> = peaks
        .map(|peak| (peak.micro_batch, peak.peak_bytes))
        .collect();
    peaks.sort_unstable();
    peaks
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
        politeness: Some(settings.politeness),
        seed: Some(settings.seed),
        ..RunConfig::default()
    }
}
