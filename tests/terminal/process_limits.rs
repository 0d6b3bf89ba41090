//! A limit on the process does not kill the training: the micro-batches get smaller, or an error
//! explains the limit.

use crate::support::{COMMON_ARGS, CommandOutput, EBB, TestHome, run_command};
use std::process::Command;

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/sample/groceries");

/// Trains three steps on the sample under a `ulimit` in kB.
fn train_with_limit(limit: &str, options: &str) -> CommandOutput {
    let home = TestHome::new();
    let steady = COMMON_ARGS.join(" ");
    let train = format!("exec \"$EBB\" train {SAMPLE} --steps 3 {steady} {options}");
    let mut shell = Command::new("bash");
    shell.args([
        "-c",
        &format!("ulimit -c 0; ulimit {limit} || exit 99; {train}"),
    ]);
    run_command(shell.env("EBB", EBB).env("EBB_HOME", home.path("home")))
}

/// If the error names the needed and the available memory, more is needed than available.
fn check_shortage(output: &CommandOutput) {
    let Some((before, rest)) = output.err.split_once(", but only ") else {
        return;
    };
    let (_, needed) = before.rsplit_once(" needs ").expect("the needed memory");
    let (available, _) = rest
        .split_once(" is available")
        .expect("the available memory");
    let bytes = |text| runlog::parse_bytes(text).expect("a size");
    assert!(bytes(needed) > bytes(available), "{output:#?}");
    assert!(!counts_one_in_the_plural(&output.err), "{output:#?}");
}

/// Whether a text says "1 samples". "61 samples" is right, and "1 samples/s" is a speed.
fn counts_one_in_the_plural(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_plural = |word: &str| word.trim_end_matches([',', '.', ';', ':', ')']) == "samples";
    words
        .windows(2)
        .any(|pair| pair[0] == "1" && is_plural(pair[1]))
}

#[test]
fn the_plural_check_accepts_speeds_and_larger_counts() {
    for wrong in ["needs 1 samples", "of 1 samples, and"] {
        assert!(counts_one_in_the_plural(wrong), "{wrong}");
    }
    for right in ["1 sample", "at 61 samples/s", "1 samples/s", "61 samples"] {
        assert!(!counts_one_in_the_plural(right), "{right}");
    }
}

#[test]
fn a_limited_process_trains_or_fails_with_a_hint() {
    if cfg!(target_os = "macos") {
        return println!("skipped: this system does not count these limits");
    }
    let (mut trained, mut refused) = (0, 0);
    // Below 500 MB of addresses or 200 MB of data, the libraries of the window end the process
    // before Ebb starts.
    for limit in [
        "-v 600000",
        "-v 900000",
        "-v 1500000",
        "-d 250000",
        "-d 300000",
        "-d 600000",
        "-d 900000",
    ] {
        for options in ["", "--micro-batch 32"] {
            let output = train_with_limit(limit, options);
            println!(
                "{limit} {options}: {:?} {}",
                output.code,
                output.err.lines().last().unwrap_or("")
            );
            // The limit belongs to this process, so other apps are not the cause.
            assert!(!output.err.contains("other apps"), "{output:#?}");
            check_shortage(&output);
            match output.code {
                Some(0) => trained += 1,
                Some(1) => {
                    refused += 1;
                    let remedies = ["ulimit", "--micro-batch"];
                    assert!(
                        remedies.iter().any(|word| output.err.contains(word)),
                        "{output:#?}"
                    );
                }
                _ => panic!("{limit} {options}: {output:#?}"),
            }
        }
    }
    assert!(
        trained > 0 && refused > 0,
        "{trained} trained, {refused} were refused"
    );
}
