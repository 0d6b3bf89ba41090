//! The training loop. For each micro-batch it handles the user's requests, asks the memory
//! controller for a size and accumulates gradients. A complete effective batch is one optimizer
//! step, followed by an evaluation and a checkpoint if they are due.

mod answer_prompts;
mod train_baseline;
mod evaluate;
mod stop_run;
mod probe_memory;
mod requests;
mod recover_from_device_failure;
mod agree_on_run;
mod group_step;
mod continue_without_ranks;
mod suspend;

use crate::branch_weights::BranchWeights;
use crate::checkpoint;
use crate::data::{PromptSet, learn_vocabulary};
use crate::error::{Result, TrainError};
use crate::event_log::Observer;
use crate::gradient_accumulation::{AccumulatedBatch, EffectiveBatch};
use crate::plan::{LengthChange, Plan, RunLength};
use crate::preparation::Preparation;
use crate::pretrained;
use crate::prompt_choice::PromptChoice;
use crate::run_context::{RunContext, RunOutcome};
use crate::run_group::{RunGroup, share_run};
use crate::sample_manifest::{self, RunDataset};
use crate::session::Session;
use crate::task::{Task, with_task};
use crate::threads::on_threads;
use agree_on_run::{agree_on_files, agree_on_run};
use continue_without_ranks::continue_without_ranks;
use dataset::DetectedDataset;
use evaluate::{evaluate, evaluation_is_due, evaluation_was_interrupted, patience_is_exhausted};
use group_step::{accumulate_in_group, end_in_group, follow_step, restore_suspended_ranks};
use pressure::{Action, Outcome, Phase};
use probe_memory::probe_memory;
use recover_from_device_failure::{recover, redo_step, restore};
use requests::handle_requests;
use runlog::{CheckpointReason, RunFolder, StopReason};
use std::ops::ControlFlow;
use std::sync::Arc;
use stop_run::{emit_failed, finish, stop_for_shortage};
use suspend::suspend;
use tape::device::with_autorelease_pool;
use tape::optim::Health;
use train_baseline::{restore_baseline, train_baseline};

/// Code of the warning that a run ends at another step than planned.
const LENGTH_CHANGED: &str = "length_changed";
/// Code of the warning that the folder of images differs from the one that the run began with.
const DATA_CHANGED: &str = "data_changed";

/// Trains a new run in `run` and blocks until it ends. `observer` receives every event.
pub fn start(
    plan: Plan,
    found: impl Into<DetectedDataset>,
    run: &RunFolder,
    context: RunContext,
    observer: Observer,
) -> Result<RunOutcome> {
    start_from(plan, found.into(), None, run, context, observer)
}

/// Trains a new run like [`start`], from the weights of another run if there is one.
pub(crate) fn start_from(
    mut plan: Plan,
    found: DetectedDataset,
    branch: Option<&BranchWeights>,
    run: &RunFolder,
    context: RunContext,
    observer: Observer,
) -> Result<RunOutcome> {
    let claim = run.claim()?;
    share_cores(&mut plan, &context.group);
    plan.held_out_copies = found.held_out_copies();
    run.write_config(&plan.config)?;
    PromptChoice::from_config(&plan.config)?.save(run)?;
    sample_manifest::write(run, &found)?;
    if let Some(pretrained) = &plan.pretrained {
        plan.pretrained = Some(Arc::new(pretrained.copy_into(&run.path)?));
    }
    on_threads(plan.threads as usize, || {
        let control = context.control.clone();
        let live = context.live.clone();
        let preparation = Preparation::new(&control, live.as_deref());
        learn_vocabulary(&plan, &found, run, preparation)?;
        with_task!(plan.task(), T => {
            let data = T::prepare(&plan, &found, run, preparation)?;
            let plan = with_sample_counts::<T>(plan, &data);
            run.write_config(&plan.config)?;
            agree_on_run(&context.group, &plan, &found, run)?;
            let prompts = prompts::<T>(&context.group, &plan, &found, run)?;
            let mut session = Session::<T>::start(&plan, &data, branch, run, claim, context, observer)?;
            session.prompts = prompts;
            if session.group.keeps_run() {
                train_baseline(&mut session, &found)?;
            }
            train(session)
        })
    })
}

/// Continues a run from its newest valid checkpoint with the same samples, schedule and seeds, to
/// another length if one is given. The order of the samples does not depend on the length. The
/// learning rate does: from here on it is that of a run which was planned this long. The config and
/// the events record the length.
///
/// # Errors
/// [`TrainError::Setting`] if no step would be left to train; nothing has changed then.
pub fn resume_to(
    run: &RunFolder,
    length: Option<RunLength>,
    context: RunContext,
    observer: Observer,
) -> Result<RunOutcome> {
    // Nothing is read before: another process could change it.
    let claim = run.claim()?;
    if context.group.keeps_run() {
        checkpoint::recover(run)?;
    }
    share_run(&context.group, run)?;
    if let Some(folder) = &context.data_folder {
        RunDataset::read(run)?.relocate(folder)?;
    }
    agree_on_files(&context.group, run)?;
    let found = sample_manifest::read(run)?;
    let mut plan = Plan::resolve(&pretrained::config_of(run)?, &found)?;
    share_cores(&mut plan, &context.group);
    plan.estimate_whole_state(context.group.size())?;
    on_threads(plan.threads as usize, || {
        let control = context.control.clone();
        let live = context.live.clone();
        let preparation = Preparation::new(&control, live.as_deref());
        with_task!(plan.task(), T => {
            let data = T::prepare(&plan, &found, run, preparation)?;
            let plan = with_sample_counts::<T>(plan, &data);
            let (plan, change) = with_length(plan, length, run)?;
            agree_on_run(&context.group, &plan, &found, run)?;
            let prompts = prompts::<T>(&context.group, &plan, &found, run)?;
            let mut session = Session::<T>::resume(&plan, &data, run, claim, context, observer)?;
            session.prompts = prompts;
            if !session.group.keeps_run() {
                return train(session);
            }
            if let Some(message) = sample_manifest::describe_changes(run, &found) {
                session.log.warn(DATA_CHANGED, message)?;
            }
            if let Some(change) = change {
                record_length(&mut session, &change)?;
            }
            restore_baseline(&mut session, &found)?;
            train(session)
        })
    })
}

/// The prompts that this process answers after evaluations: in a group, rank 0 alone evaluates.
fn prompts<T: Task>(
    group: &RunGroup,
    plan: &Plan,
    found: &DetectedDataset,
    run: &RunFolder,
) -> Result<Option<Arc<PromptSet>>> {
    if !group.keeps_run() || plan.held_out_samples == 0 {
        return Ok(None);
    }
    Ok(T::prompts(plan, found, run)?.map(Arc::new))
}

/// Shares the cores of a machine among its ranks, unless the user has set the number of threads.
fn share_cores(plan: &mut Plan, group: &RunGroup) {
    if plan.config.threads.is_none() {
        plan.threads = (plan.threads / group.ranks_here() as u32).max(1);
    }
}

/// The plan with the length that the user asks for, and what that changes.
fn with_length(
    plan: Plan,
    length: Option<RunLength>,
    run: &RunFolder,
) -> Result<(Plan, Option<LengthChange>)> {
    let Some(length) = length else {
        return Ok((plan, None));
    };
    let done = checkpoint::newest(run)?.0.state.step;
    let changed = plan.clone().with_length(length, done)?;
    let change = LengthChange::new(length, &plan, &changed, done);
    Ok((changed, Some(change)))
}

/// Records the new length in the config, which a later resume reads, and in the events.
fn record_length<T: Task>(session: &mut Session<'_, T>, change: &LengthChange) -> Result<()> {
    let config = session.run.config().map(|config| change.applied_to(config));
    let recorded = config
        .and_then(|config| session.run.write_config(&config))
        .map_err(TrainError::from)
        .and_then(|()| session.log.warn(LENGTH_CHANGED, change.describe()));
    recorded.inspect_err(|error| emit_failed(session, error))
}

/// The plan with the number of samples that the opened dataset has. The number of windows of
/// documents is known once they are tokenized.
pub(crate) fn with_sample_counts<T: Task>(plan: Plan, data: &T::Data) -> Plan {
    match T::sample_counts(&plan, data) {
        Some(counts) => plan.with_sample_counts(counts),
        None => plan,
    }
}

/// Trains to the end and emits how it ended.
fn train<T: Task>(mut session: Session<'_, T>) -> Result<RunOutcome> {
    train_loop(&mut session).map_err(|error| {
        let error = session.save_after_error(error);
        emit_failed(&mut session, &error);
        error
    })
}

fn train_loop<T: Task>(session: &mut Session<'_, T>) -> Result<RunOutcome> {
    // Each micro-batch catches exceptions of the system itself; this catches those between them.
    let mut outcome = with_autorelease_pool(|| train_to_end(session));
    // Whatever was not answered where it happened may have damaged the weights.
    while let Err(error) = outcome {
        if !session.group.is_alone() {
            return Err(error);
        }
        let fault = match error {
            error if error.device_fault().is_some() => error,
            TrainError::DeviceFailed { .. } => return Err(error),
            // An error of another kind may follow a failure that the device has not reported yet.
            error => session.device.earlier_fault().ok_or(error)?,
        };
        outcome = with_autorelease_pool(|| {
            restore(session, fault)?;
            train_to_end(session)
        });
    }
    outcome
}

/// Trains, saves the last step and emits the end of the run.
fn train_to_end<T: Task>(session: &mut Session<'_, T>) -> Result<RunOutcome> {
    let reason = loop {
        match train_steps(session) {
            Err(error) if !session.group.is_alone() => continue_without_ranks(session, error)?,
            trained => break trained?,
        }
    };
    end_in_group(session, reason)?;
    finish(session, reason)
}

fn train_steps<T: Task>(session: &mut Session<'_, T>) -> Result<StopReason> {
    if evaluation_was_interrupted(session)
        && let ControlFlow::Break(reason) = evaluate_within_patience(session)?
    {
        return Ok(reason);
    }
    while session.state.step < session.plan.steps {
        // Without a pool for each step, what the system releases between the micro-batches stays
        // until the run ends.
        let flow = with_autorelease_pool(|| train_step(session))?;
        if let ControlFlow::Break(reason) = flow {
            return Ok(reason);
        }
    }
    Ok(StopReason::Finished)
}

/// Trains one step, evaluates and saves if that is due. Breaks if the run ends.
fn train_step<T: Task>(session: &mut Session<'_, T>) -> Result<ControlFlow<StopReason>> {
    let accumulated = if session.group.is_alone() {
        accumulate(session).or_else(|error| repeat_after_fault(session, error))?
    } else {
        accumulate_in_group(session)?
    };
    match accumulated {
        Accumulated::Batch(batch, health) => session.update(*batch, &health)?,
        Accumulated::Followed => follow_step(session),
        Accumulated::Repeat => return Ok(ControlFlow::Continue(())),
        Accumulated::Stop(reason) => return Ok(ControlFlow::Break(reason)),
    }
    session.synchronize_if_due()?;
    session.gather_moments_if_due(evaluation_is_due(session))?;
    if std::mem::take(&mut session.machines.restores_ranks) {
        restore_suspended_ranks(session)?;
    }
    if evaluation_is_due(session) {
        let flow = evaluate_within_patience(session)?;
        if flow.is_break() {
            return Ok(flow);
        }
    }
    session.save_postponed_if_due()?;
    if session.checkpoint_is_due() {
        session.save_or_warn(CheckpointReason::Periodic)?;
    }
    Ok(ControlFlow::Continue(()))
}

/// Evaluates. Breaks if the run shall stop, or if the last evaluations were no better.
fn evaluate_within_patience<T: Task>(
    session: &mut Session<'_, T>,
) -> Result<ControlFlow<StopReason>> {
    let flow = evaluate(session)?;
    if flow.is_continue() && patience_is_exhausted(session) {
        return Ok(ControlFlow::Break(StopReason::Finished));
    }
    Ok(flow)
}

/// Repeats the step if a fault of the device lost only its gradients.
///
/// # Errors
/// `error` itself if the weights may be damaged too.
fn repeat_after_fault<T: Task>(
    session: &mut Session<'_, T>,
    error: TrainError,
) -> Result<Accumulated> {
    redo_step(session, error)?;
    Ok(Accumulated::Repeat)
}

/// How an effective batch ended.
enum Accumulated {
    /// All its gradients are accumulated, and the device has confirmed them.
    Batch(Box<AccumulatedBatch>, Health),
    /// The other ranks of the group make the update, because this one has freed its weights.
    Followed,
    /// Its gradients are lost: start the step again.
    Repeat,
    /// The run ends.
    Stop(StopReason),
}

/// Accumulates the gradients of one effective batch in micro-batches.
///
/// # Errors
/// After a fault of the device the gradients are lost. [`redo_step`] decides whether the
/// weights may be damaged too.
fn accumulate<T: Task>(session: &mut Session<'_, T>) -> Result<Accumulated> {
    let mut batch = EffectiveBatch::new(session.begin_step());
    probe_memory(session, &mut batch.pending)?;
    while batch.pending.remaining() > 0 {
        if handle_requests(session)? {
            return Ok(Accumulated::Stop(StopReason::Requested));
        }
        let remaining = batch.pending.remaining();
        let answer = session.next_micro_batch(Phase::Train, remaining, batch.micro_batches())?;
        let Some(size) = answer.decision.micro_batch() else {
            match answer.decision.action {
                Action::Stop => {
                    let reason = stop_for_shortage(session, &answer.decision);
                    return Ok(Accumulated::Stop(reason));
                }
                Action::Suspend => {
                    drop(batch);
                    let samples = session.plan.effective_batch as usize;
                    return Ok(match suspend(session, Phase::Train, samples)? {
                        ControlFlow::Break(reason) => Accumulated::Stop(reason),
                        ControlFlow::Continue(()) => Accumulated::Repeat,
                    });
                }
                Action::Pause | Action::Run => session.controller.wait(&session.control),
            }
            continue;
        };
        session.fetch_samples(&mut batch.pending, size)?;
        let samples = batch.pending.micro_batch(size);
        if samples.is_empty() {
            continue;
        }
        session.controller.begin(samples.len())?;
        if session.control.is_stopping() {
            // The stop arrived after the last poll, and `begin` has cleared its cancel flag.
            session.controller.discard();
            continue;
        }
        match with_autorelease_pool(|| session.learner.gradients(session.control.cancel(), samples))
        {
            Ok(gradients) => {
                session.controller.record(Outcome::Ok);
                with_autorelease_pool(|| batch.add(gradients))?;
                batch.record_checkpoint_blocks(answer.decision.checkpoint_blocks);
            }
            Err(error) => recover(session, error, batch.micro_batches() > 0)?,
        }
    }
    let batch = batch.finish().ok_or_else(|| TrainError::NoData {
        step: session.state.step,
        folder: session.plan.folder.clone(),
    })?;
    let health = session.confirm_gradients(&batch)?;
    Ok(Accumulated::Batch(Box::new(batch), health))
}
