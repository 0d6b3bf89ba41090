//! The first event of a run.

use super::{Session, unix_ms};
use crate::data::TrainLoader;
use crate::task::Task;
use runlog::{RunEvent, Started};

/// Describes the plan, the model and the machine.
pub fn started_event<T: Task>(session: &Session<'_, T>) -> RunEvent {
    let (plan, chosen) = (session.plan, &session.chosen);
    RunEvent::Started(Box::new(Started {
        at_ms: 0,
        unix_ms: unix_ms(),
        process: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        name: plan.name.clone(),
        task: plan
            .config
            .task
            .map(|task| task.name().to_owned())
            .unwrap_or_default(),
        model: plan.model.name().to_owned(),
        classes: plan.classes.clone(),
        targets: plan.columns.iter().map(|c| c.name.clone()).collect(),
        train_samples: plan.train_samples,
        held_out_samples: plan.held_out_samples,
        parameters: session.learner.parameters.count() as u64,
        input_size: plan.input_size,
        effective_batch: plan.effective_batch,
        epochs: plan.epochs(),
        steps: plan.steps,
        steps_per_epoch: plan.steps_per_epoch,
        learning_rate: plan.learning_rate,
        optimizer: plan.optimizer.name().to_owned(),
        device: chosen.kind.to_string(),
        device_reason: chosen.reason.clone(),
        precision: plan.precision.name().to_owned(),
        checkpoint_blocks: plan.checkpoint_blocks,
        threads: plan.threads,
        loader: session.loaders.train.describe(),
        memory_source: session.controller.describe(),
        total_bytes: session.controller.total_bytes(),
        seed: plan.seed,
        estimated_peak_bytes: session.estimated_peak_bytes,
    }))
}
