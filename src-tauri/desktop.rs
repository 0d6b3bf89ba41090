//! The window: builds it, hands dropped folders to the inspections, and asks before a training is
//! cut short. Refuses to know how anything is read, trained or drawn.

use crate::active::Active;
use crate::commands;
use crate::stress_test::{Drill, SECONDS};
use crate::lock::lock;
use crate::inspections::Inspections;
use crate::machine_readings::Readings;
use crate::runs::Runs;
use crate::view::{CommandError, DrillRequest, DrillView, SampleView, Show, Welcome};
use crate::weights::Weights;
use dataset::is_model_folder;
use runlog::RunStore;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tauri::webview::PageLoadEvent;
use tauri::{AppHandle, DragDropEvent, Emitter, Manager, RunEvent, Window, WindowEvent};
use tauri_plugin_dialog::{DialogExt, MessageDialogButtons};
use trainer::{Machine, predict_device};

/// The event that tells the page what to show.
const SHOW: &str = "show";

/// Everything behind the window; the page may come and go.
pub struct Shell {
    /// Folders.
    pub inspections: Inspections,
    /// Published weights.
    pub weights: Weights,
    /// The training of this process.
    pub active: Active,
    /// Runs of app and terminal.
    pub runs: Runs,
    /// Memory, for the status bar.
    pub readings: Arc<Readings>,
    /// The drill at work.
    drill: Mutex<Option<Drill>>,
    /// What came before the page could hear.
    first: Mutex<Option<Show>>,
    page_listens: AtomicBool,
    asking: AtomicBool,
}

/// Opens the window and returns when it is closed. `target` is a folder to look at, or a run folder
/// or id to show.
pub fn run(target: Option<PathBuf>, machine: Machine) -> ExitCode {
    if !crate::page::has_display() {
        return no_window("there is no display (neither DISPLAY nor WAYLAND_DISPLAY is set)");
    }
    crate::page::prepare();
    let shell = Arc::new(Shell::new(machine));
    let first = target.map(|target| shell.open(&target));
    *lock(&shell.first) = first;
    let build = || {
        tauri::Builder::default()
            .plugin(tauri_plugin_dialog::init())
            .manage(Arc::clone(&shell))
            .invoke_handler(tauri::generate_handler![
                commands::welcome,
                commands::machine,
                commands::runs,
                commands::choose_folder,
                commands::choose_weights,
                commands::begin_with,
                commands::open_sample,
                commands::inspection,
                commands::forecast,
                commands::train,
                commands::resume,
                commands::control,
                commands::drill,
                commands::pull,
                commands::report_error,
            ])
            .on_page_load(|webview, page| {
                if page.event() == PageLoadEvent::Started {
                    let shell = webview.state::<Arc<Shell>>();
                    shell.page_listens.store(false, Ordering::Relaxed);
                }
            })
            .on_window_event(handle)
            .setup(|app| {
                stop_on_signal(app.handle().clone())?;
                for window in app.webview_windows().values() {
                    crate::page::load_anew_when_killed(window)?;
                }
                Ok(())
            })
            .build(tauri::generate_context!())
    };
    // The toolkit panics where a display does not answer.
    let built = std::panic::catch_unwind(std::panic::AssertUnwindSafe(build));
    let app = match built {
        Ok(Ok(app)) => app,
        Ok(Err(error)) => return no_window(&error.to_string()),
        Err(_) => return no_window("the display does not answer"),
    };
    app.run(|app, event| {
        if let RunEvent::Exit = event {
            // Nothing is dropped at the end of a process that exits.
            drop(app.state::<Arc<Shell>>().drill(DrillRequest::End));
        }
        // However the app is told to quit, the training ends by a checkpoint.
        if let (RunEvent::Exit, Some(training)) =
            (event, app.state::<Arc<Shell>>().active.running())
        {
            training.stop_and_wait();
        }
    });
    ExitCode::SUCCESS
}

fn no_window(why: &str) -> ExitCode {
    eprintln!(
        "ebb: the window cannot be opened: {why}. Train in the terminal instead: ebb train FOLDER"
    );
    ExitCode::FAILURE
}

fn handle(window: &Window, event: &WindowEvent) {
    let app = window.app_handle();
    let shell = app.state::<Arc<Shell>>();
    match event {
        WindowEvent::DragDrop(DragDropEvent::Drop { paths, .. }) => {
            if let Some(path) = paths.first() {
                let show = shell.open(path);
                shell.show(app, show);
            }
        }
        WindowEvent::CloseRequested { api, .. } if shell.active.running().is_some() => {
            api.prevent_close();
            ask_before_closing(window, Arc::clone(&shell));
        }
        _ => {}
    }
}

/// One question at a time. The training goes on while it stands.
fn ask_before_closing(window: &Window, shell: Arc<Shell>) {
    let Some(training) = shell.active.running() else {
        return;
    };
    if shell.asking.swap(true, Ordering::Relaxed) {
        return;
    }
    let step = runlog::format_count(training.run().figures().step);
    let message = format!(
        "A training is at step {step}. Stop & checkpoint saves it before Ebb closes; Resume goes on from there."
    );
    let app = window.app_handle().clone();
    let buttons =
        MessageDialogButtons::OkCancelCustom("Stop & checkpoint".into(), "Keep training".into());
    let dialog = app
        .dialog()
        .message(message)
        .title("Stop the training?")
        .buttons(buttons)
        .parent(window);
    dialog.show(move |stop| {
        shell.asking.store(false, Ordering::Relaxed);
        if stop {
            std::thread::spawn(move || {
                training.stop_and_wait();
                app.exit(0);
            });
        }
    });
}

/// A signal to end stops & checkpoints first; a second one ends at once.
fn stop_on_signal(app: AppHandle) -> Result<(), ctrlc::Error> {
    let asked = AtomicBool::new(false);
    ctrlc::set_handler(move || {
        if asked.swap(true, Ordering::Relaxed) {
            std::process::exit(1);
        }
        let app = app.clone();
        std::thread::spawn(move || {
            if let Some(training) = app.state::<Arc<Shell>>().active.running() {
                training.stop_and_wait();
            }
            app.exit(0);
        });
    })
}

impl Shell {
    fn new(machine: Machine) -> Self {
        let readings = Arc::new(Readings::of(machine.clone()));
        Shell {
            inspections: Inspections::new(Arc::clone(&readings)),
            weights: Weights::default(),
            active: Active::on(machine),
            runs: Runs::watch(RunStore::open(RunStore::default_root())),
            readings,
            drill: Mutex::default(),
            first: Mutex::default(),
            page_listens: AtomicBool::new(false),
            asking: AtomicBool::new(false),
        }
    }

    /// What the page needs at its start. From now on it hears what to show.
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
            sample: crate::sample::find().map(|folder| sample_view(&folder)),
            show: first.or_else(active),
        }
    }

    /// Two trainings would be in each other's way.
    pub fn is_free(&self) -> Result<(), CommandError> {
        match self.active.running() {
            Some(training) => Err(training.in_the_way()),
            None => Ok(()),
        }
    }

    /// Begins, looks at or ends the one drill of this window. It ends with the window too.
    pub fn drill(&self, request: DrillRequest) -> Result<DrillView, CommandError> {
        let mut drill = lock(&self.drill);
        let over = drill
            .as_mut()
            .is_some_and(|drill| drill.seconds_left().is_none());
        if over || request == DrillRequest::End {
            *drill = None;
        }
        if request == DrillRequest::Begin && drill.is_none() {
            let begun = Drill::begin(None, SECONDS);
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

    /// Opens what stands at `path`: a run, else a folder to look at. Also takes the id of a run.
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

    fn show(&self, app: &AppHandle, show: Show) {
        if self.page_listens.load(Ordering::Relaxed) && app.emit(SHOW, &show).is_ok() {
            return;
        }
        *lock(&self.first) = Some(show);
    }
}

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
