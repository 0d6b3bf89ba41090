//! The report as SVG, PNG and PDF.

use crate::support;
use runlog::{GroupMember, MachineShare, Run, RunEvent, RunFolder, report};
use std::fs;

fn folder() -> (tempfile::TempDir, RunFolder) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let run = RunFolder {
        path: folder.path().into(),
    };
    (folder, run)
}

/// Copies the files to the folder in `EBB_KEEP_REPORT`, if it is set.
fn copy_report(run: &RunFolder, name: &str) {
    if let Some(place) = std::env::var_os("EBB_KEEP_REPORT") {
        for end in ["svg", "png", "pdf"] {
            let to = std::path::Path::new(&place).join(format!("{name}.{end}"));
            fs::copy(run.path.join(format!("report.{end}")), to).expect("it can be copied");
        }
    }
}

fn fold(events: &[RunEvent]) -> Run {
    let mut run = Run::default();
    events.iter().for_each(|event| run.apply(event));
    run
}

#[test]
fn a_task_without_accuracy_is_reported_with_its_loss() {
    let mut events = support::demo::events();
    for event in &mut events {
        if let RunEvent::Evaluation { metrics, .. } = event {
            *metrics = [("bits_per_byte".to_owned(), 2.5)].into();
        }
    }
    let svg = |events: &[RunEvent]| {
        let (_folder, place) = folder();
        let [svg, ..] = report(&fold(events), &place).expect("it can be drawn");
        fs::read_to_string(svg).expect("it was written")
    };
    let with_loss = svg(&events);
    assert!(with_loss.contains("best held-out loss") && !with_loss.contains("accuracy"));
    let without: Vec<RunEvent> = events
        .into_iter()
        .filter(|event| !matches!(event, RunEvent::Evaluation { .. }))
        .collect();
    assert!(svg(&without).contains("not yet evaluated"));
}

#[test]
fn a_report_describes_the_run_and_its_changes() {
    let (_folder, place) = folder();
    let [svg, png, pdf] = report(&fold(&support::demo::events()), &place).expect("it can be drawn");
    let svg = fs::read_to_string(svg).expect("it was written");
    for text in [
        "img_caltech101_20",
        "Metal on M4 Pro",
        "64 samples per step",
        "88.9",
        "best held-out accuracy",
        "9:43",
        "Micro-batch reduced from 16 to 11",
        "\n16 to 11\n",
        "another app took 2.9 GB in 18 s",
        "Ebb activations",
        "Learning rate",
        "warning",
        "no NaN or infinite gradients in ",
    ] {
        assert!(svg.contains(text), "{text} is missing");
    }
    let bytes = fs::read(png).expect("it was written");
    assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n");
    assert!(bytes.len() > 50_000, "{} bytes", bytes.len());
    let bytes = fs::read(pdf).expect("it was written");
    assert_eq!(&bytes[..5], b"%PDF-");
    let contains = |text: &str| bytes.windows(text.len()).any(|w| w == text.as_bytes());
    // The page is as wide as A4 in landscape, and its text is text in an embedded font.
    assert!(contains("/MediaBox [0 0 842 "), "the size of the page");
    assert!(
        contains("/FontFile3") && contains("/ToUnicode"),
        "a font is missing"
    );
    let left: Vec<_> = fs::read_dir(&place.path)
        .expect("it is there")
        .flatten()
        .map(|e| e.file_name())
        .collect();
    assert_eq!(left.len(), 3, "{left:?}");
    copy_report(&place, "demo");
}

/// A group of two machines, one of which has freed its weights.
fn group_events() -> [RunEvent; 2] {
    let member = |rank, host: &str| GroupMember {
        rank,
        host: host.to_owned(),
        ..GroupMember::default()
    };
    let share = |rank, samples, is_suspended| MachineShare {
        rank,
        samples,
        busy_ms: 900.0,
        wait_ms: 100.0,
        exchange_ms: 60.0,
        own_bytes: 3 << 29,
        peak_bytes: 7 << 28,
        others_bytes: 5 << 30,
        budget_bytes: 2 << 30,
        is_suspended,
        ..MachineShare::default()
    };
    [
        RunEvent::Group {
            at_ms: 1000,
            step: 0,
            members: vec![member(0, "studio"), member(1, "air")],
            message: "Trains on 2 machines: studio (rank 0), air (rank 1)".to_owned(),
            sync_every: 0,
        },
        RunEvent::Machines {
            at_ms: 9000,
            step: 3,
            exchange_ms: 60.0,
            machines: vec![share(0, 48, false), share(1, 16, true)],
        },
    ]
}

#[test]
fn the_report_of_a_group_names_its_machines_and_changes() {
    let mut events = support::demo::events();
    let alone = fold(&events);
    events.extend(group_events());
    let page = |run: &Run| {
        let (_folder, place) = folder();
        let [svg, ..] = report(run, &place).expect("it can be drawn");
        copy_report(&place, "group");
        fs::read_to_string(svg).expect("it was written")
    };
    let together = page(&fold(&events));
    for text in [
        "Machines",
        "rank 0 (studio): 75.0 % of the samples",
        "rank 1 (air): 25.0 % of the samples, suspended: its memory is short, 1.5 GB of 2.0 GB, working 90.0 % of the time, waiting 4.0 %, exchange 6.0 %",
        "Memory of rank 0 (studio), Ebb at most 1.8 GB",
        "Memory of rank 1 (air), Ebb at most 1.8 GB",
        "step 0: Trains on 2 machines",
        "rank 1 (air) has freed its weights",
    ] {
        assert!(together.contains(text), "{text} is missing");
    }
    assert!(!page(&alone).contains("Machines"));
}

#[test]
fn an_empty_run_can_be_reported() {
    let events = support::demo::events();
    let check = |name: &str, events: &[RunEvent]| {
        let (_folder, place) = folder();
        report(&fold(events), &place).unwrap_or_else(|error| panic!("{name}: {error}"));
        copy_report(&place, name);
    };
    check("empty", &[]);
    check("started", &events[..1]);
    check("first-seconds", &events[..12]);
    let steps: Vec<_> = events
        .iter()
        .filter(|e| matches!(e, RunEvent::Step { .. }))
        .cloned()
        .collect();
    check("steps-only", &steps);
}

#[test]
fn a_report_names_a_missing_folder() {
    let place = RunFolder {
        path: "nowhere/at/all".into(),
    };
    let message = report(&Run::default(), &place).map_err(|error| error.to_string());
    assert!(
        message.is_err_and(|m| m.starts_with("nowhere/at/all/report.svg could not be written: "))
    );
}
