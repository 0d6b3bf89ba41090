//! Config keys, flags and commands of earlier versions still work.

use crate::support::{EBB, TestHome, draw_classes};
use std::process::{Command, Stdio};

const SMALL: &str = "--image-size 16 --device cpu --threads 2 --steps 2";

fn birds() -> TestHome {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 6);
    home
}

#[test]
fn old_config_keys_are_read_under_their_new_names() {
    let home = birds();
    home.file("old.toml", "politeness = 0.8\nparked_most_minutes = 7\n");
    home.run(&format!("train {{birds}} {SMALL} --config {{old.toml}}"))
        .expect_code(0);
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
    home.run(&format!(
        "train {{birds}} {SMALL} --politeness 0.8 {script}"
    ))
    .expect_code(0);
    home.run(&format!(
        "sweep-batch {{birds}} {SMALL} --pilot --batches 2,4"
    ))
    .expect_code(0);
}

#[test]
fn old_commands_are_accepted() {
    let mut controller = Command::new(EBB);
    let controller = controller.arg("pilot").stdin(Stdio::null()).status();
    assert_eq!(controller.expect("ebb starts").code(), Some(0));
    TestHome::new()
        .run("drill --size 50MB --seconds 1")
        .expect_code(0);
}
