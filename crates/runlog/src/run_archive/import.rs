//! Reads a run archive into a store.

use super::manifest::{self, ArchivedFile, MAX_BYTES, Manifest};
use super::{BLOCK, HEADER_NAME_BYTES, ImportedRun, hexadecimal, needs_long_name};
use crate::RunlogError;
use crate::run_folder::{Claim, RunFolder};
use crate::run_store::RunStore;
use flate2::bufread::GzDecoder;
use format::{format_bytes, format_io_error};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tar::{Archive, Entries, EntryType};

/// How the name of an archive ends, and part of the name of the draft of an import.
const ENDING: &str = ".ebbrun";

type Entry<'a> = tar::Entry<'a, GzDecoder<BufReader<File>>>;

impl RunStore {
    /// Imports a run from an archive. It gets the id that it had, or a free one. The store shows it
    /// once it is whole and all sums are right; otherwise nothing is left.
    ///
    /// # Errors
    /// The archive cannot be read, is damaged or was not written by Ebb, or the disk has no space
    /// or fails.
    pub fn import_archive(&self, archive: &Path) -> Result<ImportedRun, RunlogError> {
        let source = Source { archive };
        let about = fs::metadata(archive).map_err(RunlogError::disk("read", archive))?;
        if !about.is_file() {
            return Err(source.refused("it is not a file"));
        }
        let file = File::open(archive).map_err(RunlogError::disk("read", archive))?;
        let reader = GzDecoder::new(BufReader::with_capacity(BLOCK, file));
        let mut reader = Archive::new(reader);
        // Raw: an extension of the format is an entry. Only long names are allowed.
        let entries = reader.entries().map_err(|error| source.damaged(&error))?;
        let mut entries = entries.raw(true);
        let manifest = source.manifest(&mut entries)?;
        disk::create_dir_all(self.root()).map_err(RunlogError::disk("created", self.root()))?;
        self.remove_interrupted_imports(Duration::ZERO);
        self.check_space(&source, manifest.bytes())?;
        let draft = disk::draft_path(&self.root().join(format!("{}{ENDING}", manifest.run)));
        disk::create_private_dir(&draft).map_err(RunlogError::disk("created", &draft))?;
        let written = source.write_run(&manifest, &mut entries, &draft);
        let imported = written.and_then(|claim| {
            // The lock stays until the run has its name: another import removes drafts without one.
            let named = self.rename_to_free_id(&draft, &manifest.run);
            drop(claim);
            named.map_err(RunlogError::disk("created", self.root()))
        });
        match imported {
            Ok(path) => {
                let folder = RunFolder { path };
                Ok(ImportedRun {
                    renamed_from: Some(manifest.run.clone()).filter(|id| *id != folder.id()),
                    folder,
                    files: manifest.files.len(),
                    bytes: manifest.bytes(),
                })
            }
            Err(error) => {
                // What cannot be removed now is removed when runs are listed.
                let _ = disk::remove_dir_all(&draft);
                Err(error)
            }
        }
    }

    fn check_space(&self, source: &Source, needed: u64) -> Result<(), RunlogError> {
        // A disk that gives no answer is tried.
        let free = disk::available_bytes(self.root()).unwrap_or(u64::MAX);
        if needed <= free {
            return Ok(());
        }
        Err(source.refused(format!(
            "the run needs {}, but only {} is free on the disk of {}; free up {}",
            format_bytes(needed),
            format_bytes(free),
            self.root().display(),
            format_bytes(needed - free)
        )))
    }

    /// Gives a complete draft its name in the store: the id, or the id with the first free number.
    fn rename_to_free_id(&self, draft: &Path, id: &str) -> io::Result<PathBuf> {
        let mut path = self.root().join(id);
        let mut count = 1;
        loop {
            if path.symlink_metadata().is_err() {
                match disk::rename(draft, &path) {
                    // Another process has just created it.
                    Err(error) if is_taken(&error) => {}
                    renamed => {
                        renamed?;
                        break;
                    }
                }
            }
            count += 1;
            path = self.root().join(format!("{id}-{count}"));
        }
        if let Err(error) = disk::sync_parent(&path) {
            let _ = disk::remove_dir_all(&path);
            return Err(error);
        }
        Ok(path)
    }

    /// Removes what crashes of earlier imports left, if nothing was added to it for `least_age`. An
    /// import that runs holds the lock of its draft.
    pub(crate) fn remove_interrupted_imports(&self, least_age: Duration) {
        for path in disk::list(self.root()).unwrap_or_default() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_import = disk::is_draft(&name) && name.contains(ENDING);
            let is_old = || {
                let modified = path.symlink_metadata().and_then(|about| about.modified());
                let age = modified.map(|at| at.elapsed().unwrap_or_default());
                age.is_ok_and(|age| age >= least_age)
            };
            if is_import && is_old() && !(RunFolder { path: path.clone() }).is_alive() {
                let _ = disk::remove_dir_all(&path);
            }
        }
    }
}

fn is_taken(error: &io::Error) -> bool {
    let taken = [ErrorKind::AlreadyExists, ErrorKind::DirectoryNotEmpty];
    taken.contains(&error.kind())
}

/// Whether an entry is a plain file with this path in its header.
fn is_file(entry: &Entry, path: &[u8]) -> bool {
    let is_regular = entry.header().entry_type() == EntryType::Regular;
    is_regular && *entry.path_bytes() == *path
}

/// The archive that is read.
struct Source<'p> {
    archive: &'p Path,
}

impl Source<'_> {
    fn refused(&self, problem: impl Into<String>) -> RunlogError {
        RunlogError::NotImported {
            archive: self.archive.to_owned(),
            problem: problem.into(),
        }
    }

    fn damaged(&self, error: &io::Error) -> RunlogError {
        let error = format_io_error(error);
        self.refused(format!(
            "it is damaged or not a run archive: {error}; copy or export it again"
        ))
    }

    /// The next entry; `None` at the end.
    fn next<'a>(
        &self,
        entries: &mut Entries<'a, GzDecoder<BufReader<File>>>,
    ) -> Result<Option<Entry<'a>>, RunlogError> {
        let entry = entries.next().transpose();
        entry.map_err(|error| self.damaged(&error))
    }

    /// The entry of the next file. A path that does not fit into its header is an entry before it.
    fn next_file<'a>(
        &self,
        entries: &mut Entries<'a, GzDecoder<BufReader<File>>>,
        expected: &ArchivedFile,
    ) -> Result<Entry<'a>, RunlogError> {
        let missing = || self.refused(format!("{} is missing", expected.path));
        let differs = || {
            self.refused(format!(
                "its entry for {} differs from its list of files",
                expected.path
            ))
        };
        let mut in_header = expected.path.as_bytes();
        let mut entry = self.next(entries)?.ok_or_else(missing)?;
        if needs_long_name(&expected.path) {
            if !self.is_long_name(&mut entry, &expected.path)? {
                return Err(differs());
            }
            entry = self.next(entries)?.ok_or_else(missing)?;
            in_header = &in_header[..HEADER_NAME_BYTES];
        }
        if !is_file(&entry, in_header) || entry.size() != expected.bytes {
            return Err(differs());
        }
        Ok(entry)
    }

    /// Whether an entry holds this path, as GNU tar writes it: with a zero at the end. An entry of
    /// another length is not read.
    fn is_long_name(&self, entry: &mut Entry, path: &str) -> Result<bool, RunlogError> {
        let is_long_name = entry.header().entry_type() == EntryType::GNULongName;
        if !is_long_name || entry.size() != path.len() as u64 + 1 {
            return Ok(false);
        }
        let mut content = Vec::new();
        entry
            .read_to_end(&mut content)
            .map_err(|error| self.damaged(&error))?;
        Ok(content.strip_suffix(b"\0".as_slice()) == Some(path.as_bytes()))
    }

    /// Reads the first entry.
    fn manifest(
        &self,
        entries: &mut Entries<GzDecoder<BufReader<File>>>,
    ) -> Result<Manifest, RunlogError> {
        let first = self.next(entries)?;
        let mut entry = first
            .filter(|entry| is_file(entry, manifest::NAME.as_bytes()))
            .ok_or_else(|| {
                self.refused(
                    "it is not a run archive of Ebb: it does not begin with ebbrun-manifest.json",
                )
            })?;
        if entry.size() > MAX_BYTES {
            return Err(self.refused("its list of files (ebbrun-manifest.json) is too long"));
        }
        let mut json = Vec::new();
        entry
            .read_to_end(&mut json)
            .map_err(|error| self.damaged(&error))?;
        Manifest::parse(&json).map_err(|problem| self.refused(problem))
    }

    /// Writes all files below the draft and syncs them. Returns the lock of the draft.
    fn write_run(
        &self,
        manifest: &Manifest,
        entries: &mut Entries<GzDecoder<BufReader<File>>>,
        draft: &Path,
    ) -> Result<Claim, RunlogError> {
        let folder = RunFolder {
            path: draft.to_owned(),
        };
        let claim = folder.claim()?;
        for expected in &manifest.files {
            let entry = self.next_file(entries, expected)?;
            self.write_file(entry, expected, draft)?;
        }
        if let Some(entry) = self.next(entries)? {
            let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            return Err(self.refused(format!("{path:?} is not in its manifest")));
        }
        disk::sync_all_in(draft).map_err(RunlogError::disk("written", draft))?;
        Ok(claim)
    }

    /// Writes one file and compares its sum.
    fn write_file(
        &self,
        mut entry: Entry,
        expected: &ArchivedFile,
        draft: &Path,
    ) -> Result<(), RunlogError> {
        let path = draft.join(&expected.path);
        let failed = |error| RunlogError::disk("written", &path)(error);
        disk::create_dir_all(path.parent().unwrap_or(draft)).map_err(failed)?;
        let mut file = disk::File::open(&path, 0).map_err(failed)?;
        let (mut buffer, mut sum, mut bytes) = (vec![0; BLOCK], Sha256::new(), 0);
        loop {
            let read = match entry.read(&mut buffer) {
                Ok(0) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read.map_err(|error| self.damaged(&error))?,
            };
            sum.update(&buffer[..read]);
            file.write_all(&buffer[..read]).map_err(failed)?;
            bytes += read as u64;
        }
        if bytes == expected.bytes && hexadecimal(sum) == expected.sha256.to_lowercase() {
            return Ok(());
        }
        Err(self.refused(format!(
            "{} is damaged: its SHA-256 differs from the list of files; copy or export the archive again",
            expected.path
        )))
    }
}
