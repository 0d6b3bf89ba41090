//! Every bundled preset trains and has a purpose.

use crate::support::{COMMON_ARGS, TestHome, draw_classes, run_command};
use runlog::{RunEvent, preset_names, preset_purpose};
use std::path::Path;

#[test]
fn every_preset_trains() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 6);
    std::fs::create_dir(home.path("book")).expect("the folder can be created");
    for chapter in 0..3 {
        let text = format!("Chapter {chapter}. {}", "It rained all day. ".repeat(60));
        home.file(&format!("book/{chapter}.txt"), text);
    }
    for name in preset_names() {
        let task = runlog::preset(name).and_then(|preset| preset.task);
        let needs_texts = task == Some(runlog::TaskChoice::TokenCompression);
        let (folder, smaller) = if needs_texts {
            (home.path("book"), ["--model", "compress_micro"])
        } else {
            (home.path("birds"), ["--image-size", "32"])
        };
        let folder = folder.to_str().expect("a UTF-8 path");
        let args = [
            "train", folder, "--preset", name, "--steps", "2", smaller[0], smaller[1], "--json",
        ];
        let output = run_command(&mut home.ebb(args.iter().chain(&COMMON_ARGS)));
        assert_eq!(output.code, Some(0), "{name}: {}", output.err);
        let steps = output
            .events()
            .into_iter()
            .filter(|e| matches!(e, RunEvent::Step { .. }));
        assert_eq!(steps.count(), 2, "{name}");
    }
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
