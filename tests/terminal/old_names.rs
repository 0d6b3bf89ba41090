//! Config keys, flags and commands of earlier versions still work, and Ebb prints the new names.

use crate::support::{CommandOutput, TestHome, draw_classes};

const SMALL: &str = "--image-size 16 --device cpu --threads 2 --steps 2";

fn birds() -> TestHome {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 6);
    home
}

/// Fails unless the command succeeded and printed this line on stderr exactly once.
#[track_caller]
fn expect_message(output: CommandOutput, line: &str) {
    let output = output.expect_code(0);
    let printed = output.err.lines().filter(|printed| printed.ends_with(line));
    assert_eq!(printed.count(), 1, "{line}: {output:#?}");
}

#[test]
fn old_config_keys_are_read_under_their_new_names() {
    let home = birds();
    home.file("old.toml", "politeness = 0.8\nparked_most_minutes = 7\n");
    let trained = home.run(&format!("train {{birds}} {SMALL} --config {{old.toml}}"));
    expect_message(
        trained,
        "old.toml, line 1: `politeness` is now called `max_system_fraction`",
    );
    let config = std::fs::read_to_string(home.only_run().path.join("config.toml"));
    let config = config.expect("the run has a config");
    for line in ["max_system_fraction = 0.8", "max_suspended_minutes = 7"] {
        assert!(config.contains(line), "{line}: {config}");
    }
}

#[test]
fn old_flags_and_their_values_are_accepted() {
    let home = birds();
    home.file(
        "script",
        r#"{"at_ms":0,"total_bytes":8000000000,"others_bytes":1000000000}"#,
    );
    let script = "--memory-script {script} --memory-script-by piece";
    let trained = home.run(&format!(
        "train {{birds}} {SMALL} --politeness 0.8 {script}"
    ));
    let by_decision = "`--memory-script-by piece` is now called `--memory-script-by decision`";
    assert!(
        trained.err.lines().any(|line| line == by_decision),
        "{trained:#?}"
    );
    expect_message(
        trained,
        "`--politeness` is now called `--max-system-fraction`",
    );
    let swept = home.run(&format!(
        "sweep-batch {{birds}} {SMALL} --pilot --batches 2,4"
    ));
    expect_message(swept, "`--pilot` is now called `--controller`");
}

#[test]
fn old_commands_are_accepted() {
    let home = TestHome::new();
    expect_message(
        home.run("pilot"),
        "`ebb pilot` is now called `ebb controller`",
    );
    expect_message(
        home.run("drill --size 50MB --seconds 1"),
        "`ebb drill` is now called `ebb stress`",
    );
}

#[test]
fn new_names_print_no_message() {
    let controlled = TestHome::new()
        .run("controller --max-system-fraction 0.8")
        .expect_code(0);
    assert!(!controlled.err.contains("is now called"), "{controlled:#?}");
}
