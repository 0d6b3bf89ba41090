//! The language of the window, its menus and its notifications. English stands where it is used;
//! the page's file of strings has the German, and says how its patterns are written. The terminal
//! is English.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, OnceLock};
use ts_rs::TS;

/// A language of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, TS)]
pub enum Language {
    #[serde(rename = "en")]
    English,
    #[serde(rename = "de")]
    German,
}

/// Most bytes of the file with the user's choice.
const MAX_BYTES: u64 = 1 << 10;
/// The sections of the strings whose keys are patterns: sentences of Rust.
const OF_RUST: &str = "rust: ";
static FILE_PATH: OnceLock<PathBuf> = OnceLock::new();
static IS_GERMAN: AtomicBool = AtomicBool::new(false);

/// German by English, and the keys that are patterns.
struct Strings {
    german: HashMap<String, String>,
    /// Those with the most fixed characters first.
    patterns: Vec<Vec<Part>>,
}

/// A part of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    /// A value, by its name.
    Value(String),
}

static STRINGS: LazyLock<Strings> =
    LazyLock::new(|| Strings::read(include_str!("../ui/src/strings/de.json")));

/// Reads the user's choice from `file`. Without one, the system decides.
pub fn start(file: PathBuf) {
    // Only a second window of this process would set it again.
    let _ = FILE_PATH.set(file);
    apply(choice());
}

/// The language of the window.
pub fn current() -> Language {
    if IS_GERMAN.load(Ordering::Relaxed) {
        Language::German
    } else {
        Language::English
    }
}

/// What the user chose; `None` follows the system.
pub fn choice() -> Option<Language> {
    let text = ::disk::read_limited(FILE_PATH.get()?, MAX_BYTES).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Remembers what the user chose, and applies it.
pub fn choose(choice: Option<Language>) -> io::Result<()> {
    if let Some(path) = FILE_PATH.get() {
        match choice {
            Some(language) => ::disk::write_atomic(path, &serde_json::to_vec(&language)?)?,
            None => match ::disk::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            },
        }
    }
    apply(choice);
    Ok(())
}

fn apply(choice: Option<Language>) {
    let system = || of_locale(sys_locale::get_locale().as_deref());
    let language = choice.unwrap_or_else(system);
    IS_GERMAN.store(language == Language::German, Ordering::Relaxed);
}

/// The language of a locale such as "de-DE"; English for any other.
fn of_locale(locale: Option<&str>) -> Language {
    match locale.unwrap_or_default().split(['-', '_', '.']).next() {
        Some("de") => Language::German,
        _ => Language::English,
    }
}

/// A text in the language of the window. One that is unknown stays English.
pub fn translate(text: &str) -> String {
    match current() {
        Language::English => text.to_owned(),
        Language::German => STRINGS.translate(text),
    }
}

impl Strings {
    fn read(json: &str) -> Self {
        type Section = HashMap<String, serde_json::Value>;
        let sections: HashMap<String, Section> =
            serde_json::from_str(json).expect("a test reads the strings");
        let mut german = HashMap::new();
        let mut patterns = Vec::new();
        for (section, texts) in sections {
            for (english, text) in texts {
                // The form for a number other than 1.
                let text = text.get("other").unwrap_or(&text);
                let text = text.as_str().expect("every entry is a text or has forms");
                if section.starts_with(OF_RUST) && english.contains('{') {
                    patterns.push(parts(&english));
                }
                german.insert(english, text.to_owned());
            }
        }
        patterns.sort_by_key(|pattern: &Vec<Part>| std::cmp::Reverse(fixed_length(pattern)));
        Strings { german, patterns }
    }

    fn translate(&self, text: &str) -> String {
        let found = self.find(text);
        let found = found.or_else(|| self.matching(text, true));
        found.unwrap_or_else(|| text.to_owned())
    }

    fn find(&self, text: &str) -> Option<String> {
        if let Some(german) = self.german.get(text) {
            return Some(german.clone());
        }
        if is_number(text) {
            return Some(german_number(text));
        }
        self.matching(text, false)
            .or_else(|| self.with_capital(text))
            .or_else(|| self.in_parts(text))
    }

    /// Translates with a pattern. A value that is unknown stays English if `in_english` allows it.
    fn matching(&self, text: &str, in_english: bool) -> Option<String> {
        self.patterns.iter().find_map(|pattern| {
            let values: HashMap<&str, &str> = matches(pattern, text)?.into_iter().collect();
            let filled = parts(&self.german[&joined(pattern)]);
            let filled = filled.into_iter().map(|part| match part {
                Part::Text(text) => Some(text),
                Part::Value(name) => self.value(&name, values[name.as_str()], in_english),
            });
            filled.collect()
        })
    }

    /// A value of a sentence, by the kind that its name tells.
    fn value(&self, name: &str, text: &str, in_english: bool) -> Option<String> {
        let translated = |text: &str| {
            let english = in_english.then(|| text.to_owned());
            self.find(text).or(english)
        };
        match name.trim_end_matches(char::is_numeric) {
            "n" => Some(german_number(text)),
            "text" => translated(text),
            "list" => {
                let all: Option<Vec<String>> = text.split(", ").map(translated).collect();
                all.map(|all| all.join(", "))
            }
            _ => Some(text.to_owned()),
        }
    }

    /// An error begins in lower case, and may be shown with a capital.
    fn with_capital(&self, text: &str) -> Option<String> {
        let first = text.chars().next().filter(char::is_ascii_uppercase)?;
        let small = first.to_ascii_lowercase().to_string() + &text[1..];
        let german = self.find(&small)?;
        let mut letters = german.chars();
        let first = letters.next()?;
        Some(first.to_uppercase().chain(letters).collect())
    }

    /// Several sentences may follow each other. If one is unknown, all stay English.
    fn in_parts(&self, text: &str) -> Option<String> {
        let ends = text.match_indices(['.', '!', '?']).map(|(at, _)| at + 1);
        let mut starts = vec![0];
        starts.extend(ends.filter(|end| {
            let mut after = text[*end..].chars();
            after.next() == Some(' ') && after.next().is_some_and(|c| c.is_ascii_uppercase())
        }));
        if starts.len() < 2 {
            return None;
        }
        starts.push(text.len());
        let sentences = starts
            .windows(2)
            .map(|ends| text[ends[0]..ends[1]].trim_start());
        let german: Option<Vec<String>> = sentences.map(|sentence| self.find(sentence)).collect();
        german.map(|german| german.join(" "))
    }
}

/// Characters that are the same in every sentence that the pattern matches.
fn fixed_length(pattern: &[Part]) -> usize {
    let length = |part: &Part| match part {
        Part::Text(text) => text.len(),
        Part::Value(_) => 0,
    };
    pattern.iter().map(length).sum()
}

/// The parts of "Micro-batch {n} of {n2}".
fn parts(pattern: &str) -> Vec<Part> {
    let mut found = Vec::new();
    let mut rest = pattern;
    while let Some((text, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else {
            break;
        };
        found.push(Part::Text(text.to_owned()));
        found.push(Part::Value(name.to_owned()));
        rest = after;
    }
    found.push(Part::Text(rest.to_owned()));
    found
}

/// The pattern as it is written.
fn joined(pattern: &[Part]) -> String {
    let text = |part: &Part| match part {
        Part::Text(text) => text.clone(),
        Part::Value(name) => format!("{{{name}}}"),
    };
    pattern.iter().map(text).collect()
}

/// The values of a pattern in a text; `None` if it does not match. Each value is as short as
/// possible.
fn matches<'a>(pattern: &'a [Part], text: &'a str) -> Option<Vec<(&'a str, &'a str)>> {
    let (first, rest) = pattern.split_first()?;
    match first {
        Part::Text(fixed) if rest.is_empty() => (text == fixed).then(Vec::new),
        Part::Text(fixed) => matches(rest, text.strip_prefix(fixed.as_str())?),
        Part::Value(name) => {
            let is_count = name.trim_end_matches(char::is_numeric) == "n";
            let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
            ends.map(|end| text.split_at(end))
                .filter(|(value, _)| !is_count || is_number(value))
                .find_map(|(value, after)| {
                    let mut values = matches(rest, after)?;
                    values.push((name, value));
                    Some(values)
                })
        }
    }
}

/// Whether the text is a number, perhaps with a unit: "1,215", "6.1 GB", "93.4 %", "9:04".
fn is_number(text: &str) -> bool {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let units = [
        "", "%", "h", "s", "ms", "min", "kB", "MB", "GB", "TB", "byte", "bytes", "px",
    ];
    let number = number.strip_suffix('%').unwrap_or(number);
    number.starts_with(|c: char| c.is_ascii_digit() || c == '-')
        && number.ends_with(|c: char| c.is_ascii_digit())
        && number
            .chars()
            .all(|c| c.is_ascii_digit() || ",.:e-+".contains(c))
        && units.contains(&unit)
}

/// "1,215" becomes "1.215", and "6.1 GB" becomes "6,1 GB".
fn german_number(text: &str) -> String {
    let swapped = text.chars().map(|c| match c {
        ',' => '.',
        '.' => ',',
        other => other,
    });
    let swapped: String = swapped.collect();
    swapped.replace("bytes", "Byte").replace("byte", "Byte")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn german_is_used_only_for_german_locales() {
        for locale in ["de", "de-DE", "de_AT.UTF-8", "de-CH"] {
            assert_eq!(of_locale(Some(locale)), Language::German, "{locale}");
        }
        for locale in [None, Some("C"), Some("en-US"), Some("den"), Some("")] {
            assert_eq!(of_locale(locale), Language::English, "{locale:?}");
        }
    }

    #[test]
    fn sentences_are_translated_with_their_values() {
        let sentences: Vec<(String, String)> =
            serde_json::from_str(include_str!("../ui/tests/sentences.json"))
                .expect("the page reads it too");
        assert!(sentences.len() > 10);
        for (english, german) in sentences {
            assert_eq!(STRINGS.translate(&english), german);
        }
    }

    #[test]
    fn a_choice_is_remembered_until_the_system_is_followed() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let file = home.path().join("language.json");
        start(file.clone());
        assert_eq!(choice(), None);
        choose(Some(Language::German)).expect("the folder can be written");
        assert_eq!(
            (choice(), current()),
            (Some(Language::German), Language::German)
        );
        assert_eq!(translate("Quit Ebb"), "Ebb beenden");
        choose(Some(Language::English)).expect("the folder can be written");
        assert_eq!(translate("Quit Ebb"), "Quit Ebb");
        fs::write(&file, "klingon").expect("the folder can be written");
        assert_eq!(choice(), None, "a damaged file counts as none");
        choose(None).expect("the folder can be written");
        choose(None).expect("nothing to forget is no error");
    }
}
