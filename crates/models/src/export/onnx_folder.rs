//! Exports a trained classifier as a folder with one ONNX file, the names of its classes, and how
//! its inputs are prepared.

use super::atomic_folder::{Exported, write, write_folder};
use super::classifier_export::ClassifierExport;
use super::onnx::encode;
use super::trained_network::TrainedNetwork;
use crate::error::Result;
use std::path::Path;

const FILE: &str = "model.onnx";

/// Writes the folder, which must be new or empty. It appears complete or not at all.
///
/// # Errors
/// The folder is not empty or cannot be written; the network is not a classifier of images or
/// texts, or is larger than the format allows.
pub fn export_onnx(trained: &TrainedNetwork, folder: &Path) -> Result<Exported> {
    let export = ClassifierExport::new(trained, folder, "ONNX")?;
    let file = encode(&export.graph()?)?;
    write_folder(folder, |draft| {
        export.write_settings(draft)?;
        write(draft, FILE, file)
    })?;
    Exported::list(
        folder,
        "onnxruntime.InferenceSession(\"FOLDER/model.onnx\")",
    )
}
