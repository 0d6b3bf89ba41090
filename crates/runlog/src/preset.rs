//! The presets that come with Ebb, embedded in the binary. The first line of each file describes
//! whom it is for.

use crate::RunConfig;

macro_rules! presets {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../configs/", $name, ".toml")))),*]
    };
}

/// Name and text of each preset.
const PRESETS: [(&str, &str); 12] = presets![
    "quick",
    "dev",
    "memory_debug",
    "memory_small",
    "memory_medium",
    "memory_large",
    "apple_silicon_optimal",
    "ultra_safe",
    "recognition_safe",
    "recognition",
    "few_images",
    "token_compression",
];

/// The preset with this name, if there is one.
pub fn preset(name: &str) -> Option<RunConfig> {
    let (name, text) = find(name)?;
    Some(RunConfig::from_toml(text, name).expect("a test loads every preset"))
}

/// The names of all presets, in display order.
pub fn preset_names() -> impl ExactSizeIterator<Item = &'static str> + Clone {
    PRESETS.iter().map(|(name, _)| *name)
}

/// Whom a preset is for: the first line of its file, if there is such a preset.
pub fn preset_purpose(name: &str) -> Option<&'static str> {
    let (_, text) = find(name)?;
    text.lines()
        .next()
        .map(|line| line.trim_start_matches(['#', ' ']))
}

fn find(name: &str) -> Option<&'static (&'static str, &'static str)> {
    // The name of `few_images` in version 0.1.0.
    let name = match name {
        "few_photographs" => "few_images",
        name => name,
    };
    PRESETS.iter().find(|(known, _)| *known == name)
}
