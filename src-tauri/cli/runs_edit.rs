//! `ebb runs rename`, `ebb runs note` and `ebb runs trash`.

use super::args::{NoteRun, RenameRun, TrashRun};
use super::failure::Failure;
use super::output::out;
use super::train::find;
use crate::move_to_trash::{NotMoved, move_to_trash};
use crate::run_names::{is_taken, shortened, shown_name};
use runlog::RunStore;
use std::path::Path;

/// Runs `ebb runs rename`.
pub fn rename(args: &RenameRun) -> Result<(), Failure> {
    let folder = find(&args.run)?;
    let (id, name) = (folder.id(), shortened(&args.name));
    let names = shown_names()?;
    let names = names.iter().map(|(id, name)| (&**id, &**name));
    if is_taken(&id, &name, names) {
        return Err(Failure::usage(format!(
            "another run is called {name}; choose another name"
        )));
    }
    let mut notes = folder.notes();
    notes.name = name;
    folder.write_notes(&notes)?;
    if notes.name.is_empty() {
        out!("{id} has the name of its dataset again");
    } else {
        out!("{id}  {}", notes.name);
    }
    Ok(())
}

/// The ids of all runs with their names. A run that cannot be read has its id as its name.
fn shown_names() -> Result<Vec<(String, String)>, Failure> {
    let store = RunStore::open(RunStore::default_root());
    let named = store.summaries()?.into_iter().map(|listed| {
        let (id, notes) = (listed.folder.id(), listed.folder.notes());
        let started = listed.summary.ok().and_then(|summary| summary.started);
        let name = shown_name(&id, &notes, started.as_ref().map(|run| run.name.as_str()));
        (id, name)
    });
    Ok(named.collect())
}

/// Runs `ebb runs note`: prints the note of a run, or replaces it.
pub fn note(args: &NoteRun) -> Result<(), Failure> {
    let folder = find(&args.run)?;
    let mut notes = folder.notes();
    if let Some(text) = &args.text {
        text.trim().clone_into(&mut notes.text);
        folder.write_notes(&notes)?;
    }
    if notes.text.is_empty() {
        out!("{} has no note", folder.id());
    } else {
        out!("{}", notes.text);
    }
    Ok(())
}

/// Runs `ebb runs trash`.
pub fn trash(args: &TrashRun) -> Result<(), Failure> {
    let folder = find(&args.run)?;
    let id = folder.id();
    // The beginning of a name could mean another run than the user thinks of.
    if id != args.run && !Path::new(&args.run).is_dir() {
        return Err(Failure::new(format!(
            "to move a run to the trash, write its whole id: {id}"
        )));
    }
    move_to_trash(&folder).map_err(|reason| {
        Failure::new(match reason {
            NotMoved::Training => {
                format!("{id} is training; stop it first, then move it to the trash")
            }
            NotMoved::Refused(reason) => format!(
                "{id} cannot be moved to the trash: {reason}; its folder is {}",
                folder.path.display()
            ),
        })
    })?;
    out!("Moved {id} to the trash");
    Ok(())
}
