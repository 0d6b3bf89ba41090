//! `ebb export`: writes a run's best weights as a folder that PyTorch and transformers open, as an
//! ONNX file, as a Core ML package, or as a GGUF file.

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
    /// only the adapters of a language model, which PEFT opens; gguf: a language model as one file
    /// for llama.cpp, LM Studio and Ollama
    #[arg(long, value_enum, default_value_t)]
    pub format: Form,
    /// Data type of the weights of a GGUF file [default: f16]
    #[arg(long, value_enum, value_name = "TYPE", conflicts_with = "baseline")]
    pub weights: Option<Weights>,
    /// Export only the baseline of the run, and a Python file that predicts with the baseline
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
    Gguf,
}

/// Data type of the weights of a GGUF file.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Weights {
    /// 32-bit floats
    #[value(name = "f32")]
    F32,
    /// 16-bit floats
    #[value(name = "f16")]
    F16,
    /// 8 bits per weight
    #[value(name = "q8_0")]
    Q8,
    /// About 4.8 bits per weight
    #[value(name = "q4_k_m")]
    Q4,
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
    if args.weights.is_some() && args.format != Form::Gguf {
        return Err(Failure::usage(
            "--weights is for GGUF files; add --format gguf, or remove --weights",
        ));
    }
    let saved = TrainedModel::load(&run, DevicePreference::Cpu, Some(&device_check_path()))?;
    let format = match args.format {
        Form::HuggingFace => ExportFormat::HuggingFace,
        Form::Onnx => ExportFormat::Onnx,
        Form::CoreMl => ExportFormat::CoreMl,
        Form::Adapters => ExportFormat::Adapters,
        Form::Gguf => match args.weights {
            Some(Weights::F32) => ExportFormat::GgufF32,
            None | Some(Weights::F16) => ExportFormat::GgufF16,
            Some(Weights::Q8) => ExportFormat::GgufQ8,
            Some(Weights::Q4) => ExportFormat::GgufQ4,
        },
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
