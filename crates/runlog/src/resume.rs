//! Folding `resumed`: what came after the checkpoint is void, and the run is what it was then. Knows only the fold.

use crate::lines;
use crate::reduce::Run;
use crate::smooth::Smooth;
use crate::view::Figures;

impl Run {
    pub(crate) fn resume(&mut self, at_ms: u64, step: u64, device: &str) {
        self.now_ms = at_ms;
        let kept = self.steps.partition_point(|done| *done <= step);
        self.steps.truncate(kept);
        self.loss.truncate(kept);
        self.evaluations
            .retain(|evaluation| evaluation.step <= step);
        self.checkpoints
            .retain(|checkpoint| checkpoint.step <= step);
        self.predictions
            .retain(|prediction| prediction.at_ms <= at_ms);
        self.last_minutes.clear();
        // The clock may have been set back to that of the checkpoint.
        self.memory.forget_after(at_ms as f64);
        self.micro.forget_after(at_ms as f64);
        self.marks.retain(|mark| mark.at_ms <= at_ms);
        self.spans.retain(|span| span.from_ms <= at_ms);
        self.spans
            .iter_mut()
            .for_each(|span| span.to_ms = span.to_ms.min(at_ms));
        self.smooth = Smooth::default();
        for loss in self.loss.column(0) {
            self.smooth.next(f64::from(*loss));
        }
        self.pace.interrupt();
        self.stopped = None;
        self.figures = Figures {
            step,
            epoch: self.started.as_ref().map_or(0, |started| {
                (step.saturating_sub(1))
                    .checked_div(started.steps_per_epoch)
                    .map_or(0, |epoch| epoch + 1)
            }),
            loss: self.loss.last().map(|(_, [raw, _])| raw),
            smoothed_loss: self
                .loss
                .last()
                .map(|(_, [_, smoothed])| smoothed)
                .filter(|s| s.is_finite()),
            changes: self.marks.len() as u32,
            skipped: self.figures.skipped,
            measures: std::mem::take(&mut self.figures.measures),
            level_since_ms: at_ms,
            ..Figures::default()
        };
        self.held_out_figures();
        self.status = self.working();
        if let Some(started) = &mut self.started {
            started.device = device.to_owned();
        }
        let (sentence, meaning) = lines::resumed(step, device);
        self.say(at_ms, sentence, meaning);
    }
}
