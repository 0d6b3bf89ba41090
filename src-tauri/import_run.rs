//! Runs that arrive as one file: chosen with *Import a run…*, or dropped on the window.

use crate::window_types::CommandError;
use runlog::RunStore;
use serde::Serialize;
use std::path::Path;
use ts_rs::TS;

/// How the names of these files end.
pub const ENDING: &str = "ebbrun";

/// A run that was imported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, TS)]
pub struct ImportedView {
    /// Id of the run.
    pub run: String,
    /// What the user may not expect: another run had the name already.
    pub notice: Option<String>,
}

/// Whether the path has the ending of an exported run.
pub fn is_named_as_archive(path: &Path) -> bool {
    path.extension()
        .is_some_and(|ending| ending.eq_ignore_ascii_case(ENDING))
}

/// Whether this is a file with the ending of an exported run.
pub fn is_archive(path: &Path) -> bool {
    is_named_as_archive(path) && path.is_file()
}

/// What is reported while a run is imported, which takes as long as reading its checkpoints.
pub fn announce(archive: &Path) -> String {
    let name = archive.file_name().unwrap_or(archive.as_os_str());
    format!("Importing {}…", name.to_string_lossy())
}

/// Adds the run of an archive to the list of runs.
///
/// # Errors
/// The file is no exported run, is damaged, or does not fit on the disk; nothing is left.
pub fn import(store: &RunStore, archive: &Path) -> Result<ImportedView, CommandError> {
    let imported = store.import_archive(archive)?;
    let run = imported.folder.id();
    let notice = imported.renamed_from.map(|taken| {
        format!("There is already a run {taken}, so the imported run is called {run}.")
    });
    Ok(ImportedView { run, notice })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_types_of_an_import_are_current() {
        crate::window_types::tests::current_types(ImportedView::export_all);
    }

    #[test]
    fn only_a_file_with_the_ending_is_an_archive() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, expected) in [
            ("birds.ebbrun", true),
            ("BIRDS.EBBRUN", true),
            ("a.zip", false),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, "").expect("it can be written");
            assert_eq!(is_archive(&path), expected, "{name}");
        }
        let named_alike = folder.path().join("folder.ebbrun");
        std::fs::create_dir(&named_alike).expect("it can be made");
        assert!(!is_archive(&named_alike), "a folder of data is opened");
        assert!(!is_archive(&folder.path().join("missing.ebbrun")));
    }

    #[test]
    fn a_damaged_file_is_refused_and_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let archive = folder.path().join("birds.ebbrun");
        std::fs::write(&archive, "damaged").expect("it can be written");
        let store = RunStore::open(folder.path().join("runs"));
        let refused = import(&store, &archive).expect_err("it is damaged");
        assert!(
            refused.message.contains("birds.ebbrun"),
            "{}",
            refused.message
        );
        assert!(store.list().expect("it can be listed").is_empty());
    }
}
