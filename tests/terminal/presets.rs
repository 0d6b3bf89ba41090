//! Every preset that comes with Ebb loads and trains.

use crate::support::{Place, STEADY, draw_classes, said};
use runlog::{RunEvent, preset_names, preset_purpose};
use std::path::Path;

#[test]
fn every_preset_trains() {
    let place = Place::new();
    draw_classes(&place.path("birds"), &["jay", "owl"], 6);
    for name in preset_names() {
        let folder = place.path("birds");
        let folder = folder.to_str().expect("a plain path");
        let args = [
            "train",
            folder,
            "--preset",
            name,
            "--steps",
            "2",
            "--image-size",
            "32",
            "--json",
        ];
        let said = said(&mut place.ebb(args.iter().chain(&STEADY)));
        assert_eq!(said.code, Some(0), "{name}: {}", said.err);
        let steps = said
            .events()
            .into_iter()
            .filter(|e| matches!(e, RunEvent::Step { .. }));
        assert_eq!(steps.count(), 2, "{name}");
    }
}

#[test]
fn every_config_file_is_a_preset_that_says_for_whom_it_is() {
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
