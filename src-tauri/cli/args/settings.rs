//! Flags of the settings of a run, generated from the table of settings. This file names a
//! setting only to say which command takes it.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use runlog::{Allowed, Group, RunConfig, SETTINGS, Setting};
use serde_json::{Map, Value};

/// The settings that a command takes as flags.
pub trait Takes {
    /// Whether the command takes this setting as a flag.
    fn takes(setting: &Setting) -> bool;
}

/// `ebb train`: every setting that has a flag.
pub struct Everything;

impl Takes for Everything {
    fn takes(_: &Setting) -> bool {
        true
    }
}

/// `ebb plan`: settings that change how much memory training needs.
pub struct Planned;

impl Takes for Planned {
    fn takes(setting: &Setting) -> bool {
        let keys = [
            "task",
            "model",
            "from",
            "train_only",
            "adapter_rank",
            "quantize",
            "image_size",
            "tokens",
            "loss_on",
            "packing",
            "vocabulary",
            "text_column",
            "label_column",
            "leave_out_classes",
            "merge_classes",
            "duplicates",
            "effective_batch",
            "effective_batch_tokens",
            "optimizer",
            "ema_decay",
            "device",
            "precision",
            "exchange",
            "sharding",
            "sync_every",
            "checkpoint_blocks",
            "threads",
            "prefetch_batches",
        ];
        let groups = [Group::Compression];
        keys.contains(&setting.key) || groups.contains(&setting.group) || Limited::takes(setting)
    }
}

/// Settings that limit how much memory Ebb may use.
pub struct Limited;

impl Takes for Limited {
    fn takes(setting: &Setting) -> bool {
        [
            "memory_cap_bytes",
            "memory_cap_fraction",
            "max_system_fraction",
        ]
        .contains(&setting.key)
    }
}

/// `ebb controller`: memory limits, and a fixed micro-batch size.
pub struct Controlled;

impl Takes for Controlled {
    fn takes(setting: &Setting) -> bool {
        setting.key == "micro_batch" || Limited::takes(setting)
    }
}

/// Settings that change how Ebb reads a folder.
pub struct Read;

impl Takes for Read {
    fn takes(setting: &Setting) -> bool {
        [
            "task",
            "from",
            "loss_on",
            "text_column",
            "label_column",
            "targets",
            "group_by",
            "leave_out_classes",
            "merge_classes",
            "duplicates",
        ]
        .contains(&setting.key)
    }
}

/// Settings that all runs share if a command trains several times.
pub struct Shared;

impl Takes for Shared {
    fn takes(setting: &Setting) -> bool {
        let keys = [
            "task",
            "model",
            "image_size",
            "dev_samples",
            "device",
            "threads",
            "memory_cap_bytes",
            "seed",
        ];
        keys.contains(&setting.key)
    }
}

/// The settings of the command line, as a config.
pub struct Settings<T> {
    /// Settings that the user gave as flags; all other settings are absent.
    pub config: RunConfig,
    /// Keys of the settings that the user gave as `auto`. `auto` overrides the value of a config
    /// file.
    automatic: Vec<&'static str>,
    takes: std::marker::PhantomData<fn() -> T>,
}

impl<T> Settings<T> {
    /// Returns these settings; `base` supplies the absent ones. A setting that the user gave as
    /// `auto` removes the value of `base`.
    pub fn over(&self, base: RunConfig) -> RunConfig {
        let base = if self.automatic.contains(&"micro_batch") {
            RunConfig {
                micro_batch: None,
                ..base
            }
        } else {
            base
        };
        self.config.clone().over(base)
    }
}

fn flags<T: Takes>() -> impl Iterator<Item = &'static Setting> {
    let has_flag = |setting: &&Setting| !setting.flag.is_empty();
    SETTINGS
        .iter()
        .filter(has_flag)
        .filter(|setting| T::takes(setting))
}

/// The help of a flag. If the help of the setting does not name all allowed words, the help of the
/// flag lists them.
fn help(setting: &Setting) -> String {
    let text = setting.help.trim();
    let words = match setting.allowed {
        Allowed::Words(words) if words.iter().any(|word| !text.contains(word)) => {
            format!("one of {}; ", words.join(", "))
        }
        _ => String::new(),
    };
    format!("{text} [{words}default: {}]", setting.default)
}

fn flag(setting: &'static Setting) -> Arg {
    Arg::new(setting.key)
        .long(setting.flag)
        .aliases(setting.old_flags)
        .value_name(setting.value)
        .help(help(setting))
        .help_heading(setting.group.heading())
        .action(ArgAction::Set)
        .allow_negative_numbers(true)
        .value_parser(move |text: &str| setting.parse(text))
}

impl<T: Takes> Args for Settings<T> {
    fn augment_args(command: Command) -> Command {
        flags::<T>().fold(command, |command, setting| command.arg(flag(setting)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<T: Takes> FromArgMatches for Settings<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let (mut typed, mut automatic) = (Map::new(), Vec::new());
        for setting in flags::<T>() {
            match matches.get_one::<Value>(setting.key) {
                Some(Value::Null) => automatic.push(setting.key),
                Some(value) => drop(typed.insert(setting.key.to_owned(), value.clone())),
                None => {}
            }
        }
        let config = serde_json::from_value(Value::Object(typed));
        let config = config.map_err(|error| {
            clap::Error::raw(
                clap::error::ErrorKind::ValueValidation,
                format!("{error}\n"),
            )
        })?;
        Ok(Settings {
            config,
            automatic,
            takes: std::marker::PhantomData,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Typed {
        #[command(flatten)]
        settings: Settings<Everything>,
    }

    fn typed(line: &str) -> Result<Settings<Everything>, clap::Error> {
        let words = ["ebb"].into_iter().chain(line.split_whitespace());
        <Typed as clap::Parser>::try_parse_from(words).map(|typed| typed.settings)
    }

    #[test]
    fn a_flag_becomes_a_key_of_the_config() {
        let config = typed("--epochs 3 --memory-cap 8GB --augment none --checkpoint-blocks all");
        let config = config.unwrap().config;
        assert_eq!(config.epochs, Some(3));
        assert_eq!(config.memory_cap_bytes, Some(8 << 30));
        assert_eq!(config.augment, Some(runlog::Augmentation::None));
        assert_eq!(
            config.checkpoint_blocks,
            Some(runlog::CheckpointBlocks::All)
        );
    }

    #[test]
    fn a_flag_of_the_first_version_still_works() {
        let config = typed("--politeness 0.8 --kept-fraction 0.4")
            .unwrap()
            .config;
        assert_eq!(config.max_system_fraction, Some(0.8));
        assert_eq!(config.keep_fraction, Some(0.4));
    }

    #[test]
    fn auto_overrides_a_config_file() {
        let base = RunConfig {
            micro_batch: Some(4),
            ..RunConfig::default()
        };
        assert_eq!(
            typed("--micro-batch auto")
                .unwrap()
                .over(base.clone())
                .micro_batch,
            None
        );
        assert_eq!(
            typed("--micro-batch 2")
                .unwrap()
                .over(base.clone())
                .micro_batch,
            Some(2)
        );
        assert_eq!(typed("").unwrap().over(base).micro_batch, Some(4));
    }

    #[test]
    fn a_wrong_value_reports_the_allowed_range() {
        let error = typed("--max-system-fraction 2")
            .err()
            .map(|error| error.to_string());
        assert!(error.is_some_and(|text| text.contains("must be a number from 0.5 to 0.95")));
    }
}
