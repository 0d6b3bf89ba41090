//! Language modeling: the next token of each window of documents or conversations. The loss is
//! summed over the learned tokens and divided by their number in the whole effective batch. Shorter
//! windows are padded with tokens that do not count. If the data are preferences, the task learns
//! them by direct preference optimization instead.

use super::preferences::{ACCURACY, PreferenceLearning, zero_pair};
use super::{
    EvaluatedMicroBatch, ForwardContext, MetricInputs, MetricSums, Metrics, MicroBatchResult,
    Sample, Task,
};
use crate::data::{
    DocumentData, PrefetchOptions, PromptSet, WindowEvalLoader, WindowLoader, WindowSource,
    padded_length,
};
use crate::error::Result;
use crate::plan::{Plan, SampleCounts};
use crate::preparation::Preparation;
use dataset::{DetectedDataset, NOT_LEARNED, Window};
use models::{Gpt, Network, TokenBatch};
use runlog::RunFolder;
use tape::inplace::to_f64;
use tape::{IGNORED, Loss, Tape};

/// Predicts the next token of documents, or prefers one of two answers.
pub enum LanguageTask {}

impl Sample for Window {
    type Task = LanguageTask;
}

impl Task for LanguageTask {
    type Sample = Window;
    type Data = DocumentData;
    type TrainLoader = WindowLoader<Window>;
    type EvalLoader = WindowEvalLoader<Window>;

    fn prepare(
        plan: &Plan,
        found: &DetectedDataset,
        run: &RunFolder,
        preparation: Preparation,
    ) -> Result<DocumentData> {
        DocumentData::open(plan, found, run, preparation)
    }

    fn sample_counts(plan: &Plan, data: &DocumentData) -> Option<SampleCounts> {
        Some(data.sample_counts(plan))
    }

    fn held_out_bytes(data: &DocumentData) -> u64 {
        data.held_out.documents().bytes()
    }

    fn prompts(plan: &Plan, found: &DetectedDataset, run: &RunFolder) -> Result<Option<PromptSet>> {
        PromptSet::open(plan, found, run)
    }

    fn truncation_warning(plan: &Plan, data: &DocumentData) -> Option<String> {
        data.truncation_warning(plan.input_size)
    }

    fn train_loader(
        plan: &Plan,
        data: &DocumentData,
        _options: PrefetchOptions,
        _step: u64,
    ) -> WindowLoader<Window> {
        WindowLoader::new(plan, data, Box::new(|window, _| window))
    }

    fn eval_loader(
        plan: &Plan,
        data: &DocumentData,
        _options: PrefetchOptions,
    ) -> WindowEvalLoader<Window> {
        LanguageTask::windows(&data.held_out, plan.input_size)
            .with_token_limit(plan.evaluated_tokens())
    }

    fn gradients(context: &ForwardContext, windows: &[Window]) -> Result<MicroBatchResult> {
        if let Some(preferences) = preferences(context)? {
            return preferences.gradients(windows);
        }
        let tape = context.training_tape(windows.iter().map(|window| window.index));
        let loss = loss(context, &tape, windows, context.checkpointed)?;
        let (gradients, losses) = context.backward(tape, loss)?;
        Ok(MicroBatchResult {
            gradients,
            loss: losses.iter().sum(),
            weight: target_count(windows),
            samples: windows.len(),
            // A window has no file that could be named.
            not_finite: Vec::new(),
            metrics: MetricSums::default(),
        })
    }

    fn evaluate(context: &ForwardContext, windows: &[Window]) -> Result<EvaluatedMicroBatch> {
        if let Some(preferences) = preferences(context)? {
            return preferences.evaluate(windows);
        }
        let losses = loss(context, &context.inference_tape(), windows, 0)?.per_sample;
        Ok(EvaluatedMicroBatch {
            loss: to_f64(&losses)?.iter().sum(),
            weight: target_count(windows),
            samples: windows.len() as u64,
            ..EvaluatedMicroBatch::default()
        })
    }

    fn zero_sample(context: &ForwardContext, index: u32) -> Window {
        if context.preference_beta.is_some() {
            return zero_pair(context.input_size, index);
        }
        let zeros = || vec![0; context.input_size];
        Window {
            index,
            inputs: zeros(),
            targets: zeros(),
            documents: zeros(),
            positions: zeros(),
        }
    }

    /// `bits_per_byte`, the negative of which is the score. Of conversations, the bytes of the
    /// learned text count. Of preferences, the score is the negative loss.
    fn metrics(sum: &EvaluatedMicroBatch, inputs: &MetricInputs) -> Metrics {
        if sum.metrics.iter().any(|(name, _)| name == ACCURACY) {
            return Metrics::new(sum, &[], -sum.loss / sum.weight.max(f64::MIN_POSITIVE));
        }
        let bytes = inputs.held_out_bytes.max(1) as f64;
        let bits = sum.loss / std::f64::consts::LN_2 / bytes;
        Metrics::new(sum, &[("bits_per_byte", bits)], -bits)
    }

    fn describe_best(score: f64, plan: &Plan) -> String {
        if plan.preference_beta.is_some() {
            return format!("best held-out loss of preferences {:.3}", -score);
        }
        format!("best held-out {:.3} bits per byte", -score)
    }
}

impl LanguageTask {
    /// Loads windows of `tokens` tokens.
    pub(crate) fn windows(source: &WindowSource, tokens: u32) -> WindowEvalLoader<Window> {
        WindowEvalLoader::new(source, tokens, Box::new(|window, _| window))
    }

    /// The network of a context.
    ///
    /// # Errors
    /// It is no language model.
    pub(crate) fn network<'a>(context: &ForwardContext<'a>) -> Result<&'a Gpt> {
        match context.network {
            Network::Gpt(network) => Ok(network),
            _ => Err(context.wrong_network(dataset::Task::LanguageModel)),
        }
    }
}

/// What learns the preferences of a context; `None` if its samples are none.
fn preferences<'c, 'a>(
    context: &'c ForwardContext<'a>,
) -> Result<Option<PreferenceLearning<'c, 'a>>> {
    let Some(beta) = context.preference_beta else {
        return Ok(None);
    };
    Ok(Some(PreferenceLearning {
        context,
        network: LanguageTask::network(context)?,
        beta,
    }))
}

/// The loss of each token, [windows, tokens]. Padding is at the end, where no counted token attends
/// to it.
fn loss(
    context: &ForwardContext,
    tape: &Tape,
    windows: &[Window],
    checkpointed: usize,
) -> Result<Loss> {
    let network = LanguageTask::network(context)?;
    let longest = windows.iter().map(|window| window.inputs.len()).max();
    let length = padded_length(longest.unwrap_or(1), context.input_size);
    let padded = |tokens: fn(&Window) -> &[u32], padding: u32| -> Vec<u32> {
        let row = |window| {
            let tokens = tokens(window).iter().copied();
            let row = tokens.chain(std::iter::repeat(padding));
            row.take(length).collect::<Vec<u32>>()
        };
        windows.iter().flat_map(row).collect()
    };
    let ids = padded(|window| &window.inputs, 0);
    let mut targets = padded(|window| &window.targets, IGNORED);
    for target in &mut targets {
        if *target == NOT_LEARNED {
            *target = IGNORED;
        }
    }
    let starts: Vec<usize> = windows
        .iter()
        .flat_map(|window| document_starts(window, length))
        .collect();
    let batch = TokenBatch {
        ids: &ids,
        targets: &targets,
        samples: windows.len(),
        starts: Some(&starts),
    };
    Ok(network.packed_loss(tape, batch, checkpointed)?)
}

/// For each of `tokens` tokens of a window, the place of the first token of its document. Padding
/// is a document of its own.
fn document_starts(window: &Window, tokens: usize) -> impl Iterator<Item = usize> {
    let padding = window.positions.len();
    let place = move |at: usize| match window.positions.get(at) {
        Some(&position) => at.saturating_sub(position as usize),
        None => padding,
    };
    (0..tokens).map(place)
}

/// The number of learned tokens.
fn target_count(windows: &[Window]) -> f64 {
    let targets = windows.iter().flat_map(|window| &window.targets);
    targets.filter(|target| **target != NOT_LEARNED).count() as f64
}
