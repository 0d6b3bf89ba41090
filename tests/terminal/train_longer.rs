//! `ebb resume --epochs` and `--steps` train a run longer than planned.

use crate::support::{TestHome, draw_classes};
use runlog::{RunEvent, RunFolder, RunStatus, read_events};
use std::collections::BTreeMap;

/// With this learning rate the weights stay the same, so that a loss depends on the samples only.
const PLAN: &str =
    "{birds} --image-size 16 --effective-batch 4 --augment none --learning-rate 1e-9";

fn birds() -> TestHome {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 10);
    home
}

/// Loss and learning rate of each step, as it was done last.
fn steps(run: &RunFolder) -> BTreeMap<u64, (f64, f64)> {
    let events = read_events(&run.events_path()).expect("the events can be read");
    let of_step = |event: &RunEvent| match event {
        RunEvent::Step {
            step,
            loss,
            learning_rate,
            ..
        } => Some((*step, (*loss, *learning_rate))),
        _ => None,
    };
    events.iter().filter_map(of_step).collect()
}

fn config_steps(run: &RunFolder) -> (Option<u64>, Option<u64>) {
    let config = run.config().expect("the config can be read");
    (config.epochs, config.steps)
}

#[test]
fn more_epochs_have_the_samples_and_the_learning_rate_of_a_longer_run() {
    let home = birds();
    home.train(&format!("{PLAN} --epochs 2")).expect_code(0);
    let run = home.only_run();
    let resumed = home.run(&format!("resume {} --epochs 5", run.id()));
    let expected = "the run now ends after 20 steps (5 epochs) instead of 8 steps (2 epochs)";
    assert!(resumed.err.contains(expected), "{}", resumed.err);
    resumed.expect_code(0);
    home.train(&format!("{PLAN} --epochs 5 --out {{longer}}"))
        .expect_code(0);
    let longer = runlog::RunStore::open(home.path("longer")).list();
    let longer = steps(&longer.expect("the run can be listed")[0]);
    let extended = steps(&run);
    assert_eq!(extended.len(), 20);
    let mut all_losses = Vec::new();
    for (step, (loss, rate)) in &extended {
        let (longer_loss, longer_rate) = longer[step];
        assert!(
            (loss - longer_loss).abs() < 1e-5,
            "step {step}: {loss} instead of {longer_loss}"
        );
        if *step > 8 {
            assert_eq!(*rate, longer_rate, "step {step}");
        }
        all_losses.push(*loss);
    }
    assert!(extended[&8].1 < longer[&8].1, "the shorter plan had ended");
    all_losses.sort_by(f64::total_cmp);
    let apart = all_losses[19] - all_losses[0];
    assert!(apart > 1e-3, "every sample has the same loss");
    assert_eq!(config_steps(&run), (Some(5), Some(20)));
    assert_eq!(
        run.replay().map(|run| run.status()).ok(),
        Some(RunStatus::Finished)
    );
}

#[test]
fn patience_ends_a_run_that_no_longer_improves_and_a_resume_trains_on() {
    let home = birds();
    home.file("often.toml", "evaluate_every_epochs = 1\npatience = 2");
    let line = format!("{PLAN} --steps 400 --config {{often.toml}}");
    let output = home.train(&line).expect_code(0);
    let run = home.only_run();
    let evaluations = |expected: &[u64]| {
        let events = read_events(&run.events_path()).expect("the events can be read");
        let of_evaluation = |event: &RunEvent| match event {
            RunEvent::Evaluation { step, .. } => Some(*step),
            _ => None,
        };
        let steps: Vec<u64> = events.iter().filter_map(of_evaluation).collect();
        assert_eq!(steps, expected);
    };
    evaluations(&[4, 8, 12]);
    let reason = "Finished at step 12 of 400, because the last 2 evaluations were no better: ";
    assert!(output.out.contains(reason), "{}", output.out);
    let status = |expected| assert_eq!(run.replay().map(|run| run.status()).ok(), Some(expected));
    status(RunStatus::Finished);
    let resumed = home.run(&format!("resume {}", run.id())).expect_code(0);
    evaluations(&[4, 8, 12, 16]);
    let reason = "Finished at step 16 of 400, because the last 3 evaluations were no better: ";
    assert!(resumed.err.contains(reason), "{}", resumed.err);
    status(RunStatus::Finished);
}

#[test]
fn a_loss_that_does_not_fall_is_reported_early() {
    let home = birds();
    let output = home.train(&format!("{PLAN} --steps 110")).expect_code(0);
    let warned: Vec<String> = output
        .events()
        .into_iter()
        .filter_map(|event| match event {
            RunEvent::Warning { code, message, .. } if code == "not_learning" => Some(message),
            _ => None,
        })
        .collect();
    assert_eq!(warned.len(), 1, "{warned:?}");
    let begins = "the training loss has not fallen in the first 100 steps: ";
    assert!(warned[0].starts_with(begins), "{warned:?}");
}

#[test]
fn a_later_resume_goes_on_to_the_new_end() {
    let home = birds();
    home.train(&format!("{PLAN} --steps 4")).expect_code(0);
    let run = home.only_run();
    let longer = format!("resume {} --steps 40", run.id());
    let mut training = home.start(&longer);
    training.until(|event| matches!(event, RunEvent::Step { step: 6, .. }));
    training.signal("INT");
    assert_eq!(training.finish().0, Some(0));
    home.run(&format!("resume {}", run.id())).expect_code(0);
    assert_eq!(steps(&run).len(), 40);
    assert_eq!(config_steps(&run), (None, Some(40)));
    let planned = run.replay().ok().and_then(|run| Some(run.started()?.steps));
    assert_eq!(planned, Some(40));
}

#[test]
fn a_length_that_is_trained_already_is_refused_and_changes_nothing() {
    let home = birds();
    home.train(&format!("{PLAN} --epochs 2")).expect_code(0);
    let run = home.only_run();
    let events = || std::fs::read(run.events_path()).expect("the events can be read");
    let (before, config) = (events(), config_steps(&run));
    let check = |flags: &str, expected: &str| {
        let refused = home.run(&format!("resume {} {flags}", run.id()));
        assert!(refused.err.contains(expected), "{}", refused.err);
        refused.expect_code(2);
        assert!(events() == before && config_steps(&run) == config);
    };
    check(
        "--epochs 2",
        "epochs = 2 does not work: the run has already trained 8 steps, with 4 per epoch; choose at least 3 epochs in all",
    );
    check("--steps 8", "choose at least 9 steps in all");
    check("--epochs 0", "0 is not in 1..=100000");
    check("--epochs 100000000", "is not in 1..=100000");
    check("--epochs 3 --steps 20", "cannot be used with");
}
