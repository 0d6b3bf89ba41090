//! The loss scale of a run in f16: a step that overflows is skipped and halves it, and a killed
//! run resumes with the scale it had.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::support::CLASSES;
use runlog::{CheckpointInterval, DeviceChoice, PrecisionChoice, RunConfig, RunEvent, RunFolder};
use std::path::Path;
use trainer::internals::LossScale;
use trainer::internals::checkpoint;
use trainer::{Plan, RunContext};

/// Draws a folder of noise images in the color of their class.
fn draw(folder: &Path) {
    for label in 0..CLASSES as u8 {
        let class = folder.join(format!("class {label}"));
        std::fs::create_dir_all(&class).unwrap();
        for number in 0..4u8 {
            let shade = |x: u32| (x as u8).wrapping_mul(13 + number) / 4 + 40 * label;
            let image = image::RgbImage::from_fn(16, 16, |x, y| {
                image::Rgb([shade(x), shade(y), shade(x * y)])
            });
            image.save(class.join(format!("{number}.png"))).unwrap();
        }
    }
}

/// A run in f16 on the CPU: eight steps, a checkpoint every two.
struct TestRun {
    _folder: tempfile::TempDir,
    plan: Plan,
    inspection: dataset::ImageInspection,
    run: RunFolder,
}

fn test_run() -> TestRun {
    let folder = tempfile::tempdir().unwrap();
    draw(&folder.path().join("images"));
    let options = dataset::InspectOptions::default();
    let inspection =
        dataset::inspect_images(&folder.path().join("images"), &options, &|_| {}).unwrap();
    let some = |text: &str| Some(text.to_owned());
    let config = RunConfig {
        model: some("vit_micro"),
        image_size: Some(16),
        steps: Some(8),
        effective_batch: Some(6),
        micro_batch: Some(4),
        precision: Some(PrecisionChoice::F16),
        device: Some(DeviceChoice::Cpu),
        threads: Some(1),
        checkpoint_every: Some(CheckpointInterval::Steps(2)),
        evaluate_every_epochs: Some(100),
        ..RunConfig::default()
    };
    let plan = Plan::resolve(&config, &inspection).unwrap();
    let path = folder.path().join("run");
    std::fs::create_dir(&path).unwrap();
    let run = RunFolder { path };
    TestRun {
        _folder: folder,
        plan,
        inspection,
        run,
    }
}

impl TestRun {
    /// Trains until the observer panics, or to the end.
    fn start(
        &self,
        observer: &mut (dyn FnMut(&RunEvent) + Send),
    ) -> trainer::Result<trainer::RunOutcome> {
        trainer::start(
            self.plan.clone(),
            self.inspection.clone(),
            &self.run,
            RunContext::default(),
            observer,
        )
    }

    /// Panics after step `last`, like a kill: nothing is saved.
    fn killed_after(&self, last: u64) {
        let ended = self.start(&mut |event| {
            if matches!(event, RunEvent::Step { step, .. } if *step == last) {
                std::panic::resume_unwind(Box::new("killed"));
            }
        });
        assert_eq!(ended.unwrap_err().code(), "panicked");
    }

    fn newest(&self) -> (u64, LossScale) {
        let state = checkpoint::newest(&self.run).unwrap().0.state;
        (state.step, state.loss_scale.unwrap())
    }

    fn weights(&self) -> Vec<u8> {
        let folder = checkpoint::newest(&self.run).unwrap().0.path;
        std::fs::read(folder.join("model.safetensors")).unwrap()
    }
}

#[test]
fn a_killed_run_resumes_with_its_loss_scale() {
    let (whole, killed) = (test_run(), test_run());
    let mut events = Vec::new();
    whole
        .start(&mut |event| events.push(event.clone()))
        .unwrap();
    assert!(
        events
            .iter()
            .any(|e| matches!(e, RunEvent::Started(s) if s.precision == "f16"))
    );
    assert!(
        events
            .iter()
            .any(|e| matches!(e, RunEvent::Warning { code, .. } if code == "slow_precision"))
    );
    killed.killed_after(5);
    let clean = |steps: u64| (0..steps).fold(LossScale::START, |scale, _| scale.after_clean());
    assert_eq!(killed.newest(), (4, clean(4)));
    trainer::resume_to(&killed.run, None, RunContext::default(), &mut |_| {}).unwrap();
    assert_eq!(
        (killed.newest(), whole.newest()),
        ((8, clean(8)), (8, clean(8)))
    );
    assert!(killed.weights() == whole.weights());
}

/// The saved scale is made too high, so that the next step really overflows.
#[test]
fn an_overflow_skips_the_step_and_halves_the_scale() {
    let run = test_run();
    run.killed_after(3);
    let state = checkpoint::newest(&run.run)
        .unwrap()
        .0
        .path
        .join("state.json");
    let text = std::fs::read_to_string(&state).unwrap();
    let planted = text.replace("\"exponent\": 16", "\"exponent\": 20");
    assert_ne!(planted, text);
    // Without its checksum it is a file of an earlier version.
    let lines = planted.lines().filter(|line| !line.contains("\"sum\""));
    let planted = lines.collect::<Vec<_>>().join("\n");
    std::fs::write(&state, planted).unwrap();
    let mut skipped = Vec::new();
    trainer::resume_to(&run.run, None, RunContext::default(), &mut |event| {
        if let RunEvent::Skipped {
            step,
            item: what,
            reason,
            ..
        } = event
        {
            skipped.push((*step, what.clone(), reason.clone()));
        }
    })
    .unwrap();
    println!("{skipped:#?}");
    let (step, what, reason) = &skipped[0];
    assert_eq!(*step, 3);
    assert!(what.starts_with("the gradient of "), "{what}");
    assert!(reason.contains("from 1,048,576 to 524,288"), "{reason}");
    let (steps, overflows) = (8 - 2, skipped.len());
    assert!(overflows < steps, "every step overflowed");
    let planted = (0..4).fold(LossScale::START, |scale, _| doubled(scale));
    let expected = (0..overflows).fold(planted, |scale, _| scale.after_overflow());
    let expected = (overflows..steps).fold(expected, |scale, _| scale.after_clean());
    assert_eq!(run.newest(), (8, expected));
}

fn doubled(scale: LossScale) -> LossScale {
    (0..LossScale::DOUBLES_AFTER).fold(scale, |scale, _| scale.after_clean())
}
