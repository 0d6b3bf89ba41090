//! The results of runs behind the window: opens their files, evaluates in the background if there
//! are none, and gives samples by id. It holds one run at a time, that of the open page.

use crate::lock::lock;
use crate::paths::device_check_path;
use crate::results_view::{self, ComparisonView, MISTAKES, ResultSample, ResultsView, Sources};
use crate::window_types::{CommandError, RunRow};
use runlog::{Run, RunFolder};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use trainer::{DevicePreference, Progress, Results, TrainedModel};

/// Stack of a thread that computes with a network, in bytes: deep networks recurse.
const STACK_BYTES: usize = 64 << 20;
/// Side of a thumbnail in pixels: twice its size on the page.
const THUMBNAIL: u32 = 224;
/// Characters of a text that are shown.
const EXCERPT: usize = 280;

/// Results of runs, and the evaluation that runs now.
#[derive(Default)]
pub struct OpenResults {
    opened: Mutex<Option<Arc<Opened>>>,
    evaluation: Mutex<Option<Arc<Evaluation>>>,
    model: Mutex<Option<(String, Arc<TrainedModel>)>>,
}

/// The results of one run.
struct Opened {
    run: String,
    results: Results,
    /// The dataset folder, or why the run's manifest cannot be read.
    dataset: Result<PathBuf, String>,
}

/// An evaluation in the background.
struct Evaluation {
    run: String,
    /// `None` until the model is loaded.
    progress: Mutex<Option<Arc<Progress>>>,
    /// `None` while it runs.
    outcome: Mutex<Option<Result<(), CommandError>>>,
}

impl OpenResults {
    /// What is known of the results of a run.
    pub fn view(
        &self,
        row: RunRow,
        folder: &RunFolder,
        run: &Run,
    ) -> Result<ResultsView, CommandError> {
        let id = row.id.clone();
        let results = Results::load(folder)?;
        let config = folder.config().unwrap_or_default();
        let mut view = results_view::view(&Sources {
            row,
            run,
            config: &config,
            results: results.as_ref(),
        });
        if let (Some(results), Some(report)) = (&results, &mut view.report) {
            self.add_texts(folder, results, &mut report.mistakes);
        }
        let evaluation = lock(&self.evaluation).clone();
        if let Some(evaluation) = evaluation.filter(|evaluation| evaluation.run == id) {
            match &*lock(&evaluation.outcome) {
                None => {
                    let progress = lock(&evaluation.progress);
                    let done = progress.as_ref().map(|progress| progress.done_of_total());
                    view.evaluating = Some(done.unwrap_or_default());
                }
                Some(Err(error)) => view.problem = Some(error.clone()),
                Some(Ok(())) => {}
            }
        }
        *lock(&self.opened) = results.map(|results| {
            let dataset = trainer::dataset_folder(folder).map_err(|error| error.to_string());
            Arc::new(Opened {
                run: id,
                results,
                dataset,
            })
        });
        Ok(view)
    }

    /// Evaluates a run on a thread. Nothing happens if it is being evaluated already.
    ///
    /// # Errors
    /// Another run is being evaluated, or the thread cannot be started.
    pub fn evaluate(self: &Arc<Self>, id: &str, folder: RunFolder) -> Result<(), CommandError> {
        let evaluation = {
            let mut last = lock(&self.evaluation);
            if let Some(running) = last.as_ref().filter(|e| lock(&e.outcome).is_none()) {
                return match running.run == id {
                    true => Ok(()),
                    false => Err(CommandError::new(
                        "busy",
                        "Another run is being evaluated. Wait until that evaluation is done, then try again.",
                    )),
                };
            }
            let evaluation = Arc::new(Evaluation {
                run: id.to_owned(),
                progress: Mutex::default(),
                outcome: Mutex::default(),
            });
            *last = Some(Arc::clone(&evaluation));
            evaluation
        };
        let results = Arc::clone(self);
        let work = move || {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                results.evaluate_now(&evaluation, &folder)
            }));
            let panicked = || {
                let why = "The evaluation stopped unexpectedly. Try again.";
                Err(CommandError::new("failed", why))
            };
            *lock(&evaluation.outcome) = Some(outcome.unwrap_or_else(|_| panicked()));
        };
        let thread = thread::Builder::new().name("evaluation".into());
        let spawned = thread.stack_size(STACK_BYTES).spawn(work);
        spawned.map(drop).map_err(|error| {
            *lock(&self.evaluation) = None;
            no_thread(&error)
        })
    }

    fn evaluate_now(
        &self,
        evaluation: &Evaluation,
        folder: &RunFolder,
    ) -> Result<(), CommandError> {
        let model = self.model(&evaluation.run, folder)?;
        *lock(&evaluation.progress) = Some(Arc::clone(&model.progress));
        let evaluated = model.evaluate_own(folder)?;
        evaluated.results.report.save(folder)?;
        Ok(evaluated.results.save(folder)?)
    }

    /// The model of a run's best checkpoint, which stays loaded while its page is open.
    pub fn model(&self, id: &str, folder: &RunFolder) -> Result<Arc<TrainedModel>, CommandError> {
        let mut loaded = lock(&self.model);
        if let Some((_, model)) = loaded.as_ref().filter(|(run, _)| run == id) {
            return Ok(Arc::clone(model));
        }
        *loaded = None;
        let path = device_check_path();
        let model = TrainedModel::load(folder, DevicePreference::Auto, Some(&path))?;
        let model = Arc::new(model);
        *loaded = Some((id.to_owned(), Arc::clone(&model)));
        Ok(model)
    }

    /// Frees the model of a run and ends its evaluation, because its page was left. The page of
    /// another run may be open already.
    pub fn close(&self, id: &str) {
        lock(&self.model).take_if(|(run, _)| run == id);
        lock(&self.opened).take_if(|opened| opened.run == id);
        let evaluation = lock(&self.evaluation).take_if(|evaluation| evaluation.run == id);
        if let Some(evaluation) = evaluation
            && let Some(progress) = lock(&evaluation.progress).as_ref()
        {
            progress.cancel();
        }
    }

    /// The results of the open page beside those of another run.
    ///
    /// # Errors
    /// The page of this run is not open, or the other run was not evaluated.
    pub fn compare(&self, id: &str, other: &RunFolder) -> Result<ComparisonView, CommandError> {
        let opened = self.opened(id)?;
        let other = Results::load(other)?.ok_or_else(|| {
            let why = "This version of Ebb has not evaluated the other run. Open the results of that run once, then compare.";
            CommandError::new("failed", why)
        })?;
        if other.task != opened.results.task {
            let why = "The other run has a different task. Choose a run with the same task.";
            return Err(CommandError::new("failed", why));
        }
        Ok(results_view::compare(&opened.results, &other))
    }

    fn opened(&self, id: &str) -> Result<Arc<Opened>, CommandError> {
        let opened = lock(&self.opened).clone();
        let opened = opened.filter(|opened| opened.run == id);
        opened.ok_or_else(|| CommandError::unknown("run"))
    }

    /// The samples of a class that were classified as another one, or as itself; the worst first.
    ///
    /// # Errors
    /// The page of this run is not open.
    pub fn samples_of(
        &self,
        id: &str,
        folder: &RunFolder,
        class: u32,
        predicted: u32,
    ) -> Result<Vec<ResultSample>, CommandError> {
        let opened = self.opened(id)?;
        let places = opened.results.samples.iter().enumerate();
        let of_cell = places.filter_map(|(place, sample)| {
            let found = sample.class?;
            (found.class == class && found.predicted == predicted)
                .then_some((place, found.probability))
        });
        let mut of_cell: Vec<(usize, f64)> = of_cell.collect();
        of_cell.sort_by(|a, b| b.1.total_cmp(&a.1));
        let places: Vec<usize> = of_cell
            .iter()
            .map(|(place, _)| *place)
            .take(MISTAKES)
            .collect();
        let mut samples = results_view::samples(&opened.results, &places);
        self.add_texts(folder, &opened.results, &mut samples);
        Ok(samples)
    }

    /// Adds the beginnings of their texts to samples of a text run. They stay without if the
    /// dataset has moved or changed.
    fn add_texts(&self, folder: &RunFolder, results: &Results, samples: &mut [ResultSample]) {
        if results.task != dataset::Task::TextClassification.name() || samples.is_empty() {
            return;
        }
        let indices: Vec<u32> = samples
            .iter()
            .filter_map(|sample| Some(results.samples.get(sample.id as usize)?.index))
            .collect();
        let Ok(texts) = trainer::sample_texts(folder, &results.report.part, &indices) else {
            return;
        };
        for (sample, text) in samples.iter_mut().zip(texts) {
            sample.text = Some(excerpt(&text));
        }
    }

    /// The thumbnail of a sample as a JPEG.
    ///
    /// # Errors
    /// `data_missing` if the dataset folder is not where it was; `unreadable` if only this file
    /// cannot be decoded.
    pub fn thumbnail(&self, id: &str, sample: u32) -> Result<Vec<u8>, CommandError> {
        let opened = self.opened(id)?;
        let found = opened.results.samples.get(sample as usize);
        let found = found.ok_or_else(|| CommandError::unknown("sample"))?;
        let dataset = opened.dataset.as_ref();
        let dataset = dataset.map_err(|why| CommandError::new("data_missing", why.clone()))?;
        if !dataset.is_dir() {
            let name = dataset.file_name().unwrap_or(dataset.as_os_str());
            let why = format!(
                "The folder {} was moved or deleted. Put the folder back, or choose Locate folder to see the images.",
                name.to_string_lossy()
            );
            return Err(CommandError::new("data_missing", why));
        }
        let picture = dataset::thumbnail(&dataset.join(&found.file), THUMBNAIL);
        picture.map_err(|why| CommandError::new("unreadable", format!("{}: {why}", found.file)))
    }
}

/// The beginning of a text in one line.
fn excerpt(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(EXCERPT) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}

fn no_thread(error: &std::io::Error) -> CommandError {
    let why = format!("A thread could not be started: {error}. Close other apps, then try again.");
    CommandError::new("failed", why)
}

/// Runs `work` on a thread whose stack suffices for deep networks, and waits for it.
///
/// # Errors
/// Those of `work`; the thread cannot be started, or panicked.
pub fn on_large_stack<T: Send>(
    work: impl FnOnce() -> Result<T, CommandError> + Send,
) -> Result<T, CommandError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("inference".into());
        let thread = thread.stack_size(STACK_BYTES).spawn_scoped(scope, work);
        let thread = thread.map_err(|error| no_thread(&error))?;
        let panicked = |_| {
            let why = "The model stopped unexpectedly. Try again.";
            CommandError::new("failed", why)
        };
        thread.join().map_err(panicked)?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_one_line_and_ends_between_characters() {
        assert_eq!(excerpt("a  b\nc"), "a b c");
        let long = "ü".repeat(EXCERPT + 1);
        let shown = excerpt(&long);
        assert_eq!(shown.chars().count(), EXCERPT + 1);
        assert!(shown.ends_with("ü…"), "{shown}");
    }

    #[test]
    fn samples_of_a_page_that_is_not_open_are_refused() {
        let results = OpenResults::default();
        let refused = results.thumbnail("r1", 0).map_err(|error| error.code);
        assert_eq!(refused, Err("unknown_id".to_owned()));
    }
}
