//! The window: builds it, opens dropped folders, and asks before a training is interrupted.

use crate::app_state::Shell;
use crate::close_window::{self, Closing};
use crate::import_run::is_archive;
use crate::lock_mutex::lock;
use crate::menu_bar_item;
use crate::show_window::{Hiding, show_if_hidden, show_window};
use crate::signals::EndSignals;
use crate::single_instance::{self, First, Instance};
use crate::window_types::DrillRequest;
use runlog::RunStore;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tauri::menu::MenuEvent;
use tauri::plugin::TauriPlugin;
use tauri::webview::PageLoadEvent;
use tauri::{
    App, AppHandle, DragDropEvent, Manager, RunEvent, WebviewWindowBuilder, Window, WindowEvent,
    Wry,
};
use tauri_plugin_window_state::StateFlags;
use trainer::Machine;

/// File in Ebb's data folder that remembers size and position of the window.
const WINDOW_STATE: &str = "window.json";

/// Opens the window and returns when it is closed. `target` is a folder to inspect, or a run folder
/// or id to show. If a window is open already, it shows the target.
pub fn run(target: Option<PathBuf>, machine: Machine) -> ExitCode {
    if let Some(why) = crate::web_view::missing_display() {
        eprintln!("ebb: {}", no_window(why));
        return ExitCode::FAILURE;
    }
    let runs = RunStore::default_root();
    let home = runs.parent().unwrap_or(&runs).to_owned();
    let first = match single_instance::claim(&home, target.as_deref()) {
        Ok(Instance::Second) => return ExitCode::SUCCESS,
        Ok(Instance::First(first)) => Some(first),
        Ok(Instance::Alone) => None,
        Err(error) => return fail(&no_answer(&error)),
    };
    crate::web_view::prepare();
    let shell = Arc::new(Shell::new(machine));
    // Reading an exported run may take long, and the window need not wait for it.
    let (archive, target) = match target {
        Some(target) if is_archive(&target) => (Some(target), None),
        target => (None, target),
    };
    if let Some(target) = target {
        shell.early.show(shell.open(&target), |_| false);
    }
    let build = || {
        crate::system_events::with_menu(tauri::Builder::default())
            .plugin(tauri_plugin_dialog::init())
            .plugin(window_state(&home))
            .plugin(crate::stay_on_page::plugin())
            .manage(Arc::clone(&shell))
            .manage(Closing::default())
            .manage(Hiding::default())
            .manage(crate::quit::Quit::default())
            .invoke_handler(crate::command_handler::handler())
            .on_menu_event(on_menu_event)
            .on_page_load(|webview, page| {
                if page.event() == PageLoadEvent::Started {
                    webview.state::<Arc<Shell>>().early.page_loads();
                }
            })
            .on_window_event(handle)
            .setup(|app| {
                // Tauri would panic on an error.
                if let Err(error) = set_up(app, first, archive) {
                    let _ = fail(&no_window(&error.to_string()));
                    std::process::exit(1);
                }
                Ok(())
            })
            .build(tauri::generate_context!())
    };
    // The toolkit panics if the display does not answer.
    let built = std::panic::catch_unwind(std::panic::AssertUnwindSafe(build));
    let app = match built {
        Ok(Ok(app)) => app,
        Ok(Err(error)) => return fail(&no_window(&error.to_string())),
        Err(_) => return fail(&no_window("the display does not answer")),
    };
    app.run(|app, event| on_event(app, &event));
    ExitCode::SUCCESS
}

/// `archive` is an exported run that was given on the command line.
fn set_up(
    app: &App,
    first: Option<First>,
    archive: Option<PathBuf>,
) -> Result<(), Box<dyn std::error::Error>> {
    for window in &app.config().app.windows {
        WebviewWindowBuilder::from_config(app.handle(), window)?.build()?;
    }
    stop_on_signal(app.handle().clone())?;
    crate::system_events::install(app.handle());
    follow_recent_folders(app.handle());
    for window in app.webview_windows().values() {
        crate::web_view::load_anew_when_killed(window)?;
    }
    if let Some(first) = first {
        let app = app.handle().clone();
        first.listen(move |target| {
            if let Some(target) = target {
                let shell = app.state::<Arc<Shell>>();
                shell.open_first(&app, &[target]);
            }
            show_window(&app);
        })?;
    }
    if let Some(archive) = archive {
        let app = app.handle().clone();
        tauri::async_runtime::spawn_blocking(move || {
            app.state::<Arc<Shell>>().open_first(&app, &[archive]);
        });
    }
    crate::desktop_status::follow(app.handle());
    Ok(())
}

/// Shows the folders that were opened last in the menu bar, now and after every change.
fn follow_recent_folders(app: &AppHandle) {
    crate::recent_menu::refresh(app);
    let handle = app.clone();
    let shell = app.state::<Arc<Shell>>();
    shell
        .recent
        .observe(move || crate::recent_menu::refresh(&handle));
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
        id if crate::recent_menu::perform(app, id) => {}
        id => {
            show_if_hidden(app);
            let context_run = lock(&shell.menu_run).take();
            let (action, run) = crate::menu_actions::chosen(id, context_run);
            crate::menu_actions::perform(app, action, run);
        }
    }
}

fn on_event(app: &AppHandle, event: &RunEvent) {
    crate::system_events::on_event(app, event);
    if let RunEvent::Exit = event {
        crate::desktop_status::stop_following(app);
        // Destructors do not run when a process exits.
        drop(app.state::<Arc<Shell>>().drill(DrillRequest::End));
        crate::quit::at_exit(app);
    }
}

/// Says why there is no window, in the terminal or in an alert.
fn fail(sentence: &str) -> ExitCode {
    eprintln!("ebb: {sentence}");
    crate::os_integration::show_alert("Ebb cannot open its window", sentence);
    ExitCode::FAILURE
}

fn no_answer(error: &std::io::Error) -> String {
    format!("the open Ebb window does not answer: {error}; end its process, then try again")
}

fn no_window(why: &str) -> String {
    format!("the window cannot be opened: {why}; train in the terminal instead: ebb train FOLDER")
}

fn handle(window: &Window, event: &WindowEvent) {
    let app = window.app_handle();
    let shell = app.state::<Arc<Shell>>();
    match event {
        WindowEvent::DragDrop(DragDropEvent::Drop { paths, .. }) => {
            let (app, shell, paths) = (app.clone(), Arc::clone(&shell), paths.clone());
            // A folder on a sleeping network volume may take long to answer.
            tauri::async_runtime::spawn_blocking(move || shell.receive_drop(&app, &paths));
        }
        WindowEvent::CloseRequested { api, .. } if !close_window::request(app) => {
            api.prevent_close();
        }
        WindowEvent::Focused(true) => crate::desktop_status::seen(app),
        _ => {}
    }
}

/// The first signal saves a checkpoint and exits; a second one exits at once.
fn stop_on_signal(app: AppHandle) -> std::io::Result<()> {
    let runtime = tauri::async_runtime::handle();
    let mut signals = {
        let _context = runtime.inner().enter();
        EndSignals::new()?
    };
    runtime.spawn(async move {
        signals.received().await;
        tauri::async_runtime::spawn_blocking(move || {
            if let Some(training) = app.state::<Arc<Shell>>().active.running() {
                training.stop_and_wait();
            }
            crate::quit::stop_check(&app);
            app.exit(0);
        });
        signals.received().await;
        std::process::exit(1);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::no_window;
    use crate::web_view::NO_SESSION;
    use serde_json::Value;

    #[test]
    fn a_mac_without_a_session_trains_in_the_terminal() {
        let sentence = no_window(NO_SESSION);
        let expected = "the window cannot be opened: no user is logged in at this Mac's screen, for example because this is an SSH session; train in the terminal instead: ebb train FOLDER";
        assert_eq!(sentence, expected);
    }

    #[test]
    fn tauri_opens_no_window_itself_because_it_panics_if_that_fails() {
        let text = include_str!("../tauri.conf.json");
        let config: Value = serde_json::from_str(text).expect("Tauri reads it");
        let windows = config["app"]["windows"].as_array();
        let windows = windows.expect("the window is declared");
        assert!(!windows.is_empty());
        assert!(windows.iter().all(|window| window["create"] == false));
    }
}
