//! Commands that use a trained run: evaluate, predict, runs and report. Also memory.

use crate::support::{TestHome, draw_classes, json};
use serde_json::Value;

fn trained() -> TestHome {
    trained_for(24)
}

fn trained_for(steps: u32) -> TestHome {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl", "wren"], 16);
    let line = "{birds} --image-size 16 --effective-batch 16 --augment none --steps";
    home.train(&format!("{line} {steps}")).expect_code(0);
    home
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
        text.contains("9 images of the held-out split, best weights (step "),
        "{text}"
    );
    let judged = home.run("evaluate birds").expect_code(0).out;
    assert!(judged.contains("\nBetter than guessing: "), "{judged}");

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
fn a_run_sums_up_its_gradients_and_is_judged_at_its_end() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 6);
    let line = "train {birds} --image-size 16 --steps 2 --effective-batch 4 --device cpu";
    let summary = "no NaN or infinite gradients in 2 steps";
    let trained = home.run(line).expect_code(0).err;
    assert!(
        trained.contains(&format!("Gradients: {summary}")),
        "{trained}"
    );
    // Too few images to learn from, or to be sure.
    assert!(trained.contains("better than guessing"), "{trained}");
    let shown = home.run("runs show birds").expect_code(0).out;
    assert!(shown.contains(summary), "{shown}");
}

#[test]
fn labels_that_are_probably_wrong_are_listed() {
    // The model must be sure, and accurate although eight labels are wrong.
    let home = trained_for(72);
    draw_classes(&home.path("others"), &["jay", "owl"], 40);
    let clean = home.run("evaluate birds {others}").expect_code(0).out;
    assert!(!clean.contains("wrong_"), "{clean}");
    for number in 0..8 {
        let extension = if number % 2 == 0 { "png" } else { "jpg" };
        let owl = home.path(&format!("others/owl/{number:03}.{extension}"));
        let wrong = home.path(&format!("others/jay/wrong_{number}.{extension}"));
        std::fs::copy(owl, wrong).expect("it can be copied");
    }
    let out = home
        .run("evaluate birds {others} --json")
        .expect_code(0)
        .out;
    let found = json(&out)["suspicious_labels"].clone();
    let found = found.as_array().expect("a list");
    let is_wrong = |label: &Value| {
        label["file"]
            .as_str()
            .is_some_and(|file| file.contains("wrong_"))
            && (&label["label"], &label["predicted"]) == (&"jay".into(), &"owl".into())
    };
    assert!(found.iter().any(is_wrong) && found.len() <= 10, "{out}");
    let text = home.run("evaluate birds {others}").expect_code(0).out;
    assert!(
        text.contains("may be wrong, because the model is sure of another class")
            && text.contains("labeled jay (")
            && text.contains("predicted owl ("),
        "{text}"
    );
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
        "missing.png: The file was not found. Check its path.",
        "2 of 3 files could not be read",
    ] {
        assert!(output.err.contains(part), "{part}: {output:?}");
    }
    let output = home
        .run("predict birds {note.jpg} {birds/jay/000.png} --json")
        .expect_code(1);
    let lines: Vec<Value> = output.out.lines().map(json).collect();
    assert_eq!(lines.len(), 2, "{output:?}");
    assert!(lines[0]["problem"].is_string(), "{output:?}");
    assert!(lines[1]["problem"].is_null(), "{output:?}");
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
        of("jay/000.png").is_some_and(|row| row.contains(",jay,0.") || row.contains(",jay,1.")),
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
    assert_eq!(listed.lines().count(), 2, "{listed}");
    let columns: Vec<&str> = listed.split_whitespace().take(7).collect();
    let headings = ["Run", "Status", "Step", "Result", "Time", "Model", "Tags"];
    assert_eq!(columns, headings, "{listed}");
    for part in [
        &*run.id(),
        "  Finished  24 of 24  ",
        " % accuracy  ",
        "  convnet",
    ] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    let listed = json(&home.run("runs --json").expect_code(0).out);
    assert_eq!(listed["run"], run.id());
    for (key, value) in [
        ("status", "finished"),
        ("metric", "accuracy"),
        ("model", "convnet"),
        ("task", "image-classification"),
    ] {
        assert_eq!(listed[key], value, "{key}: {listed}");
    }
    assert_eq!(
        (&listed["step"], &listed["steps"]),
        (&24.into(), &24.into())
    );
    assert!(listed["value"].as_f64().is_some_and(|value| value <= 1.0));
    assert!(listed["started_unix_ms"].as_u64() > Some(1_600_000_000_000));
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
fn ctrl_c_ends_the_memory_display_and_an_evaluation() {
    let home = TestHome::new();
    let mut memory = home.start("memory");
    memory.read_line();
    memory.signal("INT");
    assert_eq!(memory.wait(), Some(0));

    let home = trained();
    draw_classes(&home.path("many"), &["jay", "owl", "wren"], 200);
    // The first interrupts may come before the program handles them, the last ones after its end.
    let delays = (0..10).map(|doubled| std::time::Duration::from_millis(20 << doubled));
    let mut ends = delays.map(|delay| {
        let evaluation = home.start("evaluate birds {many}");
        std::thread::sleep(delay);
        evaluation.signal("INT");
        let code = evaluation.wait();
        let stderr = std::fs::read_to_string(home.path("stderr")).unwrap_or_default();
        (code, stderr)
    });
    let sentence = "the evaluation was stopped, so there is no result";
    let stopped = ends.find(|(_, stderr)| stderr.contains(sentence));
    assert!(matches!(stopped, Some((Some(0), _))), "{stopped:?}");
}

#[test]
fn memory_once_prints_one_sample() {
    let home = TestHome::new();
    let text = home.run("memory --once").expect_code(0).out;
    assert!(
        text.contains("Source: ") && text.contains(" in use: system "),
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
