//! `ebb inspect` and `ebb train` on folders of images: what is said about them, and what follows
//! from it.

use crate::support::{TestHome, draw_classes};
use image::RgbImage;

#[test]
fn a_long_list_of_skipped_files_is_cut() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 2);
    for i in 0..25 {
        home.file(&format!("birds/jay/broken-{i}.png"), "not an image");
    }
    let found = home.run("inspect {birds}").expect_code(0).out;
    assert_eq!(found.matches("broken-").count(), 1, "{found}");
    for part in [
        "broken-0.png and 24 more: ",
        "`ebb inspect --json` lists all of these files",
    ] {
        assert!(found.contains(part), "{part}: {found}");
    }
    let json = home.run("inspect {birds} --json").expect_code(0).out;
    assert_eq!(json.matches("broken-").count(), 25, "{json}");
}

#[test]
fn a_run_is_never_written_into_its_dataset() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 2);
    for out in ["{birds}", "{birds/jay}", "{birds/new/runs}"] {
        let refused = home
            .run(&format!("train {{birds}} --out {out} --steps 1"))
            .expect_code(2);
        assert!(
            refused
                .err
                .contains("never writes into the folder that it trains on"),
            "{}",
            refused.err
        );
    }
    assert!(!home.path("birds/new").exists());
    home.run("train {birds} --out {birds-runs} --steps 1 --image-size 32 --device cpu")
        .expect_code(0);
}

#[test]
fn an_evaluation_without_a_readable_image_fails() {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 12);
    home.run("train {birds} --out {runs} --steps 1 --image-size 32 --device cpu")
        .expect_code(0);
    let run = std::fs::read_dir(home.path("runs"))
        .expect("the runs")
        .next();
    let run = run.expect("a run").expect("an entry").path();
    std::fs::rename(home.path("birds"), home.path("moved")).expect("the folder is moved");
    let failed = home
        .run(&format!("evaluate {}", run.display()))
        .expect_code(1);
    assert!(
        failed.err.contains("no image of this dataset can be read"),
        "{}",
        failed.err
    );
    assert_eq!(failed.out, "");
}

/// Draws 2 classes of 40 images: a bar on the left, or on the right. The names prove nothing.
fn draw_arrows(home: &TestHome) {
    for class in 0..2u32 {
        std::fs::create_dir_all(home.path(&format!("bars/{class}"))).expect("a folder");
        for i in 0..40u32 {
            let bar = (2 + i % 5 + 9 * class..).take(3);
            let image = RgbImage::from_fn(20, 24, |x, y| {
                let level = if bar.clone().any(|at| at == x) {
                    220
                } else {
                    30
                };
                image::Rgb([level + ((x * 7 + y * 3 + i * 11) % 13) as u8; 3])
            });
            let path = home.path(&format!("bars/{class}/{i}.png"));
            image.save(path).expect("the image is written");
        }
    }
}

#[test]
fn images_whose_class_mirroring_changes_are_neither_mirrored_nor_enlarged() {
    let home = TestHome::new();
    draw_arrows(&home);
    let found = home.run("inspect {bars}").expect_code(0).out;
    assert!(
        found.contains("By default, training does not mirror the images."),
        "{found}"
    );
    let config = |flags: &str| {
        let run = format!("train {{bars}} --out {{runs}} --steps 1 --device cpu {flags}");
        home.run(&run).expect_code(0);
        let newest = std::fs::read_dir(home.path("runs")).expect("the runs");
        let newest = newest.map(|entry| entry.expect("an entry").path()).max();
        let file = newest.expect("a run").join("config.toml");
        std::fs::read_to_string(file).expect("a config")
    };
    let by_default = config("");
    assert!(
        by_default.contains("augment = \"no-mirror\""),
        "{by_default}"
    );
    assert!(by_default.contains("image_size = 20"), "{by_default}");
    let asked = config("--augment standard --image-size 32");
    assert!(asked.contains("augment = \"standard\""), "{asked}");
    assert!(asked.contains("image_size = 32"), "{asked}");
}

/// Sixteen blocks, each bright or dark by a bit of the seed.
fn blocks(seed: u32) -> RgbImage {
    let bits = seed.wrapping_mul(0x79B1);
    RgbImage::from_fn(32, 32, |x, y| {
        let bright = (bits >> (y / 8 * 4 + x / 8)) & 1;
        image::Rgb([if bright == 1 { 230 } else { 25 }; 3])
    })
}

#[test]
fn duplicates_are_listed_and_those_that_leak_come_first() {
    let home = TestHome::new();
    for (seed, name) in ["train/jay", "train/owl", "val/jay", "val/owl"]
        .into_iter()
        .cycle()
        .take(8)
        .enumerate()
    {
        let folder = home.path("birds").join(name);
        std::fs::create_dir_all(&folder).expect("the folder can be created");
        let image = blocks(seed as u32 + 1);
        let path = folder.join(format!("{seed}.png"));
        image.save(path).expect("the image can be saved");
    }
    let copy = |from: &str, to: &str| {
        std::fs::copy(home.path(from), home.path(to)).expect("it can be copied");
    };
    copy("birds/train/jay/0.png", "birds/train/jay/again.png");
    copy("birds/train/owl/1.png", "birds/val/owl/leak.png");
    let text = home
        .run("inspect {birds} --find-duplicates")
        .expect_code(0)
        .out;
    for part in [
        ", in more than one split: ",
        "val/owl/leak.png",
        "train/jay/again.png",
        "Train with --duplicates leave-out.",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json = home
        .run("inspect {birds} --find-duplicates --json")
        .expect_code(0)
        .out;
    let found: serde_json::Value = serde_json::from_str(&json).expect("one JSON object");
    assert_eq!(found["duplicates"][0]["crosses_splits"], true, "{json}");
    let without = home.run("inspect {birds}").expect_code(0).out;
    assert!(!without.contains("Duplicates:"), "{without}");
}
