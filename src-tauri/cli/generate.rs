//! `ebb generate`: continues a text with a language model, by a run's best checkpoint.

use super::args;
use super::failure::Failure;
use super::output::out;
use super::train::find;
use crate::paths::device_check_path;
use trainer::{DevicePreference, GenerationOptions, TrainedModel};

/// Runs `ebb generate`. The same prompt, options and seed give the same text.
pub fn run(args: &args::Generate) -> Result<(), Failure> {
    let saved = TrainedModel::load(
        &find(&args.run)?,
        DevicePreference::Auto,
        Some(&device_check_path()),
    )?;
    let wording = GenerationOptions {
        tokens: args.tokens,
        temperature: args.temperature,
        top_k: args.top_k.map(|top_k| top_k as usize),
        seed: args.seed,
    };
    let written = saved.generate(&args.prompt, &wording)?;
    out!("{}{written}", args.prompt);
    Ok(())
}
