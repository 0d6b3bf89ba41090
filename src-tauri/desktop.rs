//! The window: builds it, opens dropped folders, and asks before a training is interrupted.

use crate::commands;
use crate::lock::lock;
use crate::shell::Shell;
use crate::view::DrillRequest;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tauri::webview::PageLoadEvent;
use tauri::{AppHandle, DragDropEvent, Manager, RunEvent, Window, WindowEvent};
use trainer::Machine;

/// Opens the window and returns when it is closed. `target` is a folder to inspect, or a run folder
/// or id to show.
pub fn run(target: Option<PathBuf>, machine: Machine) -> ExitCode {
    if let Some(why) = crate::page::missing_display() {
        return no_window(why);
    }
    crate::page::prepare();
    let shell = Arc::new(Shell::new(machine));
    let first = target.map(|target| shell.open(&target));
    *lock(&shell.first) = first;
    let build = || {
        crate::app_hooks::with_menu(tauri::Builder::default())
            .plugin(tauri_plugin_dialog::init())
            .manage(Arc::clone(&shell))
            .manage(crate::quit::Quit::default())
            .invoke_handler(tauri::generate_handler![
                commands::welcome,
                commands::machine,
                commands::runs,
                commands::choose_folder,
                commands::choose_weights,
                commands::begin_with,
                commands::open_sample,
                commands::inspection,
                commands::estimate,
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
                crate::app_hooks::install(app.handle());
                for window in app.webview_windows().values() {
                    crate::page::load_anew_when_killed(window)?;
                }
                Ok(())
            })
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

fn on_event(app: &AppHandle, event: &RunEvent) {
    crate::app_hooks::on_event(app, event);
    if let RunEvent::Exit = event {
        // Destructors do not run when a process exits.
        drop(app.state::<Arc<Shell>>().drill(DrillRequest::End));
        crate::quit::at_exit(app);
    }
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
            if let Some(path) = paths.first() {
                let show = shell.open(path);
                shell.show(app, show);
            }
        }
        WindowEvent::CloseRequested { api, .. } if !crate::quit::request(app) => {
            api.prevent_close();
        }
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
