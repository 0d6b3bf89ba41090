//! Configs: what is read, what is refused and with which words.

use runlog::{Allowed, RunConfig, SETTINGS, Setting, preset, preset_names, preset_purpose};
use std::fs;

fn load(name: &str, text: &str) -> Result<RunConfig, String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join(name);
    fs::write(&path, text).expect("the config can be written");
    let place = folder.path().display().to_string() + "/";
    RunConfig::load(&path).map_err(|error| error.to_string().replace(&place, ""))
}

#[test]
fn toml_and_json_report_the_same() {
    let toml = load(
        "a.toml",
        "epochs = 3\nlearning_rate = 0.01\nmemory_cap_bytes = \"8GB\"\nmodel = \"convnet\"\n",
    );
    let json = load(
        "a.json",
        r#"{"epochs": 3, "learning_rate": 0.01, "memory_cap_bytes": 8589934592, "model": "convnet", "seed": null}"#,
    );
    assert_eq!(toml, json);
    assert_eq!(
        toml.map(|config| config.memory_cap_bytes),
        Ok(Some(8 << 30))
    );
}

/// Loads `text` as a file `name`, which must be refused with `message`.
fn check(name: &str, text: &str, message: &str) {
    assert_eq!(load(name, text), Err(message.to_owned()), "{text}");
}

#[test]
fn a_mistake_is_refused_with_line_key_and_what_is_allowed() {
    check(
        "run.toml",
        "# mine\nseed = 7\nepoch = 3\n",
        "run.toml, line 3: there is no key `epoch`; did you mean `epochs`?",
    );
    check(
        "run.json",
        "{\n  \"model\": \"convnet\",\n  \"learning-rate\": 0.1\n}",
        "run.json, line 3: there is no key `learning-rate`; did you mean `learning_rate`?",
    );
    check(
        "run.toml",
        "image_size = 5000",
        "run.toml, line 1: `image_size` is 5000, but must be a whole number from 16 to 1024; change it and start again",
    );
    check(
        "run.toml",
        "\nepochs = \"three\"",
        "run.toml, line 2: `epochs` is `three`, but must be a whole number from 1 to 100000; change it and start again",
    );
    check(
        "run.toml",
        "effective_batch = 2.5",
        "run.toml, line 1: `effective_batch` is 2.5, but must be a whole number from 1 to 65536; change it and start again",
    );
    check(
        "run.toml",
        "max_system_fraction = nan",
        "run.toml, line 1: `max_system_fraction` is not a number, but must be a number from 0.5 to 0.95; change it and start again",
    );
    check(
        "run.yaml",
        "epochs: 3",
        "run.yaml is not a config: its name must end in .toml or .json",
    );
}

#[test]
fn a_word_or_a_size_that_is_not_allowed_is_refused_with_what_is() {
    check(
        "run.toml",
        "checkpoint_blocks = \"most\"",
        "run.toml, line 1: `checkpoint_blocks` is `most`, but must be a number of blocks, or `all`; \
         change it and start again",
    );
    check(
        "run.toml",
        "device = \"tpu\"",
        "run.toml, line 1: `device` is `tpu`, but must be one of `auto`, `metal`, `cuda`, `cpu`; change it and start again",
    );
    check(
        "run.toml",
        "checkpoint_every = \"often\"",
        "run.toml, line 1: `checkpoint_every` is `often`, but must be an interval such as `10min`, `2epochs` or `500steps`, or `auto`; \
         change it and start again",
    );
    check(
        "run.toml",
        "memory_cap_bytes = \"1MB\"",
        "run.toml, line 1: `memory_cap_bytes` is `1MB`, but must be a size of at least 64 MB, such as \"8GB\" \
         or a number of bytes; change it and start again",
    );
    check(
        "run.toml",
        "memory_cap_bytes = 62914560",
        "run.toml, line 1: `memory_cap_bytes` is 62914560 (60 MB), but must be a size of at least 64 MB, such as \"8GB\" \
         or a number of bytes; change it and start again",
    );
}

#[test]
fn broken_text_is_refused_by_line() {
    for (name, text, begin) in [
        ("run.toml", "seed = 7\nepochs = = 3\n", "run.toml, line 2: "),
        ("run.toml", "seed = 7\nseed = 8\n", "run.toml, line 2: "),
        ("run.json", "{\n\"seed\": 7,\n}", "run.json, line 3: "),
        ("run.json", "[]", "run.json, line 1: "),
    ] {
        let message = load(name, text).expect_err(text);
        assert!(message.starts_with(begin), "{message}");
    }
}

#[test]
fn a_stream_is_toml_or_json_and_has_the_same_limit_as_a_file() {
    let read = |text: &[u8]| {
        let read = RunConfig::read_with_notes(text, "standard input");
        read.map(|(config, notes)| (config.epochs, notes.len()))
            .map_err(|error| error.to_string())
    };
    assert_eq!(read(b"epochs = 3\n"), Ok((Some(3), 0)));
    assert_eq!(read(b"\n {\"epochs\": 4}"), Ok((Some(4), 0)));
    assert_eq!(read(b"politeness = 0.5\n"), Ok((None, 1)));
    assert_eq!(read(b""), Ok((None, 0)));
    let mut long = b"#".repeat(4 << 20);
    assert_eq!(read(&long), Ok((None, 0)));
    long.push(b'#');
    for (text, part) in [
        (&long[..], "standard input: the config is larger than"),
        (
            b"\xFF".as_slice(),
            "standard input: the config is not UTF-8 text",
        ),
        (
            b"epochs = 3\nepoch = 4".as_slice(),
            "standard input, line 2: ",
        ),
    ] {
        let refused = read(text).expect_err(part);
        assert!(refused.contains(part), "{refused}");
    }
    // What never ends is not read to its end.
    let endless = RunConfig::read_with_notes(std::io::repeat(b'#'), "standard input");
    assert!(endless.is_err());
}

#[test]
fn a_missing_file_is_named_with_the_next_move() {
    let message = RunConfig::load("nowhere/run.toml".as_ref()).map_err(|e| e.to_string());
    let expected = "nowhere/run.toml could not be read: not found; check the path";
    assert_eq!(message, Err(expected.to_owned()));
}

#[test]
fn a_config_made_in_the_program_is_checked_by_the_same_table() {
    let check = |config: RunConfig, fine: bool| assert_eq!(config.validate().is_ok(), fine);
    check(RunConfig::default(), true);
    check(
        RunConfig {
            max_system_fraction: Some(0.5),
            ..RunConfig::default()
        },
        true,
    );
    check(
        RunConfig {
            max_system_fraction: Some(0.49),
            ..RunConfig::default()
        },
        false,
    );
    check(
        RunConfig {
            learning_rate: Some(f64::NAN),
            ..RunConfig::default()
        },
        false,
    );
    check(
        RunConfig {
            effective_batch: Some(0),
            ..RunConfig::default()
        },
        false,
    );
}

/// A value that the setting accepts, as TOML.
fn example(setting: &Setting) -> String {
    match setting.allowed {
        Allowed::Path => "\"x\"".to_owned(),
        Allowed::Name => "\"x\"".to_owned(),
        Allowed::Words(words) => format!("\"{}\"", words[0]),
        Allowed::Integer(least, _) | Allowed::Bytes(least) => least.to_string(),
        Allowed::Number(least, _) => format!("{least:?}"),
        Allowed::Interval => "\"1min\"".to_owned(),
        Allowed::Blocks => "2".to_owned(),
        Allowed::TrainedPart => "\"last:2\"".to_owned(),
        Allowed::Bits => "4".to_owned(),
    }
}

#[test]
fn every_key_of_the_table_is_read_and_written() {
    let line = |setting: &Setting| format!("{} = {}\n", setting.key, example(setting));
    let text: String = SETTINGS.iter().map(line).collect();
    let config = load("all.toml", &format!("{text}[[by_memory]]\nat_least = 1\n"));
    let config = config.expect("all keys are known");
    let written = config.to_toml();
    for setting in SETTINGS {
        let begin = format!("{} = ", setting.key);
        let lines = written.lines().filter(|line| line.starts_with(&begin));
        assert_eq!(lines.count(), 1, "{begin}{written}");
    }
    let again = RunConfig::from_toml(&written, "again").expect("what was written is read");
    assert_eq!(again, config);
    assert!(
        written.ends_with("[[by_memory]]\nat_least = 1\n"),
        "{written}"
    );
}

#[test]
fn every_other_name_of_a_key_is_read_as_the_key() {
    for setting in SETTINGS {
        let read = |key: &str| load("old.toml", &format!("{key} = {}\n", example(setting)));
        let today = read(setting.key);
        assert!(today.is_ok(), "{today:?}");
        for name in setting.keys() {
            assert_eq!(read(name), today, "{name}");
        }
    }
}

#[test]
fn tiers_choose_by_memory_and_what_is_reported_beside_them_wins() {
    let preset = || runlog::preset("low_memory").expect("it comes with Ebb");
    let check = |gb: f64, expected: (u32, u32)| {
        let config = preset().for_memory((gb * f64::from(1 << 30)) as u64);
        let chosen = (config.effective_batch, config.first_micro_batch);
        assert_eq!(chosen, (Some(expected.0), Some(expected.1)), "{gb} GB");
        assert!(config.by_memory.is_empty());
    };
    for (gb, batch, first) in [
        (4.0, 4, 1),
        (8.0, 8, 2),
        (16.0, 16, 4),
        (24.0, 16, 4),
        (32.0, 32, 8),
        (48.0, 64, 8),
        (512.0, 64, 8),
    ] {
        check(gb, (batch, first));
    }
    check(2.0, (4, 1));
    check(15.6, (16, 4));
    let explicit = RunConfig {
        effective_batch: Some(24),
        ..preset()
    };
    assert_eq!(explicit.for_memory(8 << 30).effective_batch, Some(24));
    let wrong = "[[by_memory]]\neffective_batch = 4\n";
    let refusal = load("wrong.toml", wrong)
        .expect_err("no memory is named")
        .to_string();
    assert!(
        refusal.contains("by_memory") && refusal.contains("at_least"),
        "{refusal}"
    );
}

#[test]
fn all_blocks_are_a_word_and_some_are_a_number() {
    use runlog::CheckpointBlocks;
    for (text, blocks) in [
        ("checkpoint_blocks = \"all\"\n", CheckpointBlocks::All),
        ("checkpoint_blocks = 3\n", CheckpointBlocks::Count(3)),
    ] {
        let config = load("blocks.toml", text).expect("both are allowed");
        assert_eq!(config.checkpoint_blocks, Some(blocks));
        assert_eq!(config.to_toml(), text);
    }
}

#[test]
fn every_preset_loads_and_names_its_audience() {
    for name in preset_names() {
        let config = preset(name).expect("it is in the table");
        let config = config.for_memory(16 << 30);
        assert!(config.effective_batch.is_some(), "{name}");
        let purpose = preset_purpose(name).expect("it is in the table");
        assert!(purpose.starts_with("For "), "{name}: {purpose}");
    }
    assert_eq!(preset("fastest"), None);
    assert_eq!(
        preset("few_photographs"),
        preset("few_images"),
        "a former name"
    );
}

#[test]
fn every_file_in_configs_is_a_preset() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs");
    let mut files: Vec<String> = fs::read_dir(folder)
        .expect("the presets are there")
        .filter_map(|entry| entry.ok()?.path().file_stem()?.to_str().map(str::to_owned))
        .collect();
    let mut names: Vec<String> = preset_names().map(str::to_owned).collect();
    files.sort();
    names.sort();
    assert_eq!(files, names);
}
