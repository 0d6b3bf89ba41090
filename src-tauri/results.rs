//! The results of runs behind the window: opens their files, evaluates in the background if there
//! are none, and gives samples by id. It holds one run at a time, that of the open page.

use crate::comparison_view::{self, ComparedResults};
use crate::inference_thread::InferenceThread;
use crate::judge_run::byte_entropy;
use crate::lock_mutex::lock;
use crate::results_view::{self, MISTAKES, ResultSample, ResultsView, Sources};
use crate::window_types::{CommandError, RunRow};
use dataset::Task;
use runlog::{Run, RunFolder};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use trainer::{Progress, Results, RunDataset, STACK_BYTES, TrainedModel};

/// Side of a thumbnail in pixels: twice its size on the page.
const THUMBNAIL: u32 = 224;
/// Characters of a text that are shown.
const EXCERPT: usize = 280;

/// Results of runs, and the evaluation that runs now.
#[derive(Default)]
pub struct OpenResults {
    opened: Mutex<Option<Arc<Opened>>>,
    evaluation: Mutex<Option<Arc<Evaluation>>>,
    entropy: Mutex<Option<ByteEntropy>>,
    inference: InferenceThread<TrainedModel>,
}

/// The entropy of the bytes that a run was evaluated on, which takes as long as reading them.
struct ByteEntropy {
    run: String,
    /// The part of the data that was evaluated.
    part: String,
    bits_per_byte: Option<f64>,
}

/// What a results page shows that is read from the disk.
pub struct LoadedResults {
    results: Option<Results>,
    byte_entropy: Option<f64>,
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
    /// `None` until the model is loaded and has answered earlier requests.
    progress: Mutex<Option<Arc<Progress>>>,
    /// `None` while it runs.
    outcome: Mutex<Option<Result<(), CommandError>>>,
}

impl OpenResults {
    /// Reads the results of a run from its folder. No lock of a training run may be held meanwhile.
    ///
    /// # Errors
    /// The results cannot be read.
    pub fn load(&self, id: &str, folder: &RunFolder) -> Result<LoadedResults, CommandError> {
        let results = Results::load(folder)?;
        let byte_entropy = results
            .as_ref()
            .and_then(|results| self.byte_entropy(id, folder, results));
        Ok(LoadedResults {
            results,
            byte_entropy,
        })
    }

    /// The entropy of the evaluated bytes, which is remembered for the last run.
    fn byte_entropy(&self, id: &str, folder: &RunFolder, results: &Results) -> Option<f64> {
        let part = &results.report.part;
        let mut known = lock(&self.entropy);
        if let Some(known) = known.as_ref().filter(|k| k.run == id && k.part == *part) {
            return known.bits_per_byte;
        }
        let bits_per_byte = byte_entropy(folder, results);
        *known = Some(ByteEntropy {
            run: id.to_owned(),
            part: part.clone(),
            bits_per_byte,
        });
        bits_per_byte
    }

    /// What is known of the results of a run.
    pub fn view(
        &self,
        row: RunRow,
        folder: &RunFolder,
        run: &Run,
        loaded: LoadedResults,
    ) -> Result<ResultsView, CommandError> {
        let id = row.id.clone();
        let LoadedResults {
            results,
            byte_entropy,
        } = loaded;
        let config = folder.config().unwrap_or_default();
        let mut view = results_view::view(&Sources {
            row,
            run,
            config: &config,
            results: results.as_ref(),
            byte_entropy,
        });
        if let (Some(results), Some(report)) = (&results, &mut view.report) {
            self.add_texts(folder, results, &mut report.mistakes);
            self.add_texts(folder, results, &mut report.suspicious);
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
            let dataset = RunDataset::read(folder);
            let dataset = dataset.map(|dataset| dataset.folder().to_owned());
            let dataset = dataset.map_err(|error| error.to_string());
            Arc::new(Opened {
                run: id,
                results,
                dataset,
            })
        });
        Ok(view)
    }

    /// Evaluates a run in the background. Nothing happens if it is being evaluated already.
    ///
    /// # Errors
    /// Another run is being evaluated, or the thread cannot be started.
    pub fn evaluate(&self, id: &str, folder: RunFolder) -> Result<(), CommandError> {
        let evaluation = {
            let mut last = lock(&self.evaluation);
            if let Some(running) = last.as_ref().filter(|e| lock(&e.outcome).is_none()) {
                return if running.run == id {
                    Ok(())
                } else {
                    Err(CommandError::new(
                        "busy",
                        "Another run is being evaluated. Wait until that evaluation is done, then try again.",
                    ))
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
        let run = folder.clone();
        let begun = Arc::clone(&evaluation);
        let work = move |model: &TrainedModel| -> Result<(), CommandError> {
            *lock(&begun.progress) = Some(Arc::clone(&model.progress));
            let evaluated = model.evaluate_own(&run)?;
            evaluated.results.report.save(&run)?;
            Ok(evaluated.results.save(&run)?)
        };
        let respond = move |outcome| *lock(&evaluation.outcome) = Some(outcome);
        let queued = self.inference.begin(id, folder, work, respond);
        queued.inspect_err(|_| *lock(&self.evaluation) = None)
    }

    /// Computes `work` with the model of a run's best checkpoint, which stays loaded while the page
    /// of the run is open, and waits for it.
    ///
    /// # Errors
    /// Those of `work`; the model cannot be loaded; the page was left meanwhile.
    pub fn ask<T: Send + 'static>(
        &self,
        id: &str,
        folder: RunFolder,
        work: impl FnOnce(&TrainedModel) -> Result<T, CommandError> + Send + 'static,
    ) -> Result<T, CommandError> {
        self.inference.ask(id, folder, work)
    }

    /// Frees the model of a run, because another one needs the memory. A later request loads it
    /// again.
    ///
    /// # Errors
    /// The run is being evaluated.
    pub fn free_model(&self, id: &str) -> Result<(), CommandError> {
        let evaluation = lock(&self.evaluation).clone();
        let evaluation = evaluation.filter(|evaluation| evaluation.run == id);
        if evaluation.is_some_and(|evaluation| lock(&evaluation.outcome).is_none()) {
            return Err(CommandError::new(
                "busy",
                "This run is being evaluated. Wait until the evaluation is done, then try again.",
            ));
        }
        self.inference.leave(id);
        Ok(())
    }

    /// Frees the model of a run and ends its evaluation and its other requests, because its page
    /// was left. The page of another run may be open already.
    pub fn close(&self, id: &str) {
        self.inference.leave(id);
        lock(&self.opened).take_if(|opened| opened.run == id);
        lock(&self.evaluation).take_if(|evaluation| evaluation.run == id);
    }

    /// The results of the open page beside those of another run. `fallback` is the headline of the
    /// other run if it was not evaluated.
    ///
    /// # Errors
    /// The page of this run is not open, or the other run has a different task.
    pub fn compare(
        &self,
        id: &str,
        other: &RunFolder,
        fallback: &str,
    ) -> Result<ComparedResults, CommandError> {
        let opened = self.opened(id)?;
        let other = Results::load(other)?;
        if let Some(other) = &other
            && other.task != opened.results.task
        {
            return Err(other_task());
        }
        Ok(comparison_view::compare(
            &opened.results,
            other.as_ref(),
            fallback,
        ))
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

    /// Adds to each sample of a text run the beginning of its text. If the dataset has moved or
    /// changed, the samples get no texts.
    fn add_texts(&self, folder: &RunFolder, results: &Results, samples: &mut [ResultSample]) {
        let is_on_texts = Task::from_name(&results.task) == Some(Task::TextClassification);
        if !is_on_texts || samples.is_empty() {
            return;
        }
        let indices: Vec<u32> = samples
            .iter()
            .filter_map(|sample| Some(results.samples.get(sample.id as usize)?.index))
            .collect();
        let Ok(texts) = results.sample_texts(folder, &indices) else {
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
        let path = self.file(id, sample)?;
        let picture = dataset::thumbnail(&path, THUMBNAIL);
        let opened = self.opened(id)?;
        picture.map_err(|why| {
            let file = &opened.results.samples[sample as usize].file;
            CommandError::new("unreadable", format!("{file}: {why}"))
        })
    }

    /// The file of an evaluated sample, or the dataset's folder if it has none.
    ///
    /// # Errors
    /// `data_missing` if the dataset folder is not where it was.
    pub fn file(&self, id: &str, sample: u32) -> Result<PathBuf, CommandError> {
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
        Ok(dataset.join(&found.file))
    }
}

/// Runs with different tasks are not compared.
pub fn other_task() -> CommandError {
    let why = "The other run has a different task. Choose a run with the same task.";
    CommandError::new("failed", why)
}

/// The beginning of a text in one line.
fn excerpt(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(EXCERPT) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words,
    }
}

/// Runs `work`, which computes nothing on a GPU, on a thread whose stack suffices for deep
/// networks, and waits for it.
///
/// # Errors
/// Those of `work`; the thread cannot be started, or panicked.
pub fn on_large_stack<T: Send>(
    work: impl FnOnce() -> Result<T, CommandError> + Send,
) -> Result<T, CommandError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("export".into());
        let thread = thread.stack_size(STACK_BYTES).spawn_scoped(scope, work);
        let thread = thread.map_err(|error| CommandError::no_thread(&error))?;
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
    fn an_evaluation_is_not_ended_by_a_chat() {
        let results = OpenResults::default();
        let free = |run: &str| results.free_model(run).map_err(|error| error.code);
        assert_eq!(free("r1"), Ok(()));
        let running = Arc::new(Evaluation {
            run: "r1".to_owned(),
            progress: Mutex::default(),
            outcome: Mutex::default(),
        });
        *lock(&results.evaluation) = Some(Arc::clone(&running));
        assert_eq!((free("r1"), free("r2")), (Err("busy".to_owned()), Ok(())));
        *lock(&running.outcome) = Some(Ok(()));
        assert_eq!(free("r1"), Ok(()));
    }

    #[test]
    fn samples_of_a_page_that_is_not_open_are_refused() {
        let results = OpenResults::default();
        let refused = results.thumbnail("r1", 0).map_err(|error| error.code);
        assert_eq!(refused, Err("unknown_id".to_owned()));
    }
}
