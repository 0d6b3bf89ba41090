//! The curves of a run by its steps, so that those of two runs can be drawn over each other.

use crate::decimate;
use crate::fold_events::Run;
use crate::loss_smoothing::smoothed;
use crate::metric_text::{metric_name, metric_value};
use crate::time_series::Series;

/// The curves of a run: step and value of each point. Values that are not finite are left out.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StepCurves {
    /// Smoothed training loss.
    pub loss: Vec<(f64, f64)>,
    /// Held-out loss.
    pub held_out_loss: Vec<(f64, f64)>,
    /// Main metric of the task: "accuracy", "calories MAE"; `None` if there is none.
    pub metric_name: Option<String>,
    /// The main metric; an accuracy is a fraction.
    pub metric: Vec<(f64, f64)>,
}

impl Run {
    /// The curves of the whole run, each in at most `points` points (8 or more). The loss is
    /// smoothed over about `smoothed_steps` steps.
    pub fn step_curves(&self, points: u32, smoothed_steps: f64) -> StepCurves {
        let losses = self.steps.raw_losses();
        let average = smoothed(losses, 0..losses.len(), smoothed_steps);
        let mut loss = Series::<1>::default();
        for (step, value) in self.steps.numbers().iter().zip(average) {
            loss.push(*step as f64, [f64::from(value)]);
        }
        let targets = self
            .started()
            .map_or(&[][..], |started| &started.targets[..]);
        let (mut held_out_loss, mut metric) = (Series::<1>::default(), Series::<1>::default());
        for evaluation in self.evaluations() {
            let step = evaluation.step as f64;
            held_out_loss.push(step, [evaluation.loss]);
            metric.push(step, [metric_value(evaluation, targets)]);
        }
        let newest = self.evaluations().last();
        StepCurves {
            loss: decimated(&loss, points),
            held_out_loss: decimated(&held_out_loss, points),
            metric_name: newest.and_then(|newest| metric_name(newest, targets)),
            metric: decimated(&metric, points),
        }
    }
}

fn decimated(series: &Series<1>, points: u32) -> Vec<(f64, f64)> {
    let last = series.at_ms().last().copied().unwrap_or(0.0);
    let line = decimate::line(series, 0.0, last, points / 2);
    let [values] = line.columns;
    let all = line.at_ms.into_iter().zip(values);
    all.filter(|(_, value)| value.is_finite()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::RunEvent;
    use std::collections::BTreeMap;

    fn step(step: u64, loss: f64) -> RunEvent {
        RunEvent::Step {
            at_ms: 10 * step,
            step,
            epoch: 0,
            loss,
            learning_rate: 0.001,
            gradient_norm: 1.0,
            samples_per_second: 1.0,
            wait_ms: 0.0,
            command_buffer_ms: None,
            micro_batches: Vec::new(),
            checkpoint_blocks: Vec::new(),
            ledger: Vec::new(),
            metrics: BTreeMap::new(),
        }
    }

    fn evaluation(step: u64, loss: f64, accuracy: f64) -> RunEvent {
        RunEvent::Evaluation {
            at_ms: 10 * step,
            step,
            epoch: 1,
            samples: 10,
            loss,
            metrics: BTreeMap::from([("accuracy".to_owned(), accuracy)]),
            best: false,
        }
    }

    #[test]
    fn a_curve_is_by_step_and_has_at_most_so_many_points() {
        let mut run = Run::default();
        for number in 1..=5000 {
            run.apply(&step(number, if number == 2500 { 9.0 } else { 1.0 }));
        }
        let curves = run.step_curves(1000, 1.0);
        assert!(
            curves.loss.len() > 500 && curves.loss.len() <= 1000,
            "{}",
            curves.loss.len()
        );
        let (first, last) = (curves.loss[0].0, curves.loss[curves.loss.len() - 1].0);
        assert_eq!((first, last), (1.0, 5000.0));
        let highest = curves
            .loss
            .iter()
            .map(|(_, loss)| *loss)
            .fold(0.0, f64::max);
        assert_eq!(highest, 9.0, "a spike is kept");
    }

    #[test]
    fn evaluations_have_the_loss_and_the_metric() {
        let mut run = Run::default();
        run.apply(&step(4, 2.0));
        run.apply(&evaluation(4, 1.5, 0.25));
        run.apply(&step(8, f64::NAN));
        run.apply(&evaluation(8, f64::NAN, 0.5));
        let curves = run.step_curves(100, 10.0);
        assert_eq!(curves.held_out_loss, [(4.0, 1.5)]);
        assert_eq!(curves.metric_name.as_deref(), Some("accuracy"));
        assert_eq!(curves.metric, [(4.0, 0.25), (8.0, 0.5)]);
        assert_eq!(Run::default().step_curves(100, 10.0), StepCurves::default());
    }
}
