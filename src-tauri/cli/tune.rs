//! `ebb tune`: random search (Bergstra and Bengio 2012) with successive halving (Jamieson and
//! Talwalkar 2016). Every trial is a run in the store, which later rounds train on.

use super::args::Tune;
use super::failure::Failure;
use super::interrupt::AtWork;
use super::output::{out, status};
use super::progress::Progress;
use super::train_once;
use super::weights_from_hub::with_downloaded_weights;
use dataset::{DetectedDataset, Task};
use runlog::{RunConfig, RunEvent, RunFolder, RunStore, counted};
use serde_json::json;
use std::time::{Duration, Instant};
use trainer::{Control, Request, RunLength, TrainError};

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

/// One trial of the search.
struct Trial {
    settings: Settings,
    /// Its run of the previous round, which this round trains on.
    run: Option<RunFolder>,
}

/// Result of a trial; a larger score is better.
struct Outcome {
    settings: Settings,
    score: f64,
    words: String,
    run: RunFolder,
}

/// Runs `ebb tune`.
pub fn run(args: &Tune) -> Result<(), Failure> {
    let deadline = args.minutes.map(Deadline::in_minutes);
    let whole = with_downloaded_weights(args.tried.config()?)?;
    whole.validate()?;
    let base = RunConfig {
        dev_samples: whole.dev_samples.or(Some(SAMPLES)),
        ..whole.clone()
    };
    let found = train_once::inspect(&base, &args.tried.folder)?;
    let plan = trainer::Plan::resolve(&base, &found)?;
    let store = RunStore::open(RunStore::default_root());
    let at_work = AtWork::handled()?;
    let search = Search {
        base: &base,
        found: &found,
        store: &store,
        at_work: &at_work,
        name: &plan.name,
        deadline,
        as_json: args.tried.json,
    };
    let models = models(&base, found.task());
    let seed = args.tried.settings.config.seed.unwrap_or(SEED);
    let trials = (0..args.trials).map(|number| Trial {
        settings: drawn(seed, number, &models, found.task(), augmentations(&found)),
        run: None,
    });
    let (best, all) = search.halve(trials.collect(), args.epochs)?;
    last_words(&best, all, args.tried.json)?;
    if args.train {
        let found = train_once::inspect(&whole, &args.tried.folder)?;
        search.train_best(&whole, &found, &best.settings)?;
    }
    Ok(())
}

/// When the search ends.
#[derive(Clone, Copy)]
struct Deadline {
    minutes: f64,
    at: Instant,
}

impl Deadline {
    fn in_minutes(minutes: f64) -> Self {
        Deadline {
            minutes,
            at: Instant::now() + Duration::from_secs_f64(60.0 * minutes),
        }
    }

    fn is_over(self) -> bool {
        Instant::now() >= self.at
    }
}

/// "Round 1: 8 trials of 1 epoch".
fn round_words(round: u32, trials: usize, epochs: u64) -> String {
    format!(
        "Round {round}: {} of {}",
        counted(trials as u64, "trial", "trials"),
        counted(epochs, "epoch", "epochs")
    )
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
    if as_json {
        out!(
            "{}",
            json!({"best": best.settings.number, "run": best.run.id(), "arguments": line})
        )
    } else {
        out!(
            "Best of {}: trial {}, {}. To train with these settings: ebb train FOLDER {line}",
            counted(all.into(), "training", "trainings"),
            best.settings.number,
            best.words
        )
    }
    Ok(())
}

/// The networks to try: several small ones, or the one that the user chose.
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

/// The augmentations to try: none for texts, and no mirroring if mirroring would change the class
/// of images.
fn augmentations(found: &DetectedDataset) -> &'static [&'static str] {
    match found {
        DetectedDataset::Texts(_) => &[],
        DetectedDataset::Images(images) if images.mirror_refusal.is_some() => {
            &["no-mirror", "none"]
        }
        DetectedDataset::Images(_) => &["standard", "randaugment", "none"],
    }
}

/// The settings of trial `number`. The settings of a trial depend only on the seed and the trial's
/// number.
fn drawn(
    seed: u64,
    number: u32,
    models: &[String],
    task: Task,
    augments: &[&'static str],
) -> Settings {
    let draws = Draws { seed, number };
    let between = |place, low: f64, high: f64| low * (high / low).powf(draws.unit(place));
    let pick = |place, of: usize| ((draws.unit(place) * of as f64) as usize).min(of - 1);
    Settings {
        number: number + 1,
        model: models[pick(0, models.len())].clone(),
        learning_rate: between(1, 2e-4, 5e-3),
        weight_decay: between(2, 0.005, 0.5),
        augment: (!augments.is_empty()).then(|| augments[pick(3, augments.len())]),
        label_smoothing: if task.is_on_documents() {
            0.0
        } else {
            0.2 * draws.unit(4)
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

/// What all trials of a search share.
struct Search<'a> {
    base: &'a RunConfig,
    found: &'a DetectedDataset,
    store: &'a RunStore,
    at_work: &'a AtWork,
    /// The names of all runs begin with it.
    name: &'a str,
    /// When the search ends; `None` without a limit.
    deadline: Option<Deadline>,
    as_json: bool,
}

impl Search<'_> {
    /// Trains the trials in rounds, and returns the best one and the number of trainings. After
    /// each round a third of the trials train on, to three times as many epochs.
    fn halve(&self, mut alive: Vec<Trial>, mut epochs: u64) -> Result<(Outcome, u32), Failure> {
        let (mut round, mut all) = (1, 0);
        let mut best: Option<Outcome> = None;
        loop {
            if !self.as_json {
                status!("{}", round_words(round, alive.len(), epochs));
            }
            let (mut outcomes, trials) = (Vec::new(), alive.len());
            for trial in alive {
                let Some(outcome) = self.trial(epochs, trial)? else {
                    break;
                };
                all += 1;
                print(&outcome, self.as_json, round, epochs);
                outcomes.push(outcome);
            }
            if outcomes.len() < trials {
                // The best one of the previous round may not have trained on yet.
                outcomes.extend(best);
                let best = outcomes
                    .into_iter()
                    .max_by(|a, b| a.score.total_cmp(&b.score));
                let best = best.ok_or_else(|| self.too_little_time())?;
                return Ok((best, all));
            }
            outcomes.sort_by(|a, b| b.score.total_cmp(&a.score));
            if trials == 1 || outcomes[0].score == f64::NEG_INFINITY {
                return Ok((outcomes.swap_remove(0), all));
            }
            outcomes.truncate(trials.div_ceil(KEPT).min(trials - 1));
            alive = outcomes.iter().map(Outcome::next_trial).collect();
            best = Some(outcomes.swap_remove(0));
            (epochs, round) = (epochs * KEPT as u64, round + 1);
        }
    }

    fn too_little_time(&self) -> Failure {
        let minutes = self.deadline.map_or(0.0, |deadline| deadline.minutes);
        Failure::new(format!(
            "no trial finished within {minutes} minutes; give more --minutes or fewer --epochs"
        ))
    }

    /// Trains one trial until it has this many epochs; `None` if the time is over before.
    fn trial(&self, epochs: u64, trial: Trial) -> Result<Option<Outcome>, Failure> {
        let deadline = self.deadline;
        if deadline.is_some_and(Deadline::is_over) {
            return Ok(None);
        }
        let mut is_late = false;
        let stop_in_time = |_: &RunEvent, control: &Control| {
            if !is_late && deadline.is_some_and(Deadline::is_over) {
                is_late = true;
                control.send(Request::Stop);
            }
        };
        let (run, events, failed) = match trial.run {
            Some(run) => {
                let length = RunLength::Epochs(epochs);
                let tried = train_once::resume(&run, length, self.at_work, stop_in_time);
                (run, tried.events, tried.failed)
            }
            None => {
                let config = RunConfig {
                    epochs: Some(epochs),
                    steps: None,
                    ..trial.settings.over(self.base)
                };
                let config = train_once::without_baseline(config);
                let name = format!("{} trial {}", self.name, trial.settings.number);
                let place = self.place(&name);
                let tried =
                    train_once::train(&config, self.found, place, self.at_work, stop_in_time)?;
                (tried.run, tried.events, tried.failed)
            }
        };
        if events.iter().any(is_stop_request) {
            return if is_late {
                Ok(None)
            } else {
                Err(Failure::stopped(
                    "stopped by request; `ebb runs` lists the finished trials",
                ))
            };
        }
        let (score, words) = score(&events, failed.as_ref());
        Ok(Some(Outcome {
            settings: trial.settings,
            score,
            words,
            run,
        }))
    }

    fn place<'p>(&'p self, name: &'p str) -> train_once::Place<'p> {
        train_once::Place {
            store: self.store,
            name: Some(name),
        }
    }

    /// Trains the best settings on all samples of `found` to the end, with the baseline that `ebb
    /// train` would train.
    fn train_best(
        &self,
        whole: &RunConfig,
        found: &DetectedDataset,
        best: &Settings,
    ) -> Result<(), Failure> {
        if !self.as_json {
            status!("Training with these settings on all samples");
        }
        let name = format!("{} tuned", self.name);
        let mut progress = Progress::new(self.as_json);
        let tried = train_once::train(
            &best.over(whole),
            found,
            self.place(&name),
            self.at_work,
            |event, _| progress.receive(event),
        )?;
        if let Some(error) = tried.failed {
            return Err(error.into());
        }
        if !self.as_json {
            status!("Run: {}", tried.run.path.display());
        }
        Ok(())
    }
}

impl Outcome {
    /// The trial of the next round, which trains the same run on.
    fn next_trial(&self) -> Trial {
        Trial {
            settings: self.settings.clone(),
            run: Some(self.run.clone()),
        }
    }
}

impl Settings {
    /// These settings; `base` supplies the others.
    fn over(&self, base: &RunConfig) -> RunConfig {
        RunConfig {
            model: Some(self.model.clone()),
            learning_rate: Some(self.learning_rate),
            weight_decay: Some(self.weight_decay),
            label_smoothing: Some(self.label_smoothing),
            augment: self.augment.and_then(|augment| augment.parse().ok()),
            ..base.clone()
        }
    }
}

/// True if the training ended because the user stopped it.
fn is_stop_request(event: &RunEvent) -> bool {
    let requested = runlog::StopReason::Requested;
    matches!(event, RunEvent::Stopped { reason, .. } if *reason == requested)
}

/// The score of a trial, as a number and in words. A trial that failed has the lowest score.
fn score(events: &[RunEvent], failed: Option<&TrainError>) -> (f64, String) {
    let newest = events.iter().rev().find_map(|event| match event {
        RunEvent::Evaluation { loss, metrics, .. } => Some((*loss, metrics)),
        _ => None,
    });
    let (score, words) = match (newest, failed) {
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
                "trial": number, "round": round, "epochs": epochs, "run": outcome.run.id(), "score": score, "came_to": outcome.words,
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

    const AUGMENTS: [&str; 3] = ["standard", "randaugment", "none"];

    #[test]
    fn a_round_counts_one_trial_and_many_epochs() {
        assert_eq!(round_words(1, 1, 3), "Round 1: 1 trial of 3 epochs");
        assert_eq!(round_words(2, 1200, 1), "Round 2: 1,200 trials of 1 epoch");
    }

    #[test]
    fn settings_cover_their_range_and_are_reproducible() {
        let models = ["convnet".to_owned(), "vit_micro".to_owned()];
        let task = Task::ImageClassification;
        let all: Vec<Settings> = (0..200)
            .map(|n| drawn(7, n, &models, task, &AUGMENTS))
            .collect();
        assert_eq!(all[3], drawn(7, 3, &models, task, &AUGMENTS));
        assert_ne!(
            all[3].learning_rate,
            drawn(8, 3, &models, task, &AUGMENTS).learning_rate
        );
        let rates = || all.iter().map(|s| s.learning_rate);
        assert!(rates().all(|rate| (2e-4..=5e-3).contains(&rate)));
        let low = rates().filter(|rate| *rate < 1e-3).count();
        assert!(
            (70..130).contains(&low),
            "about 100 of 200 learning rates must be below 1e-3, but {low} are"
        );
        for augment in AUGMENTS {
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
