//! Samples are loaded ahead on worker threads: the training rarely waits for data, and the number
//! of workers changes no loss.

use crate::support::{TestHome, draw_classes, losses};
use pressure::Phase;
use runlog::RunEvent;

#[test]
fn the_number_of_workers_changes_no_loss() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 16);
    let trained = |workers: u32| {
        let line = format!(
            "{{birds}} --image-size 16 --steps 9 --effective-batch 8 --micro-batch 3 --workers {workers}"
        );
        home.train(&line).expect_code(0).events()
    };
    let without_workers = trained(0);
    assert_eq!(losses(&without_workers).len(), 9);
    for (workers, description) in [
        (
            0,
            "Loader: no workers (the training thread loads the samples), cache ",
        ),
        (1, "Loader: 1 worker, 16 samples loaded in advance, cache "),
        (4, "Loader: 4 workers, 16 samples loaded in advance, cache "),
    ] {
        let events = trained(workers);
        let Some(RunEvent::Started(started)) = events.first() else {
            panic!("{:?}", events.first());
        };
        assert!(
            started.loader.starts_with(description),
            "{}",
            started.loader
        );
        assert_eq!(
            losses(&events),
            losses(&without_workers),
            "{workers} workers"
        );
    }
}

#[test]
fn prefetch_and_evaluation_batch_are_printed_and_change_no_result() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 16);
    let trained = |options: &str| {
        let line = format!(
            "{{birds}} --image-size 16 --steps 4 --effective-batch 8 --workers 1 --augment none {options}"
        );
        home.train(&line).expect_code(0).events()
    };
    let loader = |events: &[RunEvent]| match events.first() {
        Some(RunEvent::Started(started)) => started.loader.clone(),
        other => panic!("{other:?}"),
    };
    let evaluated = |events: &[RunEvent]| {
        let last = events.iter().rev().find_map(|event| match event {
            RunEvent::Evaluation { samples, loss, .. } => Some((*samples, *loss)),
            _ => None,
        });
        last.expect("the last step is evaluated")
    };
    let usual = trained("");
    let limited = trained("--prefetch 3 --evaluation-batch 2");
    assert!(loader(&usual).contains("1 worker, 16 samples loaded in advance"));
    assert!(
        loader(&usual)
            .ends_with("; evaluates as many samples as fit into memory at once; no pinned memory")
    );
    assert!(loader(&limited).contains("1 worker, 24 samples loaded in advance"));
    assert!(loader(&limited).ends_with("; evaluates at most 2 samples at once; no pinned memory"));
    assert_eq!(losses(&usual), losses(&limited));
    let ((samples, loss), (few_samples, few_loss)) = (evaluated(&usual), evaluated(&limited));
    assert_eq!(samples, few_samples);
    assert!((loss - few_loss).abs() < 1e-5, "{loss} {few_loss}");
    let sizes: Vec<usize> = limited.iter().filter_map(evaluation_size).collect();
    assert!(
        !sizes.is_empty() && sizes.iter().all(|size| (1..=2).contains(size)),
        "the events have the sizes in use: {sizes:?}"
    );
}

fn evaluation_size(event: &RunEvent) -> Option<usize> {
    match event {
        RunEvent::Decision {
            phase: Phase::Evaluate,
            decision,
            ..
        } => decision.micro_batch(),
        _ => None,
    }
}

/// Milliseconds of waiting for data and in all, over all steps after the first.
fn wait_and_total_ms(events: &[RunEvent]) -> (f64, f64) {
    let step = |event: &RunEvent| match event {
        RunEvent::Step {
            wait_ms,
            samples_per_second,
            micro_batches,
            ..
        } => {
            let samples: u32 = micro_batches.iter().sum();
            Some((*wait_ms, 1000.0 * f64::from(samples) / samples_per_second))
        }
        _ => None,
    };
    events
        .iter()
        .filter_map(step)
        .skip(1)
        .fold((0.0, 0.0), |sum, (wait, all)| (sum.0 + wait, sum.1 + all))
}

#[test]
fn training_waits_for_data_at_most_5_percent_of_its_time() {
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/sample/groceries");
    let line = format!("{sample} --steps 30");
    // Other processes may take the processor from the loader, so the best of some runs counts.
    let mut least = f64::INFINITY;
    for _ in 0..5 {
        let events = TestHome::new().train(&line).expect_code(0).events();
        let (wait_ms, step_ms) = wait_and_total_ms(&events);
        least = least.min(wait_ms / step_ms);
        println!(
            "waited {wait_ms:.0} of {step_ms:.0} ms, at best {:.2} %",
            100.0 * least
        );
        if least <= 0.05 {
            break;
        }
    }
    assert!(least <= 0.05, "{:.2} %", 100.0 * least);
}
