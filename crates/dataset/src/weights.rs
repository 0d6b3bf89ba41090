//! Folders that hold a published model in the place of data, by the names of their files. Refuses to open any of these files.

use crate::header::claims_image;
use crate::text::claims_table;
use std::fs;
use std::path::{Path, PathBuf};

/// What says which network it is.
const CONFIG: &str = "config.json";
/// Its weights, whole or as a list of parts, in the forms that hubs have them in.
const WEIGHTS: [&str; 4] = [
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
];

/// Why a folder of weights cannot be trained on, with the next move.
pub(crate) const REFUSAL: &str = "This folder is a model, not data: it holds config.json and weights. Drop the photographs or texts to train on, \
     then choose this folder there as what to begin with (in the terminal: ebb train DATA --from THIS).";

/// True for a folder as hubs publish models: `config.json` with weights beside it, and no data beside them. Whether the weights are
/// any good is not looked at.
pub fn is_model(folder: &Path) -> bool {
    let there = |name: &&str| folder.join(name).is_file();
    there(&CONFIG) && WEIGHTS.iter().any(there) && !holds_data(folder)
}

/// A table, or a sub-folder of photographs: what a folder of weights that was trained here, beside its data, still has. Papers
/// that come with a model (its readme, its vocabulary) are none.
fn holds_data(folder: &Path) -> bool {
    let inside = listed(folder);
    let has_photographs = |path: &PathBuf| listed(path).iter().any(|file| claims_image(file));
    let is_class = |path: &PathBuf| {
        path.is_dir() && (has_photographs(path) || listed(path).iter().any(has_photographs))
    };
    let is_table = |path: &PathBuf| claims_table(path) && path.is_file();
    inside.iter().any(is_table) || inside.iter().filter(|path| is_class(path)).count() > 1
}

fn listed(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}
