//! The presets that come with Ebb, embedded so that they are there wherever the program is. Each file's first line
//! says for whom it is.

use crate::RunConfig;

macro_rules! presets {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../../../configs/", $name, ".toml")))),*]
    };
}

/// Name and text of every preset.
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
    "few_photographs",
    "token_compression",
];

/// The preset of this name, or nothing when there is none.
pub fn preset(name: &str) -> Option<RunConfig> {
    let (name, text) = PRESETS.iter().find(|(known, _)| *known == name)?;
    Some(RunConfig::from_toml(text, name).expect("a test loads every preset"))
}

/// All names, in the order in which they are shown.
pub fn preset_names() -> impl ExactSizeIterator<Item = &'static str> + Clone {
    PRESETS.iter().map(|(name, _)| *name)
}

/// For whom a preset is: the first line of its file.
pub fn preset_purpose(name: &str) -> Option<&'static str> {
    let (_, text) = PRESETS.iter().find(|(known, _)| *known == name)?;
    text.lines()
        .next()
        .map(|line| line.trim_start_matches(['#', ' ']))
}
