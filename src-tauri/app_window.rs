//! The window: builds it, opens dropped folders, and asks before a training is interrupted.

use crate::app_state::Shell;
use crate::closing::{self, Closing};
use crate::lock::lock;
use crate::menu_bar_item;
use crate::show_window::show_window;
use crate::single_instance::{self, First, Instance};
use crate::window_types::DrillRequest;
use runlog::RunStore;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tauri::menu::MenuEvent;
use tauri::plugin::TauriPlugin;
use tauri::webview::PageLoadEvent;
use tauri::{App, AppHandle, DragDropEvent, Manager, RunEvent, Window, WindowEvent, Wry};
use tauri_plugin_window_state::StateFlags;
use trainer::Machine;

/// File in Ebb's data folder that remembers size and position of the window.
const WINDOW_STATE: &str = "window.json";

/// Opens the window and returns when it is closed. `target` is a folder to inspect, or a run folder
/// or id to show. If a window is open already, it shows the target.
pub fn run(target: Option<PathBuf>, machine: Machine) -> ExitCode {
    if let Some(why) = crate::page::missing_display() {
        return no_window(why);
    }
    let runs = RunStore::default_root();
    let home = runs.parent().unwrap_or(&runs).to_owned();
    let first = match single_instance::claim(&home, target.as_deref()) {
        Ok(Instance::Second) => return ExitCode::SUCCESS,
        Ok(Instance::First(first)) => Some(first),
        Ok(Instance::Alone) => None,
        Err(error) => return no_answer(&error),
    };
    crate::page::prepare();
    let shell = Arc::new(Shell::new(machine));
    *lock(&shell.first) = target.map(|target| shell.open(&target));
    let build = || {
        crate::app_hooks::with_menu(tauri::Builder::default())
            .plugin(tauri_plugin_dialog::init())
            .plugin(window_state(&home))
            .manage(Arc::clone(&shell))
            .manage(Closing::default())
            .manage(crate::quit::Quit::default())
            .invoke_handler(crate::handler::handler())
            .on_menu_event(on_menu_event)
            .on_page_load(|webview, page| {
                if page.event() == PageLoadEvent::Started {
                    let shell = webview.state::<Arc<Shell>>();
                    shell.page_listens.store(false, Ordering::Relaxed);
                }
            })
            .on_window_event(handle)
            .setup(|app| set_up(app, first))
            .build(tauri::generate_context!())
    };
    // The toolkit panics if the display does not answer.
    let built = std::panic::catch_unwind(std::panic::AssertUnwindSafe(build));
    let app = match built {
        Ok(Ok(app)) => app,
        Ok(Err(error)) => return no_window(&error.to_string()),
        Err(_) => return no_window("the display does not answer"),
    };
    app.run(|app, event| on_event(app, &event));
    ExitCode::SUCCESS
}

fn set_up(app: &App, first: Option<First>) -> Result<(), Box<dyn std::error::Error>> {
    stop_on_signal(app.handle().clone())?;
    crate::app_hooks::install(app.handle());
    for window in app.webview_windows().values() {
        crate::page::load_anew_when_killed(window)?;
    }
    if let Some(first) = first {
        let app = app.handle().clone();
        first.listen(move |target| {
            if let Some(target) = target {
                let shell = app.state::<Arc<Shell>>();
                let show = shell.open(&target);
                shell.show(&app, show);
            }
            show_window(&app);
        });
    }
    crate::desktop_status::follow(app.handle());
    Ok(())
}

/// Remembers size and position of the window in `home`.
fn window_state(home: &Path) -> TauriPlugin<Wry> {
    tauri_plugin_window_state::Builder::new()
        // An absolute path replaces the folder that the plugin would use.
        .with_filename(home.join(WINDOW_STATE).to_string_lossy())
        .with_state_flags(
            StateFlags::SIZE
                | StateFlags::POSITION
                | StateFlags::MAXIMIZED
                | StateFlags::FULLSCREEN,
        )
        .build()
}

/// An item of the menu bar, its own item there, or a context menu was chosen.
fn on_menu_event(app: &AppHandle, event: MenuEvent) {
    let shell = app.state::<Arc<Shell>>();
    match event.id().as_ref() {
        menu_bar_item::OPEN => show_window(app),
        menu_bar_item::QUIT => crate::quit::quit(app),
        menu_bar_item::PAUSE => {
            if let Some(training) = shell.active.running() {
                let status = training.run().status();
                training.ask(menu_bar_item::pause_request(status));
            }
        }
        id => {
            let run = lock(&shell.menu_run).take();
            crate::actions::perform(app, id, run);
        }
    }
}

fn on_event(app: &AppHandle, event: &RunEvent) {
    crate::app_hooks::on_event(app, event);
    if let RunEvent::Exit = event {
        // Destructors do not run when a process exits.
        drop(app.state::<Arc<Shell>>().drill(DrillRequest::End));
        crate::quit::at_exit(app);
    }
}

fn no_answer(error: &std::io::Error) -> ExitCode {
    eprintln!(
        "ebb: a window is open already, but it does not answer: {error}; end that process, then try again"
    );
    ExitCode::FAILURE
}

fn no_window(why: &str) -> ExitCode {
    eprintln!(
        "ebb: the window cannot be opened: {why}; train in the terminal instead: ebb train FOLDER"
    );
    ExitCode::FAILURE
}

fn handle(window: &Window, event: &WindowEvent) {
    let app = window.app_handle();
    let shell = app.state::<Arc<Shell>>();
    match event {
        WindowEvent::DragDrop(DragDropEvent::Drop { paths, .. }) => {
            let (app, shell, paths) = (app.clone(), Arc::clone(&shell), paths.clone());
            // A folder on a sleeping network volume may take long to answer.
            std::thread::spawn(move || shell.receive_drop(&app, &paths));
        }
        WindowEvent::CloseRequested { api, .. } if !closing::request(app) => {
            api.prevent_close();
        }
        WindowEvent::Focused(true) => crate::desktop_status::seen(app),
        _ => {}
    }
}

/// The first signal saves a checkpoint and exits; a second one exits at once.
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
