//! `scripts/mac-report` checks the GPU, compares trainings on it with those on the CPU, and looks
//! at the memory of trainings. Here a shell script stands in for Ebb, because no other system has
//! Metal; two tests run Ebb itself.

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

/// Runs a step of the report. Returns how it ended, and the report.
fn run_step(step: &str, home: &TestHome, ebb: &str) -> (CommandOutput, String) {
    let report = home.path("report.txt");
    let mut script = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/mac-report"));
    let script = script.arg("--short").arg("--out").arg(&report).arg(step);
    let output = run_command(script.env("EBB", ebb));
    let report = read_to_string(report).unwrap_or_else(|error| panic!("{error}: {output:#?}"));
    (output, report)
}

/// Runs a step with a shell script in place of Ebb.
fn run_step_with(step: &str, stand_in: &str) -> (CommandOutput, String) {
    let home = TestHome::new();
    let path = home.file("stand-in", stand_in);
    set_permissions(&path, Permissions::from_mode(0o700)).expect("it is ours");
    run_step(step, &home, &path.display().to_string())
}

/// Checks how a step ended according to the summary, and the exit code of the report.
fn check_outcome(outcome: (CommandOutput, String), step: &str, expected: &str, shown: &str) {
    let (output, report) = outcome;
    let line = format!("{step:<11} {expected:<8} ");
    let summary = report.lines().find(|found| found.starts_with(&line));
    let summary = summary.unwrap_or_else(|| panic!("no line {line:?}\n{report}"));
    assert!(summary.contains(shown), "{shown}\n{report}");
    output.expect_code(i32::from(expected == "FAILED"));
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
    let (output, report) = run_step_with("tasks", STAND_IN);
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

/// Its GPU is lost during each training, and cannot be made again.
const LOST: &str = r#"#!/bin/sh
printf '{"kind":"started","device":"metal"}\n'
echo 'ebb: metal cannot be used: no GPU was found' >&2
exit 1
"#;

#[test]
fn a_gpu_that_is_lost_during_a_training_fails_the_report() {
    let (output, report) = run_step_with("tasks", LOST);
    check_lines(
        &report,
        &[
            "convnet on metal: exit code 1: ebb: metal cannot be used: no GPU was found",
            "0 tasks ran on both, 19 are wrong",
        ],
    );
    output.expect_code(1);
}

#[cfg(not(target_os = "macos"))]
#[test]
fn without_a_gpu_that_can_be_used_the_tasks_are_left_out() {
    let home = TestHome::new();
    let (output, report) = run_step("tasks", &home, EBB);
    check_lines(&report, &["0 tasks ran on both, 0 are wrong"]);
    let left_out = report.matches(": left out, no GPU is used here").count();
    assert_eq!(left_out, 19, "{report}");
    let summary = report.lines().nth(2).unwrap_or_default();
    assert!(summary.starts_with("tasks       skipped"), "{report}");
    output.expect_code(0);
}

/// Checks a GPU: prints a result, writes the page, or prints the result as JSON. It refuses to
/// check the CPU, which the report does not ask for.
const DOCTOR: &str = r#"#!/bin/sh
case " $* " in *" doctor --device metal "*) ;; *) echo "ebb: checked the CPU" >&2; exit 3 ;; esac
previous=
for word in "$@"; do
  if [ "$previous" = --page ]; then echo '<table>' >"$word"; fi
  previous=$word
done
case " $* " in
  *" --json "*) echo '{"gpu": "Apple M1"}' ;;
  *) echo 'Checked 200 operations on Apple M1' ;;
esac
"#;

#[test]
fn the_gpu_is_checked_and_the_result_is_in_the_report() {
    let home = TestHome::new();
    let path = home.file("stand-in", DOCTOR);
    set_permissions(&path, Permissions::from_mode(0o700)).expect("it is ours");
    let (output, report) = run_step("doctor", &home, &path.display().to_string());
    assert!(report.contains("{\"gpu\": \"Apple M1\"}"), "{report}");
    assert!(home.path("report-doctor.html").exists(), "{report}");
    let shown = "Checked 200 operations on Apple M1";
    check_outcome((output, report), "doctor", "passed", shown);
}

#[test]
fn a_wrong_operation_or_no_gpu_is_not_called_passed() {
    let wrong = DOCTOR.replace(
        "echo 'Checked",
        "echo 'conv2d is wrong'; exit 1; echo 'Checked",
    );
    let outcome = run_step_with("doctor", &wrong);
    check_outcome(outcome, "doctor", "FAILED", "ebb doctor: exit code 1");
    let without = "#!/bin/sh\necho 'ebb: metal cannot be used: no GPU was found' >&2\nexit 1\n";
    let outcome = run_step_with("doctor", without);
    let shown = "left out, no GPU is used here";
    check_outcome(outcome, "doctor", "skipped", shown);
}

#[cfg(not(target_os = "macos"))]
#[test]
fn the_machine_is_described_and_the_gpu_of_no_mac_is_not_checked() {
    let home = TestHome::new();
    let outcome = run_step("machine", &home, EBB);
    check_outcome(outcome, "machine", "passed", "not a Mac: Linux");
    let outcome = run_step("doctor", &home, EBB);
    let shown = "left out, no GPU is used here";
    check_outcome(outcome, "doctor", "skipped", shown);
}

/// Trains the steps that the report waits for, and then for some seconds without any. Takes no
/// signal, as a background process of a shell.
#[cfg(not(target_os = "macos"))]
const TRAINS_ON: &str = r#"#!/bin/sh
[ "$1" = train ] || exit 0
step=0
steps() {
  last=$((step + $1))
  while [ "$step" -lt "$last" ]; do step=$((step + 1)); echo '{"kind":"step","loss":1.5}'; done
}
steps 30
sleep 3
GROWS
steps 100
echo '{"kind":"decision","message":"Half the micro-batch"}'
sleep 5
END
"#;

/// Runs a step with each of these shell scripts in place of Ebb at the same time: most of the time
/// they sleep.
#[cfg(not(target_os = "macos"))]
fn run_at_once<const N: usize>(step: &str, stand_ins: [String; N]) -> [(CommandOutput, String); N] {
    std::thread::scope(|scope| {
        let run = |stand_in: String| scope.spawn(move || run_step_with(step, &stand_in));
        let running = stand_ins.map(run);
        running.map(|running| running.join().expect("the step was run"))
    })
}

#[cfg(not(target_os = "macos"))]
#[test]
fn a_training_whose_memory_grows_fails_the_report() {
    let steady = TRAINS_ON.replace("GROWS", "").replace("END", "");
    let grows = "x=$(head -c 120000000 /dev/zero | tr '\\0' a)";
    let growing = TRAINS_ON.replace("GROWS", grows).replace("END", "");
    let broken = "#!/bin/sh\nexit 1\n".to_owned();
    let [steady, growing, broken] = run_at_once("leaks", [steady, growing, broken]);
    check_outcome(steady, "leaks", "passed", "micro-batches: footprint");
    check_outcome(growing, "leaks", "FAILED", "micro-batches: footprint");
    check_outcome(broken, "leaks", "FAILED", "0 micro-batches");
}

#[cfg(not(target_os = "macos"))]
#[test]
fn a_training_that_does_not_survive_memory_pressure_fails_the_report() {
    let survives = TRAINS_ON.replace("GROWS", "").replace("END", "");
    let ends = TRAINS_ON.replace("GROWS", "").replace("END", "exit 1");
    let [survives, ends] = run_at_once("pressure", [survives, ends]);
    let shown = "ended with code 0 after 130 steps and 1 decisions";
    check_outcome(survives, "pressure", "passed", shown);
    check_outcome(ends, "pressure", "FAILED", "ended with code 1");
}
