//! The window as a user sees it: the built app on a display, driven through WebKitWebDriver. On a
//! Mac no window can be driven from outside.
#![cfg(all(target_os = "linux", feature = "desktop"))]

#[path = "../support/mod.rs"]
mod support;

mod train;

mod page_reload_and_crash;

mod page_permissions;

mod folder;

mod text_datasets;

mod estimate_follows_settings;

mod pretrained_weights;

mod folder_on_plan_page;

mod field_errors;

mod pause;

mod full_disk;

mod all_settings;

mod memory_slider;

mod recent_folders;

mod terminal;

mod stress_test;

mod results;

mod native_app_behavior;

mod run_list;

mod data_page;

mod export;

mod queue;

mod open_ports;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use support::home::Home;
use support::until;
use support::window::Window;

/// Timeout for anything that a user waits for.
pub const SOON: Duration = Duration::from_secs(60);

/// The bundled sample.
pub fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sample/groceries")
}

/// Opens the sample by its link and clicks Train.
pub fn training(home: &Home) -> (Window, String, Instant) {
    let window = Window::open(&["app"], home.path());
    window.click("#open-sample");
    window.click("#train");
    let clicked = Instant::now();
    let run = window.run_id();
    (window, run, clicked)
}

/// The app exits, and the last event of its run is a stop.
pub fn ended_as_stopped(window: &Window, home: &Home, run: &str) {
    until("the app ends", SOON, || {
        window.processes("ebb").is_empty().then_some(())
    });
    let last = home.events(run).pop().map(|event| event["kind"].clone());
    assert_eq!(last, Some("stopped".into()));
}
