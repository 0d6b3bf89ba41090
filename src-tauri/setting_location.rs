//! Names the place where the window keeps the value of each setting. No value is kept in two
//! places.

use serde::Serialize;
use ts_rs::TS;

/// Where the value of a setting is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum SettingOwner {
    /// The plan page shows it.
    Plan,
    /// It changes how the folder is read.
    Data,
    /// The dropped folder decides it.
    Folder,
    /// Only the sheet has it.
    Sheet,
}

/// Settings that the plan page shows itself.
const PLAN: &[&str] = &[
    "task",
    "model",
    "from",
    "train_only",
    "adapter_rank",
    "image_size",
    "tokens",
    "effective_batch",
    "epochs",
    "learning_rate",
    "augment",
    "checkpoint_every",
    "max_system_fraction",
    "courtesy",
    "seed",
];
/// Settings that change how the folder is read: the fields of `DataChoices`.
pub const DATA: &[&str] = &[
    "text_column",
    "label_column",
    "targets",
    "leave_out_classes",
    "merge_classes",
    "duplicates",
    "held_out_fraction",
    "group_by",
];
/// Where the value of the setting with this key is kept.
pub fn owner(key: &str) -> SettingOwner {
    match key {
        "folder" => SettingOwner::Folder,
        key if PLAN.contains(&key) => SettingOwner::Plan,
        key if DATA.contains(&key) => SettingOwner::Data,
        _ => SettingOwner::Sheet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use runlog::setting;

    #[test]
    fn every_key_with_an_owner_of_its_own_is_a_setting() {
        for key in PLAN.iter().chain(DATA) {
            assert_eq!(setting(key).map(|setting| setting.key), Some(*key), "{key}");
        }
        assert_eq!(owner("optimizer"), SettingOwner::Sheet);
        assert_eq!(owner("folder"), SettingOwner::Folder);
    }
}
