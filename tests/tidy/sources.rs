//! How a source file starts, and which meaningless words its types avoid.

use crate::{none, root};
use std::fs;
use std::path::Path;

const EMPTY_WORDS: &[&str] = &[
    "Manager",
    "Service",
    "Helper",
    "Util",
    "Common",
    "Processor",
];
const TYPE_WORDS: &[&str] = &["struct", "enum", "trait", "type", "class", "interface"];
/// The only file of the window that may talk to the desktop shell.
const SHELL: &str = "@tauri-apps";

/// A source file: its path from the root, and its text.
pub struct Source {
    pub path: String,
    pub text: String,
}

fn read(folder: &Path, sources: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).expect("a folder of the project can be read") {
        let path = entry.expect("an entry of the project can be read").path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if path.is_dir() {
            if !["dist", "node_modules", "bindings", "generated"].contains(&name) {
                read(&path, sources);
            }
        } else if [".rs", ".ts", ".svelte"]
            .iter()
            .any(|end| name.ends_with(end))
        {
            let text = fs::read_to_string(&path).expect("a source file is text");
            let path = path
                .strip_prefix(root())
                .expect("it lies in the project")
                .display()
                .to_string();
            sources.push(Source { path, text });
        }
    }
}

/// Every source file that a person wrote.
pub fn all() -> Vec<Source> {
    let mut sources = Vec::new();
    for folder in ["crates", "src-tauri", "tests", "ui"] {
        read(&root().join(folder), &mut sources);
    }
    assert!(sources.len() > 20, "the walk finds the project's files");
    sources
}

fn without_header(sources: &[Source]) -> Vec<String> {
    let rust = sources.iter().filter(|source| source.path.ends_with(".rs"));
    let bare = rust.filter(|source| !source.text.starts_with("//! "));
    bare.map(|source| format!("{} does not open with `//! ` and what it is", source.path))
        .collect()
}

/// The Rust files among them.
pub fn rust_sources() -> Vec<Source> {
    let mut sources = all();
    sources.retain(|source| source.path.ends_with(".rs"));
    sources
}

fn empty_words(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources {
        let words: Vec<&str> = source.text.split_whitespace().collect();
        for pair in words.windows(2) {
            if TYPE_WORDS.contains(&pair[0])
                && EMPTY_WORDS.iter().any(|word| pair[1].contains(word))
            {
                complaints.push(format!(
                    "{}: {} {} says nothing of what it is",
                    source.path, pair[0], pair[1]
                ));
            }
        }
    }
    complaints
}

fn shell_imports(sources: &[Source]) -> Vec<String> {
    let imports = |source: &&Source| {
        source
            .text
            .lines()
            .any(|line| line.contains("from") && line.contains(SHELL))
    };
    let window = sources
        .iter()
        .filter(|source| source.path.starts_with("ui/"));
    let files: Vec<_> = window
        .filter(imports)
        .map(|source| source.path.clone())
        .collect();
    if files.len() > 1 {
        vec![format!(
            "{SHELL} is imported by more than one file: {}",
            files.join(", ")
        )]
    } else {
        vec![]
    }
}

/// Whether a function of this name that returns `returned` is a constructor with a vague name.
fn is_vague_constructor(name: &str, returned: &str) -> bool {
    if ["of", "on"].contains(&name) {
        return returned.starts_with(char::is_uppercase);
    }
    (name.starts_with("of_") || name.ends_with("_of")) && returned.contains("Self")
}

/// Constructors whose name does not say what they take: `of`, `on`, `of_x` and `x_of` instead of
/// `new`, `from_x`, `with_x` or `for_x`.
fn vague_constructors(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources.iter().filter(|s| s.path.ends_with(".rs")) {
        for (at, keyword) in source.text.match_indices("fn ") {
            let before = source.text[..at].rsplit('\n').next().unwrap_or_default();
            let begins = ["", "pub", "pub(crate)", "pub(super)", "const", "pub const"];
            let text = &source.text[at + keyword.len()..];
            let is_end = |c: char| !c.is_alphanumeric() && c != '_';
            let name = text.split(is_end).next().unwrap_or_default();
            let after = &text[name.len()..];
            if !begins.contains(&before.trim()) || !after.starts_with(['(', '<']) {
                continue;
            }
            let signature = after.split(['{', ';']).next().unwrap_or_default();
            let (arguments, returned) = signature.rsplit_once("->").unwrap_or((signature, ""));
            if is_vague_constructor(name, returned.trim()) && !arguments.contains("self") {
                complaints.push(format!(
                    "{}: `fn {name}` makes a value; call it new, from_x, with_x or for_x",
                    source.path
                ));
            }
        }
    }
    complaints
}

#[test]
fn every_rust_file_reports_what_it_is() {
    none(&without_header(&all()));
}

#[test]
fn no_type_has_an_empty_name() {
    none(&empty_words(&all()));
}

#[test]
fn one_file_of_the_window_talks_to_the_shell() {
    none(&shell_imports(&all()));
}

#[test]
fn constructors_have_the_usual_names() {
    none(&vague_constructors(&all()));
}

#[test]
fn planted_faults_are_named() {
    let source = |path: &str, text: &str| Source {
        path: path.into(),
        text: text.into(),
    };
    let import = format!("import {{ invoke }} from \"{SHELL}/api/core\";\n");
    let good = [
        source("crates/a.rs", "//! Says what it is.\nstruct Pilot;\n"),
        source(
            "crates/b.rs",
            "//! Says what it is.\nfn on() -> bool {\n    fn of(self, x: u8) -> Self {\n    fn name_of(x: u8) -> String {\n",
        ),
        source("ui/host.ts", &import),
    ];
    for rule in [
        without_header,
        empty_words,
        shell_imports,
        vague_constructors,
    ] {
        assert_eq!(rule(&good), Vec::<String>::new());
    }
    assert_eq!(
        without_header(&[source("crates/a.rs", "use std::fs;\n//! late\n")]).len(),
        1
    );
    for constructor in [
        "pub fn of(x: &str) -> Self {\n",
        "    fn on<T>(\n        x: T,\n    ) -> Result<Run> {\n",
        "    fn blank_of(x: u8) -> Self {\n",
        "    fn of_unfinished(x: u8) -> Option<Self> {\n",
    ] {
        let planted = source("crates/a.rs", constructor);
        assert_eq!(vague_constructors(&[planted]).len(), 1, "{constructor}");
    }
    let named = format!("pub struct Run{} {{}}", EMPTY_WORDS[0]);
    assert_eq!(empty_words(&[source("crates/a.rs", &named)]).len(), 1);
    assert_eq!(
        shell_imports(&[
            source("ui/host.ts", &import),
            source("ui/b.svelte", &import)
        ])
        .len(),
        1
    );
}
