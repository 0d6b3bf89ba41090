//! How long a function may be, and how wide a comment.

use crate::none;
use crate::sources::{Source, rust_sources};

/// Most lines of a function, from `fn` to its closing brace. A table carries the mark on the line
/// before it.
const MOST_LINES: usize = 60;
const TABLE: &str = "// tidy: table";
/// Comments wrap where the formatter wraps code.
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

fn long_functions(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources {
        let lines: Vec<&str> = source.text.lines().collect();
        for (at, line) in lines
            .iter()
            .enumerate()
            .filter(|(_, line)| is_function(line))
        {
            // The formatter puts the closing brace below the first letter of the function.
            let closing = format!("{}}}", " ".repeat(indent(line)));
            let ends = lines[at..].iter().position(|line| **line == closing);
            let one_line = line.trim_end().ends_with(['}', ';']);
            let Some(length) = ends.filter(|_| !one_line).map(|end| end + 1) else {
                continue;
            };
            let above = lines[..at].iter().rev();
            let mut above = above.take_while(|line| {
                let line = line.trim_start();
                line.starts_with("//") || line.starts_with("#[")
            });
            if length > MOST_LINES && !above.any(|line| line.trim() == TABLE) {
                let name = line.trim();
                complaints.push(format!(
                    "{}:{}: {length} lines: {name}",
                    source.path,
                    at + 1
                ));
            }
        }
    }
    complaints
}

fn wide_comments(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources {
        for (at, line) in source.text.lines().enumerate() {
            // An address cannot be broken.
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
    assert_eq!(long_functions(&source(table)), Vec::<String>::new());
    let short = "fn short() {\n    x();\n}\n".repeat(MOST_LINES);
    assert_eq!(long_functions(&source(short)), Vec::<String>::new());
    let wide = format!("// {}\n", "word ".repeat(30));
    assert_eq!(wide_comments(&source(wide)).len(), 1);
}
