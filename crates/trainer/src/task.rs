//! The tasks that Ebb trains. Everything that depends on the task lives in its module: what one
//! sample is, how samples are loaded, the forward pass and the loss, the metrics, and the text of a
//! result. The training loop is generic over [`Task`].
//!
//! To add a task, write its module and add a row to [`with_task!`].

mod token_compression;
mod evaluation;
mod forward_context;
mod images;
mod image_baseline;
mod language_model;
mod preferences;
mod metric_sums;
mod class_scores;
mod regression_metrics;
mod evaluation_report;
mod text_baseline;
mod texts;

pub use crate::data::Text;
use evaluation::SampleOutputs;
pub use evaluation::{
    ClassPrediction, ConfusionEntry, EvaluatedMicroBatch, MetricInputs, Metrics, SamplePrediction,
};
pub(crate) use evaluation::{Mixture, MixtureParts};
pub(crate) use evaluation_report::BaseReport;
pub(crate) use evaluation_report::split_name;
#[cfg(test)]
pub(crate) use evaluation_report::wilson;
pub use evaluation_report::{ClassReport, EvaluationReport, ReportInputs};
pub use forward_context::{ForwardContext, MicroBatchResult};
pub(crate) use image_baseline::{
    add_evaluated as add_image_baseline, outputs as image_baseline_outputs,
};
pub use images::{ImageSample, ImageTask, Prediction};
pub use language_model::LanguageTask;
pub use metric_sums::MetricSums;
pub(crate) use models::BALANCE;
pub use models::{Balance, Heads, PixelNormalization};
pub use regression_metrics::{RegressionErrors, RegressionReport};
pub(crate) use text_baseline::{evaluate as evaluate_text_baseline, scores_of_texts};
pub use texts::TextTask;
pub use token_compression::{CompressionTask, Sequence};

use crate::data::{BaselineScores, EvalLoader, PrefetchOptions, PromptSet, TrainLoader};
use crate::error::Result;
use crate::plan::{Plan, SampleCounts};
use crate::preparation::Preparation;
use dataset::DetectedDataset;
use runlog::{BaselineChoice, RunFolder};

/// A sample of a task. A slice of samples therefore never mixes tasks.
pub trait Sample: Sized + Send + Sync {
    /// The task that the sample is for.
    type Task: Task<Sample = Self>;
}

/// The tasks that Ebb can train.
pub trait Task: Sized {
    /// One sample.
    type Sample: Sample<Task = Self>;
    /// The opened dataset.
    type Data: Sync;
    /// Loads training samples.
    type TrainLoader: TrainLoader<Sample = Self::Sample>;
    /// Loads held-out samples.
    type EvalLoader: EvalLoader<Sample = Self::Sample>;

    /// Opens the dataset of a run, like [`Task::prepare`], which nothing watches or stops.
    ///
    /// # Errors
    /// As for `prepare`.
    fn open(plan: &Plan, found: &DetectedDataset, run: &RunFolder) -> Result<Self::Data> {
        Self::prepare(plan, found, run, Preparation::default())
    }

    /// Opens the dataset of a run. Text is tokenized here; images are decoded when they are needed.
    ///
    /// # Errors
    /// The dataset is of another kind, its files are missing or have changed since the inspection,
    /// or the user stops the run.
    fn prepare(
        plan: &Plan,
        found: &DetectedDataset,
        run: &RunFolder,
        preparation: Preparation,
    ) -> Result<Self::Data>;

    /// The number of samples, if it is only known now that the dataset is open.
    fn sample_counts(_plan: &Plan, _data: &Self::Data) -> Option<SampleCounts> {
        None
    }

    /// Bytes of held-out text, which bits per byte are divided by; 0 for tasks that do not predict
    /// documents.
    fn held_out_bytes(_data: &Self::Data) -> u64 {
        0
    }

    /// The prompts that the model answers after each evaluation; `None` if there are none.
    ///
    /// # Errors
    /// The prompts that the user chose cannot be read, or the model cannot read them. A file of the
    /// dataset has changed since the inspection.
    fn prompts(
        _plan: &Plan,
        _found: &DetectedDataset,
        _run: &RunFolder,
    ) -> Result<Option<PromptSet>> {
        Ok(None)
    }

    /// A warning about samples that are longer than the model reads.
    fn truncation_warning(_plan: &Plan, _data: &Self::Data) -> Option<String> {
        None
    }

    /// Loads training samples from `step` on.
    fn train_loader(
        plan: &Plan,
        data: &Self::Data,
        options: PrefetchOptions,
        step: u64,
    ) -> Self::TrainLoader;

    /// Loads the held-out samples.
    fn eval_loader(plan: &Plan, data: &Self::Data, options: PrefetchOptions) -> Self::EvalLoader;

    /// Trains a simple model that the network should be better than, and saves it in the run folder
    /// if it can be used. `None` if the run has no such model, or if the user has stopped the run.
    ///
    /// # Errors
    /// Text files have changed since the inspection, or the run folder cannot be written.
    fn train_baseline(_inputs: &BaselineInputs) -> Result<Option<TaskBaseline>> {
        Ok(None)
    }

    /// The outputs of the saved baseline of a run for its held-out samples, if the baseline has a
    /// part in the predictions.
    ///
    /// # Errors
    /// The file of the baseline is damaged, or text files have changed since the inspection.
    fn baseline_scores(_inputs: &BaselineInputs) -> Result<Option<BaselineScores>> {
        Ok(None)
    }

    /// Forward and backward pass of one micro-batch. Waits for the device, because an earlier GPU
    /// error shows only then.
    ///
    /// # Errors
    /// The pass was cancelled, the device failed or has no memory, or the network is for another
    /// task.
    fn gradients(context: &ForwardContext, samples: &[Self::Sample]) -> Result<MicroBatchResult>;

    /// Forward pass of one micro-batch of held-out samples.
    fn evaluate(context: &ForwardContext, samples: &[Self::Sample]) -> Result<EvaluatedMicroBatch>;

    /// The largest sample that the network reads, all zeros: for the dry run.
    fn zero_sample(context: &ForwardContext, index: u32) -> Self::Sample;

    /// The metrics of an evaluation.
    fn metrics(sum: &EvaluatedMicroBatch, inputs: &MetricInputs) -> Metrics;

    /// The best score of a run in words, such as "best held-out accuracy 91.2 %".
    fn describe_best(score: f64, plan: &Plan) -> String;
}

impl BaselineInputs<'_> {
    /// Whether the predictions of the run combine its network and its baseline.
    fn is_combined(&self) -> bool {
        let choice = self.plan.config.baseline;
        choice.unwrap_or(BaselineChoice::Combined) == BaselineChoice::Combined
    }
}

/// What a baseline is trained from.
pub struct BaselineInputs<'a> {
    /// The plan of the run.
    pub plan: &'a Plan,
    /// The dataset of the run.
    pub found: &'a DetectedDataset,
    /// The folder that the baseline is saved in.
    pub run: &'a RunFolder,
    /// Whether the user has stopped the run.
    pub is_stopping: &'a (dyn Fn() -> bool + Sync),
}

/// A trained baseline.
pub struct TaskBaseline {
    /// The model in words.
    pub name: &'static str,
    /// Training samples that it was trained on.
    pub samples: u64,
    /// Its evaluation on the held-out samples.
    pub sums: EvaluatedMicroBatch,
    /// Its outputs for the held-out samples, if it has a part in the predictions.
    pub scores: Option<BaselineScores>,
    /// A problem of the training samples, as a sentence.
    pub warning: Option<String>,
}

/// Evaluates `$body` with `$T` standing for the type of a task. `$kind` is a [`dataset::Task`].
macro_rules! with_task {
    ($kind:expr, $T:ident => $body:expr) => {
        match $kind {
            dataset::Task::ImageClassification => {
                type $T = $crate::task::ImageTask;
                $body
            }
            dataset::Task::TextClassification => {
                type $T = $crate::task::TextTask;
                $body
            }
            dataset::Task::LanguageModel => {
                type $T = $crate::task::LanguageTask;
                $body
            }
            dataset::Task::TokenCompression => {
                type $T = $crate::task::CompressionTask;
                $body
            }
        }
    };
}
pub(crate) use with_task;
