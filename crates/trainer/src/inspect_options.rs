//! How a config wants its folder to be read: tables, classes, duplicates and the split.

use crate::error::{Result, TrainError};
use crate::task_conversion::dataset_task;
use dataset::{
    ClassSelection, DetectedDataset, InspectOptions, MergedClass, ReadProgress, TableOptions, Task,
    TextOptions,
};
use runlog::{DuplicatesChoice, RunConfig};
use std::path::Path;

/// Reads a folder as a config asks for. `on_progress` is called on the calling thread while files
/// are read.
///
/// # Errors
/// The folder cannot be read, or a list of classes cannot.
pub fn read_dataset(
    folder: &Path,
    config: &RunConfig,
    on_progress: &dyn Fn(ReadProgress),
) -> Result<DetectedDataset> {
    let texts = text_options(config, config.task.map(dataset_task));
    let options = inspect_options(config)?;
    Ok(dataset::detect(folder, &options, &texts, on_progress)?)
}

/// The options for inspecting the folder of a config.
///
/// # Errors
/// A list of classes cannot be read.
pub fn inspect_options(config: &RunConfig) -> Result<InspectOptions> {
    let usual = InspectOptions::default();
    Ok(InspectOptions {
        held_out_fraction: config.held_out_fraction.unwrap_or(usual.held_out_fraction),
        seed: config.seed.unwrap_or(usual.seed),
        table: table_options(config),
        classes: class_selection(config)?,
        leave_duplicates_out: config.duplicates == Some(DuplicatesChoice::LeaveOut),
        stop: usual.stop,
    })
}

/// The options for reading texts that a config asks for.
pub fn text_options(config: &RunConfig, task: Option<Task>) -> TextOptions {
    TextOptions {
        task,
        text_column: config.text_column.clone(),
        label_column: config.label_column.clone(),
    }
}

/// The options for tables beside images that a config asks for.
fn table_options(config: &RunConfig) -> TableOptions {
    let names = |names: &String| {
        names
            .split(',')
            .map(|name| name.trim().to_owned())
            .collect()
    };
    TableOptions {
        label_column: None,
        group_by: config.group_by.clone(),
        targets: config.targets.as_ref().map(names),
    }
}

/// The classes that a config leaves out and merges.
///
/// # Errors
/// A list cannot be read.
fn class_selection(config: &RunConfig) -> Result<ClassSelection> {
    let leave_out = config.leave_out_classes.as_deref().unwrap_or_default();
    let merge = config.merge_classes.as_deref().unwrap_or_default();
    Ok(ClassSelection {
        leave_out: names(leave_out),
        merge: split_outside_quotes(merge, ';')
            .into_iter()
            .map(merged_class)
            .collect::<Result<_>>()?,
        allow_unknown: false,
    })
}

/// "pets=cat,dog".
fn merged_class(text: &str) -> Result<MergedClass> {
    let parts = split_outside_quotes(text, '=');
    let merged = match parts.as_slice() {
        [name, classes] => MergedClass {
            name: unquoted(name),
            classes: names(classes),
        },
        _ => MergedClass {
            name: String::new(),
            classes: Vec::new(),
        },
    };
    if merged.name.is_empty() || merged.classes.is_empty() {
        let allowed = "write the name of the new class, an equals sign, and the classes that it replaces, such as pets=cat,dog";
        return Err(TrainError::Setting {
            key: "merge_classes",
            value: text.to_owned(),
            allowed: allowed.to_owned(),
        });
    }
    Ok(merged)
}

fn names(text: &str) -> Vec<String> {
    let names = split_outside_quotes(text, ',').into_iter().map(unquoted);
    names.filter(|name| !name.is_empty()).collect()
}

/// The parts between separators that are not inside double quotes; none of an empty text.
fn split_outside_quotes(text: &str, separator: char) -> Vec<&str> {
    let mut inside = false;
    let parts = text.split(|c| {
        inside ^= c == '"';
        c == separator && !inside
    });
    parts.filter(|part| !part.trim().is_empty()).collect()
}

/// A name without the quotes around it. Two quotes inside are one.
fn unquoted(text: &str) -> String {
    let text = text.trim();
    let inner = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    inner.map_or_else(|| text.to_owned(), |inner| inner.replace("\"\"", "\""))
}

fn quoted(name: &str) -> String {
    let plain = name.trim() == name && !name.contains([',', ';', '=', '"']);
    if plain {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// A config that leaves out and merges these classes.
pub fn with_classes(classes: &ClassSelection, config: RunConfig) -> RunConfig {
    RunConfig {
        leave_out_classes: leave_out_classes(&classes.leave_out),
        merge_classes: merge_classes(&classes.merge),
        ..config
    }
}

/// Writes class names as the value of `leave_out_classes`; `None` without names.
fn leave_out_classes(names: &[String]) -> Option<String> {
    let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    (!names.is_empty()).then(|| names.join(","))
}

/// Writes merged classes as the value of `merge_classes`; `None` without any.
fn merge_classes(merged: &[MergedClass]) -> Option<String> {
    let one = |merged: &MergedClass| {
        let classes: Vec<String> = merged.classes.iter().map(|name| quoted(name)).collect();
        format!("{}={}", quoted(&merged.name), classes.join(","))
    };
    let all: Vec<String> = merged.iter().map(one).collect();
    (!all.is_empty()).then(|| all.join(";"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(leave_out: &str, merge: &str) -> Result<ClassSelection> {
        class_selection(&RunConfig {
            leave_out_classes: Some(leave_out.to_owned()),
            merge_classes: Some(merge.to_owned()),
            ..RunConfig::default()
        })
    }

    #[test]
    fn classes_are_read_as_they_are_typed() {
        let read = selection("ant, \"bee, wild\"", "pets = cat,dog; \"a=b\"=\"x;y\"")
            .expect("both lists are right");
        assert_eq!(read.leave_out, ["ant", "bee, wild"]);
        assert_eq!(read.merge[0].name, "pets");
        assert_eq!(read.merge[0].classes, ["cat", "dog"]);
        assert_eq!(
            (&*read.merge[1].name, &*read.merge[1].classes[0]),
            ("a=b", "x;y")
        );
        for wrong in ["cat,dog", "=cat", "pets=", "a=b=c"] {
            let error = selection("", wrong)
                .expect_err("it is no merge")
                .to_string();
            assert!(
                error.contains("merge_classes") && error.contains("pets=cat,dog"),
                "{error}"
            );
        }
    }

    #[test]
    fn every_name_can_be_written_and_read_again() {
        let odd = [
            "plain",
            "a,b",
            "a;b",
            "a=b",
            "an \"odd\" one",
            " spaces ",
            "Fruit/Apple",
        ];
        let odd: Vec<String> = odd.iter().map(|name| (*name).to_owned()).collect();
        let merged = vec![
            MergedClass {
                name: "x \"y\"; z".to_owned(),
                classes: odd.clone(),
            },
            MergedClass {
                name: "other".to_owned(),
                classes: vec!["c".to_owned()],
            },
        ];
        let read = selection(
            &leave_out_classes(&odd).expect("there are names"),
            &merge_classes(&merged).expect("there are classes"),
        );
        let read = read.expect("both lists are right");
        assert_eq!((read.leave_out, read.merge), (odd, merged));
        assert_eq!((leave_out_classes(&[]), merge_classes(&[])), (None, None));
    }

    #[test]
    fn nothing_is_left_out_unless_the_config_asks_for_it() {
        let options = inspect_options(&RunConfig::default()).expect("nothing can be wrong");
        assert_eq!(options, InspectOptions::default());
    }
}
