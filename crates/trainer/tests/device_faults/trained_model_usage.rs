//! What a user does with a trained model: evaluation, predictions, generation and exports. Each
//! result is compared as a hash of all its bits.

use crate::training_setups::Scenario;
use dataset::{DetectedDataset, Task};
use runlog::RunFolder;
use std::hash::{DefaultHasher, Hasher};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use trainer::{DevicePreference, ExportFormat, GenerationOptions, Result, TrainedModel};

/// One use of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Usage {
    Evaluation,
    /// The classes of images or texts, the continuation of a prompt, or a compressed text.
    Answer,
    /// Where the model looked in an image.
    Saliency,
    HuggingFace,
    Onnx,
}

impl Usage {
    /// The uses of a model of this task. No other program has a format for token compression.
    pub fn all(task: Task) -> &'static [Usage] {
        use Usage::{Answer, Evaluation, HuggingFace, Onnx, Saliency};
        match task {
            Task::ImageClassification => &[Evaluation, Answer, Saliency, HuggingFace, Onnx],
            Task::TextClassification | Task::LanguageModel => &[Evaluation, Answer, HuggingFace],
            Task::TokenCompression => &[Evaluation, Answer],
        }
    }

    /// Loads the model of a run and uses it. Exports are written into `folder`.
    pub fn perform(self, scenario: &Scenario, run: &RunFolder, folder: &Path) -> Result<u64> {
        trainer::on_threads(1, || {
            let model = TrainedModel::load(run, DevicePreference::Cpu, None)?;
            let export = |format, name| -> Result<u64> {
                let folder = folder.join(name);
                model.export(&folder, format)?;
                Ok(hash_of_folder(&folder))
            };
            match self {
                Usage::Evaluation => Ok(hash_of(&model.evaluate_own(run)?)),
                Usage::Answer => answer(&model, scenario),
                Usage::Saliency => Ok(hash_of(&model.saliency(&images(scenario)[0])?)),
                Usage::HuggingFace => export(ExportFormat::HuggingFace, "hub"),
                Usage::Onnx => export(ExportFormat::Onnx, "onnx"),
            }
        })
    }
}

fn answer(model: &TrainedModel, scenario: &Scenario) -> Result<u64> {
    let text = "It rains. Chapter 3.";
    Ok(match model.task() {
        Task::ImageClassification => hash_of(&model.predict(&images(scenario))?),
        Task::TextClassification => {
            let texts = ["rain home soon", "win cash prize"].map(str::to_owned);
            hash_of(&model.predict_texts(&texts)?)
        }
        Task::LanguageModel => {
            let options = GenerationOptions {
                tokens: 12,
                seed: 5,
                ..GenerationOptions::default()
            };
            hash_of(&model.generate(text, &options, |_| ControlFlow::Continue(()))?)
        }
        Task::TokenCompression => hash_of(&model.compress(text)?),
    })
}

/// Two images of the dataset.
fn images(scenario: &Scenario) -> Vec<PathBuf> {
    let DetectedDataset::Images(found) = &scenario.found else {
        return Vec::new();
    };
    let files = found.files.iter().take(2);
    files.map(|file| found.folder.join(&file.path)).collect()
}

/// The hash of all numbers in a value: `Debug` prints as many digits as a number has.
fn hash_of(value: &impl std::fmt::Debug) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(format!("{value:?}").as_bytes());
    hasher.finish()
}

/// The hash of the names and contents of all files.
fn hash_of_folder(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        hasher.write(file.file_name().unwrap().as_encoded_bytes());
        if file.is_dir() {
            hasher.write_u64(hash_of_folder(&file));
        } else {
            hasher.write(&std::fs::read(&file).unwrap());
        }
    }
    hasher.finish()
}
