//! What the trainer exports: at most [`LIMIT`] names, each of which another crate uses.

use crate::sources::{Source, rust_sources};
use crate::{none, root};
use std::collections::HashSet;
use std::fs;

const LIMIT: usize = 80;
const FOLDER: &str = "crates/trainer/src/";
/// Marks items for tests and benchmarks. They are no part of the interface.
const HIDDEN: &str = "#[doc(hidden)]";
const ITEMS: &[&str] = &["const", "enum", "fn", "static", "struct", "trait", "type"];

/// The code without comments and hidden items.
fn visible(code: &str) -> String {
    let (mut visible, mut is_hidden) = (String::new(), false);
    for line in code.lines() {
        is_hidden |= line == HIDDEN;
        if !is_hidden && !line.trim_start().starts_with("//") {
            visible.push_str(line);
            visible.push('\n');
        }
        let is_statement = line.starts_with("pub ") && line.ends_with(';');
        is_hidden &= !line.starts_with('}') && !is_statement;
    }
    visible
}

/// Modules of their own file whose names are exported with their path.
fn modules(code: &str) -> Vec<String> {
    let code = visible(code);
    let lines = code.lines();
    let names = lines.filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    names.map(str::to_owned).collect()
}

/// The names that a file exports: those of `pub use`, and its own public items.
fn exported(code: &str) -> Vec<String> {
    let code = visible(code);
    let mut names = Vec::new();
    for statement in code.split("pub use ").skip(1) {
        let list = statement.split(';').next().unwrap_or_default();
        let parts = list.split([',', '{', '}']).map(str::trim);
        let parts = parts.filter(|part| !part.is_empty() && !part.ends_with("::"));
        names.extend(parts.filter_map(|part| part.rsplit([' ', ':']).next()));
    }
    for line in code.lines() {
        let words: Vec<&str> = line.split([' ', '(', '<', ':', ';']).collect();
        if let ["pub", item, name, ..] = words.as_slice()
            && ITEMS.contains(item)
        {
            names.push(*name);
        }
    }
    names.into_iter().map(str::to_owned).collect()
}

fn too_many(names: &[String]) -> Vec<String> {
    let count = names.len();
    if count <= LIMIT {
        return Vec::new();
    }
    vec![format!(
        "{FOLDER}lib.rs exports {count} names, {LIMIT} are allowed; join what belongs together in a type"
    )]
}

/// Exported names that no other crate and no test uses. `*` is never a name.
fn unused(names: &[String], sources: &[Source]) -> Vec<String> {
    let others = sources.iter().filter(|s| !s.path.starts_with(FOLDER));
    let is_separator = |c: char| !c.is_alphanumeric() && c != '_';
    let words: HashSet<&str> = others.flat_map(|s| s.text.split(is_separator)).collect();
    let unused = names.iter().filter(|name| !words.contains(name.as_str()));
    unused
        .map(|name| format!("{FOLDER}lib.rs exports {name}, which no other crate uses"))
        .collect()
}

#[test]
fn the_trainer_exports_few_names_and_all_are_used() {
    let read = |file: &str| {
        let path = root().join(FOLDER).join(file);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let code = read("lib.rs");
    let mut names = exported(&code);
    assert!(names.iter().any(|name| name == "Plan"), "the list is read");
    for module in modules(&code) {
        names.extend(exported(&read(&format!("{module}.rs"))));
    }
    none(&too_many(&names));
    none(&unused(&names, &rust_sources()));
}

#[test]
fn planted_names_are_counted_and_complained_about() {
    let code = format!(
        "// pub use in::comment;\nmod a;\npub mod estimate;\npub use a::{{B, c as d, e::{{F, self}}}};\npub use g::H;\npub(crate) use i::J;\npub fn start<'d>(\n    l: u8,\n) {{\n    pub fn inner();\n}}\npub const M: u8 = 1;\n{HIDDEN}\npub mod internals {{\n    pub use crate::n::O;\n}}\n{HIDDEN}\npub use p::Q;\npub use r::*;\n"
    );
    let names = exported(&code);
    assert_eq!(names, ["B", "d", "F", "self", "H", "*", "start", "M"]);
    assert_eq!(modules(&code), ["estimate"]);
    let path = "src-tauri/planted.rs".to_owned();
    let text = "use trainer::{B, F, H, M, d, start, e::self};".to_owned();
    let planted = [Source { path, text }];
    assert_eq!(
        unused(&names, &planted),
        ["crates/trainer/src/lib.rs exports *, which no other crate uses"]
    );
    let path = format!("{FOLDER}planted.rs");
    let own = [Source {
        path,
        text: "B".to_owned(),
    }];
    assert_eq!(unused(&names[..1], &own).len(), 1);
    let name = || "A".to_owned();
    assert_eq!(too_many(&vec![name(); LIMIT]), Vec::<String>::new());
    assert_eq!(too_many(&vec![name(); LIMIT + 1]).len(), 1);
}
