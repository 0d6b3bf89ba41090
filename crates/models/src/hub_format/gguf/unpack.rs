//! Writes the folder of a GGUF file: complete, or not at all.

use super::config::config;
use super::header::{GGUF_FILE, GgufHeader};
use super::tokenizer::Vocabulary;
use crate::error::{ModelError, Result, at};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Number of the form of unpacked folders. A folder of another form is not used again.
const FORM: &[u8] = b"1";
/// Names of the files in the folder.
const FILES: [&str; 3] = ["config.json", "tokenizer.json", "tokenizer_config.json"];
/// Most characters of the file's name in that of its folder, so that a file system takes the name.
const MAX_STEM: usize = 48;
/// A folder is kept at least this long, because another process may just have written it.
const LEAST_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// One thread of a process writes at a time, because the drafts of a process have the same name.
static WRITING: Mutex<()> = Mutex::new(());

/// The GGUF file that a path names: a file with this extension, or the only one of a folder without
/// `config.json`. `None` if the path names none.
///
/// # Errors
/// The folder has several such files, or cannot be read.
pub fn find_gguf(path: &Path) -> Result<Option<PathBuf>> {
    let is_gguf = |path: &Path| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|text| text.eq_ignore_ascii_case("gguf")) && path.is_file()
    };
    if is_gguf(path) {
        return Ok(Some(path.to_owned()));
    }
    if !path.is_dir() || path.join(FILES[0]).exists() {
        return Ok(None);
    }
    let mut found = disk::list(path).map_err(at(path))?;
    found.retain(|path| is_gguf(path));
    found.sort();
    match &found[..] {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        [first, ..] => {
            let reason = format!(
                "the folder has {} GGUF files; name one of them, such as {}",
                found.len(),
                first.display()
            );
            Err(ModelError::hub_folder(path, reason))
        }
    }
}

/// Writes the folder of a GGUF file below `home`, unless it exists, and returns its path. Removes
/// the folders of files that are gone or have changed: nothing opens them again, because a run has
/// its own copy.
///
/// # Errors
/// The file is damaged, or has a network, tensors or a tokenizer that Ebb does not know; the folder
/// cannot be written.
pub fn unpack_gguf(file: &Path, home: &Path) -> Result<PathBuf> {
    let file = fs::canonicalize(file).map_err(at(file))?;
    let folder = home.join(folder_name(&file)?);
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    if is_complete(&folder) {
        return Ok(folder);
    }
    let header = GgufHeader::read(&file)?;
    let config = config(&header)?;
    let rows = config["vocab_size"].as_u64().unwrap_or_default();
    let vocabulary = Vocabulary::read(&header, rows as usize)?;
    let written = [config, vocabulary.tokenizer()?, vocabulary.settings()?];
    disk::create_dir_all(home).map_err(at(home))?;
    let draft = disk::draft_path(&folder);
    let outcome = write(&written, header.path(), &draft, &folder);
    if outcome.is_err() {
        // An incomplete folder is useless.
        let _ = disk::remove_dir_all(&draft);
    }
    remove_useless(home, SystemTime::now());
    match outcome {
        // Another process may have written the same folder meanwhile.
        Err(_) if is_complete(&folder) => Ok(folder),
        outcome => outcome.map(|()| folder),
    }
}

/// The name of the file, and a part of the checksum of its path, length and time.
fn folder_name(file: &Path) -> Result<String> {
    let about = fs::metadata(file).map_err(at(file))?;
    let mut digest = Sha256::new();
    digest.update(FORM);
    digest.update(file.as_os_str().as_encoded_bytes());
    digest.update(about.len().to_le_bytes());
    let modified = about.modified().map_err(at(file))?;
    digest.update(format!("{modified:?}"));
    let sum: String = digest.finalize()[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let stem: String = stem.chars().take(MAX_STEM).collect();
    Ok(format!("{stem}-{sum}"))
}

/// Removes the folders below `home` that are useless now, and drafts that crashes left.
fn remove_useless(home: &Path, now: SystemTime) {
    for folder in disk::list(home).unwrap_or_default() {
        if is_old(&folder, now) && !is_current(&folder) {
            // What cannot be removed now is removed with the next file.
            let _ = disk::remove_dir_all(&folder);
        }
    }
}

fn is_old(folder: &Path, now: SystemTime) -> bool {
    let about = fs::symlink_metadata(folder)
        .ok()
        .filter(fs::Metadata::is_dir);
    let modified = about.and_then(|about| about.modified().ok());
    let age = modified.and_then(|modified| now.duration_since(modified).ok());
    age.is_some_and(|age| age >= LEAST_AGE)
}

/// Whether the file of a folder is still there, and as it was when the folder was written.
fn is_current(folder: &Path) -> bool {
    let file = fs::read_link(folder.join(GGUF_FILE));
    let name = file.ok().and_then(|file| folder_name(&file).ok());
    let own = folder.file_name().map(|name| name.to_string_lossy());
    name.is_some() && name.as_deref() == own.as_deref()
}

fn is_complete(folder: &Path) -> bool {
    let mut names = FILES.into_iter().chain([GGUF_FILE]);
    names.all(|name| folder.join(name).is_file())
}

fn write(files: &[Json; 3], gguf: &Path, draft: &Path, folder: &Path) -> Result<()> {
    disk::create_dir(draft).map_err(at(draft))?;
    for (name, json) in FILES.iter().zip(files) {
        let path = draft.join(name);
        disk::write(&path, json.to_string().as_bytes()).map_err(at(&path))?;
    }
    let link = draft.join(GGUF_FILE);
    std::os::unix::fs::symlink(gguf, &link).map_err(at(&link))?;
    disk::sync_all_in(draft).map_err(at(draft))?;
    // Another process, such as another rank of a group, may already read a complete folder.
    if folder.exists() && !is_complete(folder) {
        disk::remove_dir_all(folder).map_err(at(folder))?;
    }
    disk::rename(draft, folder).map_err(at(folder))?;
    disk::sync_parent(folder).map_err(at(folder))
}
