//! `ebb tune`: random search (Bergstra and Bengio 2012) with successive halving (Jamieson and
//! Talwalkar 2016). Every trial is a run in the store.

use super::args::Tune;
use super::download::with_downloaded_weights;
use super::failure::Failure;
use super::interrupt::AtWork;
use super::output::{out, status};
use super::trial::{self, Attempt};
use dataset::{DetectedDataset, Task};
use runlog::{RunConfig, RunEvent, RunStore, format_count};
use serde_json::json;

/// The next round has a third of the trials, and each trial has three times as many epochs.
const KEPT: usize = 3;
/// Default number of samples that trials train on: enough to tell good settings from bad ones.
const SAMPLES: u64 = 1000;
const SEED: u64 = 7;

/// Settings of one trial.
#[derive(Debug, Clone, PartialEq)]
struct Settings {
    number: u32,
    model: String,
    learning_rate: f64,
    weight_decay: f64,
    augment: Option<&'static str>,
    label_smoothing: f64,
}

/// Result of a trial; a larger score is better.
struct Outcome {
    settings: Settings,
    score: f64,
    words: String,
    run: String,
}

/// Runs `ebb tune`.
pub fn run(args: &Tune) -> Result<(), Failure> {
    let base = with_downloaded_weights(args.tried.config()?)?;
    base.validate()?;
    let base = RunConfig {
        dev_samples: base.dev_samples.or(Some(SAMPLES)),
        ..base
    };
    let found = trial::inspect(&base, &args.tried.folder)?;
    let plan = trainer::Plan::check(&base, &found)?;
    let store = RunStore::open(RunStore::default_root());
    let at_work = AtWork::handled()?;
    let models = models(&base, found.task());
    let seed = args.tried.settings.config.seed.unwrap_or(SEED);
    let mut alive: Vec<Settings> = (0..args.trials)
        .map(|number| drawn(seed, number, &models, found.task()))
        .collect();
    let (mut epochs, mut round, mut all) = (args.epochs, 1, 0);
    loop {
        if !args.tried.json {
            status!("Round {round}: {} trials of {epochs} epochs", alive.len());
        }
        let mut outcomes = Vec::new();
        for settings in alive {
            let outcome = trial(
                &base,
                &found,
                (&store, &at_work),
                (&plan.name, round, epochs),
                settings,
            )?;
            all += 1;
            print(&outcome, args.tried.json, round, epochs);
            outcomes.push(outcome);
        }
        outcomes.sort_by(|a, b| b.score.total_cmp(&a.score));
        let best = &outcomes[0];
        if outcomes.len() == 1 || best.score == f64::NEG_INFINITY {
            return last_words(best, all, args.tried.json);
        }
        let keep = outcomes.len().div_ceil(KEPT).min(outcomes.len() - 1);
        alive = outcomes
            .into_iter()
            .take(keep)
            .map(|outcome| outcome.settings)
            .collect();
        (epochs, round) = (epochs * KEPT as u64, round + 1);
    }
}

fn last_words(best: &Outcome, all: u32, as_json: bool) -> Result<(), Failure> {
    if best.score == f64::NEG_INFINITY {
        return Err(Failure::new(format!("no trial finished: {}", best.words)));
    }
    let Settings {
        model,
        learning_rate,
        weight_decay,
        augment,
        label_smoothing,
        ..
    } = &best.settings;
    let augment = augment.map_or(String::new(), |augment| format!(" --augment {augment}"));
    let line = format!(
        "--model {model} --learning-rate {learning_rate:.2e} --weight-decay {weight_decay:.3} --label-smoothing {label_smoothing:.2}{augment}"
    );
    match as_json {
        true => out!(
            "{}",
            json!({"best": best.settings.number, "run": best.run, "arguments": line})
        ),
        false => out!(
            "Best of {} runs: trial {}, {}. To train with these settings: ebb train FOLDER {line}",
            format_count(all.into()),
            best.settings.number,
            best.words
        ),
    }
    Ok(())
}

/// Networks of several depths, or the one that the user chose.
fn models(base: &RunConfig, task: Task) -> Vec<String> {
    if let Some(model) = &base.model {
        return vec![model.clone()];
    }
    let names: Vec<&str> = match task {
        Task::ImageClassification => trainer::ModelId::SMALL
            .iter()
            .map(|model| model.name())
            .collect(),
        Task::TextClassification | Task::LanguageModel | Task::TokenCompression => {
            trainer::TextSize::for_task(trainer::model_task(task))
                .map(|size| size.name())
                .collect()
        }
    };
    names.into_iter().map(str::to_owned).collect()
}

/// The settings of trial `number`. The settings depend only on the seed and the number.
fn drawn(seed: u64, number: u32, models: &[String], task: Task) -> Settings {
    let draws = Draws { seed, number };
    let between = |place, low: f64, high: f64| low * (high / low).powf(draws.unit(place));
    let pick = |place, of: usize| ((draws.unit(place) * of as f64) as usize).min(of - 1);
    let augments = ["standard", "randaugment", "none"];
    Settings {
        number: number + 1,
        model: models[pick(0, models.len())].clone(),
        learning_rate: between(1, 2e-4, 5e-3),
        weight_decay: between(2, 0.005, 0.5),
        augment: (task == Task::ImageClassification).then(|| augments[pick(3, augments.len())]),
        label_smoothing: match task {
            Task::LanguageModel | Task::TokenCompression => 0.0,
            _ => 0.2 * draws.unit(4),
        },
    }
}

/// Uniform random numbers from 0 to 1, each computed from the seed and two indices (SplitMix64).
struct Draws {
    seed: u64,
    number: u32,
}

impl Draws {
    fn unit(&self, place: u64) -> f64 {
        let key =
            self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (u64::from(self.number) << 8 | place);
        let mut z = key.wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Trains one trial for this many epochs.
fn trial(
    base: &RunConfig,
    found: &DetectedDataset,
    (store, at_work): (&RunStore, &AtWork),
    (name, round, epochs): (&str, u32, u64),
    settings: Settings,
) -> Result<Outcome, Failure> {
    let config = RunConfig {
        model: Some(settings.model.clone()),
        learning_rate: Some(settings.learning_rate),
        weight_decay: Some(settings.weight_decay),
        label_smoothing: Some(settings.label_smoothing),
        augment: settings.augment.and_then(|augment| augment.parse().ok()),
        epochs: Some(epochs),
        steps: None,
        ..base.clone()
    };
    let name = format!("{name} trial {} round {round}", settings.number);
    let place = trial::Place {
        store,
        name: Some(&name),
    };
    let tried = trial::train(&config, found, place, at_work, |_, _| {})?;
    if tried.events.iter().any(is_stop_request) {
        return Err(Failure::stopped(
            "stopped by request; `ebb runs` lists the finished trials",
        ));
    }
    let (score, words) = score(&tried);
    Ok(Outcome {
        settings,
        score,
        words,
        run: tried.run.id(),
    })
}

/// True if the training ended because the user stopped it.
fn is_stop_request(event: &RunEvent) -> bool {
    let requested = runlog::StopReason::Requested;
    matches!(event, RunEvent::Stopped { reason, .. } if *reason == requested)
}

/// The score of a trial, as a number and in words. A trial that failed has the lowest score.
fn score(tried: &Attempt) -> (f64, String) {
    let newest = tried.events.iter().rev().find_map(|event| match event {
        RunEvent::Evaluation { loss, metrics, .. } => Some((*loss, metrics)),
        _ => None,
    });
    let (score, words) = match (newest, &tried.failed) {
        (_, Some(error)) => (f64::NEG_INFINITY, error.to_string()),
        (None, None) => (
            f64::NEG_INFINITY,
            "there are no held-out samples".to_owned(),
        ),
        (Some((loss, metrics)), None) => match metrics.get("accuracy") {
            Some(accuracy) => (*accuracy, format!("accuracy {:.1} %", 100.0 * accuracy)),
            None => (-loss, format!("held-out loss {loss:.4}")),
        },
    };
    let comparable = if score.is_nan() {
        f64::NEG_INFINITY
    } else {
        score
    };
    (comparable, words)
}

fn print(outcome: &Outcome, as_json: bool, round: u32, epochs: u64) {
    let Settings {
        number,
        model,
        learning_rate,
        weight_decay,
        augment,
        label_smoothing,
    } = &outcome.settings;
    if as_json {
        let score = Some(outcome.score).filter(|score| score.is_finite());
        return out!(
            "{}",
            json!({
                "trial": number, "round": round, "epochs": epochs, "run": outcome.run, "score": score, "came_to": outcome.words,
                "model": model, "learning_rate": learning_rate, "weight_decay": weight_decay, "augment": augment,
                "label_smoothing": label_smoothing,
            })
        );
    }
    out!(
        "{number:>4}  {model:10}  rate {learning_rate:.2e}  decay {weight_decay:.3}  smoothing {label_smoothing:.2}  {:11}  {}",
        augment.unwrap_or("-"),
        outcome.words
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_cover_their_range_and_are_reproducible() {
        let models = ["convnet".to_owned(), "vit_micro".to_owned()];
        let task = Task::ImageClassification;
        let all: Vec<Settings> = (0..200).map(|n| drawn(7, n, &models, task)).collect();
        assert_eq!(all[3], drawn(7, 3, &models, task));
        assert_ne!(
            all[3].learning_rate,
            drawn(8, 3, &models, task).learning_rate
        );
        let rates = || all.iter().map(|s| s.learning_rate);
        assert!(rates().all(|rate| (2e-4..=5e-3).contains(&rate)));
        let low = rates().filter(|rate| *rate < 1e-3).count();
        assert!(
            (70..130).contains(&low),
            "about 100 of 200 learning rates must be below 1e-3, but {low} are"
        );
        for augment in ["standard", "randaugment", "none"] {
            assert!(
                all.iter().filter(|s| s.augment == Some(augment)).count() > 30,
                "{augment}"
            );
        }
        assert!(
            all.iter().any(|s| s.model == "vit_micro") && all.iter().any(|s| s.model == "convnet")
        );
    }
}
