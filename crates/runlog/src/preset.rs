//! The presets that come with Ebb, embedded so that they are available wherever the program is. The
//! first line of each file says who it is for.

use crate::RunConfig;

macro_rules! presets {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../configs/", $name, ".toml")))),*]
    };
}

/// Name and text of every preset.
const PRESETS: &[(&str, &str)] = presets!["quick", "few_images", "low_memory", "token_compression"];

/// Names of earlier versions, and the preset that they mean today.
const OLD_NAMES: &[(&str, &str)] = &[
    ("few_photographs", "few_images"),
    ("memory_debug", "low_memory"),
    ("memory_small", "low_memory"),
    ("memory_medium", "low_memory"),
    ("memory_large", "low_memory"),
    ("apple_silicon_optimal", "low_memory"),
    ("ultra_safe", "low_memory"),
];

/// The beginning of the line with the measured results of a preset.
const MEASURED: &str = "# Measured: ";

fn find(name: &str) -> Option<(&'static str, &'static str)> {
    let old = OLD_NAMES.iter().find(|(old, _)| *old == name);
    let name = old.map_or(name, |(_, now)| now);
    PRESETS.iter().find(|(known, _)| *known == name).copied()
}

/// The preset with this name, or with this former name.
pub fn preset(name: &str) -> Option<RunConfig> {
    let (name, text) = find(name)?;
    Some(RunConfig::from_toml(text, name).expect("a test loads every preset"))
}

/// The name of the preset with this name or former name.
pub fn preset_name(name: &str) -> Option<&'static str> {
    find(name).map(|(name, _)| name)
}

/// All names, in the order in which they are shown.
pub fn preset_names() -> impl ExactSizeIterator<Item = &'static str> + Clone {
    PRESETS.iter().map(|(name, _)| *name)
}

/// What a preset reached: the accuracy, the data, the time and the command; `None` if it has not
/// been measured.
pub fn preset_measurement(name: &str) -> Option<&'static str> {
    let (_, text) = find(name)?;
    text.lines().find_map(|line| line.strip_prefix(MEASURED))
}

/// For whom a preset is: the first line of its file.
pub fn preset_purpose(name: &str) -> Option<&'static str> {
    let (_, text) = find(name)?;
    let first = text.lines().next();
    first.map(|line| line.trim_start_matches(['#', ' ']))
}
