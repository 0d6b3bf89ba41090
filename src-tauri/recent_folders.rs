//! The folders that were opened last, across starts of the app. The page knows them by id.

use crate::lock_mutex::lock;
use crate::window_types::CommandError;
use serde::Serialize;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use ts_rs::TS;

/// How many are remembered.
const MOST: usize = 10;

/// The remembered folders and files, newest first.
pub struct RecentFolders {
    /// Where they are saved.
    file: PathBuf,
    paths: Mutex<Vec<PathBuf>>,
    observer: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, TS)]
pub struct RecentView {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The folder that contains it, only for display.
    pub place: String,
    /// Whether it cannot be found now, for example because its disk is not connected.
    pub missing: bool,
}

impl RecentFolders {
    /// Those that are saved in `file`. A file that is missing or damaged counts as empty.
    pub fn from_file(file: PathBuf) -> Self {
        let text = fs::read(&file).unwrap_or_default();
        let mut paths: Vec<PathBuf> = serde_json::from_slice(&text).unwrap_or_default();
        paths.truncate(MOST);
        RecentFolders {
            file,
            paths: Mutex::new(paths),
            observer: OnceLock::new(),
        }
    }

    /// Calls `observer` after every change. Only the first observer counts.
    pub fn observe(&self, observer: impl Fn() + Send + Sync + 'static) {
        // Fails only for a second observer.
        let _ = self.observer.set(Box::new(observer));
    }

    /// Adds a folder that was opened, if it exists.
    pub fn add(&self, path: &Path) {
        let Ok(path) = path.canonicalize() else {
            return;
        };
        self.change(|paths| {
            paths.retain(|known| *known != path);
            paths.insert(0, path);
            paths.truncate(MOST);
        });
    }

    /// Removes one.
    pub fn remove(&self, id: &str) {
        self.change(|paths| paths.retain(|path| id_of(path) != id));
    }

    /// Removes all.
    pub fn clear(&self) {
        self.change(Vec::clear);
    }

    /// All of them, newest first. Looks at no disk, so none is marked as missing.
    pub fn listed(&self) -> Vec<RecentView> {
        lock(&self.paths).iter().map(|path| view(path)).collect()
    }

    /// All of them, newest first. Looks at each on its disk. A network volume that does not answer
    /// blocks for minutes, so never call this on the main thread.
    pub fn views(&self) -> Vec<RecentView> {
        let paths = lock(&self.paths).clone();
        let look = |path: &PathBuf| RecentView {
            missing: !path.exists(),
            ..view(path)
        };
        paths.iter().map(look).collect()
    }

    /// Whether this is the id of one of them. Looks at no disk.
    pub fn knows(&self, id: &str) -> bool {
        lock(&self.paths).iter().any(|path| id_of(path) == id)
    }

    /// Where one is. Looks for it on its disk, as [`RecentFolders::views`] does.
    ///
    /// # Errors
    /// The id is unknown, or the folder cannot be found.
    pub fn path(&self, id: &str) -> Result<PathBuf, CommandError> {
        let known = lock(&self.paths)
            .iter()
            .find(|path| id_of(path) == id)
            .cloned();
        let path = known.ok_or_else(|| CommandError::unknown("folder"))?;
        if path.exists() {
            return Ok(path);
        }
        let RecentView { name, place, .. } = view(&path);
        let why = format!(
            "The folder {name} is no longer in {place}. If it is on an external disk, connect the disk. If you moved the folder, open it at its new location."
        );
        Err(CommandError::new("failed", why))
    }

    fn change(&self, change: impl FnOnce(&mut Vec<PathBuf>)) {
        let mut paths = lock(&self.paths);
        let before = paths.clone();
        change(&mut paths);
        if *paths == before {
            return;
        }
        if let Err(error) = save(&self.file, &paths) {
            eprintln!("ebb: the recent folders cannot be saved: {error}");
        }
        drop(paths);
        if let Some(observer) = self.observer.get() {
            observer();
        }
    }
}

fn save(file: &Path, paths: &[PathBuf]) -> io::Result<()> {
    // JSON has no form for a name that is not Unicode; it is remembered until Ebb quits.
    let names: Vec<&str> = paths.iter().filter_map(|path| path.to_str()).collect();
    if let Some(folder) = file.parent() {
        disk::create_dir_all(folder)?;
    }
    // Only one process has the window, and a draft of an earlier one is left by a kill.
    disk::remove_drafts_of(file);
    disk::write_atomic(file, &serde_json::to_vec_pretty(&names)?)
}

/// A folder, without a look at its disk.
fn view(path: &Path) -> RecentView {
    let name = path.file_name().unwrap_or(path.as_os_str());
    let place = path.parent().unwrap_or(path);
    RecentView {
        id: id_of(path),
        name: name.to_string_lossy().into_owned(),
        place: place.display().to_string(),
        missing: false,
    }
}

/// The same for the same path while Ebb runs.
fn id_of(path: &Path) -> String {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    format!("recent-{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window_types::tests::current_types;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn names(recent: &RecentFolders) -> Vec<String> {
        recent.views().into_iter().map(|view| view.name).collect()
    }

    #[test]
    fn the_type_of_a_recent_folder_is_current() {
        current_types(RecentView::export_all);
    }

    #[test]
    fn the_last_ten_folders_survive_a_restart_newest_first() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let file = home.path().join("ebb/recent.json");
        let recent = RecentFolders::from_file(file.clone());
        for number in 0..12 {
            let folder = home.path().join(format!("{number}"));
            fs::create_dir(&folder).expect("it can be made");
            recent.add(&folder);
        }
        recent.add(&home.path().join("5"));
        recent.add(&home.path().join("never there"));
        let expected = ["5", "11", "10", "9", "8", "7", "6", "4", "3", "2"];
        assert_eq!(names(&recent), expected);
        assert_eq!(names(&RecentFolders::from_file(file)), expected);
    }

    #[test]
    fn a_missing_folder_is_marked_and_cannot_be_opened() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let recent = RecentFolders::from_file(home.path().join("recent.json"));
        let folder = home.path().join("birds");
        fs::create_dir(&folder).expect("it can be made");
        recent.add(&folder);
        let [view] = &recent.views()[..] else {
            panic!("there is one");
        };
        assert!(!view.missing);
        assert_eq!(recent.path(&view.id).ok(), folder.canonicalize().ok());
        fs::remove_dir(&folder).expect("it can be removed");
        assert!(recent.views()[0].missing);
        assert!(!recent.listed()[0].missing, "the disk is not asked");
        assert!(recent.knows(&view.id), "the disk is not asked");
        let refused = recent.path(&view.id).expect_err("it cannot be found");
        assert!(
            refused
                .message
                .starts_with("The folder birds is no longer in ")
        );
        recent.remove(&view.id);
        assert!(recent.views().is_empty() && recent.listed().is_empty());
        assert!(!recent.knows(&view.id));
        let unknown = recent.path(&view.id).expect_err("it is removed");
        assert_eq!(unknown.code, "unknown_id");
    }

    #[test]
    fn a_damaged_file_counts_as_empty_and_changes_are_observed() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let file = home.path().join("recent.json");
        fs::write(&file, "[\"/bir").expect("it can be written");
        let recent = RecentFolders::from_file(file.clone());
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        recent.observe(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        recent.add(home.path());
        recent.add(home.path());
        recent.clear();
        recent.clear();
        assert_eq!(calls.load(Ordering::Relaxed), 2);
        assert_eq!(fs::read_to_string(file).ok().as_deref(), Some("[]"));
    }
}
