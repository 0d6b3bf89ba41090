//! Runs, checkpoints and exports are written through the file layer, so that its tests see every
//! change: the crates that write them do not change files by the standard library. Files of runs,
//! which other people may have written, are read up to a limit.

use crate::none;
use crate::sources::{Source, rust_sources};

/// The crates that write runs, checkpoints and exports, and those that write no files.
const CRATES: &[&str] = &[
    "crates/bench/src/",
    "crates/dataset/src/",
    "crates/distributed/src/",
    "crates/format/src/",
    "crates/models/src/",
    "crates/runlog/src/",
    "crates/trainer/src/",
    "src-tauri/",
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
/// The crate that lists runs.
const LISTING_CRATES: &[&str] = &["crates/runlog/src/"];
const LISTING_FUNCTIONS: &[&str] = &["fs::read_dir"];
/// The crates that read files of runs and of datasets.
const READING_CRATES: &[&str] = &[
    "crates/dataset/src/",
    "crates/models/src/",
    "crates/runlog/src/",
    "crates/trainer/src/",
];
/// Functions that read a file of any size.
const READING_FUNCTIONS: &[&str] = &["fs::read(", "fs::read_to_string("];
/// The line, or the one before it, says why a file may have any size.
const READING_MARK: &str = "tidy: unbounded";

fn changes_beside_the_layer(sources: &[Source]) -> Vec<String> {
    let mut complaints = uses(sources, CRATES, FUNCTIONS, MARK);
    complaints.extend(uses(sources, LISTING_CRATES, LISTING_FUNCTIONS, MARK));
    complaints
}

fn unbounded_reads(sources: &[Source]) -> Vec<String> {
    uses(sources, READING_CRATES, READING_FUNCTIONS, READING_MARK)
}

/// Uses of functions in crates, outside of tests and without a mark.
fn uses(sources: &[Source], crates: &[&str], functions: &[&str], mark: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources {
        let is_test = source.path.ends_with("tests.rs") || source.path.contains("/tests/");
        if is_test || !crates.iter().any(|start| source.path.starts_with(start)) {
            continue;
        }
        let code = source.text.split("#[cfg(test)]").next().unwrap_or_default();
        let mut before = "";
        for line in code.lines() {
            let is_marked = line.contains(mark) || before.contains(mark);
            let function = functions.iter().find(|function| line.contains(**function));
            before = line;
            if let Some(function) = function
                && !is_marked
                && !line.trim_start().starts_with("//")
            {
                complaints.push(format!(
                    "{}: {function} bypasses the file layer; use the crate `disk`, or mark the line with `// {mark}` and the reason",
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
fn files_of_runs_are_read_up_to_a_limit() {
    none(&unbounded_reads(&rust_sources()));
}

#[test]
fn a_planted_read_is_named() {
    let planted = |path: &str, text: &str| {
        let source = Source {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        unbounded_reads(&[source]).len()
    };
    for read in ["fs::read(&path)?", "std::fs::read_to_string(path)?"] {
        assert_eq!(planted("crates/trainer/src/a.rs", read), 1);
        assert_eq!(planted("crates/dataset/src/a.rs", read), 1);
        assert_eq!(planted("crates/tape/src/a.rs", read), 0);
        let marked = format!("// tidy: unbounded: of this project\n{read}");
        assert_eq!(planted("crates/runlog/src/a.rs", &marked), 0);
        let in_test = format!("#[cfg(test)]\nmod tests {{\n{read}}}\n");
        assert_eq!(planted("crates/models/src/a.rs", &in_test), 0);
    }
    assert_eq!(planted("crates/models/src/a.rs", "fs::read_dir(&path)?"), 0);
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
    assert_eq!(planted("src-tauri/a.rs", write), 1);
    let listing = "fn f() {\n    fs::read_dir(path)?;\n}\n";
    assert_eq!(planted("crates/runlog/src/a.rs", listing), 1);
    assert_eq!(planted("crates/models/src/a.rs", listing), 0);
    assert_eq!(planted("crates/dataset/src/a.rs", write), 1);
    assert_eq!(planted("crates/tape/src/a.rs", write), 0);
    assert_eq!(planted("crates/trainer/src/a/tests.rs", write), 0);
    let marked = "fn f() {\n    // tidy: not durable: a lock\n    File::options();\n}\n";
    assert_eq!(planted("crates/runlog/src/a.rs", marked), 0);
    let in_test = format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{\n{write}}}\n");
    assert_eq!(planted("crates/models/src/a.rs", &in_test), 0);
}
