//! `ebb runs` and `ebb report`.

use super::args;
use super::failure::Failure;
use super::output::out;
use super::train::find;
use runlog::{RunFolder, RunStore, report as write_report};
use serde_json::json;

/// Runs `ebb runs`.
pub fn list(args: &args::Runs) -> Result<(), Failure> {
    let store = RunStore::open(RunStore::default_root());
    let runs = store.list()?;
    if runs.is_empty() && !args.json {
        out!(
            "No runs yet in {}. Start one with `ebb train FOLDER`.",
            store.root().display()
        );
    }
    for folder in runs {
        // One unreadable run does not hide the others.
        let line = match folder.replay() {
            Ok(run) => run.summary_line(),
            Err(error) => error.to_string(),
        };
        if args.json {
            out!(
                "{}",
                json!({"run": folder.id(), "summary": line, "path": folder.path.to_string_lossy()})
            );
        } else {
            out!("{}  {line}", folder.id());
        }
    }
    Ok(())
}

/// Runs `ebb report`.
pub fn report(args: &args::Report) -> Result<(), Failure> {
    let folder = find(&args.run)?;
    let out = args
        .out
        .clone()
        .map_or_else(|| folder.clone(), |path| RunFolder { path });
    std::fs::create_dir_all(&out.path).map_err(|error| {
        Failure::new(format!(
            "{} cannot be created: {error}; choose another folder",
            out.path.display()
        ))
    })?;
    for path in write_report(&folder.replay()?, &out)? {
        out!("{}", path.display());
    }
    Ok(())
}
