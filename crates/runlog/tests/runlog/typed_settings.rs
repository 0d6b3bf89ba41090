//! Settings as typed text: read as a config file is, and refused by the same rules.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use runlog::{CheckpointBlocks, RunConfig};
use std::collections::BTreeMap;

fn typed(settings: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(key, text): &(&str, &str)| ((*key).to_owned(), (*text).to_owned());
    settings.iter().map(owned).collect()
}

#[test]
fn typed_settings_are_read_as_a_config_file_is() {
    let settings = typed(&[
        ("optimizer", "lion"),
        ("weight_decay", "0.1"),
        ("checkpoint_blocks", "all"),
        ("memory_cap_bytes", "3GB"),
        ("learning_rate", "0.00005"),
        ("from", "weights"),
    ]);
    let config = RunConfig::default().with_typed(&settings, "here");
    let config = config.expect("all are allowed");
    let toml = "optimizer = \"lion\"\nweight_decay = 0.1\ncheckpoint_blocks = \"all\"\n\
                memory_cap_bytes = \"3GB\"\nlearning_rate = 0.00005\nfrom = \"weights\"\n";
    let same = RunConfig::from_toml(toml, "here").expect("it is valid");
    assert_eq!(config, same);
    assert_eq!(config.checkpoint_blocks, Some(CheckpointBlocks::All));
    assert_eq!(config.typed(), settings);
}

#[test]
fn a_typed_setting_replaces_one_and_auto_removes_it() {
    let base = RunConfig {
        micro_batch: Some(4),
        seed: Some(7),
        ..RunConfig::default()
    };
    let settings = typed(&[("micro_batch", "auto"), ("seed", "8")]);
    let config = base
        .with_typed(&settings, "here")
        .expect("both are allowed");
    assert_eq!((config.micro_batch, config.seed), (None, Some(8)));
}

#[test]
fn unknown_and_out_of_range_settings_are_refused() {
    for (key, text, part) in [
        ("optimiser", "lion", "did you mean `optimizer`?"),
        ("optimizer", "sgd9", "must be one of"),
        ("weight_decay", "11", "must be a number from 0 to 10"),
        ("epochs", "1.5", "must be a whole number"),
        ("memory_cap_bytes", "1KB", "must be a size of at least"),
    ] {
        let refused = RunConfig::default().with_typed(&typed(&[(key, text)]), "here");
        let message = refused.expect_err(key).to_string();
        assert!(message.contains(part), "{message}");
    }
}
