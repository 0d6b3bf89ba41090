//! `ebb export`: writes a run's best weights as a folder that PyTorch and transformers open, as an
//! ONNX file, or as a Core ML package.

use super::failure::Failure;
use super::output::out;
use super::train::find;
use crate::paths::{device_check_path, is_within};
use clap::{Args, ValueEnum};
use serde_json::json;
use std::path::PathBuf;
use trainer::{DevicePreference, ExportFormat, RunDataset, TrainedModel};

/// Arguments of `ebb export`.
#[derive(Args)]
pub struct Export {
    /// The run: its id, the beginning of its name, or its path
    pub run: String,
    /// New or empty folder to write to
    pub folder: PathBuf,
    /// hugging-face: settings and weights that transformers opens; onnx: one file that onnxruntime
    /// runs; coreml: a package for Mac and iPhone apps (Ebb adds .mlpackage to its name); adapters:
    /// only the adapters of a language model, which PEFT opens
    #[arg(long, value_enum, default_value_t)]
    pub format: Form,
    /// Export only the baseline of the run, with a Python file that uses it
    #[arg(long, conflicts_with = "format")]
    pub baseline: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Format of an export.
#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Form {
    #[default]
    HuggingFace,
    Onnx,
    #[value(name = "coreml")]
    CoreMl,
    Adapters,
}

/// Runs `ebb export`.
pub fn run(args: &Export) -> Result<(), Failure> {
    let run = find(&args.run)?;
    let dataset = RunDataset::read(&run)?.path();
    if is_within(&args.folder, &dataset) {
        return Err(Failure::usage(format!(
            "{} is in {}, and Ebb never writes into the folder of a dataset; choose another folder",
            args.folder.display(),
            dataset.display()
        )));
    }
    let saved = TrainedModel::load(&run, DevicePreference::Cpu, Some(&device_check_path()))?;
    let format = match args.format {
        Form::HuggingFace => ExportFormat::HuggingFace,
        Form::Onnx => ExportFormat::Onnx,
        Form::CoreMl => ExportFormat::CoreMl,
        Form::Adapters => ExportFormat::Adapters,
    };
    let exported = if args.baseline {
        saved.export_baseline(&args.folder)?
    } else {
        saved.export(&args.folder, format)?
    };
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
    if args.format == Form::CoreMl && saved.baseline_share() > 0.0 {
        out!(
            "This package contains the network alone. Ebb predicts with the network and the baseline; the other formats contain both."
        );
    }
    Ok(())
}
