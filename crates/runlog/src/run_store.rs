//! The folder of all runs, shared by the app and the terminal. `run_folder.rs` reads the folder of
//! one run.

use crate::run_folder::{RunFolder, is_run_folder};
use crate::{RunlogError, amounts};
use jiff::Zoned;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{env, fs};

/// Environment variable for the folder of all of Ebb's data.
const HOME_VARIABLE: &str = "EBB_HOME";
/// Longest run name inside a folder name, in characters.
const MAX_NAME_CHARS: usize = 60;
/// Length of "2026-11-20-1402" in characters.
const DATE_CHARS: usize = 15;

/// An import without a lock for this time was interrupted: it takes the lock of its draft at once.
const INTERRUPTED_AFTER: Duration = Duration::from_secs(60);

/// The folder of all runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunStore {
    root: PathBuf,
}

impl RunStore {
    /// The store in the folder `root`, which need not exist yet.
    pub fn open(root: impl Into<PathBuf>) -> RunStore {
        RunStore { root: root.into() }
    }

    /// `$EBB_HOME/runs`, or `ebb/runs` in the platform's data folder, or `ebb-data/runs` in the
    /// current folder.
    pub fn default_root() -> PathBuf {
        default_root(env::var_os(HOME_VARIABLE), dirs::data_dir())
    }

    /// The folder that contains the runs.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Creates an empty run folder such as `2026-11-20-1402-img_caltech101_20`, named after the
    /// current local time. Only the user may open it, because a run shows samples of the data.
    pub fn create(&self, name: &str) -> Result<RunFolder, RunlogError> {
        self.create_at(name, &Zoned::now())
    }

    fn create_at(&self, name: &str, now: &Zoned) -> Result<RunFolder, RunlogError> {
        disk::create_dir_all(&self.root).map_err(RunlogError::disk("created", &self.root))?;
        self.remove_interrupted_imports(INTERRUPTED_AFTER);
        let id = format!("{}-{}", now.strftime("%Y-%m-%d-%H%M"), file_name(name));
        let mut path = self.root.join(&id);
        for count in 2.. {
            // It fails if the folder exists, so two processes never get the same one.
            match disk::create_private_dir(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    path = self.root.join(format!("{id}-{count}"));
                }
                created => {
                    created
                        .and_then(|()| disk::sync_parent(&path))
                        .map_err(RunlogError::disk("created", &path))?;
                    break;
                }
            }
        }
        Ok(RunFolder { path })
    }

    /// Lists all runs, newest first. A store that does not exist yet is empty. Removes what
    /// interrupted imports left.
    pub fn list(&self) -> Result<Vec<RunFolder>, RunlogError> {
        let paths = match disk::list(&self.root) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            paths => paths.map_err(RunlogError::disk("read", &self.root))?,
        };
        let mut runs: Vec<(String, SystemTime, RunFolder)> = Vec::new();
        let mut has_drafts = false;
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // An import that is running, or was interrupted.
            if disk::is_draft(&name) {
                has_drafts = true;
                continue;
            }
            // Leave out a folder that vanishes or cannot be read instead of failing.
            if let Some(created) = is_run_folder(&path).then(|| created(&path)).flatten() {
                let run = RunFolder { path };
                let date = run.id().chars().take(DATE_CHARS).collect();
                runs.push((date, created, run));
            }
        }
        if has_drafts {
            self.remove_interrupted_imports(INTERRUPTED_AFTER);
        }
        runs.sort_by(|a, b| (&b.0, b.1, &b.2.path).cmp(&(&a.0, a.1, &a.2.path)));
        Ok(runs.into_iter().map(|(_, _, run)| run).collect())
    }

    /// Finds a run by its id, by a unique prefix of its id or name, or by the path of its folder.
    ///
    /// # Errors
    /// If no run matches, or several do.
    pub fn find(&self, text: &str) -> Result<RunFolder, RunlogError> {
        let path = Path::new(text);
        if path.is_dir() && (is_run_folder(path) || path.components().count() > 1) {
            return RunFolder::open(path);
        }
        let runs = self.list()?;
        let matches = |run: &&RunFolder| {
            let id = run.id();
            let name = id.get(DATE_CHARS + 1..).unwrap_or_default();
            !text.is_empty() && (id.starts_with(text) || name.starts_with(text))
        };
        if let Some(run) = runs.iter().find(|run| run.id() == text) {
            return Ok(run.clone());
        }
        let mut found: Vec<RunFolder> = runs.iter().filter(matches).cloned().collect();
        match (found.len(), found.pop()) {
            (1, Some(run)) => Ok(run),
            (0, _) | (_, None) => Err(self.unknown_run(text, &runs)),
            (_, Some(last)) => Err(RunlogError::AmbiguousRun {
                text: text.into(),
                matches: found.iter().chain([&last]).map(RunFolder::id).collect(),
            }),
        }
    }

    fn unknown_run(&self, text: &str, runs: &[RunFolder]) -> RunlogError {
        let ids: Vec<String> = runs.iter().map(RunFolder::id).collect();
        let near = amounts::nearest(text, ids.iter().map(String::as_str)).or_else(|| {
            let name = |id: &'_ String| id.get(DATE_CHARS + 1..).map(str::to_owned);
            let names: Vec<String> = ids.iter().filter_map(name).collect();
            let near = amounts::nearest(text, names.iter().map(String::as_str))?;
            let at = names.iter().position(|name| name == near)?;
            ids.get(at).map(String::as_str)
        });
        RunlogError::UnknownRun {
            text: text.into(),
            root: self.root.clone(),
            hint: match near {
                Some(near) => format!("did you mean {near}?"),
                None => "`ebb runs` lists all runs".into(),
            },
        }
    }
}

fn default_root(home: Option<OsString>, data: Option<PathBuf>) -> PathBuf {
    match (home.filter(|home| !home.is_empty()), data) {
        (Some(home), _) => PathBuf::from(home).join("runs"),
        (None, Some(data)) => data.join("ebb").join("runs"),
        (None, None) => PathBuf::from("ebb-data").join("runs"),
    }
}

/// A name that is valid on every file system: letters, digits, `_`, `.` and `-`.
fn file_name(name: &str) -> String {
    let valid = |c: char| {
        if c.is_alphanumeric() || "_.".contains(c) {
            c
        } else {
            '-'
        }
    };
    let name: String = name.chars().take(MAX_NAME_CHARS).map(valid).collect();
    let name = name.trim_matches(|c| c == '-' || c == '.');
    if name.is_empty() { "run" } else { name }.to_owned()
}

/// When a run folder was created, or last modified if the file system does not record its creation.
fn created(path: &Path) -> Option<SystemTime> {
    let about = fs::metadata(path).ok()?;
    about.created().or_else(|_| about.modified()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Zoned {
        text.parse().expect("a date")
    }

    fn store() -> (tempfile::TempDir, RunStore) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = RunStore::open(folder.path().join("runs"));
        (folder, store)
    }

    fn made(store: &RunStore, name: &str, date: &str) -> RunFolder {
        let run = store.create_at(name, &at(date)).expect("it can be made");
        run.write_config(&Default::default())
            .expect("it can be written");
        run
    }

    #[test]
    fn a_run_folder_is_named_by_date_and_name() {
        let (_folder, store) = store();
        let check = |name: &str, id: &str| {
            let run = made(&store, name, "2026-11-20T14:02:00[UTC]");
            assert_eq!(run.id(), id);
        };
        check("img_caltech101_20", "2026-11-20-1402-img_caltech101_20");
        check("img_caltech101_20", "2026-11-20-1402-img_caltech101_20-2");
        check("img_caltech101_20", "2026-11-20-1402-img_caltech101_20-3");
        check("Früchte & Gemüse", "2026-11-20-1402-Früchte---Gemüse");
        check("../../etc/passwd", "2026-11-20-1402-etc-passwd");
        check("..", "2026-11-20-1402-run");
        let long = "x".repeat(300);
        check(&long, &format!("2026-11-20-1402-{}", "x".repeat(60)));
    }

    #[test]
    fn only_the_user_may_open_a_run() {
        use std::os::unix::fs::PermissionsExt;
        let (_folder, store) = store();
        let run = made(&store, "private", "2026-11-20T14:02:00[UTC]");
        let mode = fs::metadata(store.root().join(run.id()))
            .expect("it exists")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn runs_are_listed_newest_first() {
        let (_folder, store) = store();
        for (name, date) in [
            ("b", "2026-11-20T14:02:00[UTC]"),
            ("c", "2026-11-19T14:02:00[UTC]"),
            ("a", "2026-11-21T09:00:00[UTC]"),
        ] {
            made(&store, name, date);
        }
        fs::create_dir(store.root().join("not-a-run")).expect("it can be made");
        let ids: Vec<String> = store
            .list()
            .expect("it can be read")
            .iter()
            .map(RunFolder::id)
            .collect();
        assert_eq!(
            ids,
            [
                "2026-11-21-0900-a",
                "2026-11-20-1402-b",
                "2026-11-19-1402-c"
            ]
        );
    }

    #[test]
    fn a_store_that_does_not_exist_is_empty() {
        let (_folder, store) = store();
        assert_eq!(store.list().ok(), Some(Vec::new()));
    }

    #[test]
    fn a_run_is_found_by_id_prefix_name_or_path() {
        let (_folder, store) = store();
        let birds = made(&store, "birds", "2026-11-20T14:02:00[UTC]");
        let apples = made(&store, "apples", "2026-11-21T14:02:00[UTC]");
        let check = |text: &str, run: &RunFolder| {
            assert_eq!(
                store.find(text).map_err(|e| e.to_string()).as_ref(),
                Ok(run),
                "{text}"
            );
        };
        check("2026-11-20-1402-birds", &birds);
        check("2026-11-21", &apples);
        check("birds", &birds);
        check("app", &apples);
        check(&apples.path.display().to_string(), &apples);
    }

    #[test]
    fn an_unknown_or_ambiguous_name_is_refused() {
        let (_folder, store) = store();
        made(&store, "birds", "2026-11-20T14:02:00[UTC]");
        made(&store, "birds", "2026-11-21T14:02:00[UTC]");
        let check = |text: &str, part: &str| {
            let message = store.find(text).expect_err(text).to_string();
            assert!(message.contains(part), "{message}");
        };
        check(
            "2026",
            "matches 2 runs: 2026-11-21-1402-birds, 2026-11-20-1402-birds;",
        );
        check("bords", "did you mean 2026-11-21-1402-birds?");
        check("", "`ebb runs` lists all runs");
        let place = store
            .root()
            .parent()
            .expect("it has one")
            .display()
            .to_string();
        check(&place, "is not a run folder");
    }

    #[test]
    fn the_default_root_is_in_the_platforms_data_folder() {
        let data = Some(PathBuf::from("/data"));
        let check = |home: Option<&str>, data: Option<PathBuf>, root: &str| {
            assert_eq!(default_root(home.map(Into::into), data), Path::new(root));
        };
        check(None, data.clone(), "/data/ebb/runs");
        check(Some("/mine"), data.clone(), "/mine/runs");
        check(Some(""), data, "/data/ebb/runs");
        check(None, None, "ebb-data/runs");
    }
}
