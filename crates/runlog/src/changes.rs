//! The changes of a run: decisions that changed something, changed memory limits, and its
//! continuations. They are marked in the charts and listed.

use crate::fold_events::Run;
use crate::run_view::Mark;
use crate::status_text;
use pressure::{Change, Component, Decision, describe_resize};

/// A pause that ends within this time is one change together with its end, in milliseconds.
const SHORT_PAUSE_MS: u64 = 5000;

impl Run {
    /// Adds the change of a decision. Returns its text if it completes the pause before: to the
    /// user both are one change.
    pub(crate) fn add_change(
        &mut self,
        at_ms: u64,
        from: u32,
        decision: &Decision,
    ) -> Option<String> {
        if decision.change == Change::Continue
            && let Some(text) = self.end_short_pause(at_ms, decision.micro_batch)
        {
            return Some(text);
        }
        self.push_mark(Mark {
            at_ms,
            step: self.figures.step,
            change: decision.change,
            from,
            to: decision.micro_batch,
            cause: decision.cause,
            level: self.figures.level,
            short: status_text::short(decision, from),
            reason: decision.reason.clone(),
        });
        None
    }

    /// Adds a smaller micro-batch of an evaluation. That of training stays, so it is both ends of
    /// the mark.
    pub(crate) fn add_evaluation_change(&mut self, at_ms: u64, decision: &Decision) {
        let micro_batch = self.figures.micro_batch.unwrap_or(0);
        self.push_mark(Mark {
            at_ms,
            step: self.figures.step,
            change: decision.change,
            from: micro_batch,
            to: micro_batch,
            cause: decision.cause,
            level: self.figures.level,
            short: format!("Evaluating with {}", decision.micro_batch),
            reason: decision.reason.clone(),
        });
    }

    /// Adds that the run was resumed at `step`.
    pub(crate) fn add_resumption(&mut self, at_ms: u64, step: u64, device: &str) {
        self.push_mark(Mark {
            at_ms,
            step,
            change: Change::Start,
            from: 0,
            to: 0,
            cause: Component::User,
            level: self.figures.level,
            short: "Resumed".into(),
            reason: format!("from the checkpoint at step {step}, on {device}"),
        });
    }

    /// Adds that the user changed a memory limit.
    pub(crate) fn add_limits(&mut self, at_ms: u64, message: &str) {
        let micro_batch = self.figures.micro_batch.unwrap_or(0);
        self.push_mark(Mark {
            at_ms,
            step: self.figures.step,
            change: Change::Start,
            from: micro_batch,
            to: micro_batch,
            cause: Component::User,
            level: self.figures.level,
            short: message.to_owned(),
            reason: "by you".into(),
        });
    }

    fn push_mark(&mut self, mark: Mark) {
        self.marks.push(mark);
        self.figures.changes = self.marks.len() as u32;
    }

    /// Makes the newest pause one change with its end if it was short.
    fn end_short_pause(&mut self, at_ms: u64, to: u32) -> Option<String> {
        let pause = self.marks.last_mut()?;
        let is_pause = matches!(pause.change, Change::Pause | Change::Suspend);
        let lasted_ms = at_ms.saturating_sub(pause.at_ms);
        if !is_pause || pause.from == 0 || lasted_ms > SHORT_PAUSE_MS {
            return None;
        }
        pause.to = to;
        (pause.change, pause.short) = match to.cmp(&pause.from) {
            std::cmp::Ordering::Less => resized(Change::Shrink, pause.from, to),
            std::cmp::Ordering::Greater => resized(Change::Grow, pause.from, to),
            std::cmp::Ordering::Equal => {
                let seconds = lasted_ms as f64 / 1000.0;
                (Change::Pause, format!("Paused for {seconds:.1} s"))
            }
        };
        Some(format!("{}: {}", pause.short, pause.reason))
    }
}

fn resized(change: Change, from: u32, to: u32) -> (Change, String) {
    (change, describe_resize(change, from, to))
}
