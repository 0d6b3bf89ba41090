//! Folders of pretrained weights for tests, tiny and random (`fixtures/published/make_fixtures.py`),
//! and copies of them that may be changed.

#![allow(dead_code)]

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

pub fn assert_says<T, E: Display>(outcome: Result<T, E>, words: &[&str]) {
    let said = outcome.err().expect("it is refused").to_string();
    for word in words {
        assert!(said.contains(word), "{word:?} is missing in: {said}");
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
