//! Lists everything below a folder, in a fixed order, without opening a file. Files that systems
//! leave behind are counted and skipped; links are judged by their targets.

use crate::disk_threads::DiskThreads;
use crate::error::DatasetError;
use crate::options::StopReading;
use crate::types::{Ignored, ReadProgress, SkippedFile};
use format::format_io_error;
use std::ffi::OsStr;
use std::fs::{self, DirEntry, FileType};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use unicode_normalization::UnicodeNormalization;

/// Most files and folders below one folder, since all of them are held in memory. iNaturalist 2021
/// has 2.8 million (Van Horn et al. 2021).
const MAX_ENTRIES: usize = 5_000_000;
/// Most folders inside each other.
const MAX_DEPTH: usize = 64;
/// Entries of a folder that are examined between two calls of `on_progress`.
const ENTRIES_PER_REPORT: usize = 1024;

/// The contents of a folder. All paths are relative to it.
#[derive(Debug, Clone)]
pub(crate) struct Listing {
    /// The folder: absolute, with links resolved.
    pub root: PathBuf,
    /// Its last name, for display; of a single file, the file's name.
    pub name: String,
    /// Regular files, and links to regular files inside the folder.
    pub files: Vec<Entry>,
    /// Sub-folders at every depth.
    pub folders: Vec<Entry>,
    /// Links and folders that were left out.
    pub skipped: Vec<SkippedFile>,
    /// Hidden files that may be texts of the user; counted as left behind by systems, too.
    pub hidden_texts: Vec<SkippedFile>,
    /// Files that systems leave behind.
    pub ignored: Ignored,
}

/// A file or folder. Millions of them are in memory, so files share the names of their folders.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Its path as the file system spells it.
    pub path: Box<Path>,
    /// The names of the folders that it is in, in composed Unicode (NFC).
    pub folders: Arc<[String]>,
    /// Its own name in composed Unicode, if the path spells it differently.
    composed_name: Option<Box<ComposedName>>,
    /// Bytes on disk; 0 for a folder.
    pub bytes: u64,
}

/// A name in composed Unicode. Few files have one, so each file has only a thin pointer for it.
#[derive(Debug, Clone)]
struct ComposedName(Box<str>);

impl Entry {
    /// A file or folder of a folder with the composed names `folders`. `path` is Unicode text.
    fn new(path: PathBuf, folders: &Arc<[String]>, bytes: u64) -> Self {
        let name = last_name(&path);
        let composed_name = (!name.is_ascii())
            .then(|| composed(name))
            .filter(|composed| composed != name);
        Entry {
            folders: Arc::clone(folders),
            composed_name: composed_name.map(|name| Box::new(ComposedName(name.into()))),
            path: path.into_boxed_path(),
            bytes,
        }
    }

    /// Its name in composed Unicode (NFC).
    pub(crate) fn name(&self) -> &str {
        match &self.composed_name {
            Some(composed) => &composed.0,
            None => last_name(&self.path),
        }
    }

    /// Its names from the dataset's folder down, in composed Unicode (NFC).
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let folders = self.folders.iter().map(String::as_str);
        folders.chain(std::iter::once(self.name()))
    }

    /// Copies of its names from the dataset's folder down.
    pub(crate) fn all_names(&self) -> Vec<String> {
        self.names().map(str::to_owned).collect()
    }

    /// Its names from the dataset's folder down, separated by slashes.
    pub(crate) fn joined_names(&self) -> String {
        self.names().collect::<Vec<_>>().join("/")
    }

    /// Leaves the file out for a reason.
    pub(crate) fn skip(&self, reason: String) -> SkippedFile {
        SkippedFile {
            path: self.path.to_path_buf(),
            reason,
        }
    }
}

/// What an entry of a folder is.
enum Found {
    /// Something that systems leave behind; its path if it may be a text of the user.
    LeftBySystem(Option<PathBuf>),
    Folder(PathBuf),
    /// A regular file, or a link to one inside the folder, with its bytes.
    File(PathBuf, u64),
    /// Something that cannot be used, with the reason.
    LeftOut(PathBuf, String),
}

/// Resolves links. The result is Unicode, so that it can be written down.
pub(crate) fn resolve(path: &Path) -> Result<PathBuf, DatasetError> {
    let resolved = path
        .canonicalize()
        .map_err(|source| DatasetError::from_io(path, source))?;
    if resolved.to_str().is_none() {
        return Err(DatasetError::NonUnicodePath { folder: resolved });
    }
    Ok(resolved)
}

impl Listing {
    /// Lists everything below the folder `root`, which must be resolved.
    ///
    /// # Errors
    /// The folder cannot be read, there are too many files, or the user stops the reading.
    pub(crate) fn from_folder(
        root: &Path,
        stop: &StopReading,
        on_progress: &dyn Fn(ReadProgress),
    ) -> Result<Self, DatasetError> {
        Self::with_limit(root, MAX_ENTRIES, stop, on_progress)
    }

    /// Lists at most `limit` files and folders.
    fn with_limit(
        root: &Path,
        limit: usize,
        stop: &StopReading,
        on_progress: &dyn Fn(ReadProgress),
    ) -> Result<Self, DatasetError> {
        let mut listing = Self::empty(root, root);
        let threads = DiskThreads::default();
        let mut open = vec![PathBuf::new()];
        while let Some(folder) = open.pop() {
            stop.check()?;
            // One more than allowed, so that the check below notices it.
            let rest = limit.saturating_sub(listing.entry_count() as usize) + 1;
            let entries = fs::read_dir(root.join(&folder))
                .and_then(|entries| entries.take(rest).collect::<io::Result<Vec<_>>>());
            match entries {
                Ok(entries) => {
                    let names: Arc<[String]> = composed_names(&folder).into();
                    for chunk in entries.chunks(ENTRIES_PER_REPORT) {
                        stop.check()?;
                        on_progress(ReadProgress {
                            files: listing.files.len() as u64,
                            ..ReadProgress::default()
                        });
                        let found = threads.map(chunk, |entry| examine(root, &folder, entry));
                        for found in found {
                            open.extend(listing.add(found, &names));
                        }
                    }
                    if listing.entry_count() > limit as u64 {
                        return Err(DatasetError::TooManyFiles {
                            folder: root.to_path_buf(),
                            limit: limit as u64,
                        });
                    }
                }
                Err(source) if folder.as_os_str().is_empty() => {
                    return Err(DatasetError::from_io(root, source));
                }
                Err(source) => listing.skip(folder, unreadable("folder", &source)),
            }
        }
        let by_names =
            |a: &Entry, b: &Entry| a.names().cmp(b.names()).then_with(|| a.path.cmp(&b.path));
        // No two paths are equal, so the order of a sort that is not stable is fixed, too.
        threads.sort(&mut listing.files, by_names);
        threads.sort(&mut listing.folders, by_names);
        listing.skipped.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(listing)
    }

    /// Lists a single file as the only file of its folder. The path must be resolved.
    pub(crate) fn from_file(file: &Path) -> io::Result<Self> {
        let name = PathBuf::from(file.file_name().unwrap_or_default());
        let mut listing = Self::empty(file.parent().unwrap_or(file), file);
        let bytes = file.metadata()?.len();
        listing.files.push(Entry::new(name, &Arc::default(), bytes));
        Ok(listing)
    }

    fn empty(root: &Path, named: &Path) -> Self {
        let name = named.file_name().unwrap_or(named.as_os_str());
        Self {
            root: root.to_path_buf(),
            name: name.to_string_lossy().nfc().collect(),
            files: Vec::new(),
            folders: Vec::new(),
            skipped: Vec::new(),
            hidden_texts: Vec::new(),
            ignored: Ignored::default(),
        }
    }

    /// Number of files and folders of any kind, including ignored ones.
    pub(crate) fn entry_count(&self) -> u64 {
        (self.files.len() + self.folders.len() + self.skipped.len()) as u64 + self.ignored.system
    }

    /// Adds an entry of a folder with the composed `names`. Returns its path if it is a folder to
    /// list.
    fn add(&mut self, found: Found, names: &Arc<[String]>) -> Option<PathBuf> {
        match found {
            Found::LeftBySystem(text) => {
                self.ignored.system += 1;
                let reason =
                    "The name starts with a dot, so the file is hidden. Rename the file to use it.";
                self.hidden_texts.extend(text.map(|path| SkippedFile {
                    path,
                    reason: reason.to_owned(),
                }));
                None
            }
            Found::Folder(path) => self.add_folder(path, names),
            Found::File(path, bytes) => {
                self.files.push(Entry::new(path, names, bytes));
                None
            }
            Found::LeftOut(path, reason) => {
                self.skip(path, reason);
                None
            }
        }
    }

    /// Adds a folder, and returns its path, unless it is too deep.
    fn add_folder(&mut self, path: PathBuf, names: &Arc<[String]>) -> Option<PathBuf> {
        if path.components().count() > MAX_DEPTH {
            let reason = format!(
                "This folder is inside {MAX_DEPTH} other folders, deeper than Ebb reads. Move its files further up."
            );
            self.skip(path, reason);
            return None;
        }
        self.folders.push(Entry::new(path.clone(), names, 0));
        Some(path)
    }

    fn skip(&mut self, path: PathBuf, reason: String) {
        self.skipped.push(SkippedFile { path, reason });
    }
}

/// What an entry of the folder `folder` below `root` is. A link is what it points to.
fn examine(root: &Path, folder: &Path, entry: &DirEntry) -> Found {
    let name = entry.file_name();
    let path = folder.join(&name);
    let name = name.to_string_lossy();
    if is_left_by_system(&name) {
        let is_text = is_hidden_text(&name) && entry.file_type().is_ok_and(|kind| kind.is_file());
        return Found::LeftBySystem(is_text.then_some(path));
    }
    if path.to_str().is_none() {
        let reason = "The name is not Unicode text. Rename the file or folder to use it.";
        return Found::LeftOut(path, reason.to_owned());
    }
    let bytes = match entry.file_type() {
        Ok(kind) if kind.is_dir() => return Found::Folder(path),
        Ok(kind) => file_bytes(root, &path, kind, entry),
        Err(source) => Err(unreadable("file", &source)),
    };
    match bytes {
        Ok(bytes) => Found::File(path, bytes),
        Err(reason) => Found::LeftOut(path, reason),
    }
}

/// Bytes of an entry that is not a folder, or why it cannot be used.
fn file_bytes(root: &Path, path: &Path, kind: FileType, entry: &DirEntry) -> Result<u64, String> {
    if kind.is_symlink() {
        return linked_bytes(root, path);
    }
    if kind.is_file() {
        let metadata = entry.metadata();
        return metadata
            .map(|metadata| metadata.len())
            .map_err(|source| unreadable("file", &source));
    }
    // Opening a pipe would block forever.
    Err(
        "This entry is a pipe or a device, not a file. Remove the entry from the folder."
            .to_owned(),
    )
}

/// Bytes of the regular file that a link points to, if it is inside the folder.
fn linked_bytes(root: &Path, path: &Path) -> Result<u64, String> {
    let target = root.join(path).canonicalize().map_err(|_| {
        "The target of this link does not exist. Remove the link, or put the file itself here."
            .to_owned()
    })?;
    if !target.starts_with(root) {
        return Err(
            "This link points outside the folder. Copy the target of the link into the folder."
                .to_owned(),
        );
    }
    let inside = target.strip_prefix(root);
    let inside = inside.map(composed_names).unwrap_or_default();
    if inside.iter().any(|name| is_left_by_system(name)) {
        return Err(
            "This link points to a hidden file. Replace the link with the file itself.".to_owned(),
        );
    }
    match target.metadata() {
        Ok(m) if m.is_file() => Ok(m.len()),
        Ok(m) if m.is_dir() && root.join(path).starts_with(&target) => {
            Err("This link points to a folder that contains the link. Remove the link.".to_owned())
        }
        Ok(_) => {
            Err("This link points to a folder. Replace the link with the folder itself.".to_owned())
        }
        Err(source) => Err(unreadable("file", &source)),
    }
}

/// Whether a system left the file behind, or it is hidden.
fn is_left_by_system(name: &str) -> bool {
    const LEFT_BY_SYSTEMS: [&str; 4] = ["__macosx", "thumbs.db", "ehthumbs.db", "desktop.ini"];
    // Finder's custom icon is named "Icon" and a carriage return.
    name.starts_with('.')
        || name == "Icon\r"
        || LEFT_BY_SYSTEMS
            .iter()
            .any(|left| left.eq_ignore_ascii_case(name))
}

/// Whether the file is named like an archive or a compressed file, which Ebb does not unpack.
pub(crate) fn is_archive(path: &Path) -> bool {
    const ENDINGS: [&str; 13] = [
        "7z", "bz2", "gz", "rar", "tar", "tbz", "tbz2", "tgz", "txz", "tzst", "xz", "zip", "zst",
    ];
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| ENDINGS.contains(&ending.to_lowercase().as_str()))
}

/// Whether a hidden file is a text that a user may have written, not a system's sidecar.
fn is_hidden_text(name: &str) -> bool {
    let name = name.to_lowercase();
    let is_text = name.ends_with(".md") || name.ends_with(".txt");
    is_text && name.starts_with('.') && !name.starts_with("._")
}

fn unreadable(noun: &str, source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            format!(
                "Ebb has no permission to read this {noun}. Allow access in the permissions of the {noun} and, on a Mac, in System Settings > Privacy & Security > Files and Folders. Then read the folder again."
            )
        }
        _ => {
            let problem = format_io_error(source);
            format!("This {noun} cannot be read: {problem}. Copy the {noun} here again.")
        }
    }
}

/// The names of a path in composed Unicode (NFC).
fn composed_names(path: &Path) -> Vec<String> {
    let names = path.components();
    names
        .map(|part| composed(&part.as_os_str().to_string_lossy()))
        .collect()
}

fn composed(name: &str) -> String {
    name.nfc().collect()
}

/// The last name of a path that is Unicode text.
fn last_name(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).unwrap_or_default()
}

#[cfg(test)]
impl Entry {
    /// A file with a path from the dataset's folder down.
    pub(crate) fn for_test(path: &str, bytes: u64) -> Self {
        let mut folders = composed_names(Path::new(path));
        folders.pop();
        Entry::new(PathBuf::from(path), &folders.into(), bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_folder_with_too_many_files_is_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = resolve(folder.path()).expect("it is there");
        for name in ["one", "two", "three"] {
            fs::create_dir(root.join(name)).expect("it can be made");
            fs::write(root.join(name).join("a.txt"), name).expect("it can be written");
        }
        let stop = StopReading::default();
        let listed = Listing::with_limit(&root, 6, &stop, &|_| {}).expect("there are six");
        assert_eq!(listed.files.len(), 3);
        let refused = Listing::with_limit(&root, 5, &stop, &|_| {}).expect_err("there are six");
        assert!(
            refused
                .to_string()
                .contains("more than 5 files and folders"),
            "{refused}"
        );
    }

    #[test]
    fn a_large_folder_is_listed_completely_and_in_order() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = resolve(folder.path()).expect("it is there");
        let count = 2 * ENTRIES_PER_REPORT + 100;
        for number in 0..count {
            let text = "x".repeat(number % 7);
            fs::write(root.join(format!("{number:05}.txt")), text).expect("it can be written");
        }
        for left in ["Thumbs.DB", "._a.jpg", ".notes.md"] {
            fs::write(root.join(left), "x").expect("it can be written");
        }
        fs::create_dir(root.join("jay")).expect("it can be made");
        fs::write(root.join("jay").join("a.txt"), "x").expect("it can be written");
        let reports = Cell::new(0);
        let found = Listing::from_folder(&root, &StopReading::default(), &|progress| {
            assert!(progress.files <= count as u64);
            reports.set(reports.get() + 1);
        });
        let found = found.expect("it can be listed");
        assert_eq!((found.files.len(), found.folders.len()), (count + 1, 1));
        for (number, file) in found.files[..count].iter().enumerate() {
            let expected = (format!("{number:05}.txt"), (number % 7) as u64);
            assert_eq!((file.joined_names(), file.bytes), expected);
        }
        assert_eq!(found.files[count].joined_names(), "jay/a.txt");
        assert_eq!((found.ignored.system, found.hidden_texts.len()), (3, 1));
        // Three for the large folder, one for the small one.
        assert_eq!(reports.get(), 4);
    }

    #[test]
    fn a_stop_ends_the_listing_inside_of_a_folder() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = resolve(folder.path()).expect("it is there");
        for number in 0..=ENTRIES_PER_REPORT {
            fs::write(root.join(format!("{number}.txt")), "x").expect("it can be written");
        }
        let stop = StopReading::default();
        let stopped = Listing::from_folder(&root, &stop, &|_| stop.stop());
        stopped.expect_err("it was stopped");
    }

    #[test]
    fn folders_inside_too_many_folders_are_left_out() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = resolve(folder.path()).expect("it is there");
        let deep: PathBuf = std::iter::repeat_n("d", MAX_DEPTH + 10).collect();
        fs::create_dir_all(root.join(deep)).expect("it can be made");
        let found = Listing::from_folder(&root, &StopReading::default(), &|_| {})
            .expect("it can be listed");
        assert_eq!(found.folders.len(), MAX_DEPTH);
        assert_eq!(found.skipped.len(), 1);
        assert!(found.skipped[0].reason.contains("64 other folders"));
    }
}
