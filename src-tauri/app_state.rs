//! The state behind the window: open folders, pretrained weights, the running training, the list of
//! runs. The page may be reloaded at any time.

use crate::base_models::BaseModels;
use crate::comparison_view::{self, ComparedRun, ComparisonView, POINTS};
use crate::current_training::Active;
use crate::early_messages::EarlyMessages;
use crate::first_device_check::{self, FirstDeviceCheck};
use crate::import_run::{self, is_archive};
use crate::lock_mutex::lock;
use crate::machine_readings::Readings;
use crate::opened_dataset_folders::OpenedDatasetFolders;
use crate::opened_weight_folders::OpenedWeightFolders;
use crate::paths::{language_path, queue_path, recent_folders_path};
use crate::recent_folders::RecentFolders;
use crate::results::{OpenResults, other_task};
use crate::results_view::ResultsView;
use crate::run_chat::RunChat;
use crate::run_registry::Runs;
use crate::run_row;
use crate::shown_versions::ShownMachine;
use crate::stress_test::{Drill, SECONDS};
use crate::training_queue::TrainingQueue;
use crate::try_it::TryIt;
use crate::window_types::{
    CommandError, DrillRequest, DrillView, NoticeView, SampleView, Show, Welcome,
};
use dataset::{is_model_file, is_model_folder};
use runlog::{Run, RunFolder, RunStore, headline_metric};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tauri::{AppHandle, Emitter};
use trainer::{Machine, RunDataset};

/// The event that tells the page what to show.
const SHOW: &str = "show";
/// The event that tells the results page what was dropped.
const DROPPED: &str = "dropped";
/// The event that gives the page a sentence to show.
const NOTICE: &str = "notice";

/// The state of the window's process.
pub struct Shell {
    /// Open folders.
    pub inspections: OpenedDatasetFolders,
    /// Pretrained weights.
    pub weights: OpenedWeightFolders,
    /// The model that is looked up or downloaded.
    pub base_models: BaseModels,
    /// The training of this process.
    pub active: Active,
    /// The runs that wait for it.
    pub queue: TrainingQueue,
    /// The check of the GPU that no training waits for.
    pub first_check: FirstDeviceCheck,
    /// Folders that were opened last.
    pub recent: RecentFolders,
    /// Runs of the window and the terminal.
    pub runs: Runs,
    /// Results of runs.
    pub results: Arc<OpenResults>,
    /// What is tried on the model of the open results page.
    pub try_it: Arc<TryIt>,
    /// Answers of language models in conversations.
    pub chat: RunChat,
    /// Memory, for the status bar.
    pub readings: Arc<Readings>,
    /// The status bar as the page shows it.
    pub shown_machine: ShownMachine,
    /// The running stress test.
    drill: Mutex<Option<Drill>>,
    /// Messages that arise before the page listens.
    pub early: EarlyMessages,
    /// The run whose context menu is open.
    pub menu_run: Mutex<Option<String>>,
    /// The inspection whose images were drawn last, and these images.
    pub drawn: Mutex<(String, Vec<Vec<u8>>)>,
}

impl Shell {
    pub fn new(machine: Machine) -> Self {
        let readings = Arc::new(Readings::new(machine.clone()));
        crate::language::start(language_path());
        Shell {
            inspections: OpenedDatasetFolders::new(Arc::clone(&readings)),
            weights: OpenedWeightFolders::default(),
            base_models: BaseModels::default(),
            active: Active::new(machine),
            queue: TrainingQueue::from_file(queue_path()),
            first_check: FirstDeviceCheck::default(),
            recent: RecentFolders::from_file(recent_folders_path()),
            runs: Runs::watch(RunStore::open(RunStore::default_root())),
            results: Arc::default(),
            try_it: Arc::default(),
            chat: RunChat::default(),
            readings,
            shown_machine: ShownMachine::default(),
            drill: Mutex::default(),
            early: EarlyMessages::default(),
            menu_run: Mutex::default(),
            drawn: Mutex::default(),
        }
    }

    /// What the page needs when it starts. From now on it receives events about what to show, and
    /// the GPU is checked while the user looks at the data.
    pub fn welcome(self: &Arc<Self>) -> Welcome {
        let checks = Arc::clone(self);
        self.first_check.begin(move || checks.check_device());
        let first = self.early.page_listens();
        let active = || {
            let id = self.active.running()?.id.clone();
            Some(Show::Run { id })
        };
        Welcome {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            language: crate::language::current(),
            language_choice: crate::language::choice(),
            platform: std::env::consts::OS.to_owned(),
            sample: crate::bundled_sample::find().map(|folder| sample_view(&folder)),
            show: first.show.or_else(active),
            notice: first.notice,
        }
    }

    /// Checks the GPU unless that has been done or would disturb something. Blocks meanwhile.
    pub fn check_device(&self) {
        let level = self.readings.now().level;
        first_device_check::check_now(self.runs.store(), level, &self.active);
    }

    /// Refuses a second training while one is running.
    pub fn is_free(&self) -> Result<(), CommandError> {
        match self.active.running() {
            Some(training) => Err(training.in_the_way()),
            None => Ok(()),
        }
    }

    /// Starts, reads or ends the stress test of this window. It also ends with the window.
    pub fn drill(&self, request: DrillRequest) -> Result<DrillView, CommandError> {
        let mut drill = lock(&self.drill);
        let over = drill
            .as_mut()
            .is_some_and(|drill| drill.seconds_left().is_none());
        let record = |bytes: u64, seconds: u64| {
            if let Some(training) = self.active.running() {
                training.record_stress_test(bytes, seconds);
            }
        };
        if (over || request == DrillRequest::End) && drill.take().is_some() {
            record(0, 0);
        }
        if request == DrillRequest::Begin && drill.is_none() {
            let begun = Drill::begin_for(self.active.bytes_to_shrink(), SECONDS);
            let begun = begun.map_err(|why| CommandError::new("failed", why))?;
            record(begun.bytes, SECONDS);
            *drill = Some(begun);
        }
        let at_work = drill.as_mut().and_then(|drill| {
            let seconds_left = drill.seconds_left()?;
            Some(DrillView {
                bytes: drill.bytes,
                seconds_left,
                needed_bytes: drill.needed_bytes,
            })
        });
        Ok(at_work.unwrap_or_default())
    }

    /// Opens the run or folder at `path`, or the run with this id.
    pub fn open(&self, path: &Path) -> Show {
        let real = path.canonicalize().ok().filter(|real| real.is_dir());
        let folder = real.clone().or_else(|| {
            let run = self.runs.store().find(&path.to_string_lossy()).ok()?;
            run.path.canonicalize().ok()
        });
        match folder.and_then(|folder| self.runs.open(&folder).ok()) {
            Some(id) => Show::Run { id },
            None => {
                let folder = real.as_deref().filter(|real| is_model_folder(real));
                let model = folder.or_else(|| Some(path).filter(|path| is_model_file(path)));
                if model.is_none() {
                    self.recent.add(path);
                }
                Show::Inspection {
                    id: self.inspections.open(real.as_deref().unwrap_or(path)),
                    weights: model.map(|model| self.weights.open(model)),
                }
            }
        }
    }

    /// Opens what was dropped on the window, or hands it to the results page.
    pub fn receive_drop(&self, app: &AppHandle, paths: &[PathBuf]) {
        if !self.try_it.takes_drops() {
            return self.open_first(app, paths);
        }
        let others = self.import_archives(app, paths);
        if !others.is_empty() {
            let inputs = self.try_it.add_files(&others);
            // Fails only while the page is being replaced.
            let _ = app.emit(DROPPED, &inputs);
        }
    }

    /// Imports exported runs. Opens the first of several folders, and says that the others are left
    /// out.
    pub fn open_first(&self, app: &AppHandle, paths: &[PathBuf]) {
        let folders = self.import_archives(app, paths);
        let Some(folder) = folders.first() else {
            return;
        };
        self.show(app, self.open(folder));
        if folders.len() > 1 {
            self.notify_page(app, &describe_other_drops(&folders));
        }
    }

    /// Imports the exported runs among `paths` and shows each. Returns the other paths.
    fn import_archives(&self, app: &AppHandle, paths: &[PathBuf]) -> Vec<PathBuf> {
        let (archives, others): (Vec<PathBuf>, Vec<PathBuf>) =
            paths.iter().cloned().partition(|path| is_archive(path));
        for archive in archives {
            self.notify_page(app, &import_run::announce(&archive));
            match import_run::import(self.runs.store(), &archive) {
                Ok(imported) => {
                    self.show(app, Show::Run { id: imported.run });
                    if let Some(notice) = imported.notice {
                        self.notify_page(app, &notice);
                    }
                }
                Err(error) => self.report_failure(app, &error.message),
            }
        }
        others
    }

    /// The results of a run, whose page is open from now on.
    pub fn results_of(&self, id: &str) -> Result<ResultsView, CommandError> {
        let folder = self.runs.folder(id)?;
        let loaded = self.results.load(id, &folder)?;
        let view = match self.active.of(id) {
            Some(training) => {
                let run = training.run();
                let row = run_row::here(id, &folder, &run);
                self.results.view(row, &folder, &run, loaded)?
            }
            None => self.runs.with_run(id, |run| {
                let row = run_row::for_run(id, &folder, run);
                self.results.view(row, &folder, run, loaded)
            })??,
        };
        self.try_it.open_page(id);
        Ok(ResultsView {
            busy: self.active.running().is_some(),
            ..view
        })
    }

    /// The open results page beside another run.
    ///
    /// # Errors
    /// The page of this run is not open, or the other run is not known or has a different task.
    pub fn compare_results(&self, id: &str, other: &str) -> Result<ComparisonView, CommandError> {
        let folders = (self.runs.folder(id)?, self.runs.folder(other)?);
        let started = (self.runs.started(id)?, self.runs.started(other)?);
        if started.0.task != started.1.task {
            return Err(other_task());
        }
        let smoothed = comparison_view::smoothed_steps(&started.0, &started.1);
        let compared = |id: &str, folder: &RunFolder, started| {
            let curves = self
                .runs
                .with_run(id, |run| run.step_curves(POINTS, smoothed))?;
            Ok::<_, CommandError>(ComparedRun {
                started,
                config: folder.config()?,
                curves,
            })
        };
        let headline = |run: &Run| headline_metric(run).map(|(value, _)| value);
        let fallback = self.runs.with_run(other, headline)?.unwrap_or_default();
        let results = self.results.compare(id, &folders.1, &fallback)?;
        let datasets = (RunDataset::read(&folders.0), RunDataset::read(&folders.1));
        let samples = match datasets {
            (Ok(run), Ok(other)) => run.describe_difference(&other),
            (Err(error), _) | (_, Err(error)) => {
                format!("The samples of the two runs cannot be compared: {error}.")
            }
        };
        Ok(comparison_view::view(
            &compared(id, &folders.0, started.0)?,
            &compared(other, &folders.1, started.1)?,
            results,
            samples,
        ))
    }

    /// Gives the page a sentence to show.
    pub fn notify_page(&self, app: &AppHandle, sentence: &str) {
        self.report(app, sentence, false);
    }

    /// Gives the page a sentence about something that failed.
    pub fn report_failure(&self, app: &AppHandle, sentence: &str) {
        self.report(app, sentence, true);
    }

    fn report(&self, app: &AppHandle, sentence: &str, is_error: bool) {
        let notice = NoticeView {
            text: sentence.to_owned(),
            is_error,
        };
        self.early
            .notify(notice, |notice| app.emit(NOTICE, notice).is_ok());
    }

    pub fn show(&self, app: &AppHandle, show: Show) {
        self.early.show(show, |show| app.emit(SHOW, show).is_ok());
    }
}

/// What to tell the user if several folders or files were dropped at once.
fn describe_other_drops(paths: &[PathBuf]) -> String {
    let name = |path: &PathBuf| {
        let name = path.file_name().unwrap_or(path.as_os_str());
        name.to_string_lossy().into_owned()
    };
    let first = paths.first().map(name).unwrap_or_default();
    let others = match paths {
        [_, other] => format!("{} was", name(other)),
        _ => format!("{} others were", paths.len().saturating_sub(1)),
    };
    format!(
        "Ebb opens one folder at a time: it opened {first}; {others} left out. To train on all, put them into one folder and drop that folder."
    )
}

/// Counts the classes, images and bytes of the bundled sample.
fn sample_view(folder: &Path) -> SampleView {
    let inside = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut view = SampleView {
        images: 0,
        classes: 0,
        bytes: 0,
    };
    for class in inside(folder).filter(|entry| entry.path().is_dir()) {
        view.classes += 1;
        for file in inside(&class.path()) {
            view.images += 1;
            view.bytes += file.metadata().map_or(0, |about| about.len());
        }
    }
    view
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_page_begins_the_check_of_the_gpu() {
        let shell = Arc::new(Shell::new(Machine::default()));
        assert!(!shell.first_check.has_begun());
        shell.welcome();
        assert!(shell.first_check.has_begun());
    }

    #[test]
    fn a_gguf_file_is_remembered_for_the_next_plan() {
        let shell = Arc::new(Shell::new(Machine::default()));
        let place = tempfile::tempdir().expect("a temporary folder");
        let file = place.path().join("small.gguf");
        std::fs::write(&file, "no model").expect("it can be written");
        let Show::Inspection { weights, .. } = shell.open(&file) else {
            panic!("it is no run");
        };
        let weights = weights.expect("it is a model");
        assert_eq!(weights.name, "small.gguf");
        // It is read when a plan starts from it.
        let refused = shell
            .weights
            .folder(&weights.id)
            .map_err(|error| error.message);
        let refused = refused.expect_err("it is damaged");
        assert!(
            refused.contains("small.gguf") && refused.contains("damaged"),
            "{refused}"
        );
    }

    #[test]
    fn folders_that_are_not_opened_are_named_or_counted() {
        let drop = |names: &[&str]| {
            let paths: Vec<PathBuf> = names
                .iter()
                .map(|name| Path::new("/data").join(name))
                .collect();
            describe_other_drops(&paths)
        };
        assert!(drop(&["a", "b"]).starts_with(
            "Ebb opens one folder at a time: it opened a; b was left out. To train on all"
        ));
        assert!(drop(&["a", "b", "c"]).contains("it opened a; 2 others were left out."));
    }
}
