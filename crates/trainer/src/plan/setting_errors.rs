//! Errors about settings that do not work.

use crate::error::{Result, TrainError};

/// The error for a setting with a value that does not work.
pub(in crate::plan) fn invalid_setting(
    key: &'static str,
    value: impl ToString,
    allowed: impl ToString,
) -> TrainError {
    TrainError::Setting {
        key,
        value: value.to_string(),
        allowed: allowed.to_string(),
    }
}

/// The choice with the name `value`.
pub(in crate::plan) fn find_by_name<T: Copy>(
    key: &'static str,
    value: &str,
    choices: &[(&str, T)],
) -> Result<T> {
    let found = choices.iter().find(|(name, _)| *name == value);
    found.map(|(_, choice)| *choice).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        invalid_setting(key, value, format!("choose {}", alternatives(&names)))
    })
}

/// "convnet, vit_micro or resnet18".
fn alternatives(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [others @ .., last] => format!("{} or {last}", others.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_separated_by_commas() {
        assert_eq!(alternatives(&["a"]), "a");
        assert_eq!(alternatives(&["a", "b"]), "a or b");
        assert_eq!(alternatives(&["a", "b", "c"]), "a, b or c");
    }
}
