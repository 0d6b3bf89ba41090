//! Runs, checkpoints and exports are written through the file layer, so that its tests see every
//! change: the crates that write them do not change files by the standard library.

use crate::none;
use crate::sources::{Source, rust_sources};

/// The crates that write runs, checkpoints and exports.
const CRATES: &[&str] = &[
    "crates/models/src/",
    "crates/runlog/src/",
    "crates/trainer/src/",
];
/// Functions that change files or folders.
const FUNCTIONS: &[&str] = &[
    "File::create",
    "File::options",
    "OpenOptions",
    "fs::copy",
    "fs::create_dir",
    "fs::hard_link",
    "fs::remove_",
    "fs::rename",
    "fs::write",
];
/// The line, or the one before it, says why a file need not survive.
const MARK: &str = "tidy: not durable";

fn changes_beside_the_layer(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources {
        let is_test = source.path.ends_with("tests.rs") || source.path.contains("/tests/");
        if is_test || !CRATES.iter().any(|start| source.path.starts_with(start)) {
            continue;
        }
        let code = source.text.split("#[cfg(test)]").next().unwrap_or_default();
        let mut before = "";
        for line in code.lines() {
            let is_marked = line.contains(MARK) || before.contains(MARK);
            let function = FUNCTIONS.iter().find(|function| line.contains(**function));
            before = line;
            if let Some(function) = function
                && !is_marked
                && !line.trim_start().starts_with("//")
            {
                complaints.push(format!(
                    "{}: {function} bypasses the file layer; use the crate `disk`, or mark the line with `// {MARK}` and the reason",
                    source.path
                ));
            }
        }
    }
    complaints
}

#[test]
fn durable_files_are_written_through_the_file_layer() {
    none(&changes_beside_the_layer(&rust_sources()));
}

#[test]
fn a_planted_write_is_named() {
    let planted = |path: &str, text: &str| {
        let source = Source {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        changes_beside_the_layer(&[source]).len()
    };
    let write = "fn f() {\n    fs::write(path, text)?;\n}\n";
    assert_eq!(planted("crates/trainer/src/a.rs", write), 1);
    assert_eq!(planted("crates/dataset/src/a.rs", write), 0);
    assert_eq!(planted("crates/trainer/src/a/tests.rs", write), 0);
    let marked = "fn f() {\n    // tidy: not durable: a lock\n    File::options();\n}\n";
    assert_eq!(planted("crates/runlog/src/a.rs", marked), 0);
    let in_test = format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{\n{write}}}\n");
    assert_eq!(planted("crates/models/src/a.rs", &in_test), 0);
}
