//! Quitting while training runs: Ebb asks first, saves a checkpoint on another thread, and never
//! blocks the window's own thread for long. Every way to quit ends here: the menu, the tray, the
//! Dock, and logging out. Closing the window keeps the training: see `closing.rs`.

use crate::app_state::Shell;
use crate::lock::lock;
use crate::show_window::show_window;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tauri::{AppHandle, Manager};
use tauri_plugin_dialog::{DialogExt, MessageDialogButtons};

/// How long the app waits for a checkpoint if the system ends it without asking.
const EXIT_WAIT: Duration = Duration::from_secs(10);

/// How far the user's wish to quit has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Open,
    /// A question is on the screen.
    Asking { stopping: bool },
    /// The training is being stopped.
    Stopping,
    /// The user does not want to wait for the checkpoint.
    Abandoned,
}

/// What to do about a request to quit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Quit now.
    Quit,
    /// Ask whether to stop the training.
    AskToStop,
    /// Ask whether to quit before the checkpoint is complete.
    AskToAbandon,
    /// A question is on the screen already.
    Wait,
}

/// Decides what a request to quit does.
#[derive(Debug, Default)]
pub struct Quit(Mutex<State>);

impl Quit {
    /// The user or the system asks to quit; `training` is true while training runs.
    pub fn request(&self, training: bool) -> Answer {
        let mut state = lock(&self.0);
        let (next, answer) = match *state {
            state if !training => (state, Answer::Quit),
            State::Open => (State::Asking { stopping: false }, Answer::AskToStop),
            State::Stopping => (State::Asking { stopping: true }, Answer::AskToAbandon),
            State::Asking { stopping } => (State::Asking { stopping }, Answer::Wait),
            State::Abandoned => (State::Abandoned, Answer::Quit),
        };
        *state = next;
        answer
    }

    /// The user answered the question.
    fn answered(&self, yes: bool) {
        let mut state = lock(&self.0);
        *state = match (*state, yes) {
            (State::Asking { stopping: true }, true) => State::Abandoned,
            (State::Asking { stopping: false }, false) => State::Open,
            (State::Asking { .. }, _) => State::Stopping,
            (state, _) => state,
        };
    }

    /// True if the user has not asked to quit, or changed their mind.
    pub fn is_open(&self) -> bool {
        *lock(&self.0) == State::Open
    }

    /// True if nothing is to be saved any more.
    fn is_abandoned(&self) -> bool {
        *lock(&self.0) == State::Abandoned
    }
}

/// Quits now, or after the user has answered.
pub fn quit(app: &AppHandle) {
    if request(app) {
        app.exit(0);
    }
}

/// True if the app may quit now. Otherwise a question is shown, and the app quits when it is
/// answered and the checkpoint is written.
pub fn request(app: &AppHandle) -> bool {
    let shell = Arc::clone(&app.state::<Arc<Shell>>());
    let training = shell.active.running();
    let answer = app.state::<Quit>().request(training.is_some());
    let (Some(training), true) = (training, answer != Answer::Quit) else {
        return true;
    };
    if answer != Answer::Wait {
        // The question stands on the window.
        show_window(app);
    }
    let step = runlog::format_count(training.run().figures().step);
    match answer {
        Answer::AskToStop => ask(
            app,
            format!(
                "Training is at step {step}. Stop & checkpoint saves the run before Ebb quits; Resume continues it. To keep training in the background, close the window instead."
            ),
            ["Stop the training?", "Stop & checkpoint", "Keep training"],
            move |app| {
                training.stop_and_wait();
                app.exit(0);
            },
        ),
        Answer::AskToAbandon => ask(
            app,
            "The checkpoint is still being written. If you quit now, the run resumes from the previous checkpoint.".to_owned(),
            ["Quit without the checkpoint?", "Quit now", "Wait"],
            |app| app.exit(0),
        ),
        Answer::Quit | Answer::Wait => {}
    }
    false
}

/// Asks on the window without blocking, and runs `on_yes` on a thread of its own.
fn ask(
    app: &AppHandle,
    message: String,
    [title, yes, no]: [&str; 3],
    on_yes: impl FnOnce(AppHandle) + Send + 'static,
) {
    let buttons = MessageDialogButtons::OkCancelCustom(yes.into(), no.into());
    let dialog = app.dialog().message(message).title(title).buttons(buttons);
    let dialog = match app.get_webview_window("main") {
        Some(window) => dialog.parent(&window),
        None => dialog,
    };
    let app = app.clone();
    // The dialog calls back on a thread of its own.
    dialog.show(move |yes| {
        app.state::<Quit>().answered(yes);
        if yes {
            std::thread::spawn(move || on_yes(app));
        }
    });
}

/// The app ends, whatever the reason: saves the training if it still runs. This is the window's own
/// thread, so the wait has a limit; the last checkpoint stays valid.
pub fn at_exit(app: &AppHandle) {
    let shell = app.state::<Arc<Shell>>();
    if let Some(training) = shell.active.running()
        && !app.state::<Quit>().is_abandoned()
    {
        training.stop_and_wait_for(EXIT_WAIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_training_the_app_quits_at_once() {
        let quit = Quit::default();
        assert_eq!(quit.request(false), Answer::Quit);
        assert_eq!(quit.request(false), Answer::Quit);
    }

    #[test]
    fn a_training_is_asked_about_once_at_a_time() {
        let quit = Quit::default();
        assert_eq!(quit.request(true), Answer::AskToStop);
        assert_eq!(quit.request(true), Answer::Wait);
        quit.answered(false);
        assert_eq!(
            quit.request(true),
            Answer::AskToStop,
            "the training goes on"
        );
    }

    #[test]
    fn while_the_checkpoint_is_written_the_user_may_leave_without_it() {
        let quit = Quit::default();
        quit.request(true);
        quit.answered(true);
        assert_eq!(quit.request(true), Answer::AskToAbandon);
        quit.answered(false);
        assert!(!quit.is_abandoned());
        assert_eq!(quit.request(true), Answer::AskToAbandon, "asked again");
        quit.answered(true);
        assert!(quit.is_abandoned());
        assert_eq!(quit.request(true), Answer::Quit);
    }

    #[test]
    fn a_training_that_ended_while_asking_lets_the_app_quit() {
        let quit = Quit::default();
        quit.request(true);
        assert_eq!(quit.request(false), Answer::Quit);
    }
}
