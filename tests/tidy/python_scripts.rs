//! The Python scripts that tests call exist. Without Python modules such a test is left out, and
//! nothing else would notice that its script was renamed.

use crate::sources::{Source, all};
use crate::{none, root};
use std::path::Path;

const SCRIPTS: &str = "crates/models/tests/fixtures/export";

/// Names of Python scripts, without folders, that a test passes as a string.
fn scripts(code: &str) -> impl Iterator<Item = &str> {
    let strings = code.split('"').skip(1).step_by(2);
    strings.filter(|text| {
        let stem = text.strip_suffix(".py").unwrap_or_default();
        !stem.is_empty() && stem.chars().all(|c| c.is_ascii_lowercase() || c == '_')
    })
}

fn missing_scripts(sources: &[Source], folder: &Path) -> Vec<String> {
    let tests = sources
        .iter()
        .filter(|source| source.path.starts_with("crates/") && source.path.contains("/tests/"));
    let named = tests.flat_map(|source| scripts(&source.text).map(move |name| (source, name)));
    let missing = named.filter(|(_, name)| !folder.join(name).is_file());
    missing
        .map(|(source, name)| format!("{}: {SCRIPTS}/{name} does not exist", source.path))
        .collect()
}

#[test]
fn python_scripts_that_tests_call_exist() {
    none(&missing_scripts(&all(), &root().join(SCRIPTS)));
}

#[test]
fn a_planted_missing_script_is_named() {
    let planted = [Source {
        path: "crates/models/tests/export.rs".to_owned(),
        text: "answer(python, \"gone.py\", &out);".to_owned(),
    }];
    let complaints = missing_scripts(&planted, &root().join(SCRIPTS));
    assert_eq!(
        complaints,
        [
            "crates/models/tests/export.rs: crates/models/tests/fixtures/export/gone.py does not exist"
        ]
    );
}
