//! The import direction of the crates, read from cargo's own view of the workspace.

use crate::{none, root};
use serde_json::{Value, json};
use std::process::Command;

/// Which crates a crate may import. A crate that is not listed imports none.
const ROOMS: &[(&str, &[&str])] = &[
    (
        "ebb",
        &[
            "bench", "trainer", "dataset", "runlog", "pressure", "format", "disk",
        ],
    ),
    (
        "bench",
        &[
            "trainer", "models", "tape", "dataset", "runlog", "pressure", "format",
        ],
    ),
    (
        "trainer",
        &[
            "models",
            "tape",
            "dataset",
            "runlog",
            "pressure",
            "format",
            "disk",
            "distributed",
        ],
    ),
    ("models", &["tape", "format", "disk"]),
    ("runlog", &["pressure", "format", "disk"]),
    ("dataset", &["format"]),
    ("pressure", &["format"]),
    ("format", &[]),
    ("disk", &[]),
    ("distributed", &[]),
    ("tape", &[]),
];

/// Libraries, by the start of their name, that only these crates may import.
const LIBRARIES: &[(&str, &[&str])] = &[
    ("candle", &["tape", "models", "trainer", "bench"]),
    ("tauri", &["ebb"]),
    ("tokio", &["ebb"]),
    ("plotters", &["runlog"]),
    ("libloading", &["distributed", "tape"]),
    ("notify", &["dataset", "ebb"]),
    ("ureq", &["ebb"]),
];

fn forbidden(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"]
        .as_array()
        .expect("cargo lists packages");
    let mut complaints = Vec::new();
    for package in packages {
        let room = package["name"].as_str().expect("a package has a name");
        let Some((_, rooms)) = ROOMS.iter().find(|(name, _)| *name == room) else {
            complaints.push(format!(
                "{room} is no room of the house: say in tests/tidy/crate_imports.rs what it may import"
            ));
            continue;
        };
        for dependency in package["dependencies"]
            .as_array()
            .expect("a package has dependencies")
        {
            let name = dependency["name"]
                .as_str()
                .expect("a dependency has a name");
            let is_room = ROOMS.iter().any(|(other, _)| *other == name);
            let for_others = LIBRARIES
                .iter()
                .any(|(start, who)| name.starts_with(start) && !who.contains(&room));
            if (is_room && !rooms.contains(&name)) || for_others {
                complaints.push(format!("{room} may not import {name}"));
            }
        }
    }
    complaints
}

#[test]
fn rooms_import_only_what_the_design_allows() {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
            "--manifest-path",
        ])
        .arg(root().join("Cargo.toml"))
        .output()
        .expect("cargo runs, it runs this test");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    assert_eq!(
        metadata["packages"].as_array().map(Vec::len),
        Some(ROOMS.len()),
        "every room is there"
    );
    none(&forbidden(&metadata));
}

#[test]
fn a_wrong_import_is_named() {
    let package = |name: &str, imports: &[&str]| {
        let dependencies: Vec<_> = imports
            .iter()
            .map(|import| json!({ "name": import }))
            .collect();
        json!({ "name": name, "dependencies": dependencies })
    };
    let check = |name: &str, import: &str| {
        forbidden(&json!({ "packages": [package(name, &["serde", import])] }))
    };
    assert_eq!(check("trainer", "tape"), Vec::<String>::new());
    for (name, import) in [
        ("tape", "dataset"),
        ("trainer", "bench"),
        ("pressure", "runlog"),
        ("ebb", "tape"),
        ("ebb", "candle-core"),
        ("trainer", "tauri-plugin-dialog"),
        ("dataset", "tokio"),
        ("trainer", "plotters-svg"),
        ("runlog", "notify"),
    ] {
        assert_eq!(
            check(name, import),
            [format!("{name} may not import {import}")]
        );
    }
    assert_eq!(check("attic", "serde").len(), 1);
}
