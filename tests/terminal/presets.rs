//! Every bundled preset trains and has a purpose.

use crate::support::{TestHome, draw_classes};
use runlog::{RunEvent, preset_names, preset_purpose};
use std::path::Path;

/// A folder of images by class, and one of documents.
fn birds_and_book() -> TestHome {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 6);
    std::fs::create_dir(home.path("book")).expect("the folder can be created");
    for chapter in 0..3 {
        let text = format!("Chapter {chapter}. {}", "It rained all day. ".repeat(60));
        home.file(&format!("book/{chapter}.txt"), text);
    }
    home
}

/// Whether a preset is for documents. The others are for images.
fn is_for_documents(preset: &str) -> bool {
    let task = runlog::preset(preset).and_then(|preset| preset.task);
    task == Some(runlog::TaskChoice::TokenCompression)
}

#[test]
fn every_preset_trains() {
    let home = birds_and_book();
    for name in preset_names() {
        let (folder, smaller) = if is_for_documents(name) {
            ("{book}", "--model compress_micro")
        } else {
            ("{birds}", "--image-size 32")
        };
        let line = format!("{folder} --preset {name} --steps 2 {smaller}");
        let output = home.train(&line).expect_code(0);
        let steps = output
            .events()
            .into_iter()
            .filter(|e| matches!(e, RunEvent::Step { .. }));
        assert_eq!(steps.count(), 2, "{name}");
    }
}

#[test]
fn a_preset_for_images_refuses_texts_by_name() {
    let home = TestHome::new();
    let rows = (0..40).map(|i| format!("{}\ta day in week {i}\n", ["good", "bad"][i % 2]));
    home.file("days.tsv", rows.collect::<String>());
    for command in ["train", "plan"] {
        let line = format!("{command} {{days.tsv}} --preset few_images");
        let refused = home.run(&line).expect_code(2).err;
        assert!(
            refused.contains("the preset few_images is for images, but "),
            "{refused}"
        );
        assert!(refused.contains("days.tsv holds texts"), "{refused}");
    }
    draw_classes(&home.path("birds"), &["jay", "owl"], 6);
    let line = "plan {birds} --preset few_photographs --device cpu";
    let renamed = home.run(line).expect_code(0).err;
    assert!(
        renamed.contains("`few_photographs` is now called `few_images`"),
        "{renamed}"
    );
}

#[test]
fn the_quick_preset_trains_texts_too() {
    let home = TestHome::new();
    let mut table = "text,label\n".to_owned();
    for i in 0..40 {
        let (word, label) = if i % 2 == 0 {
            ("sunny", "good")
        } else {
            ("stormy", "bad")
        };
        table += &format!("a {word} day in week {i},{label}\n");
    }
    home.file("weather.csv", table);
    home.train("{weather.csv} --preset quick --steps 2")
        .expect_code(0);
}

#[test]
fn measurements_replace_the_first_micro_batch() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 24);
    home.file(
        "guess.toml",
        "effective_batch = 32\nfirst_micro_batch = 8\n",
    );
    let output = home
        .train("{birds} --config {guess.toml} --image-size 32 --steps 8")
        .expect_code(0);
    let sizes: Vec<Vec<u32>> = output
        .events()
        .into_iter()
        .filter_map(|e| match e {
            RunEvent::Step { micro_batches, .. } => Some(micro_batches),
            _ => None,
        })
        .collect();
    // The first micro-batch is 8. Sizes 1 and 2 are measured first, then larger ones follow.
    assert_eq!(sizes[0][..2], [1, 2], "{sizes:?}");
    assert!(sizes.iter().flatten().any(|size| *size > 8), "{sizes:?}");
}

#[test]
fn every_config_file_is_a_preset_with_a_purpose() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    let entries = std::fs::read_dir(folder).expect("the presets can be listed");
    let stem = |path: &Path| path.file_stem()?.to_str().map(str::to_owned);
    let mut files: Vec<String> = entries.flatten().filter_map(|e| stem(&e.path())).collect();
    let mut names: Vec<String> = preset_names().map(str::to_owned).collect();
    files.sort();
    names.sort();
    assert_eq!(files, names);
    for name in names {
        assert!(
            preset_purpose(&name).is_some_and(|text| text.starts_with("For ")),
            "{name}"
        );
    }
}

#[test]
fn a_measured_preset_names_accuracy_data_time_and_command() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 6);
    let line = "plan {birds} --preset few_images --model convnet --image-size 32 --device cpu";
    let output = home.run(line).expect_code(0);
    for part in [
        "Preset few_images: measured ",
        " % accuracy on ",
        " minutes on ",
        "`ebb train FOLDER --preset few_images --baseline none`",
    ] {
        assert!(output.err.contains(part), "{part}: {}", output.err);
    }
}

#[test]
fn every_preset_fits_a_mac_with_4_gb() {
    let home = birds_and_book();
    for name in preset_names() {
        let (folder, model) = if is_for_documents(name) {
            ("{book}", "compress_micro")
        } else {
            ("{birds}", "convnet")
        };
        let line = format!("plan {folder} --preset {name} --model {model} --for 4GB --within 0");
        home.run(&line).expect_code(0);
    }
}
