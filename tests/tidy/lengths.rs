//! Limits the length of functions and the width of comments.

use crate::none;
use crate::sources::{Source, rust_sources};

/// Largest number of lines of a function, from `fn` to its closing brace. A table has the mark on
/// the line before it.
const MOST_LINES: usize = 60;
const TABLE: &str = "// tidy: table";
/// Comments wrap at the width of the formatter.
const MOST_COLUMNS: usize = 100;

fn is_function(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.find(|word| {
        !matches!(
            *word,
            "pub" | "pub(crate)" | "pub(super)" | "const" | "async" | "unsafe"
        )
    }) == Some("fn")
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Whether the function on the first line has no body: its arguments end with `);`.
fn is_declaration(lines: &[&str], indent_of_fn: usize) -> bool {
    let same = lines[1..].iter().find(|line| indent(line) == indent_of_fn);
    same.is_some_and(|line| line.trim_start().starts_with(')') && line.ends_with(';'))
}

fn name_of(line: &str) -> String {
    let (_, rest) = line.split_once("fn ").unwrap_or_default();
    let name = rest
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_');
    name.collect()
}

fn long_functions(sources: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        let lines: Vec<&str> = source.text.lines().collect();
        let functions = lines.iter().enumerate();
        for (at, line) in functions.filter(|(_, line)| is_function(line)) {
            // The formatter puts the closing brace below the first letter of the function.
            let closing = format!("{}}}", " ".repeat(indent(line)));
            let ends = lines[at..].iter().position(|line| **line == closing);
            let one_line = line.trim_end().ends_with(['}', ';']);
            let is_declared = is_declaration(&lines[at..], indent(line));
            let Some(length) = ends
                .filter(|_| !one_line && !is_declared)
                .map(|end| end + 1)
            else {
                continue;
            };
            let above = lines[..at].iter().rev();
            let mut above = above.take_while(|line| {
                let line = line.trim_start();
                line.starts_with("//") || line.starts_with("#[")
            });
            if length > MOST_LINES && !above.any(|line| line.trim() == TABLE) {
                found.push(format!(
                    "{}: {} has {length} lines",
                    source.path,
                    name_of(line)
                ));
            }
        }
    }
    found
}

fn wide_comments(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources {
        for (at, line) in source.text.lines().enumerate() {
            // A URL cannot be broken.
            let is_comment = line.trim_start().starts_with("//") && !line.contains("://");
            if is_comment && line.chars().count() > MOST_COLUMNS {
                complaints.push(format!(
                    "{}:{}: a comment wider than {MOST_COLUMNS}",
                    source.path,
                    at + 1
                ));
            }
        }
    }
    complaints
}

#[test]
fn functions_fit_on_a_screen() {
    none(&long_functions(&rust_sources()));
}

#[test]
fn comments_wrap_with_the_code() {
    none(&wide_comments(&rust_sources()));
}

#[test]
fn a_planted_long_function_is_named() {
    let body = "    x();\n".repeat(MOST_LINES);
    let source = |text: String| {
        [Source {
            path: "planted.rs".into(),
            text,
        }]
    };
    let long = format!("pub fn planted() {{\n{body}}}\n");
    assert_eq!(long_functions(&source(long.clone())).len(), 1);
    let table = format!("{TABLE}\n#[rustfmt::skip]\n{long}");
    assert_eq!(long_functions(&source(table)).len(), 0);
    let short = "fn short() {\n    x();\n}\n".repeat(MOST_LINES);
    assert_eq!(long_functions(&source(short)).len(), 0);
    let declared = format!("fn declared(\n    x: u8,\n) -> u32;\n{body}}}\n");
    assert_eq!(long_functions(&source(declared)).len(), 0);
    let wide = format!("// {}\n", "word ".repeat(30));
    assert_eq!(wide_comments(&source(wide)).len(), 1);
}
