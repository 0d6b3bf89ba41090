//! The state behind the window: open folders, pretrained weights, the running training, the list of
//! runs. The page may be reloaded at any time.

use crate::current_training::Active;
use crate::inspections::Inspections;
use crate::lock::lock;
use crate::machine_readings::Readings;
use crate::results::OpenResults;
use crate::results_view::ResultsView;
use crate::run_row;
use crate::runs::Runs;
use crate::stress_test::{Drill, SECONDS};
use crate::try_it::TryIt;
use crate::weight_folders::Weights;
use crate::window_types::{CommandError, DrillRequest, DrillView, SampleView, Show, Welcome};
use dataset::is_model_folder;
use runlog::{Run, RunStore};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tauri::{AppHandle, Emitter};
use trainer::{Machine, predict_device};

/// The event that tells the page what to show.
const SHOW: &str = "show";
/// The event that tells the results page what was dropped.
const DROPPED: &str = "dropped";

/// The state of the window's process.
pub struct Shell {
    /// Open folders.
    pub inspections: Inspections,
    /// Pretrained weights.
    pub weights: Weights,
    /// The training of this process.
    pub active: Active,
    /// Runs of the window and the terminal.
    pub runs: Runs,
    /// Results of runs.
    pub results: Arc<OpenResults>,
    /// What is tried on the model of the open results page.
    pub try_it: TryIt,
    /// Memory, for the status bar.
    pub readings: Arc<Readings>,
    /// The running stress test.
    drill: Mutex<Option<Drill>>,
    /// What to show before the page listens.
    pub first: Mutex<Option<Show>>,
    pub page_listens: AtomicBool,
    /// The run whose context menu is open.
    pub menu_run: Mutex<Option<String>>,
    /// The inspection whose images were drawn last, and these images.
    pub drawn: Mutex<(String, Vec<Vec<u8>>)>,
}

impl Shell {
    pub fn new(machine: Machine) -> Self {
        let readings = Arc::new(Readings::of(machine.clone()));
        Shell {
            inspections: Inspections::new(Arc::clone(&readings)),
            weights: Weights::default(),
            active: Active::on(machine),
            runs: Runs::watch(RunStore::open(RunStore::default_root())),
            results: Arc::default(),
            try_it: TryIt::default(),
            readings,
            drill: Mutex::default(),
            first: Mutex::default(),
            page_listens: AtomicBool::new(false),
            menu_run: Mutex::default(),
            drawn: Mutex::default(),
        }
    }

    /// What the page needs when it starts. From now on it receives events about what to show.
    pub fn welcome(&self) -> Welcome {
        self.page_listens.store(true, Ordering::Relaxed);
        let first = lock(&self.first).take();
        let active = || {
            let id = self.active.running()?.id.clone();
            Some(Show::Run { id })
        };
        Welcome {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            platform: std::env::consts::OS.to_owned(),
            device: predict_device(),
            sample: crate::bundled_sample::find().map(|folder| sample_view(&folder)),
            show: first.or_else(active),
        }
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
        if over || request == DrillRequest::End {
            *drill = None;
        }
        if request == DrillRequest::Begin && drill.is_none() {
            let begun = Drill::begin_for(self.active.bytes_to_shrink(), SECONDS);
            *drill = Some(begun.map_err(|why| CommandError::new("failed", why))?);
        }
        let at_work = drill.as_mut().and_then(|drill| {
            let seconds_left = drill.seconds_left()?;
            Some(DrillView {
                bytes: drill.bytes,
                seconds_left,
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
                let model = real.as_deref().filter(|real| is_model_folder(real));
                Show::Inspection {
                    id: self.inspections.open(real.as_deref().unwrap_or(path)),
                    weights: model.map(|model| self.weights.open(model)),
                }
            }
        }
    }

    /// Opens what was dropped on the window, or hands it to the results page.
    pub fn receive_drop(&self, app: &AppHandle, paths: &[PathBuf]) {
        if self.try_it.takes_drops() {
            let inputs = self.try_it.add_files(paths);
            // Fails only while the page is being replaced.
            let _ = app.emit(DROPPED, &inputs);
        } else if let Some(path) = paths.first() {
            self.show(app, self.open(path));
        }
    }

    /// The results of a run, whose page is open from now on.
    pub fn results_of(&self, id: &str) -> Result<ResultsView, CommandError> {
        let folder = self.runs.folder(id)?;
        let view = match self.active.of(id) {
            Some(training) => {
                let run = training.run();
                let row = run_row::here(id, &folder, &run);
                self.results.view(row, &folder, &run)?
            }
            None => self.runs.with_run(id, |run| {
                let row = run_row::of(id, &folder, run);
                self.results.view(row, &folder, run)
            })??,
        };
        self.try_it.open_page(id);
        Ok(ResultsView {
            busy: self.active.running().is_some(),
            ..view
        })
    }

    /// The name of a run as shown.
    pub fn run_name(&self, id: &str) -> Result<String, CommandError> {
        let name = |run: &Run| run.started().map(|started| started.name.clone());
        let name = self.runs.with_run(id, name)?;
        Ok(name.unwrap_or_else(|| id.to_owned()))
    }

    pub fn show(&self, app: &AppHandle, show: Show) {
        if self.page_listens.load(Ordering::Relaxed) && app.emit(SHOW, &show).is_ok() {
            return;
        }
        *lock(&self.first) = Some(show);
    }
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
