//! Sends a run from rank 0 to the other ranks, so that they can resume it: its config, samples,
//! vocabulary and pretrained weights, and its newest checkpoint. The samples themselves are not
//! sent.

use super::{RunGroup, unreadable_message};
use crate::checkpoint;
use crate::data::{FREQUENCIES, TOKENIZER};
use crate::error::{Result, at};
use crate::prompt_choice::PROMPTS_FILE;
use crate::sample_manifest;
use distributed::GroupError;
use models::pretrained::RUN_COPY;
use runlog::RunFolder;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Bytes that are sent at once.
const CHUNK_BYTES: usize = 8 << 20;

/// A file that rank 0 sends.
#[derive(Serialize, Deserialize)]
struct SentFile {
    /// Relative to the run folder.
    path: PathBuf,
    bytes: u64,
}

/// Sends the run to the other ranks, whose `run` is a scratch folder. Does nothing alone.
///
/// # Errors
/// The group is broken, or a file cannot be read or written.
pub(crate) fn share_run(group: &RunGroup, run: &RunFolder) -> Result<()> {
    if group.is_alone() {
        return Ok(());
    }
    let mut files = Vec::new();
    if group.keeps_run() {
        let manifest = sample_manifest::FILE;
        for name in [
            "config.toml",
            manifest,
            TOKENIZER,
            FREQUENCIES,
            PROMPTS_FILE,
        ] {
            if run.path.join(name).is_file() {
                files.push(PathBuf::from(name));
            }
        }
        list_files(&run.path, Path::new(RUN_COPY), &mut files)?;
        list_newest_checkpoint(run, &mut files)?;
    }
    send_files(group, run, files, true)
}

/// Sends the newest checkpoint to the other ranks. Those that do not need it pass `is_needed` as
/// false: they take part, but write nothing.
///
/// # Errors
/// The group is broken, or a file cannot be read or written.
pub(crate) fn share_checkpoint(group: &RunGroup, run: &RunFolder, is_needed: bool) -> Result<()> {
    let mut files = Vec::new();
    if group.keeps_run() {
        list_newest_checkpoint(run, &mut files)?;
    }
    send_files(group, run, files, is_needed)
}

fn list_newest_checkpoint(run: &RunFolder, files: &mut Vec<PathBuf>) -> Result<()> {
    let (newest, _) = checkpoint::newest(run)?;
    list_files(
        &run.path,
        Path::new(&RunFolder::checkpoint_name(newest.state.step)),
        files,
    )
}

/// Adds the files of a folder and those below it, relative to `root`; none if there is no such
/// folder.
fn list_files(root: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let path = root.join(folder);
    if !path.is_dir() {
        return Ok(());
    }
    for entry in disk::list(&path).map_err(at(&path))? {
        let relative = folder.join(entry.file_name().unwrap_or_default());
        if entry.is_dir() {
            list_files(root, &relative, files)?;
        } else {
            files.push(relative);
        }
    }
    Ok(())
}

fn send_files(
    group: &RunGroup,
    run: &RunFolder,
    files: Vec<PathBuf>,
    is_needed: bool,
) -> Result<()> {
    let size = |path: PathBuf| -> Result<SentFile> {
        let file = run.path.join(&path);
        let bytes = std::fs::metadata(&file).map_err(at(&file))?.len();
        Ok(SentFile { path, bytes })
    };
    let files = files.into_iter().map(size).collect::<Result<Vec<_>>>()?;
    let list = serde_json::to_vec(&files).map_err(unreadable_message)?;
    let list = group.broadcast(list)?;
    let files: Vec<SentFile> = serde_json::from_slice(&list).map_err(unreadable_message)?;
    for file in &files {
        if group.keeps_run() {
            send_file(group, run, file)?;
        } else {
            receive_file(group, run, file, is_needed)?;
        }
    }
    Ok(())
}

fn send_file(group: &RunGroup, run: &RunFolder, file: &SentFile) -> Result<()> {
    let path = run.path.join(&file.path);
    let mut open = File::open(&path).map_err(at(&path))?;
    let mut left = file.bytes;
    while left > 0 {
        let mut chunk = vec![0; left.min(CHUNK_BYTES as u64) as usize];
        open.read_exact(&mut chunk).map_err(at(&path))?;
        left -= chunk.len() as u64;
        group.broadcast(chunk)?;
    }
    Ok(())
}

fn receive_file(group: &RunGroup, run: &RunFolder, file: &SentFile, is_needed: bool) -> Result<()> {
    if !sample_manifest::is_inside(&file.path) {
        let path = file.path.display();
        let message = format!("rank 0 sent a file outside of the run folder: {path}");
        return Err(GroupError::Disagreement(message).into());
    }
    let path = run.path.join(&file.path);
    let mut open = None;
    if is_needed {
        let parent = path.parent().unwrap_or(&run.path);
        disk::create_dir_all(parent).map_err(at(parent))?;
        open = Some(disk::File::open(&path, 0).map_err(at(&path))?);
    }
    let mut left = file.bytes;
    while left > 0 {
        let chunk = group.broadcast(Vec::new())?;
        if chunk.is_empty() || chunk.len() as u64 > left {
            let path = file.path.display();
            let message = format!("rank 0 sent {} bytes of {path}", chunk.len());
            return Err(GroupError::Disagreement(message).into());
        }
        left -= chunk.len() as u64;
        if let Some(open) = &mut open {
            open.write_all(&chunk).map_err(at(&path))?;
        }
    }
    Ok(())
}
