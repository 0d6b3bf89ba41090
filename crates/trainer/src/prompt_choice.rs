//! The prompts that a language model answers after each evaluation, as the user chooses them. A
//! run has its own copy of the user's file, so that they stay the same in all its sessions.

use crate::error::{Result, TrainError, at};
use runlog::{RunConfig, RunFolder, format_io_error};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Most prompts. Each of them is answered after each evaluation.
const MAX_PROMPTS: usize = 20;
/// Most bytes of the file with the prompts.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The copy of the file in the run folder.
pub(crate) const PROMPTS_FILE: &str = "prompts.txt";
/// Value of the setting if no prompts are answered.
const NONE: &str = "0";

/// Where the prompts of a run come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PromptChoice {
    /// There are none.
    None,
    /// The first messages of held-out conversations.
    HeldOut,
    /// These texts.
    Texts(Vec<String>),
}

impl PromptChoice {
    /// The choice of a config, whose file is read.
    ///
    /// # Errors
    /// [`TrainError::Setting`]: the file cannot be read, or has no prompts or too many.
    pub fn from_config(config: &RunConfig) -> Result<Self> {
        match &config.prompts {
            None => Ok(PromptChoice::HeldOut),
            Some(path) if path.as_os_str() == OsStr::new(NONE) => Ok(PromptChoice::None),
            Some(path) => read(path).map(PromptChoice::Texts),
        }
    }

    /// The choice of a run, from its copy of the file if it has one.
    ///
    /// # Errors
    /// As [`PromptChoice::from_config`].
    pub fn from_run(run: &RunFolder, config: &RunConfig) -> Result<Self> {
        match copy_in(run) {
            Some(path) => read(&path).map(PromptChoice::Texts),
            None => PromptChoice::from_config(config),
        }
    }

    /// Copies the texts into the folder of a new run.
    ///
    /// # Errors
    /// The disk refuses them.
    pub fn save(&self, run: &RunFolder) -> Result<()> {
        let PromptChoice::Texts(texts) = self else {
            return Ok(());
        };
        let path = run.path.join(PROMPTS_FILE);
        let lines = texts.join("\n") + "\n";
        disk::write_atomic(&path, lines.as_bytes()).map_err(at(&path))
    }
}

/// The file with the prompts in a run folder; `None` if the user chose no file.
pub(crate) fn copy_in(run: &RunFolder) -> Option<PathBuf> {
    let path = run.path.join(PROMPTS_FILE);
    path.is_file().then_some(path)
}

/// The prompts of a file: its lines that are not empty, each once.
fn read(path: &Path) -> Result<Vec<String>> {
    let refused = |allowed: String| TrainError::Setting {
        key: "prompts",
        value: path.display().to_string(),
        allowed,
    };
    let text = disk::read_text_limited(path, MAX_FILE_BYTES).map_err(|error| {
        let reason = format_io_error(&error);
        refused(format!(
            "the file cannot be read ({reason}); choose a text file with one prompt per line, or 0 for no prompts"
        ))
    })?;
    let mut prompts: Vec<String> = Vec::new();
    for line in text.trim_start_matches('\u{FEFF}').lines().map(str::trim) {
        if !line.is_empty() && !prompts.iter().any(|prompt| prompt == line) {
            prompts.push(line.to_owned());
        }
    }
    match prompts.len() {
        0 => Err(refused(
            "the file has no prompts; write one prompt per line, or choose 0 for no prompts"
                .to_owned(),
        )),
        count if count > MAX_PROMPTS => Err(refused(format!(
            "the file has {count} prompts, but at most {MAX_PROMPTS} are answered after each evaluation; remove some of them"
        ))),
        _ => Ok(prompts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(text: &[u8]) -> Result<PromptChoice> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("prompts.txt");
        std::fs::write(&path, text).expect("it can be written");
        PromptChoice::from_config(&RunConfig {
            prompts: Some(path),
            ..RunConfig::default()
        })
    }

    #[test]
    fn each_line_of_the_file_is_a_prompt() {
        let found = chosen("\u{FEFF}Who are you?\r\n\r\n  Why? \nWho are you?\n".as_bytes());
        let texts = vec!["Who are you?".to_owned(), "Why?".to_owned()];
        assert_eq!(found.ok(), Some(PromptChoice::Texts(texts)));
    }

    #[test]
    fn a_file_without_usable_prompts_is_refused_with_the_next_step() {
        let many: String = (0..21).map(|number| format!("{number}\n")).collect();
        for (text, reason) in [
            (&b" \n\n"[..], "has no prompts; write one prompt per line"),
            (many.as_bytes(), "has 21 prompts, but at most 20"),
            (b"\xff\xfe\n", "cannot be read"),
        ] {
            let refused = chosen(text).expect_err("it is refused").to_string();
            assert!(refused.contains(reason), "{refused}");
        }
    }

    #[test]
    fn a_run_keeps_its_prompts_without_the_file() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let run = RunFolder {
            path: folder.path().to_owned(),
        };
        let missing = RunConfig {
            prompts: Some(folder.path().join("gone.txt")),
            ..RunConfig::default()
        };
        assert!(PromptChoice::from_run(&run, &missing).is_err());
        let texts = PromptChoice::Texts(vec!["Why?".to_owned(), "How?".to_owned()]);
        texts.save(&run).expect("the disk has room");
        assert_eq!(PromptChoice::from_run(&run, &missing).ok(), Some(texts));
    }

    #[test]
    fn zero_is_no_file() {
        let config = |prompts: Option<&str>| RunConfig {
            prompts: prompts.map(PathBuf::from),
            ..RunConfig::default()
        };
        let choice = |prompts| PromptChoice::from_config(&config(prompts)).ok();
        assert_eq!(choice(Some("0")), Some(PromptChoice::None));
        assert_eq!(choice(None), Some(PromptChoice::HeldOut));
    }
}
