//! Identifiers and file names use the words of the field, not the private words of the project's
//! first version.

use crate::none;
use crate::sources::{Source, all};

/// A word that a name may not contain, and the word to use instead.
const REPLACED: &[(&str, &str)] = &[
    ("aftermath", "crash report"),
    ("aside", "stderr"),
    ("barren", "empty"),
    ("beat", "interval"),
    ("ear", "observer"),
    ("fewest", "minimum"),
    ("flew", "run"),
    ("flies", "run"),
    ("flown", "run"),
    ("fly", "run"),
    ("glance", "sample_fast"),
    ("glances", "fast samples"),
    ("gone", "exited"),
    ("hear", "observe"),
    ("heard", "observed"),
    ("hears", "observes"),
    ("heed", "handle requests"),
    ("heeded", "handled"),
    ("journal", "event log"),
    ("kin", "transfer"),
    ("knee", "plateau"),
    ("ladder", "recovery steps"),
    ("learnt", "learned"),
    ("lend", "borrow"),
    ("lent", "borrowed"),
    ("nobody", "none"),
    ("park", "suspend"),
    ("parked", "suspended"),
    ("parking", "suspending"),
    ("parks", "suspends"),
    ("photograph", "image"),
    ("photographs", "images"),
    ("piece", "micro-batch"),
    ("pieces", "micro-batches"),
    ("pilot", "controller"),
    ("politeness", "max_system_fraction"),
    ("promise", "declared size"),
    ("promised", "declared"),
    ("receipt", "split check"),
    ("rehearsal", "dry run"),
    ("rehearse", "dry run"),
    ("rehearsed", "dry run"),
    ("roster", "manifest or split assignment"),
    ("rung", "recovery step"),
    ("rungs", "recovery steps"),
    ("said", "printed or emitted"),
    ("say", "print or emit"),
    ("says", "prints or emits"),
    ("setback", "failure"),
    ("somebody", "some"),
    ("specimen", "test image"),
    ("stair", "size classes"),
    ("suspect", "offending sample"),
    ("tell", "report"),
    ("tells", "reports"),
    ("told", "reported"),
    ("trunk", "backbone"),
    ("verdict", "outcome"),
    ("weigh", "probe"),
    ("weighed", "probed"),
    ("weighing", "probing"),
    ("whoever", "who"),
    ("wishes", "settings"),
];

/// Identifiers of libraries, and terms of the field, that contain such a word.
const ALLOWED: &[&str] = &[
    "WordPiece",
    "WordPieceTrainerBuilder",
    "WordPieces",
    "park_timeout",
    "unpark",
    "word_pieces",
];

/// Lines that read files of the first version keep its words.
const MARK: &str = "tidy: first version";

/// The code of a line: without comments and strings.
fn code(line: &str) -> String {
    let mut out = String::new();
    let (mut in_string, mut escaped) = (false, false);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            '/' if !in_string && letters.peek() == Some(&'/') => break,
            _ if !in_string => out.push(letter),
            _ => {}
        }
    }
    out
}

/// The words of an identifier: `run_context`, `RunContext` and `RUN_CONTEXT` are `run` and
/// `context`.
fn words(identifier: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = '_';
    for letter in identifier.chars() {
        let begins = letter.is_uppercase() && before.is_lowercase();
        if begins || !letter.is_alphanumeric() {
            words.push(String::new());
        }
        if letter.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(letter.to_lowercase());
        }
        before = letter;
    }
    words.retain(|word| !word.is_empty());
    words
}

fn complaint(place: &str, text: &str) -> Option<String> {
    let names = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    let names = names.filter(|name| !ALLOWED.contains(name));
    let found = names.flat_map(words).find_map(|word| {
        let entry = REPLACED.binary_search_by(|(old, _)| (*old).cmp(&word));
        entry.ok().map(|index| REPLACED[index])
    });
    found.map(|(old, new)| format!("{place}: `{old}` is called {new}"))
}

fn private_words(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources {
        complaints.extend(complaint(&source.path, &source.path));
        let is_rust = source.path.ends_with(".rs");
        for (at, line) in source.text.lines().enumerate() {
            if is_rust && !line.contains(MARK) {
                let place = format!("{}:{}", source.path, at + 1);
                complaints.extend(complaint(&place, &code(line)));
            }
        }
    }
    complaints
}

#[test]
fn names_are_those_of_the_field() {
    none(&private_words(&all()));
}

#[test]
fn a_planted_private_word_is_named() {
    assert!(REPLACED.is_sorted(), "the list is searched by halves");
    let source = |path: &str, text: &str| Source {
        path: path.into(),
        text: text.into(),
    };
    for (path, text) in [
        ("crates/a/src/rungs.rs", ""),
        ("crates/a/src/a.rs", "struct TrainedPiece;"),
        ("crates/a/src/a.rs", "fn begin_weighing() {}"),
        ("crates/a/src/a.rs", "const PARKED_MOST: u32 = 1;"),
    ] {
        assert_eq!(
            private_words(&[source(path, text)]).len(),
            1,
            "{path} {text}"
        );
    }
    let text = "// a piece of advice\n#[serde(alias = \"pieces\")]\nlet old = PIECES; // tidy: first version\n";
    assert_eq!(
        private_words(&[source("crates/a/src/a.rs", text)]),
        Vec::<String>::new()
    );
}
