//! The curves of a run as a table: one row per optimizer step or evaluation.

use crate::event::RunEvent;
use std::fmt::Write;

/// The steps and evaluations as CSV, in the order of the run. Cells that a row does not have are
/// empty; so are numbers that are not finite.
pub fn curves_csv(events: &[RunEvent]) -> String {
    let mut table = String::from(
        "seconds,step,epoch,loss,learning_rate,gradient_norm,samples_per_second,held_out_loss,held_out_accuracy\n",
    );
    let cell = |value: f64| {
        if value.is_finite() {
            value.to_string()
        } else {
            String::new()
        }
    };
    for event in events {
        let seconds = event.at_ms() as f64 / 1000.0;
        // Writing to a string cannot fail.
        let _ = match event {
            RunEvent::Step {
                step,
                epoch,
                loss,
                learning_rate,
                gradient_norm,
                samples_per_second,
                ..
            } => writeln!(
                table,
                "{seconds},{step},{},{},{},{},{},,",
                epoch + 1,
                cell(*loss),
                cell(*learning_rate),
                cell(*gradient_norm),
                cell(*samples_per_second)
            ),
            RunEvent::Evaluation {
                step,
                epoch,
                loss,
                metrics,
                ..
            } => writeln!(
                table,
                "{seconds},{step},{epoch},,,,,{},{}",
                cell(*loss),
                metrics.get("accuracy").copied().map_or(String::new(), cell)
            ),
            _ => Ok(()),
        };
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn steps_and_evaluations_are_rows_of_one_table() {
        let step = RunEvent::Step {
            at_ms: 1500,
            step: 3,
            epoch: 0,
            loss: f64::NAN,
            learning_rate: 0.001,
            gradient_norm: 2.5,
            samples_per_second: 12.0,
            wait_ms: 0.0,
            command_buffer_ms: None,
            micro_batches: Vec::new(),
            checkpoint_blocks: Vec::new(),
            ledger: Vec::new(),
            metrics: BTreeMap::new(),
        };
        let evaluation = RunEvent::Evaluation {
            at_ms: 2000,
            step: 3,
            epoch: 1,
            samples: 10,
            loss: 0.5,
            metrics: BTreeMap::from([("accuracy".to_owned(), 0.75)]),
            best: true,
        };
        let table = curves_csv(&[step, evaluation]);
        let rows: Vec<&str> = table.lines().skip(1).collect();
        assert_eq!(rows, ["1.5,3,1,,0.001,2.5,12,,", "2,3,1,,,,,0.5,0.75"]);
        let columns = table.lines().map(|row| row.split(',').count());
        assert!(columns.eq([9, 9, 9]), "{table}");
    }
}
