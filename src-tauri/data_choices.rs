//! The choices on the data page: which columns, classes and samples of a folder are used, and how
//! they are split. A config can express all of them.

use dataset::{ClassSelection, MergedClass};
use runlog::{DuplicatesChoice, RunConfig};
use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// What of a folder is used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, TS)]
#[serde(deny_unknown_fields)]
pub struct DataChoices {
    /// The column of the texts; `None` if it is recognized.
    pub text_column: Option<String>,
    /// The column of the labels; `None` if it is recognized.
    pub label_column: Option<String>,
    /// The columns of regression targets beside images; without one, every column of numbers.
    pub targets: Vec<String>,
    /// Names of the classes that are left out.
    pub leave_out_classes: Vec<String>,
    /// Classes that are trained as one.
    pub merge_classes: Vec<MergeView>,
    /// Whether one of samples that are the same or nearly the same is used.
    pub leave_duplicates_out: bool,
    /// The fraction that is held out; `None` for the usual one.
    pub held_out_fraction: Option<f64>,
    /// The column whose groups are never divided; `None` if groups are recognized.
    pub group_by: Option<String>,
}

/// Classes that are trained as one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(deny_unknown_fields)]
pub struct MergeView {
    /// The new name.
    pub name: String,
    /// Names of the classes.
    pub classes: Vec<String>,
}

impl DataChoices {
    /// The choices of a run.
    pub fn from_config(config: &RunConfig) -> Self {
        let options = trainer::inspect_options(config).unwrap_or_default();
        let merged = options.classes.merge.into_iter();
        DataChoices {
            text_column: config.text_column.clone(),
            label_column: config.label_column.clone(),
            targets: options.table.targets.unwrap_or_default(),
            leave_out_classes: options.classes.leave_out,
            merge_classes: merged
                .map(|MergedClass { name, classes }| MergeView { name, classes })
                .collect(),
            leave_duplicates_out: options.leave_duplicates_out,
            held_out_fraction: config.held_out_fraction,
            group_by: config.group_by.clone(),
        }
    }

    /// A config with these choices.
    pub fn apply(&self, config: RunConfig) -> RunConfig {
        let merged = self.merge_classes.iter().cloned();
        let classes = ClassSelection {
            leave_out: self.leave_out_classes.clone(),
            merge: merged
                .map(|MergeView { name, classes }| MergedClass { name, classes })
                .collect(),
            ..ClassSelection::default()
        };
        let leave_out = DuplicatesChoice::LeaveOut;
        RunConfig {
            text_column: self.text_column.clone(),
            label_column: self.label_column.clone(),
            targets: (!self.targets.is_empty()).then(|| self.targets.join(",")),
            duplicates: self.leave_duplicates_out.then_some(leave_out),
            held_out_fraction: self.held_out_fraction,
            group_by: self.group_by.clone(),
            ..trainer::with_classes(&classes, config)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_survive_in_the_config_of_a_run() {
        let choices = DataChoices {
            text_column: Some("message".to_owned()),
            label_column: Some("2".to_owned()),
            targets: vec!["mass_g".to_owned(), "height".to_owned()],
            leave_out_classes: vec!["a, b".to_owned()],
            merge_classes: vec![MergeView {
                name: "pets".to_owned(),
                classes: vec!["cat".to_owned(), "dog".to_owned()],
            }],
            leave_duplicates_out: true,
            held_out_fraction: Some(0.3),
            group_by: Some("patient".to_owned()),
        };
        let config = choices.apply(RunConfig::default());
        assert_eq!(config.validate().map_err(|error| error.to_string()), Ok(()));
        assert_eq!(DataChoices::from_config(&config), choices);
        let usual = DataChoices::default();
        assert_eq!(usual.apply(RunConfig::default()), RunConfig::default());
        assert_eq!(DataChoices::from_config(&RunConfig::default()), usual);
    }
}
