//! The table of settings for the window, written to `settings.json` beside the exported types. The
//! sheet of all settings imports this file, so that it needs no request. The plan page imports only
//! `limits.json`, the limits of its own fields.

use crate::setting_location::{SettingOwner, owner};
use crate::window_types::tests::current_types;
use runlog::{Allowed, SETTINGS, Setting};
use serde::Serialize;
use std::collections::BTreeMap;
use ts_rs::{ExportError, TS};

/// One setting as the sheet of all settings shows it.
#[derive(Debug, Clone, Serialize, TS)]
pub struct SettingView {
    /// Its key in a config file.
    pub key: String,
    /// Heading under which it is.
    pub group: String,
    /// What it does.
    pub help: String,
    /// What happens if it is not set.
    pub default: String,
    /// Its field.
    pub field: SettingField,
    /// Where its value is kept.
    pub owner: SettingOwner,
}

/// The field of a setting.
#[derive(Debug, Clone, Serialize, TS)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SettingField {
    /// One of a few words.
    Words {
        /// The words.
        words: Vec<String>,
    },
    /// A number.
    Number {
        /// Smallest value.
        min: f64,
        /// Largest value; `None` if there is no limit that matters.
        max: Option<f64>,
        /// Whether it is a whole number.
        whole: bool,
    },
    /// Text.
    Text {
        /// What it looks like: "8GB", "FOLDER".
        placeholder: String,
    },
}

/// A count of this size has no limit that matters.
const UNLIMITED: u64 = (1 << 53) - 1;

/// Every setting, in the order of the groups.
fn table() -> Vec<SettingView> {
    let mut settings: Vec<&Setting> = SETTINGS.iter().collect();
    settings.sort_by_key(|setting| setting.group);
    settings.into_iter().map(view).collect()
}

/// The limits of the numbers that the plan page shows itself, by key.
fn plan_limits() -> BTreeMap<&'static str, SettingField> {
    let numbers = SETTINGS.iter().filter_map(|setting| match field(setting) {
        number @ SettingField::Number { .. } => Some((setting.key, number)),
        _ => None,
    });
    numbers
        .filter(|(key, _)| owner(key) == SettingOwner::Plan)
        .collect()
}

fn view(setting: &Setting) -> SettingView {
    SettingView {
        key: setting.key.to_owned(),
        group: setting.group.heading().to_owned(),
        help: setting.help.trim().to_owned(),
        default: setting.default.to_owned(),
        field: field(setting),
        owner: owner(setting.key),
    }
}

fn field(setting: &Setting) -> SettingField {
    match setting.allowed {
        Allowed::Words(words) => SettingField::Words {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
        },
        Allowed::Integer(min, max) => SettingField::Number {
            min: min as f64,
            max: (max < UNLIMITED).then_some(max as f64),
            whole: true,
        },
        Allowed::Number(min, max) => SettingField::Number {
            min,
            max: Some(max),
            whole: false,
        },
        Allowed::Path
        | Allowed::Bits
        | Allowed::Name
        | Allowed::TrainedPart
        | Allowed::Interval
        | Allowed::Blocks
        | Allowed::Bytes(_) => SettingField::Text {
            placeholder: setting.value.to_owned(),
        },
    }
}

#[test]
fn the_windows_table_of_settings_is_current() {
    current_types(|config| {
        SettingView::export_all(config)?;
        let json = |rows: serde_json::Result<String>| rows.expect("a table is JSON") + "\n";
        let table = json(serde_json::to_string_pretty(&table()));
        let limits = json(serde_json::to_string_pretty(&plan_limits()));
        // tidy: not durable: a file of this project
        std::fs::write(config.out_dir().join("settings.json"), table).map_err(ExportError::Io)?;
        // tidy: not durable: a file of this project
        std::fs::write(config.out_dir().join("limits.json"), limits).map_err(ExportError::Io)
    });
}
