//! The loss scale of a run in f16: a step that overflows is skipped with an event and halves it; a run that was killed goes on
//! with the very scale it had.

// Helpers of tests are tests: what fails here fails the claim.
#![allow(clippy::unwrap_used)]

mod support;

use runlog::{RunConfig, RunEvent, RunFolder};
use std::path::Path;
use support::CLASSES;
use trainer::rooms::checkpoint;
use trainer::{Flight, LossScale, Plan};

/// A folder of noise with the colour of its class.
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

/// A run in f16 on the CPU, of eight steps with a checkpoint every two.
struct Course {
    _folder: tempfile::TempDir,
    plan: Plan,
    inspection: dataset::ImageInspection,
    run: RunFolder,
}

fn course() -> Course {
    let folder = tempfile::tempdir().unwrap();
    draw(&folder.path().join("photographs"));
    let options = dataset::InspectOptions::default();
    let inspection =
        dataset::inspect_images(&folder.path().join("photographs"), &options, &|_| {}).unwrap();
    let word = |text: &str| Some(text.to_owned());
    let config = RunConfig {
        model: word("vit_micro"),
        image_size: Some(16),
        steps: Some(8),
        effective_batch: Some(6),
        micro_batch: Some(4),
        precision: word("f16"),
        device: word("cpu"),
        threads: Some(1),
        checkpoint_every: word("2steps"),
        evaluate_every_epochs: Some(100),
        ..RunConfig::default()
    };
    let plan = Plan::check(&config, &inspection).unwrap();
    let path = folder.path().join("run");
    std::fs::create_dir(&path).unwrap();
    let run = RunFolder { path };
    Course {
        _folder: folder,
        plan,
        inspection,
        run,
    }
}

impl Course {
    /// Flies until the listener dies, or to the end.
    fn start(&self, hear: &mut (dyn FnMut(&RunEvent) + Send)) -> trainer::Result<trainer::Ending> {
        trainer::start(
            self.plan.clone(),
            self.inspection.clone(),
            &self.run,
            Flight::default(),
            hear,
        )
    }

    /// Dies after step `last`, as if killed: nothing is saved on the way out.
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
fn a_killed_run_goes_on_with_the_scale_and_the_clean_steps_it_had() {
    let (whole, killed) = (course(), course());
    let mut said = Vec::new();
    whole.start(&mut |event| said.push(event.clone())).unwrap();
    assert!(
        said.iter()
            .any(|e| matches!(e, RunEvent::Started(s) if s.precision == "f16"))
    );
    assert!(
        said.iter()
            .any(|e| matches!(e, RunEvent::Warning { code, .. } if code == "slow_precision"))
    );
    killed.killed_after(5);
    let clean = |steps: u64| (0..steps).fold(LossScale::START, |scale, _| scale.after_clean());
    assert_eq!(killed.newest(), (4, clean(4)));
    trainer::resume(&killed.run, Flight::default(), &mut |_| {}).unwrap();
    assert_eq!(
        (killed.newest(), whole.newest()),
        ((8, clean(8)), (8, clean(8)))
    );
    assert!(killed.weights() == whole.weights());
}

/// The scale is planted too high: the next step overflows truly.
#[test]
fn a_step_that_overflows_is_skipped_with_an_event_and_halves_the_scale() {
    let course = course();
    course.killed_after(3);
    let state = checkpoint::newest(&course.run)
        .unwrap()
        .0
        .path
        .join("state.json");
    let text = std::fs::read_to_string(&state).unwrap();
    let planted = text.replace("\"exponent\": 16", "\"exponent\": 20");
    assert_ne!(planted, text);
    std::fs::write(&state, planted).unwrap();
    let mut skipped = Vec::new();
    trainer::resume(&course.run, Flight::default(), &mut |event| {
        if let RunEvent::Skipped {
            step, what, reason, ..
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
    assert_eq!(course.newest(), (8, expected));
}

fn doubled(scale: LossScale) -> LossScale {
    (0..LossScale::DOUBLES_AFTER).fold(scale, |scale, _| scale.after_clean())
}
