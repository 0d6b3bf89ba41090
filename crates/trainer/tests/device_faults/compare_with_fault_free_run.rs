//! Whether a disturbed run has the result of a run without faults.

use crate::fault_schedule::{STEPS, Schedule};
use crate::interrupted_run::{EndedByError, Record, disturbed, repeated};
use crate::training_setups::Scenario;
use tape::fault_injection::Fault;

/// The warning of a run that could not save a checkpoint.
const NOT_SAVED: &str = "no checkpoint was saved";

/// How a schedule ended.
pub enum Outcome {
    /// The result is that of a run without faults.
    Same {
        /// Sessions that ended with an error before.
        errors: usize,
        /// Faults that happened.
        faults: usize,
    },
    /// It differs, or cannot be continued.
    Failed(String),
}

impl Outcome {
    /// The outcome without its numbers.
    pub fn class(&self) -> String {
        match self {
            Outcome::Same { faults: 0, .. } => "same: no fault happened".to_owned(),
            Outcome::Same { errors: 0, .. } => "same: recovered within the run".to_owned(),
            Outcome::Same { .. } => {
                "same: ended with an error that says so, and resumed".to_owned()
            }
            Outcome::Failed(reason) => {
                let class = reason.split(':').next().unwrap_or_default();
                format!("FAILED: {class}")
            }
        }
    }
}

/// Plays a schedule and compares. `calm` is the run without faults in fixed micro-batches.
pub fn check(scenario: &Scenario, calm: &Record, schedule: &Schedule) -> Outcome {
    let run = disturbed(scenario, schedule);
    let is_usual = run
        .micro_batches
        .iter()
        .all(|(step, sizes)| calm.micro_batches.get(step) == Some(sizes));
    let repetition;
    let expected = if is_usual {
        calm
    } else {
        repetition = repeated(scenario, schedule, &run.events, None);
        &repetition
    };
    match compare(&run, expected).and_then(|()| compare_uses(scenario, schedule, &run, expected)) {
        Ok(()) => Outcome::Same {
            errors: run.errors.len(),
            faults: run.happened.len(),
        },
        Err(reason) => {
            let errors: Vec<&str> = run.errors.iter().map(|e| e.error.as_str()).collect();
            Outcome::Failed(format!(
                "{reason}\n  errors: {errors:#?}\n  warnings: {:#?}\n  happened: {:?}, {} garbage results",
                run.warnings, run.happened, run.garbage_results
            ))
        }
    }
}

fn compare(run: &Record, expected: &Record) -> Result<(), String> {
    for error in &run.errors {
        if error.code == "panicked" {
            return Err(format!("panic: {}", error.error));
        }
        let names = |fault: &Fault| error.error.contains(fault.description());
        if !run.happened.iter().any(|happened| names(&happened.fault)) {
            return Err(format!("an error that names no fault: {}", error.error));
        }
        check_checkpoint(error, expected)?;
    }
    if let Some(reason) = &run.unfinished {
        return Err(format!("no end: {reason}"));
    }
    for (step, found) in &run.checkpoints {
        if expected.checkpoints.get(step) != Some(found) {
            return Err(format!("silent difference in a checkpoint: step {step}"));
        }
    }
    if !run.checkpoints.contains_key(&STEPS) {
        return Err("lost checkpoint: that of the last step".to_owned());
    }
    for (step, loss) in &run.losses {
        if expected.losses.get(step).map(|l| l.to_bits()) != Some(loss.to_bits()) {
            return Err(format!("silent difference in a loss: step {step}"));
        }
    }
    for (step, found) in &run.evaluations {
        if !expected
            .evaluations
            .get(step)
            .is_some_and(|e| near(found, e))
        {
            let expected = expected.evaluations.get(step);
            return Err(format!(
                "silent difference in an evaluation: step {step}, {found:?} for {expected:?}"
            ));
        }
    }
    Ok(())
}

/// Compares the uses of the trained model. If the best checkpoint could not be saved, as a warning
/// says, the model is that of another checkpoint.
fn compare_uses(
    scenario: &Scenario,
    schedule: &Schedule,
    run: &Record,
    expected: &Record,
) -> Result<(), String> {
    let of_same_step;
    let expected = match run.used_step {
        Some(step) if expected.used_step != Some(step) => {
            if !run.warnings.iter().any(|w| w.contains(NOT_SAVED)) {
                return Err(format!(
                    "silent loss of the best checkpoint: step {step} is used"
                ));
            }
            of_same_step = repeated(scenario, schedule, &run.events, Some(step));
            &of_same_step
        }
        _ => expected,
    };
    for (usage, found) in &run.used {
        if expected.used.get(usage) != Some(found) {
            return Err(format!("silent difference in a use: {usage:?}"));
        }
    }
    Ok(())
}

/// Equal but for the order of additions in other micro-batches.
fn near(a: &[f64], b: &[f64]) -> bool {
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-4 * (a.abs() + b.abs()) || a == b;
    a.len() == b.len() && a.iter().zip(b).all(near)
}

/// The newest checkpoint after an error is right, and there is one unless the error says so.
fn check_checkpoint(error: &EndedByError, expected: &Record) -> Result<(), String> {
    let text = &error.error;
    match error.checkpoint {
        Some((step, found)) if expected.checkpoints.get(&step) != Some(&vec![found]) => {
            Err(format!("wrong checkpoint after an error: step {step}"))
        }
        None if text.contains("checkpoint is valid") => Err(format!(
            "an error that names a checkpoint which does not exist: {text}"
        )),
        None if error.had_something_to_save && !text.contains("no checkpoint was written yet") => {
            Err(format!("lost checkpoint: {text}"))
        }
        _ => Ok(()),
    }
}
