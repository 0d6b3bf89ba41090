//! Evaluates the held-out samples, in micro-batches that the memory controller decides.

use super::answer_prompts::answer_prompts;
use super::recover_from_device_failure::recover;
use super::requests::handle_requests;
use super::stop_run::stop_for_shortage;
use super::suspend::suspend;
use crate::data::EvalLoader;
use crate::error::Result;
use crate::pending_samples::SampleQueue;
use crate::results::{Results, SampleResult};
use crate::session::{SaveResults, Session};
use crate::task::{
    EvaluatedMicroBatch, EvaluationReport, MetricInputs, Metrics, Mixture, ReportInputs, Task,
    split_name,
};
use dataset::Split;
use pressure::{Action, Outcome, Phase};
use runlog::{RunEvent, StopReason};
use std::ops::ControlFlow;
use tape::device::with_autorelease_pool;

/// Whether the plan asks for an evaluation after this step. The last step is always evaluated. In a
/// group rank 0 evaluates, while the others begin the next step. If the machines synchronize only
/// every few steps, an evaluation waits until they do.
pub(super) fn evaluation_is_due<T: Task>(session: &Session<'_, T>) -> bool {
    let (plan, step) = (session.plan, session.state.step);
    session.group.keeps_run()
        && session.loaders.held_out.len() > 0
        && (session.reaches_multiple_of(plan.evaluation_interval()) || step == plan.steps)
}

/// Whether the last evaluations were no better than the best one, as many as `patience` allows.
pub(super) fn patience_is_exhausted<T: Task>(session: &Session<'_, T>) -> bool {
    let patience = session.plan.config.patience;
    patience.is_some_and(|most| session.state.evaluations_since_best >= u64::from(most))
}

/// Whether the run was stopped during the evaluation of this step.
pub(super) fn evaluation_was_interrupted<T: Task>(session: &Session<'_, T>) -> bool {
    let state = &session.state;
    state.step > 0 && evaluation_is_due(session) && state.evaluated_step != state.step
}

/// One pass over held-out samples.
struct Pass<S> {
    pending: SampleQueue<S>,
    /// Samples that follow those that all evaluations of the run read.
    others: usize,
    sum: EvaluatedMicroBatch,
    /// The sums of the samples that all evaluations read, once the others follow.
    compared: Option<EvaluatedMicroBatch>,
}

/// The sums of an evaluation.
struct Sums {
    /// Those of all samples that were read.
    all: EvaluatedMicroBatch,
    /// Those of the samples that all evaluations of the run read; `None` if these are all samples.
    compared: Option<EvaluatedMicroBatch>,
}

impl<S> Pass<S> {
    /// Starts over at the first sample. The evaluation after the last step reads the whole split.
    fn begin<T: Task<Sample = S>>(session: &mut Session<'_, T>) -> Self {
        let held_out = &mut session.loaders.held_out;
        let samples = if session.state.step == session.plan.steps {
            held_out.begin_whole()
        } else {
            held_out.begin();
            held_out.len()
        };
        let others = samples - held_out.len().min(samples);
        session.evaluated_samples = samples;
        Pass {
            pending: SampleQueue::new(samples),
            others,
            sum: EvaluatedMicroBatch::default(),
            compared: None,
        }
    }

    /// Frees what has arrived.
    fn clear(&mut self) {
        self.pending = SampleQueue::new(self.pending.remaining());
        (self.sum, self.compared) = (EvaluatedMicroBatch::default(), None);
    }

    /// Samples that remain. Notes the sums when only others than those of all evaluations do.
    fn remaining(&mut self) -> usize {
        let remaining = self.pending.remaining();
        if self.others > 0 && remaining <= self.others && self.compared.is_none() {
            self.compared = Some(self.sum.clone());
        }
        remaining
    }

    /// The size of a micro-batch of at most `size` samples. The samples that all evaluations read
    /// share no micro-batch with others.
    fn limited(&self, size: usize) -> usize {
        match self.pending.remaining() - self.others.min(self.pending.remaining()) {
            0 => size,
            compared => size.min(compared),
        }
    }

    fn finish(self) -> Sums {
        Sums {
            all: self.sum,
            compared: self.compared,
        }
    }
}

/// Evaluates the held-out samples and emits the result, and then the answers to the prompts of the
/// run. Breaks without a result if the run shall stop; the next session then starts with this
/// evaluation. After a suspension it starts again.
pub(super) fn evaluate<T: Task>(session: &mut Session<'_, T>) -> Result<ControlFlow<StopReason>> {
    let mut pass = Pass::begin(session);
    loop {
        let remaining = pass.remaining();
        if remaining == 0 {
            break;
        }
        if handle_requests(session)? {
            return Ok(ControlFlow::Break(StopReason::Requested));
        }
        let answer = session.next_micro_batch(Phase::Evaluate, remaining, 0)?;
        let Some(size) = answer.decision.micro_batch() else {
            match answer.decision.action {
                Action::Stop => {
                    let reason = stop_for_shortage(session, &answer.decision);
                    return Ok(ControlFlow::Break(reason));
                }
                Action::Suspend if can_suspend(session) => {
                    pass.clear();
                    let (step, samples) = (session.state.step, session.evaluated_samples);
                    let flow = suspend(session, Phase::Evaluate, samples)?;
                    if flow.is_break() || session.state.step != step {
                        return Ok(flow);
                    }
                    pass = Pass::begin(session);
                }
                Action::Suspend | Action::Pause | Action::Run => {
                    session.controller.wait(&session.control);
                }
            }
            continue;
        };
        evaluate_micro_batch(session, &mut pass, size)?;
    }
    session.state.evaluated_step = session.state.step;
    report(session, pass.finish())?;
    let flow = answer_prompts(session)?;
    session.timer.restart();
    Ok(flow)
}

/// Evaluates at most `size` samples. After a failure they remain.
fn evaluate_micro_batch<T: Task>(
    session: &mut Session<'_, T>,
    pass: &mut Pass<T::Sample>,
    size: usize,
) -> Result<()> {
    let size = pass.limited(evaluated_at_once(session, size));
    let pending = &mut pass.pending;
    let arrived = session.loaders.held_out.fetch(pending.missing(size));
    let unreadable = pending.deliver(arrived);
    session
        .log
        .skipped_samples(session.state.step, unreadable)?;
    let samples = pending.micro_batch(size);
    let count = samples.len();
    if count == 0 {
        return Ok(());
    }
    session.controller.begin(count)?;
    match with_autorelease_pool(|| session.learner.evaluate(session.control.cancel(), samples)) {
        Ok(evaluated) => {
            session.controller.record(Outcome::Ok);
            pass.sum.add(evaluated);
            pending.done(count);
            Ok(())
        }
        Err(error) => recover(session, error, false),
    }
}

/// Whether the run can resume from its newest checkpoint. The other ranks of a group do not go back
/// to an earlier step.
fn can_suspend<T: Task>(session: &Session<'_, T>) -> bool {
    session.group.is_alone() || session.saving.is_saved(session.state.step)
}

/// The micro-batch that the memory controller decided, or a smaller one if the user limits it.
fn evaluated_at_once<T: Task>(session: &Session<'_, T>, size: usize) -> usize {
    let most = session.plan.config.evaluation_batch;
    most.map_or(size, |most| size.min(most as usize))
}

/// Bytes of the evaluated documents. A selection of the windows has the same share of the bytes, on
/// average.
fn evaluated_bytes<T: Task>(session: &Session<'_, T>) -> u64 {
    let held_out = &session.loaders.held_out;
    let share = session.evaluated_samples as f64 / held_out.split_len().max(1) as f64;
    (session.held_out_bytes as f64 * share) as u64
}

/// Emits the result: that of the network, or of its best mixture with the baseline. The best one so
/// far is also saved as a report and a checkpoint.
fn report<T: Task>(session: &mut Session<'_, T>, sums: Sums) -> Result<()> {
    let plan = session.plan;
    if sums.all.samples == 0 {
        return session.log.warn(
            "no_held_out",
            format!(
                "no held-out {} could be read; nothing was evaluated",
                plan.task().sample_noun()
            ),
        );
    }
    let inputs = MetricInputs {
        held_out_bytes: evaluated_bytes(session),
        heads: plan.heads(),
        columns: &plan.columns,
    };
    let Mixture { sum, parts } = sums.all.into_best_mixture();
    let metrics = T::metrics(&sum, &inputs).with_parts(parts);
    let (loss, score) = (metrics.loss, metrics.score);
    let compared = sums.compared.filter(|sum| sum.samples > 0);
    let compared = compared.map(|sum| T::metrics(&sum.into_best_mixture().sum, &inputs).score);
    let compared = compared.unwrap_or(score);
    let state = &mut session.state;
    state.baseline_share = parts.map(|parts| parts.baseline_share);
    let is_better = state.best.is_none_or(|(before, _)| compared > before);
    // JSON has no NaN: a checkpoint stores finite numbers only.
    let is_best = is_better && compared.is_finite() && score.is_finite();
    state.count_evaluation(is_best.then_some(compared));
    let is_finite = loss.is_finite() && score.is_finite();
    state.evaluation = is_finite.then_some((loss, score));
    session.log.emit(RunEvent::Evaluation {
        at_ms: session.log.now_ms(),
        step: state.step,
        epoch: state.step.div_ceil(plan.steps_per_epoch.max(1)),
        samples: sum.samples,
        loss,
        metrics: metrics.by_name.clone(),
        best: is_best,
    })?;
    if is_best {
        let save_results = results_to_save(session, &sum, &metrics);
        session.save_best(save_results)?;
    }
    Ok(())
}

/// What saves the report of the best evaluation, and the predictions that it is based on.
fn results_to_save<T: Task>(
    session: &Session<'_, T>,
    sum: &EvaluatedMicroBatch,
    metrics: &Metrics,
) -> SaveResults {
    let plan = session.plan;
    let about = ReportInputs {
        classes: &plan.classes,
        columns: &plan.columns,
        step: session.state.step,
        part: split_name(Split::HeldOut),
    };
    let report = EvaluationReport::new(sum, metrics, &about);
    let held_out = &session.loaders.held_out;
    let file = |index| held_out.file(index);
    let samples = SampleResult::all(&sum.predictions, &plan.columns, file);
    let results = Results::new(plan.task(), report, samples);
    Box::new(move |run| {
        results.report.save(run)?;
        results.save(run)
    })
}
