//! Commands that use a trained run: evaluate, predict, runs and report. Also memory and doctor.

use crate::support::{TestHome, draw_classes};
use serde_json::Value;

fn trained() -> TestHome {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl", "wren"], 16);
    let line = "{birds} --image-size 16 --steps 24 --effective-batch 16 --augment none";
    home.train(line).expect_code(0);
    home
}

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

#[test]
fn a_run_is_evaluated_and_predicts() {
    let home = trained();
    let out = home.run("evaluate birds {birds} --json").expect_code(0).out;
    let found = json(&out);
    assert_eq!(
        (&found["samples"], &found["skipped"]),
        (&9.into(), &0.into()),
        "{out}"
    );
    assert!(
        found["accuracy"]
            .as_f64()
            .is_some_and(|accuracy| accuracy > 0.8),
        "{out}"
    );
    let text = home.run("evaluate birds {birds}").expect_code(0).out;
    assert!(
        text.contains("9 images of the held-out split, checkpoint of step"),
        "{text}"
    );

    draw_classes(&home.path("others"), &["jay", "owl"], 10);
    let found = json(
        &home
            .run("evaluate birds {others} --json")
            .expect_code(0)
            .out,
    );
    assert_eq!(
        (&found["samples"], &found["part"]),
        (&20.into(), &"whole".into()),
        "{found}"
    );

    let line = "predict birds {birds/jay/000.png} {birds/owl/001.jpg} --top 2 --json";
    let out = home.run(line).expect_code(0).out;
    let best: Vec<Value> = out
        .lines()
        .map(|line| json(line)["classes"][0]["class"].clone())
        .collect();
    assert_eq!(best, ["jay", "owl"], "{out}");
    assert_eq!(
        json(out.lines().next().unwrap_or_default())["classes"]
            .as_array()
            .map(Vec::len),
        Some(2)
    );
    let text = home
        .run("predict birds {birds/wren/002.png}")
        .expect_code(0)
        .out;
    assert!(text.contains("002.png: wren "), "{text}");
}

#[test]
fn predict_reports_unreadable_files_and_continues() {
    let home = trained();
    home.file("note.jpg", "not an image");
    let output = home
        .run("predict birds {note.jpg} {missing.png} {birds/jay/000.png}")
        .expect_code(1);
    assert!(output.out.contains("000.png: jay "), "{output:?}");
    for part in [
        "note.jpg: ",
        "missing.png: ",
        "2 of 3 files could not be read",
    ] {
        assert!(output.err.contains(part), "{part}: {output:?}");
    }
}

#[test]
fn a_folder_is_predicted_as_a_table() {
    let home = trained();
    draw_classes(&home.path("new"), &["jay", "owl"], 3);
    home.file("new/jay/bad.png", "not an image");
    let output = home.run("predict birds {new} --csv --top 1").expect_code(1);
    let rows: Vec<&str> = output.out.lines().collect();
    assert_eq!(rows[0], "file,class,probability,problem");
    assert_eq!(rows.len(), 8, "{output:?}");
    let of = |name: &str| rows.iter().find(|row| row.contains(name)).copied();
    assert!(
        of("jay/000.png").is_some_and(|row| row.contains(",jay,0.")),
        "{output:?}"
    );
    assert!(
        of("jay/bad.png").is_some_and(|row| row.contains(",,,")),
        "{output:?}"
    );
    assert!(
        output.err.contains("1 of 7 files could not be read"),
        "{output:?}"
    );
}

#[test]
fn the_prediction_for_each_held_out_image_stays_in_the_run_folder() {
    let home = trained();
    let path = home.only_run().path.join("results-held-out.json");
    let read = || json(&std::fs::read_to_string(&path).expect("the training writes it"));
    let by_training = read();
    assert_eq!(by_training["samples"].as_array().map(Vec::len), Some(9));
    std::fs::remove_file(&path).expect("it can be removed");
    home.run("evaluate birds").expect_code(0);
    let by_evaluation = read();
    assert_eq!(
        by_training["report"]["step"],
        by_evaluation["report"]["step"]
    );
    let samples = |results: &Value| results["samples"].as_array().cloned().unwrap_or_default();
    for (trained, evaluated) in samples(&by_training).iter().zip(samples(&by_evaluation)) {
        assert_eq!(trained["file"], evaluated["file"]);
        assert_eq!(
            trained["class"]["predicted"],
            evaluated["class"]["predicted"]
        );
    }
}

#[test]
fn an_unknown_class_is_reported_with_similar_ones() {
    let home = TestHome::new();
    let known = ["ant", "bee", "cat", "dog", "jay", "owl", "wren"];
    draw_classes(&home.path("animals"), &known, 4);
    home.train("{animals} --image-size 16 --steps 1 --effective-batch 4")
        .expect_code(0);
    draw_classes(&home.path("more"), &["ant", "wrens"], 2);
    let output = home.run("evaluate animals {more}").expect_code(1).err;
    assert!(
        output.contains("the class wrens of more is unknown to this run; the run knows 7 classes, the most similar being wren, "),
        "{output}"
    );
    let named = known.iter().filter(|name| output.contains(**name)).count();
    assert!(
        named < known.len(),
        "only similar classes are listed: {output}"
    );
}

#[test]
fn runs_are_listed_and_an_unknown_one_is_refused() {
    let home = TestHome::new();
    assert!(home.run("runs").expect_code(0).out.contains("No runs yet"));
    assert_eq!(home.run("runs --json").expect_code(0).out, "");
    let home = trained();
    let run = home.only_run();
    let listed = home.run("runs").expect_code(0).out;
    assert!(
        listed.contains(&run.id()) && listed.lines().count() == 1,
        "{listed}"
    );
    let listed = json(&home.run("runs --json").expect_code(0).out);
    assert_eq!(listed["run"], run.id());
    for line in [
        "resume bords",
        "report bords",
        "predict bords x.png",
        "evaluate bords {birds}",
    ] {
        let output = home.run(line).expect_code(1);
        assert!(
            output.err.contains("there is no run `bords`"),
            "{line}: {output:?}"
        );
    }
}

#[test]
fn a_report_is_one_page_as_svg_png_and_pdf() {
    let home = trained();
    let out = home.run("report birds").expect_code(0).out;
    let files: Vec<&str> = out.lines().collect();
    let [svg, png, pdf] = files[..] else {
        panic!("{out}");
    };
    let drawn = std::fs::read(pdf).expect("the file can be read");
    assert!(drawn.starts_with(b"%PDF-") && drawn.trim_ascii_end().ends_with(b"%%EOF"));
    let drawn = std::fs::read_to_string(svg).expect("the file can be read");
    assert!(drawn.contains("<svg") && drawn.contains("birds"));
    let page = image::open(png).expect("the PNG decodes").to_rgb8();
    assert!(
        page.width() >= 800 && page.height() >= 400,
        "{:?}",
        page.dimensions()
    );
    let first = *page.get_pixel(0, 0);
    assert!(
        page.pixels().any(|pixel| *pixel != first),
        "the page is not empty"
    );
}

#[test]
fn memory_once_prints_one_sample() {
    let home = TestHome::new();
    let text = home.run("memory --once").expect_code(0).out;
    assert!(
        text.contains("Reading ") && text.contains(" in use: system "),
        "{text}"
    );
    let found = json(&home.run("memory --once --json").expect_code(0).out);
    let total = found["sample"]["total_bytes"].as_u64().unwrap_or(0);
    let available = found["sample"]["available_bytes"].as_u64().unwrap_or(0);
    assert!(
        total > 1 << 28 && available > 0 && available <= total,
        "{found}"
    );
    home.file(
        "script",
        r#"{"at_ms":0,"total_bytes":8000000000,"others_bytes":7900000000}"#,
    );
    let scripted = home
        .run("memory --once --json --memory-script {script}")
        .expect_code(0)
        .out;
    assert_eq!(json(&scripted)["level"], "critical", "{scripted}");
}

#[test]
fn doctor_passes_on_the_cpu() {
    let out = TestHome::new()
        .run("doctor --device cpu")
        .expect_code(0)
        .out;
    assert!(
        out.contains("Device: cpu (") && out.contains("checks passed"),
        "{out}"
    );
    for half in ["In bf16: ", "In f16: "] {
        assert!(out.contains(half), "{out}");
    }
    let checks = out.split(": ").last().unwrap_or_default();
    let numbers: Vec<&str> = checks.split([' ']).collect();
    assert!(numbers.len() > 2 && numbers[0] == numbers[2], "{out}");
    assert_ne!(numbers[0], "0", "{out}");
}
