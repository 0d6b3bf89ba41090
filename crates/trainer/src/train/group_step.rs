//! One step of a run that several machines train together. Each rank claims samples of the
//! effective batch, as many as its memory controller allows, until all are processed. Then the
//! ranks add their sums up. A rank that has to wait for memory claims nothing meanwhile, and the
//! others process its samples.

use super::Accumulated;
use super::probe_memory::probe_memory;
use super::recover_from_device_failure::recover;
use super::requests::handle_requests;
use super::stop_run::stop_for_shortage;
use crate::checkpoint;
use crate::data::TrainLoader;
use crate::error::{Result, TrainError};
use crate::gradient_accumulation::EffectiveBatch;
use crate::run_control::Request;
use crate::run_group::{Contribution, MachineReport, share_checkpoint};
use crate::session::Session;
use crate::task::Task;
use dataset::SampleError;
use distributed::{Claim, ClaimRequest, Ended};
use pressure::{Action, Outcome, Phase};
use runlog::{CheckpointReason, MachineShare, StopReason};
use std::ops::Range;
use std::time::{Duration, Instant};
use tape::device::with_autorelease_pool;
use tape::optim::Health;

/// While a rank waits, it asks for memory again after this time.
const DECISION: Duration = Duration::from_millis(50);
/// Shortest and longest pause between two claims of a rank that waits for others.
const NAPS: Range<Duration> = Duration::from_micros(200)..Duration::from_millis(100);
/// The next pause lasts as long as the wait so far, divided by this number, so that pauses lengthen
/// a long wait by little.
const NAP_DIVISOR: u32 = 64;

/// This rank's part of a step.
struct OwnPart<T: Task> {
    batch: EffectiveBatch<T::Sample>,
    /// Samples that this rank has claimed and processed.
    processed: usize,
    /// Whether this rank has measured the memory of a micro-batch in this step.
    has_probed: bool,
    unreadable: Vec<SampleError>,
    /// This rank cannot read a sample that others may be able to read, and leaves them the rest.
    leaves_rest: bool,
    began: Instant,
    /// Time in which this rank processed samples.
    busy: Duration,
    /// When this rank began to wait for the others.
    waits_since: Option<Instant>,
    decision: Option<Decided>,
}

/// The newest decision of the memory controller that no claim has used.
struct Decided {
    at: Instant,
    /// The micro-batch; 0 if none can start now.
    size: usize,
    checkpoint_blocks: u32,
    /// The memory of this machine is so short that the weights must be freed.
    suspends: bool,
}

impl<T: Task> OwnPart<T> {
    fn new() -> Self {
        OwnPart {
            batch: EffectiveBatch::new(0),
            processed: 0,
            has_probed: false,
            unreadable: Vec::new(),
            leaves_rest: false,
            began: Instant::now(),
            busy: Duration::ZERO,
            waits_since: None,
            decision: None,
        }
    }
}

/// Accumulates the gradients of one effective batch together with the other ranks.
///
/// # Errors
/// The group is broken, or the device failed: the gradients are lost, but not the weights.
pub(super) fn accumulate_in_group<T: Task>(session: &mut Session<'_, T>) -> Result<Accumulated> {
    let samples = session.begin_step();
    session.group.begin_step(samples);
    let mut part = OwnPart::<T>::new();
    let mut ended = None;
    loop {
        let mut stop = handle_requests(session)?.then_some(StopReason::Requested);
        if stop.is_none() {
            stop = decide(session, &mut part, samples)?;
        }
        let suspends = must_suspend(session, &part);
        let claims = stop.is_none() && !part.leaves_rest && !session.learner.is_unloaded();
        let size = part.decision.as_ref().filter(|_| claims);
        let claim = session.group.claim(ClaimRequest {
            at_most: size.map_or(0, |decided| decided.size as u32),
            ended: if suspends {
                Some(Ended::Retracted)
            } else {
                ended.take()
            },
            stop: stop.is_some(),
        });
        let claim = claim.inspect_err(|_| {
            if stop == Some(StopReason::Requested) {
                // The group may continue without a rank that has ended, and must still stop.
                session.control.send(Request::Stop);
            }
        })?;
        if suspends && claim == Claim::Wait {
            ended = None;
            suspend(session, &mut part)?;
            continue;
        }
        match claim {
            Claim::Samples { samples, next } => {
                part.waits_since = None;
                let range = |range: Range<u32>| range.start as usize..range.end as usize;
                let began = Instant::now();
                ended = Some(process(session, &mut part, range(samples), range(next))?);
                part.busy += began.elapsed();
            }
            Claim::Wait => wait(session, &mut part),
            Claim::Complete => break,
            Claim::Stop => {
                let reason = stop.unwrap_or(StopReason::Requested);
                return Ok(Accumulated::Stop(reason));
            }
        }
    }
    complete(session, part)
}

/// Asks the memory controller for a micro-batch, unless its last answer is new and unused. Returns
/// the reason if the controller ends the run; that of another rank than 0 only stops claiming.
fn decide<T: Task>(
    session: &mut Session<'_, T>,
    part: &mut OwnPart<T>,
    samples: usize,
) -> Result<Option<StopReason>> {
    let is_new = |decided: &Decided| decided.at.elapsed() < DECISION;
    if part.decision.as_ref().is_some_and(is_new) {
        return Ok(None);
    }
    let remaining = samples.saturating_sub(part.processed).max(1);
    let done = part.batch.micro_batches();
    let answer = session.next_micro_batch(Phase::Train, remaining, done)?;
    let decision = &answer.decision;
    if decision.action == Action::Stop && session.group.keeps_run() {
        return Ok(Some(stop_for_shortage(session, decision)));
    }
    part.decision = Some(Decided {
        at: Instant::now(),
        size: decision.micro_batch().unwrap_or(0),
        checkpoint_blocks: decision.checkpoint_blocks,
        suspends: decision.action == Action::Suspend,
    });
    Ok(None)
}

/// Whether this rank has to free its weights now. Rank 0 keeps them: the others get them from it
/// when they return. A rank that has moments or weights of its own keeps them, too, and waits.
fn must_suspend<T: Task>(session: &Session<'_, T>, part: &OwnPart<T>) -> bool {
    let decided = part.decision.as_ref();
    !session.group.keeps_run()
        && !session.learner.is_unloaded()
        && session.exchange.owners().is_none()
        && session.learner.outer.is_none()
        && decided.is_some_and(|decided| decided.suspends)
}

/// Frees weights, moments and the sums of this step, whose samples others process again. From now
/// on this rank takes part in the exchanges with zeros, until it gets the weights of a later step.
fn suspend<T: Task>(session: &mut Session<'_, T>, part: &mut OwnPart<T>) -> Result<()> {
    let began = part.began;
    *part = OwnPart {
        began,
        decision: part.decision.take(),
        unreadable: std::mem::take(&mut part.unreadable),
        ..OwnPart::new()
    };
    session.exchange.drop_rounding_errors();
    session.unload()
}

/// Waits for other ranks, or for memory.
fn wait<T: Task>(session: &mut Session<'_, T>, part: &mut OwnPart<T>) {
    let since = *part.waits_since.get_or_insert_with(Instant::now);
    let nap = (since.elapsed() / NAP_DIVISOR).clamp(NAPS.start, NAPS.end);
    session.control.wait(nap);
}

/// Processes claimed samples as one micro-batch.
///
/// # Errors
/// A smaller micro-batch would not help, or the sums may be incomplete.
fn process<T: Task>(
    session: &mut Session<'_, T>,
    part: &mut OwnPart<T>,
    claimed: Range<usize>,
    next: Range<usize>,
) -> Result<Ended> {
    let count = claimed.len();
    let decided = part.decision.take();
    session.loaders.train.select(claimed, next);
    part.batch.pending.expect(count);
    if count > 1
        && session.controller.needs_probe()
        && !std::mem::replace(&mut part.has_probed, true)
    {
        probe_memory(session, &mut part.batch.pending)?;
        // The next decision knows what a sample needs.
        part.batch.pending.clear();
        return Ok(Ended::GivenBack);
    }
    let pending = &mut part.batch.pending;
    while pending.missing(count) > 0 {
        let arrived = session.loaders.train.fetch(pending.missing(count));
        let unreadable = pending.deliver(arrived);
        if !session.group.keeps_run() && !unreadable.is_empty() {
            // The machine of rank 0 has the samples of the run: if it cannot read one, none can.
            part.leaves_rest = true;
            pending.clear();
            let step = session.state.step;
            session.log.skipped_samples(step, unreadable)?;
            return Ok(Ended::GivenBack);
        }
        part.unreadable.extend(unreadable);
    }
    let samples = pending.micro_batch(count);
    if samples.is_empty() {
        return Ok(Ended::Confirmed);
    }
    session.controller.begin(samples.len())?;
    if session.control.is_stopping() {
        // The stop arrived after the last poll, and `begin` has cleared its cancel flag.
        session.controller.discard();
        part.batch.pending.clear();
        return Ok(Ended::GivenBack);
    }
    match with_autorelease_pool(|| session.learner.gradients(session.control.cancel(), samples)) {
        Ok(gradients) => {
            session.controller.record(Outcome::Ok);
            with_autorelease_pool(|| part.batch.add(gradients))?;
            let blocks = decided.map_or(0, |decided| decided.checkpoint_blocks);
            part.batch.record_checkpoint_blocks(blocks);
            part.processed += count;
            Ok(Ended::Confirmed)
        }
        Err(error) => {
            recover(session, error, part.batch.micro_batches() > 0)?;
            part.batch.pending.clear();
            Ok(Ended::GivenBack)
        }
    }
}

/// What this rank did in the step, for the rank that keeps the run.
fn report<T: Task>(session: &mut Session<'_, T>, part: &OwnPart<T>) -> MachineReport {
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    let waited = part.began.elapsed().saturating_sub(part.busy);
    let exchange_ms = session.machines.take_last_exchange_ms();
    let sample = session.controller.latest_sample();
    let is_suspended = session.learner.is_unloaded();
    let decided = part.decision.as_ref();
    MachineReport {
        share: MachineShare {
            rank: session.group.number(),
            samples: part.processed as u64,
            busy_ms: milliseconds(part.busy),
            wait_ms: milliseconds(waited) + exchange_ms,
            exchange_ms,
            micro_batch: session.controller.micro_batch(),
            own_bytes: sample.map_or(0, |sample| sample.own_bytes),
            peak_bytes: session.controller.take_peak_bytes(),
            others_bytes: sample.map_or(0, |sample| sample.system_bytes + sample.others_bytes()),
            budget_bytes: sample.map_or(0, |sample| session.controller.budget_bytes(&sample)),
            level: session.controller.level(),
            is_suspended,
        },
        needs_weights: is_suspended && decided.is_some_and(|decided| !decided.suspends),
        messages: session.log.take_messages(),
    }
}

/// Emits what the ranks did. Returns whether some of them need the weights of this step.
fn emit_reports<T: Task>(
    session: &mut Session<'_, T>,
    reports: Vec<MachineReport>,
) -> Result<bool> {
    let needs_weights = reports.iter().any(|report| report.needs_weights);
    let (at_ms, step) = (session.log.now_ms(), session.state.step);
    let messages = session.machines.add(reports, at_ms, step);
    let due = session.machines.due_event(at_ms, step);
    for event in messages.into_iter().chain(due) {
        if session.group.keeps_run() {
            session.log.emit(event)?;
        }
    }
    Ok(needs_weights)
}

/// Adds the sums of all ranks up.
fn complete<T: Task>(session: &mut Session<'_, T>, part: OwnPart<T>) -> Result<Accumulated> {
    let report = report(session, &part);
    let processed = part.processed as u64;
    let began = Instant::now();
    let exchanged = session.exchange.add_up(
        &session.group,
        &session.learner.parameters,
        Contribution {
            sums: part.batch.into_sums(),
            unreadable: part.unreadable,
            is_saved: session.saving.is_saved(session.state.step),
            owes_checkpoint: session.exchange.owes_checkpoint(),
            report,
        },
    )?;
    let exchange_ms = began.elapsed().as_secs_f64() * 1000.0;
    session.machines.add_exchange(exchange_ms);
    session.machines.restores_ranks = emit_reports(session, exchanged.reports)?;
    session.emit_link_change()?;
    session
        .log
        .skipped_samples(session.state.step, exchanged.unreadable)?;
    if session.learner.is_unloaded() {
        return Ok(Accumulated::Followed);
    }
    let mut batch = exchanged.sums.finish().ok_or_else(|| TrainError::NoData {
        step: session.state.step,
        folder: session.plan.folder.clone(),
    })?;
    if let (Some(outer), Some(weight)) = (&mut session.learner.outer, exchanged.own_weight) {
        outer.count_step(processed, exchanged.owes_checkpoint);
        batch.weight = weight;
        if weight == 0.0 {
            // The samples of this rank have no target, so it makes no step of its own.
            batch.free_gradients();
        }
    }
    let health = if batch.gradients.is_empty() {
        Health::default()
    } else {
        session.confirm_gradients(&batch)?
    };
    Ok(Accumulated::Batch(Box::new(batch), health))
}

/// Counts a step whose update only the other ranks of the group make, because this one has
/// freed its weights.
pub(super) fn follow_step<T: Task>(session: &mut Session<'_, T>) {
    session.state.step += 1;
    session.timer.restart();
}

/// Sends the weights and moments of this step to the ranks that have freed them and can load
/// them again. All ranks of the group call it after the same step. If no checkpoint can be
/// written now, nothing is sent, and the ranks ask again.
pub(super) fn restore_suspended_ranks<T: Task>(session: &mut Session<'_, T>) -> Result<()> {
    let is_suspended = session.learner.is_unloaded() && !session.group.keeps_run();
    if send_weights(session, is_suspended)? {
        session.connect_devices()?;
    }
    Ok(())
}

/// Sends the weights and moments of rank 0, and the number of its step, to the ranks that need
/// them. All ranks of the group call it. Returns false, on all ranks, if rank 0 can write no
/// checkpoint now; then nothing is sent.
pub(super) fn send_weights<T: Task>(session: &mut Session<'_, T>, is_needed: bool) -> Result<bool> {
    let (saving, mut snapshot) = session.snapshot();
    let _ = saving.save_ahead(&mut snapshot)?;
    let is_saved = session.saving.is_saved(session.state.step);
    let Some(last_update) = session.group.broadcast_update(is_saved)? else {
        return Ok(false);
    };
    share_checkpoint(&session.group, &session.run, is_needed)?;
    if is_needed {
        let (loaded, _) = checkpoint::newest(&session.run)?;
        session.load(&loaded)?;
        // It was only a way to get here.
        let _ = disk::remove_dir_all(&loaded.path);
        session.group.set_last_update(last_update);
        session.restart_loader();
    }
    Ok(true)
}

/// Ends the run on all ranks once rank 0 ends it before its last step. After a stop by the user,
/// rank 0 saves first and then makes sure that the others are alive: a launcher that lost a rank
/// asks all others to stop, too.
///
/// # Errors
/// The group is broken.
pub(super) fn end_in_group<T: Task>(
    session: &mut Session<'_, T>,
    reason: StopReason,
) -> Result<()> {
    if session.group.is_alone() {
        return Ok(());
    }
    let is_stopped_here = session.group.keeps_run() && !session.group.has_stopped();
    if is_stopped_here && session.state.step < session.plan.steps {
        let samples = session.begin_step();
        session.group.begin_step(samples);
        session.group.claim(ClaimRequest {
            at_most: 0,
            ended: None,
            stop: true,
        })?;
    }
    session.synchronize()?;
    let needs_checkpoint = !session.saving.is_saved(session.state.step);
    session.gather_moments(needs_checkpoint)?;
    if reason == StopReason::Requested && session.group.keeps_run() {
        session.save(CheckpointReason::Stop)?;
        session.group.check_alive()?;
    }
    session.exchange.close(&session.group);
    Ok(())
}
