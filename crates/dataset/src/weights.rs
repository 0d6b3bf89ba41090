//! Folders that hold a published model in the place of data, by the names of their files. Refuses to open any of these files.

use std::path::Path;

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

/// True for a folder as hubs publish models: `config.json` with weights beside it, whatever else is there. Whether the weights are
/// any good is not looked at.
pub fn holds_weights(folder: &Path) -> bool {
    let there = |name: &&str| folder.join(name).is_file();
    there(&CONFIG) && WEIGHTS.iter().any(there)
}
