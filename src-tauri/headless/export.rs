//! `ebb export`: a run's best weights as a folder that PyTorch and transformers open.

use super::failure::Failure;
use super::say::out;
use super::train::{certificate_path, find};
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use trainer::{SavedRun, Wanted};

/// Words after `ebb export`.
#[derive(Args)]
pub struct Export {
    /// Id, beginning of a name, or path of a run
    pub run: String,
    /// New or empty folder to write to
    pub folder: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The top-level entry point of `ebb export`.
pub fn run(args: &Export) -> Result<(), Failure> {
    let saved = SavedRun::load(&find(&args.run)?, Wanted::Cpu, Some(&certificate_path()))?;
    let exported = saved.export(&args.folder)?;
    if args.json {
        out!(
            "{}",
            json!({
                "folder": exported.folder,
                "files": exported.files,
                "bytes": exported.bytes,
                "opened_by": exported.opened_by,
            })
        );
        return Ok(());
    }
    out!(
        "{}: {} ({})",
        exported.folder.display(),
        exported.files.join(", "),
        runlog::format_bytes(exported.bytes)
    );
    out!("opens with {}", exported.opened_by);
    Ok(())
}
