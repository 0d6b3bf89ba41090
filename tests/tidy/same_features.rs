//! `make run` and `make test` build the same libraries. Cargo enables every feature that a package
//! of the build asks for, those for tests included. A library with other features is compiled
//! again, and so is everything that uses it.

use crate::{none, root};
use std::collections::BTreeSet;
use std::process::Command;

/// The libraries that are linked, with their versions and features.
fn libraries(arguments: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--locked", "--prefix", "none"])
        .args(["--format", "{p} [{f}]"])
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("cargo runs, it runs this test");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).expect("cargo prints text");
    text.lines()
        .map(|line| line.trim_end_matches(" (*)").to_owned())
        .collect()
}

/// The libraries of the program that the tests do not use as they are.
fn compiled_twice(run: &BTreeSet<String>, test: &BTreeSet<String>) -> Vec<String> {
    run.difference(test)
        .map(|library| format!("{library}: `make test` builds it with other features"))
        .collect()
}

#[test]
fn the_program_and_its_tests_use_the_same_libraries() {
    let run = libraries(&[
        "--package",
        "ebb",
        "--edges",
        "no-dev,no-build,no-proc-macro",
    ]);
    let test = libraries(&["--workspace", "--edges", "no-build,no-proc-macro"]);
    assert!(run.len() > 100, "{run:?}");
    none(&compiled_twice(&run, &test));
}

#[test]
fn other_features_are_named() {
    let set = |lines: &[&str]| -> BTreeSet<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    };
    let run = set(&["rand v1.0.0 []", "tape v0.1.0 []"]);
    let test = set(&["rand v1.0.0 [std]", "tape v0.1.0 []", "proptest v1.0.0 []"]);
    assert_eq!(
        compiled_twice(&run, &test),
        ["rand v1.0.0 []: `make test` builds it with other features"]
    );
}
