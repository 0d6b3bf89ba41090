//! A trained model in use: evaluated on a dataset, asked for predictions, or exported. Writes
//! nothing but the exported folder.

mod generation_options;
mod choose_token;
mod evaluate_baseline;
mod baseline_model;
mod compress;
mod generate;
mod language_weights;
mod model_card;
mod context_memory;
mod chat;
mod questions;
mod images;
mod wait_for_memory;
mod mixed_baseline;
mod saliency;
mod seen_files;
mod incremental_decoder;
mod texts;

pub use chat::ChatModel;
pub use compress::CompressedText;
pub(crate) use generate::{Generator, TextEnd};
pub use generation_options::GenerationOptions;
pub use questions::QuestionModel;

use crate::checkpoint::{self, OptimizerState, RunState};
use crate::data::{EvalLoader, saved_tokenizer};
use crate::device_check::checked_device;
use crate::error::{Result, TrainError};
use crate::export_inputs;
use crate::inspect_options::{inspect_options, text_options};
use crate::machine_sources::Machine;
use crate::plan::Plan;
use crate::precision::Precision;
use crate::pretrained::config_of;
use crate::results::{Results, SampleResult};
use crate::sample_manifest;
use crate::task::{
    EvaluatedMicroBatch, EvaluationReport, ForwardContext, MetricInputs, Metrics, Mixture,
    MixtureParts, ReportInputs, Sample, Task as _, with_task,
};
use crate::train_state::TrainState;
use candle_core::Device;
use dataset::{
    Class, ClassSelection, DetectedDataset, InspectOptions, Split, TargetColumn, Task, TextOptions,
    Tokenizer, detect,
};
use mixed_baseline::MixedBaseline;
use models::export::{
    Exported, GgufWeights, TrainedNetwork, export_adapter_folder, export_core_ml,
    export_gguf_folder, export_hub_folder, export_onnx, export_with_files,
};
use rayon::prelude::*;
use runlog::{RunFolder, format_count, most_like};
use seen_files::SeenFiles;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tape::counting_allocator::release;
use tape::device::{DevicePreference, forget_pool, trim_old, with_autorelease_pool};
use tape::{Cancel, TapeError};
use wait_for_memory::MemoryGate;

/// Most samples per micro-batch. Small, because a forward pass alone takes little time.
const MICRO_BATCH: usize = 16;

/// An error message lists at most this many classes.
const LISTED_CLASSES: usize = 5;

/// A trained model: a run with the weights of its best checkpoint.
pub struct TrainedModel {
    plan: Plan,
    train_state: TrainState,
    /// The tokenizer of the run's texts.
    tokenizer: Tokenizer,
    /// The baseline, if it has a part in the predictions.
    mixed_baseline: Option<MixedBaseline>,
    /// The run folder.
    run: PathBuf,
    /// The files of the run's dataset.
    seen_files: SeenFiles,
    /// How far an evaluation is; another thread may read it and cancel.
    pub progress: Arc<Progress>,
    /// The state of the run at the checkpoint.
    pub state: RunState,
    /// The device and why it was chosen.
    pub device: String,
    /// Dropped last, after the tensors.
    kernel_outputs: KernelOutputs,
}

/// The pool of kernel outputs on a device, which belongs to the thread that uses and drops the
/// model. The thread may live longer.
struct KernelOutputs(Device);

impl Drop for KernelOutputs {
    fn drop(&mut self) {
        forget_pool(&self.0);
    }
}

/// The format of an exported model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExportFormat {
    /// As on the Hugging Face hub: JSON and safetensors.
    #[default]
    HuggingFace,
    /// One ONNX file with its settings.
    Onnx,
    /// A Core ML package.
    CoreMl,
    /// The adapters of a language model alone, for PEFT.
    Adapters,
    /// A language model as one GGUF file, with weights in 32-bit floats.
    GgufF32,
    /// A language model as one GGUF file, with weights in 16-bit floats.
    GgufF16,
    /// A language model as one GGUF file, with 8 bits per weight.
    GgufQ8,
    /// A language model as one GGUF file, with about 4.8 bits per weight.
    GgufQ4,
}

/// The evaluation of a trained model.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// The metrics of the task.
    pub metrics: Metrics,
    /// The report for each class and regression target, and the prediction for each sample.
    pub results: Results,
    /// Files that could not be read, each with the reason.
    pub skipped: Vec<(PathBuf, String)>,
}

/// How far an evaluation is, for other threads.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    cancel: Cancel,
}

impl Progress {
    fn begin(&self, total: usize) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total as u64, Ordering::Relaxed);
    }

    fn add(&self, samples: usize) {
        self.done.fetch_add(samples as u64, Ordering::Relaxed);
    }

    /// Samples evaluated, and all samples; both 0 before the evaluation.
    pub fn done_of_total(&self) -> (u64, u64) {
        let [done, total] = [&self.done, &self.total].map(|count| count.load(Ordering::Relaxed));
        (done, total)
    }

    /// Fails if the evaluation was cancelled.
    fn expect_uncancelled(&self) -> Result<()> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(TapeError::Cancelled.into());
        }
        Ok(())
    }

    /// Makes the current computation of the model and all later ones end with an error.
    pub fn cancel(&self) {
        self.cancel.store(true, Ordering::Relaxed);
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }
}

/// Sums over all samples of a loader.
struct EvaluationSums {
    sum: EvaluatedMicroBatch,
    /// What the evaluated mixture consists of; `None` for the network or the baseline alone.
    parts: Option<MixtureParts>,
    /// The prediction for each sample; empty for documents.
    samples: Vec<SampleResult>,
    /// Files that could not be read, each with the reason.
    skipped: Vec<(PathBuf, String)>,
}

impl TrainedModel {
    /// Loads the best checkpoint of a run. `device_check_path` is the file that remembers whether
    /// the GPU passed its check.
    ///
    /// # Errors
    /// The run has no usable checkpoint, or the device cannot be used.
    pub fn load(
        run: &RunFolder,
        device: DevicePreference,
        device_check_path: Option<&Path>,
    ) -> Result<Self> {
        let found = sample_manifest::read(run)?;
        let mut plan = Plan::resolve(&config_of(run)?, &found)?;
        let device = if plan.precision == Precision::F64 {
            DevicePreference::Cpu
        } else {
            device
        };
        let chosen = checked_device(device, device_check_path)?;
        if plan.precision.is_half() && chosen.device.is_cpu() {
            // The weights are f32 in any case, and on the CPU f32 is faster.
            plan.precision = Precision::F32;
        }
        let mut train_state = TrainState::new(&plan, &chosen.device)?;
        let loaded = checkpoint::best(run)?;
        with_autorelease_pool(|| {
            checkpoint::load(&loaded, &mut train_state, OptimizerState::Skip)
        })?;
        let tokenizer = saved_tokenizer(&plan, run)?;
        Ok(TrainedModel {
            mixed_baseline: MixedBaseline::load(&run.path, &plan, &loaded.state)?,
            seen_files: SeenFiles::from_dataset(&found),
            progress: Arc::default(),
            tokenizer,
            run: run.path.clone(),
            plan,
            train_state,
            state: loaded.state,
            device: format!("{}: {}", chosen.kind, chosen.reason),
            kernel_outputs: KernelOutputs(chosen.device),
        })
    }

    /// Frees the memory that the device holds and no tensor uses. A GPU otherwise keeps the outputs
    /// of kernels for the next request, and on a Mac no other app can use this memory meanwhile.
    pub fn free_unused_memory(&self) {
        // An error belongs to a request that was cancelled; any other request has reported its own.
        let _ = with_autorelease_pool(|| release(&self.kernel_outputs.0, || {}));
    }

    /// Class names in label order.
    pub fn classes(&self) -> &[String] {
        &self.plan.classes
    }

    /// The task that the model was trained for.
    pub fn task(&self) -> Task {
        self.plan.task()
    }

    /// The singular noun for one sample: "image", "text", "document", "conversation" or
    /// "preference".
    pub fn sample_noun(&self) -> &'static str {
        if self.plan.preference_beta.is_some() {
            "preference"
        } else if self.plan.conversations.is_some() {
            "conversation"
        } else {
            self.task().sample_noun()
        }
    }

    /// The columns of the regression targets.
    pub fn columns(&self) -> &[TargetColumn] {
        &self.plan.columns
    }

    /// Weight of the baseline in the predictions: 0 is the network alone, 1 the baseline alone.
    pub fn baseline_share(&self) -> f64 {
        let mixed = self.mixed_baseline.as_ref();
        mixed.map_or(0.0, MixedBaseline::share)
    }

    /// The options that the run's own texts were inspected with.
    pub fn text_options(&self) -> TextOptions {
        text_options(&self.plan.config, Some(self.task()))
    }

    /// The options that the run's own folder was inspected with; they reproduce its held-out split.
    /// Another folder need not have the classes that the run left out.
    pub(crate) fn inspect_options(&self) -> InspectOptions {
        let options = inspect_options(&self.plan.config).unwrap_or_default();
        InspectOptions {
            seed: self.plan.seed,
            classes: ClassSelection {
                allow_unknown: true,
                ..options.classes
            },
            ..options
        }
    }

    /// Exports the weights of the best checkpoint as a folder for other programs. If the baseline
    /// has a part in the predictions, the folder also contains the baseline and a Python file that
    /// computes the same predictions; a Core ML package contains the network alone. All other
    /// folders have a model card.
    ///
    /// # Errors
    /// The folder is not empty or cannot be written, or the format cannot express the network.
    pub fn export(&self, folder: &Path, format: ExportFormat) -> Result<Exported> {
        let average = self.train_state.average.as_ref();
        let tokenizer = export_inputs::tokenizer_file(&self.tokenizer)?;
        let trained = TrainedNetwork {
            model: self.plan.model,
            input_size: self.plan.input_size,
            classes: &self.plan.classes,
            targets: &export_inputs::regression_targets(&self.plan.columns),
            parameters: average.map_or(&self.train_state.parameters, |a| &a.parameters),
            pretrained: self.plan.pretrained.as_deref(),
            tokenizer: Some(&tokenizer),
        };
        let export = |folder: &Path| match format {
            ExportFormat::HuggingFace => export_hub_folder(&trained, folder),
            ExportFormat::Onnx => export_onnx(&trained, folder),
            ExportFormat::CoreMl => export_core_ml(&trained, folder),
            ExportFormat::Adapters => export_adapter_folder(&trained, folder),
            ExportFormat::GgufF32 => self.export_gguf(&trained, folder, GgufWeights::F32),
            ExportFormat::GgufF16 => self.export_gguf(&trained, folder, GgufWeights::F16),
            ExportFormat::GgufQ8 => self.export_gguf(&trained, folder, GgufWeights::Q8_0),
            ExportFormat::GgufQ4 => self.export_gguf(&trained, folder, GgufWeights::Q4KM),
        };
        if format == ExportFormat::CoreMl {
            // A package has a fixed set of files.
            return Ok(export(folder)?);
        }
        let mixed = self.mixed_baseline.as_ref();
        let files = mixed.map(|mixed| mixed.exported_files(&self.run));
        let files = files.transpose()?.unwrap_or_default();
        let files: Vec<(&str, &[u8])> = files
            .iter()
            .map(|(name, bytes)| (&**name, &**bytes))
            .collect();
        let opened_by = mixed.map(MixedBaseline::opened_by);
        let facts = self.card_facts(format)?;
        let card = |opened_by: &str| facts.card(opened_by);
        Ok(export_with_files(folder, &files, opened_by, card, export)?)
    }

    fn export_gguf(
        &self,
        trained: &TrainedNetwork,
        folder: &Path,
        weights: GgufWeights,
    ) -> models::Result<Exported> {
        let chat = chat::format(&self.plan, &self.tokenizer);
        export_gguf_folder(trained, folder, weights, &chat)
    }

    /// Evaluates on the run's own test split, or on its held-out split if it has none.
    ///
    /// # Errors
    /// The manifest is damaged, or text files have changed.
    pub fn evaluate_own(&self, run: &RunFolder) -> Result<Evaluation> {
        self.evaluate(&sample_manifest::read(run)?)
    }

    /// Inspects a folder or file for an evaluation. If it has files of the run, it is split as in
    /// training, so that training samples are not evaluated. A new dataset without splits of its
    /// own is evaluated as a whole.
    pub fn inspect(&self, path: &Path) -> Result<DetectedDataset> {
        let found = detect(path, &self.inspect_options(), &self.text_options(), &|_| {})?;
        if !self.seen_files.is_new(&found) {
            return Ok(found);
        }
        let unsplit = InspectOptions {
            held_out_fraction: 0.0,
            leave_duplicates_out: false,
            ..self.inspect_options()
        };
        Ok(detect(path, &unsplit, &self.text_options(), &|_| {})?)
    }

    /// Evaluates on the test split of a dataset, or else on its held-out split, or else on all of
    /// it. Classes are matched by name.
    ///
    /// # Errors
    /// The dataset is for another task, is empty, or has classes that the run does not know.
    pub fn evaluate(&self, found: &DetectedDataset) -> Result<Evaluation> {
        match (found, self.task()) {
            (DetectedDataset::Images(found), Task::ImageClassification) => {
                self.evaluate_images(found)
            }
            (
                DetectedDataset::Texts(found),
                Task::TextClassification | Task::LanguageModel | Task::TokenCompression,
            ) => self.evaluate_texts(found),
            _ => Err(self.wrong_dataset(found)),
        }
    }

    /// The context of a forward pass.
    fn context(&self) -> ForwardContext<'_> {
        self.train_state
            .evaluation_context(self.progress.cancel.clone())
    }

    /// Evaluates all samples of a loader, fewer at once while memory is short. `complete` adds to
    /// each sample what the loader does not know.
    fn sum_over<S: Sample>(
        &self,
        loader: impl EvalLoader<Sample = S>,
        complete: impl Fn(&mut S) + Sync,
    ) -> Result<EvaluationSums> {
        self.progress.begin(loader.len());
        self.sum_with(&self.context(), loader, complete)
    }

    /// As [`TrainedModel::sum_over`] in another context, without the beginning of the progress.
    fn sum_with<S: Sample>(
        &self,
        context: &ForwardContext,
        mut loader: impl EvalLoader<Sample = S>,
        complete: impl Fn(&mut S) + Sync,
    ) -> Result<EvaluationSums> {
        let (mut sum, mut skipped) = (EvaluatedMicroBatch::default(), Vec::new());
        let mut gate = MemoryGate::open(&Machine::default(), &self.kernel_outputs.0)?;
        loader.begin();
        loop {
            let size = gate.next_micro_batch(&self.progress, || self.free_unused_memory());
            let loaded = loader.fetch(size);
            if loaded.is_empty() {
                let file = |index| loader.file(index);
                let Mixture { sum, parts } = sum.into_mixture(self.baseline_share());
                return Ok(EvaluationSums {
                    samples: SampleResult::all(&sum.predictions, &self.plan.columns, file),
                    sum,
                    parts,
                    skipped,
                });
            }
            let loaded_count = loaded.len();
            let mut samples = Vec::with_capacity(loaded_count);
            for result in loaded {
                match result {
                    Ok(sample) => samples.push(sample),
                    Err(error) => skipped.push((error.file, error.reason)),
                }
            }
            if !samples.is_empty() {
                samples.par_iter_mut().for_each(&complete);
                sum.add(with_autorelease_pool(|| {
                    let evaluated = context.evaluate(&samples)?;
                    // Texts of other lengths need other buffers.
                    trim_old(&self.kernel_outputs.0);
                    Ok::<_, TrainError>(evaluated)
                })?);
            }
            self.progress.add(loaded_count);
        }
    }

    /// Computes the evaluation from `sums`. `bytes` is the size of the evaluated documents, `part`
    /// the name of the split.
    fn evaluation(&self, sums: EvaluationSums, bytes: u64, part: &'static str) -> Evaluation {
        let EvaluationSums {
            sum,
            parts,
            samples,
            skipped,
        } = sums;
        let inputs = MetricInputs {
            held_out_bytes: bytes,
            heads: self.plan.heads(),
            columns: &self.plan.columns,
        };
        let metrics = with_task!(self.task(), T => T::metrics(&sum, &inputs)).with_parts(parts);
        let about = ReportInputs {
            classes: &self.plan.classes,
            columns: &self.plan.columns,
            step: self.state.step,
            part,
        };
        let report = EvaluationReport::new(&sum, &metrics, &about);
        Evaluation {
            results: Results::new(self.task(), report, samples),
            metrics,
            skipped,
        }
    }

    /// The error for a request that the task of this run cannot answer: "continue a text".
    fn wrong_task(&self, request: &str) -> TrainError {
        let command = match self.task() {
            Task::ImageClassification => "predict RUN IMAGE",
            Task::TextClassification | Task::TokenCompression => "predict RUN \"a text\"",
            Task::LanguageModel => "generate RUN --prompt \"a text\"",
        };
        TrainError::NotTrainable {
            message: format!(
                "this run {} and cannot {request}; try `ebb {command}`",
                self.what_it_does()
            ),
        }
    }

    /// The error for a dataset that this run cannot be evaluated on.
    fn wrong_dataset(&self, found: &DetectedDataset) -> TrainError {
        let (place, holds) = match found {
            DetectedDataset::Images(_) => ("the folder", "images"),
            DetectedDataset::Texts(found) => (
                found.name.as_str(),
                match found.task {
                    Task::TextClassification => "texts with labels",
                    _ => "texts without labels",
                },
            ),
        };
        let does = self.what_it_does();
        TrainError::NotTrainable {
            message: format!("this run {does}, but {place} holds {holds}"),
        }
    }

    /// "classifies texts".
    fn what_it_does(&self) -> &'static str {
        match self.task() {
            Task::ImageClassification if self.plan.classes.is_empty() => {
                "predicts regression targets of images"
            }
            task => task.model_verb(),
        }
    }

    /// For each class of the dataset `name`, its label in this run.
    fn labels(&self, name: &str, classes: &[Class]) -> Result<Vec<u32>> {
        let label = |class: &Class| {
            let known = &self.plan.classes;
            let found = known.iter().position(|name| *name == class.name);
            found.map(|label| label as u32).ok_or_else(|| TrainError::NotTrainable {
                message: format!(
                    "the class {} of {name} is unknown to this run; the run knows {}; name the class folder as in training, or remove the folder",
                    class.name,
                    list_classes(known, &class.name)
                ),
            })
        };
        classes.iter().map(label).collect()
    }
}

/// All of a few classes; of many, their number and those most similar to `name`.
fn list_classes(classes: &[String], name: &str) -> String {
    if classes.len() <= LISTED_CLASSES {
        return classes.join(", ");
    }
    let similar = most_like(name, classes.iter().map(String::as_str), LISTED_CLASSES);
    let count = format_count(classes.len() as u64);
    format!(
        "{count} classes, the most similar being {}",
        similar.join(", ")
    )
}

/// The split to evaluate: the test split if it has samples, else the held-out split, else the
/// training split.
///
/// # Errors
/// There is no sample at all; `refusal` says why.
fn evaluated_part(
    count: impl Fn(Split) -> u64,
    refusal: Option<&String>,
    sample: &str,
) -> Result<Split> {
    let part = [Split::Test, Split::HeldOut, Split::Train]
        .into_iter()
        .find(|&p| count(p) > 0);
    part.ok_or_else(|| TrainError::NotTrainable {
        message: refusal
            .cloned()
            .unwrap_or_else(|| format!("there is no {sample} to evaluate")),
    })
}
