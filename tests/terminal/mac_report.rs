//! `scripts/mac-report` compares trainings on the GPU with those on the CPU. Here a shell script
//! stands in for Ebb, because no other system has Metal; one test runs Ebb itself.

#[cfg(not(target_os = "macos"))]
use crate::support::EBB;
use crate::support::{CommandOutput, TestHome, run_command};
use std::fs::{Permissions, read_to_string, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

/// Trains 20 steps with the same losses on each device. Two tasks are exceptions: ResNet-18 has
/// other losses on the GPU, and the text classifier fails there.
const STAND_IN: &str = r#"#!/bin/sh
device=none
for word in "$@"; do case $word in metal | cpu) device=$word ;; esac; done
loss=1.5
case "$device $*" in
  metal*--model\ resnet18*) loss=1.6 ;;
  metal*--model\ text_micro*) echo 'ebb: the run has diverged' >&2; exit 1 ;;
esac
printf '{"kind":"started","device":"%s"}\n' "$device"
for step in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  printf '{"kind":"step","step":%s,"loss":%s}\n' "$step" "$loss"
done
"#;

/// Runs the step `tasks`. Returns how it ended, and the report.
fn compare_tasks(home: &TestHome, ebb: &str) -> (CommandOutput, String) {
    let report = home.path("report.txt");
    let mut script = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/mac-report"));
    let script = script.arg("--short").arg("--out").arg(&report).arg("tasks");
    let output = run_command(script.env("EBB", ebb));
    let report = read_to_string(report).unwrap_or_else(|error| panic!("{error}: {output:#?}"));
    (output, report)
}

fn check_lines(report: &str, expected: &[&str]) {
    for line in expected {
        assert!(
            report.lines().any(|found| found == *line),
            "{line}\n{report}"
        );
    }
}

#[test]
fn a_task_that_differs_or_fails_on_the_gpu_fails_the_report() {
    let home = TestHome::new();
    let stand_in = home.file("stand-in", STAND_IN);
    set_permissions(&stand_in, Permissions::from_mode(0o700)).expect("it is ours");
    let (output, report) = compare_tasks(&home, &stand_in.display().to_string());
    check_lines(
        &report,
        &[
            "convnet: metal and the CPU differ by 0.00e+00 of the loss at most",
            "resnet18: DIFFERENT, metal: 6.67e-02",
            "text-classes on metal: exit code 1: ebb: the run has diverged",
            "18 tasks ran on both, 2 are wrong",
        ],
    );
    output.expect_code(1);
}

#[cfg(not(target_os = "macos"))]
#[test]
fn without_a_gpu_that_can_be_used_the_tasks_are_left_out() {
    let home = TestHome::new();
    let (output, report) = compare_tasks(&home, EBB);
    check_lines(&report, &["0 tasks ran on both, 0 are wrong"]);
    let left_out = report.matches(": left out, no GPU is used here").count();
    assert_eq!(left_out, 19, "{report}");
    let summary = report.lines().nth(2).unwrap_or_default();
    assert!(summary.starts_with("tasks       skipped"), "{report}");
    output.expect_code(0);
}
