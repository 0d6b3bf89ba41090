//! `ebb find-lr`: a learning rate range test (Smith 2017). The learning rate rises by the same
//! factor at each step, until the loss rises again. The test suggests the rate at which the loss
//! falls fastest.

use super::args::FindLr;
use super::failure::Failure;
use super::interrupt::AtWork;
use super::output::{out, status};
use super::train_once::{self, Attempt};
use super::weights_from_hub::with_downloaded_weights;
use dataset::DetectedDataset;
use runlog::{RunConfig, RunEvent, RunStore};
use serde_json::json;
use trainer::{Plan, Request};

/// Decay of the moving average that smooths the loss.
const PAST: f64 = 0.9;
/// The test ends when the smoothed loss is this many times its lowest value.
const TOO_MUCH: f64 = 3.0;
/// A high loss can end the test only after this many steps.
const LEAST_STEPS: usize = 10;
/// Width and height of the plot, in characters.
const PLOT: (usize, usize) = (64, 14);

/// Steps of the test before a training.
pub const STEPS: u64 = 100;
/// Highest learning rate of the test before a training.
const HIGHEST: f64 = 1.0;

/// Runs `ebb find-lr`.
pub fn run(args: &FindLr) -> Result<(), Failure> {
    let config = with_downloaded_weights(args.tried.config()?)?;
    let config = test_config(config, args.steps, args.highest)?;
    let found = train_once::inspect(&config, &args.tried.folder)?;
    let (curve, plan) = range_test(&config, &found, &AtWork::handled()?)?;
    let Some(suggestion) = curve.suggestion() else {
        return Err(Failure::new(
            "the loss did not fall at any learning rate; check the folder with `ebb inspect`, or use more --steps",
        ));
    };
    print(&curve, suggestion, &plan, args.tried.json);
    Ok(())
}

/// The learning rate that a short test suggests for a training with this config; `None` if the loss
/// fell at no rate.
///
/// # Errors
/// The config is refused, or the user stopped the test.
pub fn suggest_rate(
    config: &RunConfig,
    found: &DetectedDataset,
    at_work: &AtWork,
) -> Result<Option<f64>, Failure> {
    let config = test_config(config.clone(), STEPS, HIGHEST)?;
    let (curve, _) = range_test(&config, found, at_work)?;
    Ok(curve.suggestion())
}

/// Trains while the learning rate rises, until the loss rises again or the steps are done.
fn range_test(
    config: &RunConfig,
    found: &DetectedDataset,
    at_work: &AtWork,
) -> Result<(Curve, Plan), Failure> {
    let (mut curve, mut whole) = (Curve::default(), false);
    // The run is deleted: a learning rate that is too high has spoilt its weights.
    let place = std::env::temp_dir().join(format!("ebb-find-lr-{}", std::process::id()));
    let store = RunStore::open(&place);
    let steps = config.steps.unwrap_or(STEPS);
    let tried = train_once::train(
        config,
        found,
        train_once::Place {
            store: &store,
            name: None,
        },
        at_work,
        |event, control| {
            if let RunEvent::Step {
                step,
                loss,
                learning_rate,
                ..
            } = event
            {
                curve.take(*learning_rate, *loss);
                // The last step of a run is followed by an evaluation, so stop before it.
                if curve.is_over() || *step + 1 >= steps {
                    whole = true;
                    control.send(Request::Stop);
                }
            }
        },
    );
    let _ = ::disk::remove_dir_all(&place);
    let Attempt { plan, failed, .. } = tried?;
    if let Some(error) = failed {
        status!("The test ended because the training diverged: {error}");
    } else if !whole {
        return Err(Failure::stopped(format!(
            "stopped by request at a learning rate of {:.1e}; the loss had not risen yet, so there is no suggestion",
            curve.points.last().map_or(0.0, |point| point.0)
        )));
    }
    Ok((curve, plan))
}

/// The config of a test: the learning rate rises with every step, and nothing is evaluated or
/// saved.
fn test_config(config: RunConfig, steps: u64, highest: f64) -> Result<RunConfig, Failure> {
    let config = RunConfig {
        steps: Some(steps),
        learning_rate: Some(highest),
        schedule: Some(runlog::ScheduleChoice::Rising),
        evaluate_every_epochs: Some(100_000),
        checkpoint_every: Some(runlog::CheckpointInterval::Epochs(1000)),
        ..config
    };
    config.validate()?;
    Ok(train_once::without_baseline(config))
}

fn print(curve: &Curve, suggestion: f64, plan: &Plan, as_json: bool) {
    let (model, samples) = (plan.model.name(), plan.effective_batch);
    if as_json {
        let point = |(rate, loss, smooth): &(f64, f64, f64)| json!({"learning_rate": rate, "loss": loss, "smoothed": smooth});
        return out!(
            "{}",
            json!({
                "model": model, "effective_batch": samples,
                "suggestion": suggestion, "lowest_loss_at": curve.lowest().map(|at| curve.points[at].0),
                "points": curve.points.iter().map(point).collect::<Vec<_>>(),
            })
        );
    }
    for line in curve.plot(suggestion) {
        out!("{line}");
    }
    out!(
        "Suggestion for {model} with {samples} samples per step: --learning-rate {suggestion:.1e}"
    );
}

/// Rate, loss and smoothed loss of every step.
#[derive(Default)]
struct Curve {
    points: Vec<(f64, f64, f64)>,
    mean: f64,
}

impl Curve {
    fn take(&mut self, rate: f64, loss: f64) {
        if !loss.is_finite() {
            return;
        }
        self.mean = PAST * self.mean + (1.0 - PAST) * loss;
        let corrected = self.mean / (1.0 - PAST.powi(self.points.len() as i32 + 1));
        self.points.push((rate, loss, corrected));
    }

    fn lowest(&self) -> Option<usize> {
        (0..self.points.len()).min_by(|a, b| self.points[*a].2.total_cmp(&self.points[*b].2))
    }

    fn is_over(&self) -> bool {
        let lowest = self.lowest().map_or(f64::INFINITY, |at| self.points[at].2);
        let newest = self.points.last().map_or(0.0, |point| point.2);
        self.points.len() >= LEAST_STEPS && newest > TOO_MUCH * lowest
    }

    /// The learning rate at which the smoothed loss, plotted against the logarithm of the rate,
    /// falls most steeply. Only learning rates below the one with the lowest loss are considered.
    /// `None` if the loss falls at none of them.
    fn suggestion(&self) -> Option<f64> {
        let lowest = self.lowest()?;
        let reach = 2;
        let slope = |at: &usize| {
            let (low, high) = (&self.points[at - reach], &self.points[at + reach]);
            (high.2 - low.2) / (high.0 / low.0).ln()
        };
        let steepest =
            (reach..lowest.saturating_sub(reach)).min_by(|a, b| slope(a).total_cmp(&slope(b)))?;
        (slope(&steepest) < 0.0).then(|| self.points[steepest].0)
    }

    /// Plots the smoothed loss against the learning rate, and marks the suggested rate.
    fn plot(&self, suggestion: f64) -> Vec<String> {
        let (width, height) = PLOT;
        let shown = self.points.iter().map(|point| point.2);
        let low = shown.clone().fold(f64::INFINITY, f64::min);
        // The rise at the end is cut off; it would leave no room for the fall.
        let first = self.points.first().map_or(low, |point| point.2);
        let high = low + 1.25 * (first - low).max(1e-6);
        let rates = (self.points.first(), self.points.last());
        let (Some(&(from, ..)), Some(&(to, ..))) = rates else {
            return Vec::new();
        };
        let span = (to / from).ln().max(1e-9);
        let column =
            |rate: f64| (((rate / from).ln() / span) * (width - 1) as f64).round() as usize;
        let mut rows = vec![vec![' '; width]; height];
        for &(rate, _, loss) in &self.points {
            let down = ((high - loss) / (high - low) * (height - 1) as f64).round();
            let row = (down.max(0.0) as usize).min(height - 1);
            rows[row][column(rate).min(width - 1)] = '•';
        }
        let at = column(suggestion).min(width - 1);
        let label = |row: usize| match row {
            0 => format!("{high:8.3}"),
            row if row == height - 1 => format!("{low:8.3}"),
            _ => " ".repeat(8),
        };
        let mut lines: Vec<String> = rows
            .iter()
            .enumerate()
            .map(|(row, cells)| {
                format!(
                    "{} │{}",
                    label(row),
                    cells.iter().collect::<String>().trim_end()
                )
            })
            .collect();
        lines.push(format!("{} └{}▲", " ".repeat(8), "─".repeat(at)));
        let (from, to) = (format!("{from:.0e}"), format!("{to:.0e}"));
        let gap = width.saturating_sub(from.len() + to.len());
        lines.push(format!("{} {from}{}{to}", " ".repeat(9), " ".repeat(gap)));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loss that is constant at first, falls around a learning rate of 1e-3, and rises above
    /// 1e-1.
    fn curve() -> Curve {
        let mut curve = Curve::default();
        for step in 0..100 {
            let rate = 1e-6 * 10f64.powf(step as f64 * 6.0 / 99.0);
            let fall = 1.0 / (1.0 + (rate / 1e-3).powi(2));
            curve.take(rate, 0.5 + 1.8 * fall + 40.0 * (rate - 0.1).max(0.0));
        }
        curve
    }

    #[test]
    fn the_suggestion_stands_where_the_loss_falls_fastest() {
        let curve = curve();
        let found = curve.suggestion().unwrap_or(f64::NAN);
        // Smoothing looks back about ten steps.
        assert!((5e-4..1e-2).contains(&found), "{found}");
        assert!(curve.is_over());
        let lowest = curve.points[curve.lowest().unwrap_or(0)].0;
        assert!(found < lowest, "{found} and {lowest}");
    }

    #[test]
    fn a_loss_that_never_falls_suggests_nothing() {
        let mut curve = Curve::default();
        (0..50).for_each(|step| curve.take(1e-6 * 1.3f64.powi(step), 2.0 + f64::from(step)));
        assert_eq!(curve.suggestion(), None);
        curve.take(1.0, f64::NAN);
        assert_eq!(curve.points.len(), 50);
    }

    #[test]
    fn the_plot_has_its_size_and_marks_the_suggestion() {
        let curve = curve();
        let lines = curve.plot(1e-3);
        assert_eq!(lines.len(), PLOT.1 + 2);
        assert!(
            lines.iter().all(|line| line.chars().count() <= PLOT.0 + 12),
            "{lines:#?}"
        );
        assert!(lines[PLOT.1].ends_with('▲') && lines[PLOT.1].chars().count() > 30);
    }
}
