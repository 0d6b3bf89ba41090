//! `ebb export`: writes a run's best weights as a folder that PyTorch and transformers open, as an
//! ONNX file, or as a Core ML package.

use super::failure::Failure;
use super::output::out;
use super::train::find;
use crate::paths::device_check_path;
use clap::{Args, ValueEnum};
use serde_json::json;
use std::path::PathBuf;
use trainer::{DevicePreference, ExportFormat, TrainedModel};

/// Arguments of `ebb export`.
#[derive(Args)]
pub struct Export {
    /// Run, by its id, the beginning of its name, or its path
    pub run: String,
    /// New or empty folder to write to
    pub folder: PathBuf,
    /// hugging-face: settings and weights that transformers opens; onnx: one file that onnxruntime
    /// runs; coreml: a package for apps on Macs and iPhones, whose name gets the ending .mlpackage
    #[arg(long, value_enum, default_value_t)]
    pub format: Form,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Format of an export.
#[derive(Clone, Copy, Default, ValueEnum)]
pub enum Form {
    #[default]
    HuggingFace,
    Onnx,
    #[value(name = "coreml")]
    CoreMl,
}

/// Runs `ebb export`.
pub fn run(args: &Export) -> Result<(), Failure> {
    let saved = TrainedModel::load(
        &find(&args.run)?,
        DevicePreference::Cpu,
        Some(&device_check_path()),
    )?;
    let exported = saved.export(
        &args.folder,
        match args.format {
            Form::HuggingFace => ExportFormat::HuggingFace,
            Form::Onnx => ExportFormat::Onnx,
            Form::CoreMl => ExportFormat::CoreMl,
        },
    )?;
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
    out!("Open it with {}", exported.opened_by);
    Ok(())
}
