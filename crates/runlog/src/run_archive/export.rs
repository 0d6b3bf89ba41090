//! Writes a run archive.

use super::manifest::{self, ArchivedFile, FORMAT, Manifest, is_left_out};
use super::{BLOCK, ExportedRun, HEADER_NAME_BYTES, hexadecimal, needs_long_name};
use crate::RunlogError;
use crate::run_folder::RunFolder;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use tar::{Builder, EntryType, Header};

impl RunFolder {
    /// Writes the run with its checkpoints to the new file `path`, completely or not at all.
    ///
    /// # Errors
    /// A process trains the run, `path` exists, the run contains something other than files and
    /// folders or changes meanwhile, or the disk fails.
    pub fn export_archive(&self, path: &Path) -> Result<ExportedRun, RunlogError> {
        let refused = |problem: String| RunlogError::NotExported {
            run: self.id(),
            problem,
        };
        if self.is_alive() {
            return Err(RunlogError::Busy {
                path: self.path.clone(),
                process: None,
            });
        }
        if path.symlink_metadata().is_ok() {
            let exists = format!("{} exists already; choose another name", path.display());
            return Err(refused(exists));
        }
        let mut paths = Vec::new();
        find_files(&self.path, "", &mut paths).map_err(refused)?;
        let manifest = self.manifest(paths)?;
        manifest.check().map_err(refused)?;
        // A crash may have left a part of an earlier export to this path.
        disk::remove_drafts_of(path);
        if let Err(error) = self.write_archive(&manifest, path) {
            // It may not exist.
            let _ = disk::remove_file(&disk::draft_path(path));
            return Err(error);
        }
        Ok(ExportedRun {
            path: path.to_owned(),
            files: manifest.files.len(),
            bytes: manifest.bytes(),
        })
    }

    /// Reads each file once to compute its sum.
    fn manifest(&self, paths: Vec<String>) -> Result<Manifest, RunlogError> {
        let mut files = Vec::new();
        for path in paths {
            let place = self.path.join(&path);
            let summed = File::open(&place).and_then(|mut file| {
                let mut summed = Summed::new(&mut file);
                io::copy(&mut summed, &mut io::sink())?;
                Ok((summed.bytes, hexadecimal(summed.sum)))
            });
            let (bytes, sha256) = summed.map_err(RunlogError::disk("read", &place))?;
            files.push(ArchivedFile {
                path,
                bytes,
                sha256,
            });
        }
        Ok(Manifest {
            format: FORMAT,
            run: self.id(),
            files,
        })
    }

    fn write_archive(&self, manifest: &Manifest, path: &Path) -> Result<(), RunlogError> {
        let failed = |error| RunlogError::disk("written", path)(error);
        let draft = disk::draft_path(path);
        let file = disk::File::open(&draft, 0).map_err(failed)?;
        let buffered = BufWriter::with_capacity(BLOCK, file);
        // Weights hardly become smaller, whatever the effort.
        let mut archive = Builder::new(GzEncoder::new(buffered, Compression::fast()));
        let json = serde_json::to_vec(manifest).expect("a manifest can be written as JSON");
        let head = header(manifest::NAME, json.len() as u64).map_err(failed)?;
        archive.append(&head, json.as_slice()).map_err(failed)?;
        for file in &manifest.files {
            self.append(&mut archive, file)?;
        }
        let finish = || -> io::Result<()> {
            let mut buffered = archive.into_inner()?.finish()?;
            buffered.flush()?;
            drop(buffered);
            disk::sync_path(&draft)?;
            disk::rename(&draft, path)?;
            disk::sync_parent(path)
        };
        finish().map_err(failed)
    }

    /// Appends one file.
    ///
    /// # Errors
    /// It is not as the manifest lists it.
    fn append(
        &self,
        archive: &mut Builder<impl Write>,
        expected: &ArchivedFile,
    ) -> Result<(), RunlogError> {
        let place = self.path.join(&expected.path);
        let failed = |error| RunlogError::disk("exported", &place)(error);
        if needs_long_name(&expected.path) {
            append_long_name(archive, &expected.path).map_err(failed)?;
        }
        let head = header(&expected.path, expected.bytes).map_err(failed)?;
        let mut file = File::open(&place).map_err(failed)?;
        let mut summed = Summed::new(&mut file);
        // The header has the length: not one byte more.
        let limited = Read::by_ref(&mut summed).take(expected.bytes);
        archive.append(&head, limited).map_err(failed)?;
        if summed.bytes == expected.bytes && hexadecimal(summed.sum) == expected.sha256 {
            return Ok(());
        }
        Err(RunlogError::NotExported {
            run: self.id(),
            problem: format!(
                "{} changed while it was read; try again once nothing writes to the run",
                expected.path
            ),
        })
    }
}

/// A reader that sums what is read.
struct Summed<'f> {
    file: &'f mut File,
    sum: Sha256,
    bytes: u64,
}

impl<'f> Summed<'f> {
    fn new(file: &'f mut File) -> Self {
        Summed {
            file,
            sum: Sha256::new(),
            bytes: 0,
        }
    }
}

impl Read for Summed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.sum.update(&buffer[..read]);
        self.bytes += read as u64;
        Ok(read)
    }
}

/// Appends an entry with the path of the next file.
fn append_long_name(archive: &mut Builder<impl Write>, path: &str) -> io::Result<()> {
    const NAME: &[u8] = b"././@LongLink";
    // GNU tar ends the path with a zero.
    let content = [path.as_bytes(), b"\0".as_slice()].concat();
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..NAME.len()].copy_from_slice(NAME);
    complete(&mut header, EntryType::GNULongName, content.len() as u64);
    archive.append(&header, content.as_slice())
}

/// The header of a file.
fn header(path: &str, bytes: u64) -> io::Result<Header> {
    let mut header;
    if needs_long_name(path) {
        header = Header::new_gnu();
        let start = &path.as_bytes()[..HEADER_NAME_BYTES];
        header.as_old_mut().name.copy_from_slice(start);
    } else {
        header = Header::new_ustar();
        header.set_path(path)?;
    }
    complete(&mut header, EntryType::Regular, bytes);
    Ok(header)
}

/// Completes a header. Times, owners and permissions of this machine are not in it.
fn complete(header: &mut Header, kind: EntryType, bytes: u64) {
    header.set_entry_type(kind);
    header.set_size(bytes);
    header.set_mode(0o600);
    header.set_mtime(0);
    header.set_cksum();
}

/// Adds the paths of all files in a folder of the run, sorted. `within` is that folder's path in
/// the run, which ends in `/` unless it is empty.
///
/// # Errors
/// The first entry that an archive cannot hold, or a folder that cannot be read.
fn find_files(folder: &Path, within: &str, paths: &mut Vec<String>) -> Result<(), String> {
    let unreadable = |error: io::Error| {
        let error = format::format_io_error(&error);
        format!("{} could not be read: {error}", folder.display())
    };
    for entry in disk::list(folder).map_err(unreadable)? {
        let name = entry.file_name().unwrap_or_default();
        let path = format!("{within}{}", name.to_string_lossy());
        if is_left_out(&path) {
            continue;
        }
        let kind = entry.symlink_metadata().map_err(unreadable)?.file_type();
        if name.to_str().is_none() {
            return Err(format!("the name of {path:?} is not valid text; rename it"));
        } else if kind.is_dir() {
            find_files(&entry, &format!("{path}/"), paths)?;
        } else if kind.is_file() {
            paths.push(path);
        } else {
            return Err(format!(
                "{path:?} is a link or a device, and an archive holds only files; remove it or replace it with a file"
            ));
        }
    }
    Ok(())
}
