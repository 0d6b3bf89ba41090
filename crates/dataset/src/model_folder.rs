//! Detects folders and files that are a pretrained model instead of data, by the names of the
//! files. Opens none of these files.

use crate::identify_image::has_image_extension;
use crate::readers::{FileFormat, Use};
use std::fs;
use std::path::{Path, PathBuf};

/// The file that describes the network.
const CONFIG: &str = "config.json";
/// The weights, in one file or as an index of several, in the formats of the Hugging Face hub, or
/// the link to a GGUF file in an unpacked folder.
const WEIGHTS: [&str; 5] = [
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "model.gguf",
];

/// Why a model folder cannot be trained on, and how to fix that.
pub(crate) const REFUSAL: &str = "This folder is a model, not data: it contains config.json and weights. Drop the images or texts to train on, \
     then choose this folder there as the model to start from (in the terminal: ebb train DATA --from THIS).";

/// Whether a folder contains a model as the Hugging Face hub has it: `config.json`, weights, and no
/// data beside them. The weights are not checked.
pub fn is_model_folder(folder: &Path) -> bool {
    let exists = |name: &&str| folder.join(name).is_file();
    exists(&CONFIG) && WEIGHTS.iter().any(exists) && !has_data(folder)
}

/// Whether a path names a file with a pretrained model: a GGUF file, by its extension. The file is
/// not checked.
pub fn is_model_file(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    extension.is_some_and(|text| text.eq_ignore_ascii_case("gguf")) && path.is_file()
}

/// Whether a folder contains a table or class folders of images, such as a dataset into which
/// weights were saved. Files that come with a model, such as its readme and vocabulary, do not
/// count.
fn has_data(folder: &Path) -> bool {
    let inside = list(folder);
    let has_images = |path: &PathBuf| list(path).iter().any(|file| has_image_extension(file));
    let is_class =
        |path: &PathBuf| path.is_dir() && (has_images(path) || list(path).iter().any(has_images));
    let is_table = |path: &PathBuf| is_data_format(path) && path.is_file();
    inside.iter().any(is_table) || inside.iter().filter(|path| is_class(path)).count() > 1
}

fn list(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Whether the extension is that of a table. JSON files are often logs or settings.
fn is_data_format(path: &Path) -> bool {
    FileFormat::from_path(path).is_some_and(|format| format.is_for(Use::Data))
}
