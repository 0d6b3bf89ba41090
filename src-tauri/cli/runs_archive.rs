//! `ebb runs export` and `ebb runs import`: a run as one file.

use super::args::{ExportRun, ImportRun};
use super::failure::Failure;
use super::output::out;
use super::train::find;
use crate::paths::is_within;
use runlog::{RunStore, counted, format_bytes};

/// Runs `ebb runs export`.
pub fn export(args: &ExportRun) -> Result<(), Failure> {
    let run = find(&args.run)?;
    // A run whose dataset is missing is exported too.
    let dataset = trainer::RunDataset::read(&run).ok().map(|data| data.path());
    for folder in dataset.iter().chain([&run.path]) {
        if is_within(&args.file, folder) {
            return Err(Failure::usage(format!(
                "{} is in {}, which the export must not change; choose another folder",
                args.file.display(),
                folder.display()
            )));
        }
    }
    let exported = run.export_archive(&args.file)?;
    out!(
        "{}: {}, {}",
        exported.path.display(),
        counted(exported.files as u64, "file", "files"),
        format_bytes(exported.bytes)
    );
    Ok(())
}

/// Runs `ebb runs import`.
pub fn import(args: &ImportRun) -> Result<(), Failure> {
    let store = RunStore::open(RunStore::default_root());
    let imported = store.import_archive(&args.file)?;
    let id = imported.folder.id();
    if let Some(taken) = imported.renamed_from {
        out!("There is already a run {taken}, so the imported run is called {id}.");
    }
    out!(
        "Imported {id}: {}, {}",
        counted(imported.files as u64, "file", "files"),
        format_bytes(imported.bytes)
    );
    Ok(())
}
