//! Regression targets from a table beside images: they are trained, resumed, evaluated in their
//! units and predicted.

use crate::support::{TestHome, draw_classes, evaluated, json, loss_bits, losses};
use runlog::{RunEvent, RunStore};
use std::fs;

/// Images of three birds in one folder, and a table with their masses and lengths. Three masses are
/// missing, and one row names a file outside the folder.
fn plates() -> TestHome {
    let home = TestHome::new();
    let birds = [("jay", 160), ("owl", 480), ("wren", 10)];
    draw_classes(&home.path("drawn"), &birds.map(|(name, _)| name), 16);
    fs::create_dir_all(home.path("plates/images")).expect("the folder can be created");
    let mut table = "image,mass_g,length_cm\n".to_owned();
    for (bird, mass) in birds {
        let folder = fs::read_dir(home.path("drawn").join(bird)).expect("the file exists");
        let mut files: Vec<_> = folder
            .map(|entry| entry.expect("the file can be read").path())
            .collect();
        files.sort();
        for (i, file) in files.iter().enumerate() {
            let name = format!(
                "{bird}_{}",
                file.file_name().unwrap_or_default().to_string_lossy()
            );
            fs::copy(file, home.path("plates/images").join(&name)).expect("the file can be copied");
            let mass = if i == 3 {
                String::new()
            } else {
                (mass + i).to_string()
            };
            table += &format!("images/{name},{mass},{}\n", 10 + i % 3);
        }
    }
    table += "../../etc/passwd,1,1\n";
    home.file("plates/labels.csv", table);
    home
}

const LINE: &str = "{plates} --image-size 16 --effective-batch 12 --augment none";

fn metric(events: &[RunEvent], wanted: &str) -> f64 {
    let last = evaluated(events, wanted).pop();
    last.unwrap_or(f64::NAN)
}

#[test]
fn targets_are_trained_and_evaluated_in_their_units() {
    let home = plates();
    let events = home
        .train(&format!("{LINE} --steps 90"))
        .expect_code(0)
        .events();
    let started = events.iter().find_map(|event| match event {
        RunEvent::Started(started) => Some(started),
        _ => None,
    });
    let started = started.expect("the run has started");
    assert_eq!(started.targets, ["mass_g", "length_cm"]);
    assert!(started.classes.is_empty());
    let mae = metric(&events, "mae.mass_g");
    let mae_of_mean = metric(&events, "mae_of_mean.mass_g");
    assert!(
        mae < 0.5 * mae_of_mean && mae_of_mean > 50.0,
        "{mae} g, predicting the mean {mae_of_mean} g"
    );
    // The figure that decides which evaluation is the best.
    let compared = metric(&events, "mae_standardized");
    assert!(compared > 0.0 && compared < 1.0, "{compared}");
    check_evaluation(&home, mae_of_mean);
    check_predictions(&home);

    let out = home.run("verify-split plates --json").expect_code(0).out;
    assert_eq!(json(&out)["holds"], true, "{out}");
    let output = home.run("inspect {plates}").expect_code(0).out;
    assert!(
        output.contains("48 images with 2 regression targets and no classes"),
        "{output}"
    );
    assert!(
        output.contains("Line 50: ../../etc/passwd is outside the folder"),
        "{output}"
    );
}

/// The evaluation of the run is better than predicting the mean, and is saved.
fn check_evaluation(home: &TestHome, mae_of_mean: f64) {
    let found = json(&home.run("evaluate plates --json").expect_code(0).out);
    let mass = &found["numbers"][0];
    assert_eq!(
        (&mass["name"], &found["part"]),
        (&"mass_g".into(), &"held-out".into())
    );
    let mae = mass["mean_absolute_error"].as_f64().unwrap_or(f64::NAN);
    assert!(mae < 0.5 * mae_of_mean, "{found}");
    let improvement = mass["improvement_interval"][0].as_f64().unwrap_or(f64::NAN);
    assert!(improvement > 0.0, "{found}");
    let saved =
        fs::read_to_string(home.only_run().path.join("metrics-held-out.json")).unwrap_or_default();
    assert_eq!(json(&saved)["numbers"][0]["name"], "mass_g");
    let text = home.run("evaluate plates").expect_code(0).out;
    assert!(
        text.contains("mass_g") && text.contains("error of predicting the mean"),
        "{text}"
    );
}

/// Predicted masses of an owl and a wren are far apart.
fn check_predictions(home: &TestHome) {
    let line = "predict plates {plates/images/owl_000.png} {plates/images/wren_002.png} --json";
    let out = home.run(line).expect_code(0).out;
    let masses: Vec<f64> = out
        .lines()
        .filter_map(|line| json(line)["numbers"]["mass_g"].as_f64())
        .collect();
    assert!(masses.len() == 2 && masses[0] > masses[1] + 100.0, "{out}");
    let text = home
        .run("predict plates {plates/images/owl_000.png}")
        .expect_code(0)
        .out;
    assert!(text.contains("owl_000.png: mass_g "), "{text}");
}

#[test]
fn a_killed_run_resumes_with_the_same_targets_and_loss_weights() {
    let home = plates();
    let line = format!(
        "{LINE} --loss-balance uncertainty --steps 24 --checkpoint-every 5steps --micro-batch 5"
    );
    let whole = losses(
        &home
            .train(&format!("{line} --out {{whole}}"))
            .expect_code(0)
            .events(),
    );
    let mut training = home.start(&format!("train {line} --out {{killed}}"));
    training.until(|event| matches!(event, RunEvent::Step { step: 12, .. }));
    training.signal("KILL");
    training.finish();
    let killed = RunStore::open(home.path("killed"))
        .list()
        .expect("the runs can be listed");
    // The resumed run must not use a table that was changed after its start.
    home.file("plates/labels.csv", "image,mass_g\nimages/jay_000.png,1\n");
    let (code, events) = home
        .start(&format!("resume {}", killed[0].path.display()))
        .finish();
    assert_eq!(code, Some(0), "{events:#?}");
    let whole: Vec<u64> = whole.into_iter().map(f64::to_bits).collect();
    assert_eq!((whole.len(), loss_bits(&killed[0])), (24, whole));
}

#[test]
fn unsupported_options_are_refused_with_a_remedy() {
    let home = plates();
    for (options, expected) in [
        ("--mix mixup", "mixed images cannot have"),
        (
            "--targets fat_g",
            "Available columns: image, mass_g, length_cm",
        ),
        (
            "--group-by plate",
            "Available columns: image, mass_g, length_cm",
        ),
    ] {
        let refused = home.train(&format!("{LINE} {options}"));
        assert!(
            refused.code != Some(0) && refused.err.contains(expected),
            "{options}: {refused:?}"
        );
    }
    draw_classes(&home.path("birds"), &["jay", "owl"], 4);
    let refused = home
        .run("train {birds} --target-weight 2")
        .expect_code(2)
        .err;
    assert!(
        refused.contains("no table with regression targets"),
        "{refused}"
    );
}
