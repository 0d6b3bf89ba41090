//! `scripts/bundle` notarizes the app only if all four variables are set, and refuses a part of
//! them.

use crate::support::{CommandOutput, run_command};
use std::fs::read_to_string;
use std::process::Command;

const NEEDED: [&str; 4] = [
    "APPLE_SIGNING_IDENTITY",
    "APPLE_ID",
    "APPLE_PASSWORD",
    "APPLE_TEAM_ID",
];

/// Runs the part of the script that reads the variables.
fn read_variables(set: &[(&str, &str)]) -> CommandOutput {
    let root = env!("CARGO_MANIFEST_DIR");
    let script = read_to_string(format!("{root}/scripts/bundle")).expect("the script can be read");
    let (_, after) = script.split_once("\nsigning() {").expect("it reads them");
    let (body, _) = after.split_once("\n}\n").expect("the function ends");
    let code = format!("set -euo pipefail\n. scripts/say\nsigning() {{{body}\n}}\nsigning\n");
    let mut bash = Command::new("bash");
    bash.arg("-c").arg(code).current_dir(root);
    NEEDED.iter().for_each(|name| {
        bash.env_remove(name);
    });
    run_command(bash.envs(set.iter().copied()))
}

#[test]
fn without_variables_the_app_is_signed_ad_hoc() {
    for set in [&[][..], &[("APPLE_ID", "")]] {
        let output = read_variables(set).expect_code(0);
        assert!(output.out.contains("signed ad hoc"), "{output:?}");
    }
}

#[test]
fn a_part_of_the_variables_is_refused_with_the_names_of_the_missing_ones() {
    for missing in NEEDED {
        let set = NEEDED.into_iter().filter(|name| *name != missing);
        let set: Vec<_> = set.map(|name| (name, "value")).collect();
        for empty in [None, Some((missing, ""))] {
            let set: Vec<_> = set.iter().copied().chain(empty).collect();
            let output = read_variables(&set).expect_code(1);
            let shown = format!("set {missing} too, or unset");
            assert!(output.err.contains(&shown), "{shown}: {output:?}");
        }
    }
}

#[test]
fn all_variables_are_accepted() {
    let set = NEEDED.map(|name| (name, "value"));
    let output = read_variables(&set).expect_code(0);
    assert!(!output.out.contains("ad hoc"), "{output:?}");
}
