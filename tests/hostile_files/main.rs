//! Files that Ebb did not write, damaged or made to do harm: each is read in a moment, with little
//! memory, or is refused with a sentence.

mod corpus;
mod large;
mod mutations;
mod readers;

#[path = "../support/small_child.rs"]
mod small_child;

use std::fs;
use std::path::{Path, PathBuf};

/// The files of a reader in the corpus, sorted.
fn corpus_of(reader: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus")
        .join(reader);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{reader}: {error}"));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("it can be listed").path())
        .collect();
    files.sort();
    assert!(files.len() >= 5, "{reader} has files");
    files
}
