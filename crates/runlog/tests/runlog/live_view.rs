//! What a run shows between two events.

use crate::support::demo;
use pressure::{Level, MemorySample, Phase};
use runlog::{Run, RunEvent, StepProgress};

fn fold(events: &[RunEvent]) -> Run {
    let mut run = Run::default();
    events.iter().for_each(|event| run.apply(event));
    run
}

/// The newest memory event of the demo, `later_ms` later, with another footprint and level.
fn sample(run: &Run, later_ms: u64, own_bytes: u64, level: Level) -> RunEvent {
    let mut event = demo::events()
        .into_iter()
        .rfind(|event| matches!(event, RunEvent::Memory { .. }))
        .expect("the demo has memory events");
    if let RunEvent::Memory {
        at_ms,
        sample,
        level: shown,
        peak,
        ..
    } = &mut event
    {
        *at_ms = run.now_ms() + later_ms;
        *sample = MemorySample {
            own_bytes,
            ..*sample
        };
        (*shown, *peak) = (level, None);
    }
    event
}

#[test]
fn samples_are_shown_before_any_event_arrives() {
    let mut run = fold(&demo::events());
    let (end_ms, changes) = (run.now_ms(), run.version());
    let points = run.window(None, None, 16_384, 0).array("memory.at").len();
    // A micro-batch of ten seconds, read ten times per second; its peak lasts 100 ms.
    for tenth in 1..=100_u64 {
        let own = if tenth == 42 { 9 << 30 } else { 5 << 30 };
        let event = sample(&fold(&demo::events()), tenth * 100, own, Level::Normal);
        run.show_sample(&event);
        assert_eq!(run.now_ms(), end_ms + tenth * 100, "the clock is a clock");
    }
    assert!(run.version() > changes);
    let pull = run.window(None, None, 16_384, 0);
    let at_ms = pull.array("memory.at");
    assert_eq!(at_ms.last(), Some(&((end_ms + 10_000) as f64)));
    assert_eq!(at_ms.len() - points, 20, "two points per second");
    let part = |name: &str| pull.array(name)[points..].to_vec();
    let (state, activations) = (part("memory.state"), part("memory.activations"));
    let cached = part("memory.cached");
    let own = (0..20).map(|i| state[i] + activations[i] + cached[i]);
    let highest = own.fold(0.0, f64::max);
    assert!(
        (highest / f64::from(1 << 30) - 9.0).abs() < 0.001,
        "{highest}"
    );
    assert_eq!(pull.header.figures.own_bytes, Some(5 << 30));
    assert_eq!(pull.header.figures.level, Level::Normal);
}

#[test]
fn an_event_replaces_the_samples_before_it() {
    let mut run = fold(&demo::events());
    for tenth in 1..=30 {
        let event = sample(
            &fold(&demo::events()),
            tenth * 100,
            5 << 30,
            Level::Critical,
        );
        run.show_sample(&event);
    }
    let header = run.window(None, None, 800, 0).header;
    let last = header.spans.last().copied().expect("it is critical");
    assert_eq!((last.level, last.to_ms), (Level::Critical, run.now_ms()));
    let event = sample(&fold(&demo::events()), 3_000, 6 << 30, Level::Normal);
    run.apply(&event);
    let pull = run.window(None, None, 16_384, 0);
    let newest = pull.array("memory.at").iter().rev().take(2);
    let newest: Vec<u64> = newest.map(|at| *at as u64).collect();
    assert!(
        newest[0] - newest[1] > 500,
        "{newest:?}: only events remain"
    );
    assert_eq!(pull.header.figures.level, Level::Normal);
}

#[test]
fn a_step_shows_its_progress_until_it_is_done() {
    let mut run = fold(&demo::events());
    let progress = StepProgress {
        phase: Phase::Train,
        samples_done: 16,
        samples: 64,
        micro_batch: 3,
        micro_batches: 8,
    };
    run.show_progress(progress);
    let shown = |run: &Run| run.window(None, None, 800, 0).header.progress;
    assert_eq!(shown(&run), Some(progress));
    let step = demo::events()
        .into_iter()
        .rfind(|event| matches!(event, RunEvent::Step { .. }));
    run.apply(&step.expect("the demo has steps"));
    assert_eq!(shown(&run), None);
}
