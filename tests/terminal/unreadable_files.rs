//! Files that cannot be read are skipped by name while the training continues.

use crate::support::{TestHome, draw_classes};
use runlog::{RunEvent, StopReason};
use std::fs;

fn skipped(events: &[RunEvent]) -> Vec<&str> {
    events.iter().filter_map(skipped_item).collect()
}

fn skipped_item(event: &RunEvent) -> Option<&str> {
    match event {
        RunEvent::Skipped { item, .. } => Some(item),
        _ => None,
    }
}

fn has_finished(events: &[RunEvent]) -> bool {
    let finished = |event: &RunEvent| {
        matches!(
            event,
            RunEvent::Stopped {
                reason: StopReason::Finished,
                ..
            }
        )
    };
    events.iter().any(finished)
}

#[test]
fn files_deleted_during_a_run_are_skipped() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 80);
    let line = "train {birds} --image-size 16 --steps 40 --effective-batch 4";
    let mut training = home.start(line);
    training.until(|event| matches!(event, RunEvent::Step { step: 2, .. }));
    // At most a few batches are loaded ahead, so most of these files have not been read yet.
    let missing = 20..80;
    for number in missing.clone() {
        let extension = if number % 2 == 0 { "png" } else { "jpg" };
        fs::remove_file(home.path(&format!("birds/owl/{number:03}.{extension}")))
            .expect("the file exists");
    }
    let (code, rest) = training.finish();
    assert_eq!(code, Some(0), "{rest:#?}");
    assert!(has_finished(&rest));
    let skipped = skipped(&rest);
    assert!(skipped.len() > 20, "{skipped:?}");
    for item in skipped {
        let number = item
            .strip_prefix("owl/")
            .and_then(|name| name.get(..3)?.parse().ok());
        assert!(
            number.is_some_and(|number: u32| missing.contains(&number)),
            "{item}"
        );
    }
}

#[test]
fn broken_images_are_skipped_by_name() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 6);
    let whole = fs::read(home.path("birds/jay/001.jpg")).expect("the file exists");
    home.file("birds/jay/not-an-image.jpg", "not an image");
    // The header is valid, so only decoding finds the damage.
    home.file("birds/owl/torn.jpg", &whole[..whole.len() / 2]);
    let found = home.run("inspect {birds}").expect_code(0).out;
    assert!(found.contains("not-an-image.jpg: "), "{found}");
    let events = home
        .train("{birds} --image-size 16 --steps 6 --effective-batch 5")
        .expect_code(0)
        .events();
    let skipped = skipped(&events);
    assert!(has_finished(&events));
    assert!(
        found.contains("torn.jpg") || skipped.contains(&"owl/torn.jpg"),
        "{found} {skipped:?}"
    );
    assert!(
        skipped.iter().all(|item| *item == "owl/torn.jpg"),
        "{skipped:?}"
    );
    assert!(skipped.len() <= 1, "once in three epochs: {skipped:?}");
}

#[test]
fn a_resumed_run_names_images_that_changed_while_it_was_stopped() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 8);
    home.train("{birds} --image-size 16 --steps 2 --effective-batch 4")
        .expect_code(0);
    let resume = |steps: u32| {
        let line = format!("resume {} --steps {steps}", home.only_run().id());
        let (code, events) = home.start(&line).finish();
        assert_eq!(code, Some(0), "{events:#?}");
        let warning = |event: &RunEvent| match event {
            RunEvent::Warning { code, message, .. } if code == "data_changed" => {
                Some(message.clone())
            }
            _ => None,
        };
        events.iter().filter_map(warning).collect::<Vec<_>>()
    };
    assert_eq!(resume(3), Vec::<String>::new());

    let at = |name: &str| home.path("birds").join(name);
    let mut other = fs::read(at("owl/001.jpg")).expect("it exists");
    other.extend([0; 7]);
    fs::write(at("owl/001.jpg"), other).expect("it can be replaced");
    fs::remove_file(at("owl/003.jpg")).expect("it exists");
    fs::copy(at("jay/000.png"), at("jay/new.png")).expect("it can be copied");
    let warnings = resume(4);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    for part in [
        "1 image was replaced (owl/001.jpg)",
        "1 image is missing (owl/003.jpg)",
        "1 image is new (jay/new.png)",
        "start a new run",
    ] {
        assert!(warnings[0].contains(part), "{part}: {warnings:?}");
    }
}

#[test]
fn a_missing_folder_ends_the_run_with_an_error() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 80);
    let mut training = home.start("train {birds} --image-size 16 --steps 500 --effective-batch 4");
    training.until(|event| matches!(event, RunEvent::Step { step: 2, .. }));
    fs::rename(home.path("birds"), home.path("moved")).expect("the folder can be moved");
    let (code, rest) = training.finish();
    let Some(RunEvent::Failed {
        code: cause,
        message,
        ..
    }) = rest.last()
    else {
        panic!("{:?}", rest.last());
    };
    assert_eq!((code, cause.as_str()), (Some(1), "no_data"), "{message}");
    assert!(
        message.contains("birds is still there, then resume"),
        "{message}"
    );
}
