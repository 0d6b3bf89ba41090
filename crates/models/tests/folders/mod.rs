//! Folders of tiny, random pretrained weights (`fixtures/published/make_fixtures.py` makes them),
//! and copies of them that tests may change.

#![allow(dead_code)]

pub mod adapters;

use candle_core::{DType, Device};
use models::hub_format::{FineTuning, Head, HubFolder, LoadOptions};
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

pub fn fixture(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../models/tests/fixtures/published").join(name)
}

pub fn opened(name: &str) -> HubFolder {
    HubFolder::open(&fixture(name)).unwrap()
}

pub fn make(head: Head, dtype: DType) -> LoadOptions<'static> {
    LoadOptions {
        tuning: FineTuning::default(),
        head,
        seed: 3,
        dtype,
        device: &Device::Cpu,
    }
}

pub fn assert_error_contains<T, E: Display>(outcome: Result<T, E>, words: &[&str]) {
    let message = outcome.err().expect("it must be refused").to_string();
    for word in words {
        assert!(message.contains(word), "{word:?} is missing in: {message}");
    }
}

/// A copy of a fixture that may be changed.
pub fn copied(name: &str) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixture(name)).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}
