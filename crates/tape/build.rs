//! Hashes the sources of this crate. The result of a check of the GPU is used only by builds with
//! the same hash: the sources decide what the kernels and the operations compute, and what the
//! check compares.

use std::fs::{read, read_dir};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=src");
    let hash = hash_folder(Path::new("src"))?;
    println!("cargo::rustc-env=EBB_TAPE_SOURCES={hash}");
    Ok(())
}

/// A hash of all files of a folder: their paths in it, and their contents.
pub(crate) fn hash_folder(folder: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    list_files(folder, &mut files)?;
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        let path = file.strip_prefix(folder).unwrap_or(&file);
        path.to_string_lossy().hash(&mut hasher);
        read(&file)?.hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

fn list_files(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list_files(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
