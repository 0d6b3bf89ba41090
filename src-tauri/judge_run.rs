//! The judgement of a run, for the window and the terminal.

use dataset::Task;
use runlog::{Run, RunConfig, RunFolder};
use trainer::{Plan, Results, TrainingFacts};

/// How good the model of a run is, and what would help; `None` if no rule applies or the run cannot
/// be read. The terminal compares the model with its baseline elsewhere.
pub fn judge(folder: &RunFolder, results: &Results) -> Option<String> {
    let (run, config) = (folder.replay().ok()?, folder.config().ok()?);
    let facts = facts_of_training(&run, &config, byte_entropy(folder, results));
    let judgement = results.judge(&TrainingFacts {
        baseline_accuracy: None,
        ..facts
    });
    Some(judgement?.text)
}

/// What the judgement has to know of the training.
pub fn facts_of_training(
    run: &Run,
    config: &RunConfig,
    byte_entropy: Option<f64>,
) -> TrainingFacts {
    let evaluations = run.evaluations().iter();
    let started = run.started();
    TrainingFacts {
        learning_rate: started.map_or(0.0, |started| started.learning_rate),
        usual_learning_rate: Plan::usual_learning_rate(config),
        held_out_losses: evaluations.map(|evaluation| evaluation.loss).collect(),
        training_loss: run.figures().smoothed_loss,
        sample_noun: noun(started.map_or("", |started| &*started.task)).to_owned(),
        from_scratch: config.from.is_none(),
        baseline_accuracy: run.baseline().and_then(|baseline| baseline.accuracy),
        held_out_accuracy: run.figures().best_accuracy,
        baseline_share: run.baseline_share(),
        held_out_copies: started.map_or(0, |started| started.held_out_copies),
        byte_entropy,
    }
}

/// The entropy of the bytes that a language model or a compression was evaluated on; `None` for
/// other tasks, and if the texts have moved or changed.
pub fn byte_entropy(folder: &RunFolder, results: &Results) -> Option<f64> {
    let task = Task::from_name(&results.task)?;
    if !task.is_on_documents() {
        return None;
    }
    results.byte_entropy(folder).ok()?
}

/// What one sample of a task is called: "image", "text", "window".
pub fn noun(task: &str) -> &'static str {
    Task::from_name(task).map_or("image", Task::sample_noun)
}
