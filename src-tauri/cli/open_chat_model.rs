//! The language model that `ebb chat` and `ebb serve` answer with: a run, a folder of published
//! weights, a GGUF file, or a name at the hub.

use super::args;
use super::failure::Failure;
use super::output::status;
use super::train::find;
use super::weights_from_hub::{downloaded, unpacked};
use crate::paths::device_check_path;
use runlog::Quantize;
use std::path::{Path, PathBuf};
use trainer::{ChatModel, DevicePreference};

/// Loads the run or the model. Prints a note if memory is short.
///
/// # Errors
/// There is neither, or it cannot chat.
pub fn open(args: &args::ChatModelChoice) -> Result<ChatModel, Failure> {
    let model = load(args)?;
    if let Some(note) = model.memory_note() {
        status!("ebb: {note}");
    }
    Ok(model)
}

fn load(args: &args::ChatModelChoice) -> Result<ChatModel, Failure> {
    let (device, check, context) = (DevicePreference::Auto, device_check_path(), args.context);
    if let Some(folder) = model_folder(&args.model)? {
        let model = ChatModel::from_folder(&folder, args.quantize, device, Some(&check), context);
        return Ok(model?);
    }
    refuse_to_quantize_a_run(args.quantize)?;
    let run = find(&args.model)?;
    Ok(ChatModel::from_run(&run, device, Some(&check), context)?)
}

/// Refuses `--quantize` for a run.
pub fn refuse_to_quantize_a_run(quantize: Option<Quantize>) -> Result<(), Failure> {
    match quantize {
        None => Ok(()),
        Some(_) => Err(Failure::usage(
            "--quantize is only for model folders; a run keeps the weights that it trained with",
        )),
    }
}

/// The folder of a model; `None` if the text names a run.
pub fn model_folder(text: &str) -> Result<Option<PathBuf>, Failure> {
    let path = Path::new(text);
    if path.join("config.json").is_file() {
        return Ok(Some(path.to_owned()));
    }
    if let Some(folder) = unpacked(path)? {
        return Ok(Some(folder));
    }
    match find(text) {
        Ok(_) => Ok(None),
        Err(failure) => match downloaded(path)? {
            Some(folder) => Ok(Some(folder)),
            None => Err(failure),
        },
    }
}
