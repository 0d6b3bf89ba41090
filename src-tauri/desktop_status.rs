//! What the desktop shows of the training while the window is in the background: the menu-bar item
//! or tray icon, progress and badge on the Dock icon, and notifications.

use crate::app_state::Shell;
use crate::close_window::Closing;
use crate::current_training::Training;
use crate::language::translate;
use crate::lock_mutex::lock;
use crate::menu_bar_item::MenuBarItem;
use crate::os_integration;
use crate::queue_commands;
use crate::training_summary::{self, MemoryWait, news};
use crate::window_types::ActiveView;
use pressure::Level;
use runlog::RunStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tauri::async_runtime::{JoinHandle, spawn, spawn_blocking};
use tauri::window::{ProgressBarState, ProgressBarStatus};
use tauri::{AppHandle, Manager};
use tokio::time::{MissedTickBehavior, interval};

/// Interval between two looks at the training.
const INTERVAL: Duration = Duration::from_secs(1);
/// While nothing trains, memory is read once in so many intervals.
const IDLE_INTERVALS: u32 = 5;

/// What is shown now.
#[derive(Default)]
struct Status {
    item: Option<MenuBarItem>,
    /// The training whose end is news.
    watched: Option<Arc<Training>>,
    wait: MemoryWait,
    percent: Option<u64>,
    level: Level,
    intervals: u32,
}

/// The task that follows the training.
struct Follower(JoinHandle<()>);

/// Follows the training in a task until [`stop_following`]. Each look runs on a thread that may
/// block, because it waits for the main thread.
pub fn follow(app: &AppHandle) {
    // The app owns what is shown. If the task owned it, its end would drop the icon, which only the
    // main thread may do.
    app.manage(Mutex::new(Status::default()));
    let follower = app.clone();
    let task = spawn(async move {
        let app = follower.clone();
        let mut done = spawn_blocking(move || {
            lock(app.state::<Mutex<Status>>().inner()).add_item(&app);
        })
        .await;
        let mut looks = interval(INTERVAL);
        // After a long look, or after the machine slept, one look is enough.
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Ends after a panic, because the next look would panic, too.
        while done.is_ok() {
            looks.tick().await;
            let app = follower.clone();
            done = spawn_blocking(move || {
                // Fails only while the app ends.
                let _ = lock(app.state::<Mutex<Status>>().inner()).look(&app);
            })
            .await;
        }
    });
    app.manage(Follower(task));
}

/// Stops following the training, because the app ends. No run of the queue starts any more, except
/// from a look that has begun.
pub fn stop_following(app: &AppHandle) {
    if let Some(follower) = app.try_state::<Follower>() {
        follower.0.abort();
    }
}

/// Whether the window has a badge.
static HAS_BADGE: AtomicBool = AtomicBool::new(false);

/// The user looks at the window, so its badge has done its work.
pub fn seen(app: &AppHandle) {
    // The window gets the focus before its first paint. Without a badge nothing is asked of the
    // desktop: on Linux, the toolkit would load a library for it on the main thread.
    if !HAS_BADGE.swap(false, Ordering::Relaxed) {
        return;
    }
    if let Some(window) = app.get_webview_window("main") {
        // Not every desktop has badges.
        let _ = window.set_badge_count(None);
    }
}

fn menu_bar_item(app: &AppHandle) -> Option<MenuBarItem> {
    let (made, received) = channel();
    let on_main_thread = app.clone();
    app.run_on_main_thread(move || drop(made.send(MenuBarItem::new(&on_main_thread))))
        .ok()?;
    received.recv().ok()?.ok()
}

impl Status {
    /// Adds the menu-bar item or tray icon if the desktop shows one. Asks the session bus, which
    /// may be slow.
    fn add_item(&mut self, app: &AppHandle) {
        self.item = os_integration::has_tray()
            .then(|| menu_bar_item(app))
            .flatten();
        let closing = app.state::<Closing>();
        closing
            .has_tray
            .store(self.item.is_some(), Ordering::Relaxed);
    }

    fn look(&mut self, app: &AppHandle) -> tauri::Result<()> {
        let shell = app.state::<Arc<Shell>>();
        let running = shell.active.running();
        if let Some(ended) = self
            .watched
            .take()
            .filter(|training| !training.is_running())
        {
            queue_commands::follow_end(&shell.queue, &ended);
            report_end(app, &ended)?;
        }
        queue_commands::advance(&shell);
        let active = running.as_deref().and_then(training_summary::for_training);
        self.show_progress(app, active.as_ref())?;
        self.read_level(&shell, running.as_deref());
        self.report_wait(app, running.as_deref())?;
        self.watched = running;
        match &mut self.item {
            Some(item) => item.update(self.level, active.as_ref()),
            None => Ok(()),
        }
    }

    fn read_level(&mut self, shell: &Shell, running: Option<&Training>) {
        self.intervals += 1;
        if let Some(reported) = running.and_then(Training::newest_sample) {
            self.level = reported.level;
        } else if self.item.is_some() && self.intervals % IDLE_INTERVALS == 1 {
            self.level = shell.readings.now().level;
        }
    }

    /// Notifies the user of a training that waits for memory for long.
    fn report_wait(&mut self, app: &AppHandle, running: Option<&Training>) -> tauri::Result<()> {
        let waiting = running.filter(|training| {
            let run = training.run();
            run.status() == RunStatus::Paused && run.is_short_of_memory()
        });
        let id = waiting.map(|training| &*training.id);
        if !self.wait.is_news(id, Instant::now()) {
            return Ok(());
        }
        let Some(training) = waiting else {
            return Ok(());
        };
        let notes = training.folder.notes();
        let name = crate::run_row::name(&training.id, &notes, &training.run());
        let why =
            "The training is suspended until memory is free. Close other apps to continue sooner.";
        notify(app, &format!("{name} needs your help"), why)
    }

    fn show_progress(&mut self, app: &AppHandle, active: Option<&ActiveView>) -> tauri::Result<()> {
        let percent = active.map(|active| (active.fraction * 100.0) as u64);
        if std::mem::replace(&mut self.percent, percent) == percent {
            return Ok(());
        }
        let Some(window) = app.get_webview_window("main") else {
            return Ok(());
        };
        window.set_progress_bar(ProgressBarState {
            status: Some(match percent {
                Some(_) => ProgressBarStatus::Normal,
                None => ProgressBarStatus::None,
            }),
            progress: percent,
        })
    }
}

/// Notifies the user of the end of a training, unless they look at the window or stopped it.
fn report_end(app: &AppHandle, training: &Training) -> tauri::Result<()> {
    let (title, body) = {
        let notes = training.folder.notes();
        let run = training.run();
        let name = crate::run_row::name(&training.id, &notes, &run);
        let title = news(&name, run.status(), run.stop_reason());
        (title, run.status_line().message.clone())
    };
    match title {
        Some(title) => notify(app, &title, &body),
        None => Ok(()),
    }
}

/// Shows a notification and a badge, unless the user looks at the window.
fn notify(app: &AppHandle, title: &str, body: &str) -> tauri::Result<()> {
    let Some(window) = app.get_webview_window("main") else {
        return Ok(());
    };
    if window.is_focused()? {
        return Ok(());
    }
    os_integration::notify(&translate(title), &translate(body));
    HAS_BADGE.store(true, Ordering::Relaxed);
    // Not every desktop has badges.
    let _ = window.set_badge_count(Some(1));
    Ok(())
}
