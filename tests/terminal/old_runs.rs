//! A run that version 0.1.0 trained, with its checkpoint, predicts the same and can be resumed. Its
//! process was killed after step 3 of 4.

use crate::support::TestHome;
use serde_json::Value;
use std::fs;
use std::path::Path;

const FIXTURE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/crates/runlog/tests/fixtures/trained-0.1.0"
);
const RUN: &str = "2026-11-23-2103-birds";
/// The folder of the images when the run was trained.
const FORMER_FOLDER: &str = "/data/birds";

/// Copies a folder and everything in it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder can be created");
    for entry in fs::read_dir(from).expect("the fixture can be read") {
        let entry = entry.expect("the fixture can be read");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a file can be copied");
        }
    }
}

/// A home with the run and its images.
fn home() -> TestHome {
    let home = TestHome::new();
    let run = home.path("home/runs").join(RUN);
    copy(&Path::new(FIXTURE).join("birds"), &home.path("birds"));
    copy(&Path::new(FIXTURE).join("run"), &run);
    let folder = home.path("birds").display().to_string();
    for name in ["config.toml", "data.json"] {
        let text = fs::read_to_string(run.join(name)).expect("the file is text");
        assert!(text.contains(FORMER_FOLDER), "{text}");
        let moved = text.replace(FORMER_FOLDER, &folder);
        fs::write(run.join(name), moved).expect("the file can be written");
    }
    home
}

#[test]
fn a_model_of_the_first_version_predicts_the_same() {
    let home = home();
    // What version 0.1.0 printed.
    for (image, owl) in [("jay/0.png", 0.503_317), ("owl/1.png", 0.539_436)] {
        let image = home.path("birds").join(image);
        let line = format!("predict {RUN} {} --json", image.display());
        let output = home.run(&line).expect_code(0);
        let answer: Value = serde_json::from_str(&output.out).expect("one line of JSON");
        assert_eq!(answer["classes"][0]["class"], "owl", "{answer}");
        let probability = answer["classes"][0]["probability"].as_f64();
        let probability = probability.expect("it is a number");
        assert!((probability - owl).abs() < 1e-4, "{answer}");
    }
}

#[test]
fn a_run_of_the_first_version_is_resumed_from_its_checkpoint() {
    let home = home();
    home.run(&format!("resume {RUN}")).expect_code(0);
    let run = home.only_run();
    let replayed = run.replay().expect("its events can be read");
    assert_eq!(replayed.status(), runlog::RunStatus::Finished);
    let checkpoints = run.checkpoints().expect("they can be listed");
    let newest = checkpoints.last().expect("there is one");
    assert_eq!(newest.step, 4);
    let config = run.config().expect("its config can be read");
    assert_eq!(config.train_only, Some(runlog::TrainableLayers::Head));
    assert_eq!(
        config.checkpoint_every,
        Some(runlog::CheckpointInterval::Steps(2))
    );
}
