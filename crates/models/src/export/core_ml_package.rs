//! Exports a trained classifier as a Core ML package: a folder that Finder shows as one file, with
//! a manifest, the model, its weights, and Ebb's own settings beside them.

use super::atomic_folder::{Exported, create_file, write, write_folder};
use super::classifier_export::ClassifierExport;
use super::config_json::pretty;
use super::trained_network::TrainedNetwork;
use crate::core_ml::{CoreMlExport, Input};
use crate::error::{Result, at};
use crate::pixel_normalization::PixelNormalization;
use prost::Message;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Ending of the name of a package.
const EXTENSION: &str = "mlpackage";
/// Folder of all items.
const DATA: &str = "Data";
/// Author and folder of the items that the framework reads.
const FRAMEWORK: &str = "com.apple.CoreML";
/// Author and folder of the settings beside them.
const EBB: &str = "ebb";
const MODEL: &str = "model.mlmodel";
const WEIGHTS: &str = "weights";
const WEIGHT_FILE: &str = "weight.bin";
const MANIFEST: &str = "Manifest.json";

/// Writes the package, which must be new or empty. It appears complete or not at all. Its name gets
/// the ending `.mlpackage`.
///
/// # Errors
/// The folder is not empty or cannot be written; the network is not a classifier of images or
/// texts, or Core ML has no counterpart for one of its operations.
pub fn export_core_ml(trained: &TrainedNetwork, folder: &Path) -> Result<Exported> {
    let folder = named(folder);
    let export = ClassifierExport::new(trained, &folder, "Core ML")?;
    let size = trained.input_size as usize;
    let normalization = trained
        .pretrained
        .map_or_else(PixelNormalization::default, |p| p.normalization());
    let core_ml = CoreMlExport {
        label: trained.model.label(),
        input: if export.is_text() {
            Input::Text { tokens: size }
        } else {
            Input::Image {
                side: size,
                normalization,
            }
        },
        classes: trained.classes,
        targets: trained.targets.iter().map(|t| t.name.as_str()).collect(),
    };
    let (model, weights) = core_ml.convert(export.graph()?)?;
    write_folder(&folder, |draft| {
        let framework = create_folder(draft.join(DATA).join(FRAMEWORK))?;
        write(&framework, MODEL, model.encode_to_vec())?;
        let path = create_folder(framework.join(WEIGHTS))?.join(WEIGHT_FILE);
        let mut file = create_file(&path)?;
        weights.write(&mut file).map_err(at(&path))?;
        file.flush().map_err(at(&path))?;
        let settings = create_folder(draft.join(DATA).join(EBB))?;
        export.write_settings(&settings)?;
        write(draft, MANIFEST, pretty(&manifest(&settings)?))
    })?;
    Exported::list(
        &folder,
        "Xcode, or coremltools.models.MLModel(PACKAGE) in Python on a Mac",
    )
}

/// The folder with the ending of a package.
fn named(folder: &Path) -> PathBuf {
    let is_package = folder.extension() == Some(OsStr::new(EXTENSION));
    match folder.file_name() {
        Some(name) if !is_package => {
            let mut name = name.to_owned();
            name.push(".");
            name.push(EXTENSION);
            folder.with_file_name(name)
        }
        _ => folder.to_owned(),
    }
}

fn create_folder(path: PathBuf) -> Result<PathBuf> {
    disk::create_dir_all(&path).map_err(at(&path))?;
    Ok(path)
}

/// `Manifest.json`: the items of the package, with the files of `settings`.
fn manifest(settings: &Path) -> Result<Value> {
    let mut items = Map::new();
    let mut add = |author: &str, name: &str, description: &str| {
        let path = format!("{author}/{name}");
        let id = identifier(&path);
        let item = json!({
            "author": author,
            "description": description,
            "name": name,
            "path": path,
        });
        items.insert(id.clone(), item);
        id
    };
    let root = add(FRAMEWORK, MODEL, "CoreML Model Specification");
    add(FRAMEWORK, WEIGHTS, "CoreML Model Weights");
    for name in Exported::list(settings, "")?.files {
        add(EBB, &name, "Class names and input preprocessing");
    }
    Ok(json!({
        "fileFormatVersion": "1.0.0",
        "itemInfoEntries": items,
        "rootModelIdentifier": root,
    }))
}

/// An identifier in the form of a UUID that depends only on `path`.
fn identifier(path: &str) -> String {
    let hash = hex(&Sha256::digest(path.as_bytes())[..16]);
    let parts = [
        &hash[..8],
        &hash[8..12],
        &hash[12..16],
        &hash[16..20],
        &hash[20..],
    ];
    parts.join("-").to_uppercase()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
