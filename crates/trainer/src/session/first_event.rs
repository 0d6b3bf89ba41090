//! The first event of a session: a run has started or is resumed.

use super::Session;
use crate::data::{EvalLoader, TrainLoader};
use crate::task::Task;
use runlog::{RunEvent, Started, counted, format_count};
use std::time::{SystemTime, UNIX_EPOCH};
use tape::device::DeviceKind;

/// Describes the plan, the model and the machine.
pub fn started_event<T: Task>(session: &Session<'_, T>, branched_from: String) -> RunEvent {
    let (plan, chosen) = (session.plan, &session.device.chosen);
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
        held_out_copies: plan.held_out_copies,
        parameters: session.learner.parameters.count() as u64,
        input_size: plan.input_size,
        effective_batch: plan.effective_batch,
        effective_batch_tokens: plan.effective_batch_tokens,
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
        loader: describe_loaders(session),
        memory_source: session.controller.describe(),
        total_bytes: session.controller.total_bytes(),
        seed: plan.seed,
        estimated_peak_bytes: session.estimated_peak_bytes,
        branched_from,
    }))
}

/// Says that the run continues at the current step. Events of later steps become invalid.
pub fn resumed_event<T: Task>(session: &Session<'_, T>) -> RunEvent {
    let (plan, chosen) = (session.plan, &session.device.chosen);
    RunEvent::Resumed {
        at_ms: session.log.now_ms(),
        unix_ms: unix_ms(),
        step: session.state.step,
        process: std::process::id(),
        device: chosen.kind.to_string(),
        device_reason: chosen.reason.clone(),
        steps: plan.steps,
        epochs: plan.epochs(),
    }
}

/// How samples are loaded for training and evaluation.
fn describe_loaders<T: Task>(session: &Session<'_, T>) -> String {
    let at_once = match session.plan.config.evaluation_batch {
        Some(most) => format!("evaluates at most {} samples", format_count(most.into())),
        None => "evaluates as many samples as fit into memory".to_owned(),
    };
    // Other devices read the memory of the host.
    let pinned = match session.device.chosen.kind {
        DeviceKind::Cuda => "pinned memory",
        _ => "no pinned memory",
    };
    format!("{}; {at_once} at once; {pinned}", describe_samples(session))
}

/// Where the samples come from, how often the run is evaluated, and on how many held-out samples if
/// it is not on all.
fn describe_samples<T: Task>(session: &Session<'_, T>) -> String {
    let (train, held_out) = (&session.loaders.train, &session.loaders.held_out);
    let (read, all) = (held_out.len() as u64, held_out.split_len() as u64);
    if all == 0 {
        return train.describe();
    }
    let interval = session.plan.evaluation_interval();
    let interval = counted(interval, "step", "steps");
    if read == all {
        return format!("{}; an evaluation every {interval}", train.describe());
    }
    let task = session.plan.task();
    let whole = if task.is_on_documents() {
        "`ebb evaluate` uses all of them"
    } else {
        "the evaluation after the last step uses all of them"
    };
    format!(
        "{}; an evaluation every {interval} uses {} of {} held-out {}s, {whole}",
        train.describe(),
        format_count(read),
        format_count(all),
        task.step_noun()
    )
}

fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |age| age.as_millis() as u64)
}
