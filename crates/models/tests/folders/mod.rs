//! Published folders of the tests, tiny and random (`fixtures/published/make_fixtures.py`), and copies of them that may be changed.

#![allow(dead_code)]

use candle_core::{DType, Device};
use std::fs;
use std::path::{Path, PathBuf};
use trainer::TrainError;
use trainer::published::{Classes, Make, PublishedFolder, Tuning};

pub fn fixture(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("tests/fixtures/published").join(name)
}

pub fn opened(name: &str) -> PublishedFolder {
    PublishedFolder::open(&fixture(name)).unwrap()
}

pub fn make(classes: Classes, dtype: DType) -> Make<'static> {
    Make {
        tuning: Tuning::default(),
        classes,
        seed: 3,
        dtype,
        device: &Device::Cpu,
    }
}

pub fn assert_says<T>(outcome: Result<T, TrainError>, words: &[&str]) {
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
