//! Quitting while training runs: Ebb asks first, saves a checkpoint on another thread, and never
//! blocks the window's own thread for long. A check of the GPU is stopped on another thread, too,
//! unless the system asks: then the app ends at once, and waits for the check when it exits.
//! Every way to quit ends here: the menu, the tray, the Dock, and logging out. Closing the window
//! keeps the training: see `close_window.rs`.

use crate::app_state::Shell;
use crate::current_training::Training;
use crate::language::translate;
use crate::lock_mutex::lock;
use crate::show_window::{hide_window, show_window};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tauri::{AppHandle, Manager};
use tauri_plugin_dialog::{DialogExt, MessageDialogButtons};

/// How long the app waits for a checkpoint and for the check of the GPU if the system ends it
/// without asking.
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
    /// The check of the GPU is being stopped; then the app quits.
    StoppingCheck,
    /// The check of the GPU has ended, or takes too long to end.
    CheckStopped,
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
    /// Stop the check of the GPU, then quit.
    StopCheck,
    /// A question is on the screen already, or the check of the GPU is being stopped.
    Wait,
}

/// Decides what a request to quit does.
#[derive(Debug, Default)]
pub struct Quit(Mutex<State>);

impl Quit {
    /// The user or the system asks to quit; `training` is true while training runs, and `checking`
    /// while the GPU is checked.
    pub fn request(&self, training: bool, checking: bool) -> Answer {
        let mut state = lock(&self.0);
        let (next, answer) = match *state {
            state if !training && !checking => (state, Answer::Quit),
            State::StoppingCheck if !training => (State::StoppingCheck, Answer::Wait),
            State::CheckStopped if !training => (State::CheckStopped, Answer::Quit),
            _ if !training => (State::StoppingCheck, Answer::StopCheck),
            // A training that began since then is not ended without a question.
            State::Open | State::StoppingCheck | State::CheckStopped => {
                (State::Asking { stopping: false }, Answer::AskToStop)
            }
            State::Stopping => (State::Asking { stopping: true }, Answer::AskToAbandon),
            State::Asking { stopping } => (State::Asking { stopping }, Answer::Wait),
            State::Abandoned => (State::Abandoned, Answer::Quit),
        };
        *state = next;
        answer
    }

    /// The system asks whether the app may end. Without a training it may at once: the check of the
    /// GPU cannot hold it up, because a refusal would cancel a logout.
    #[cfg_attr(
        not(target_os = "macos"),
        allow(dead_code, reason = "other systems do not ask")
    )]
    fn system_request(&self, training: bool) -> Answer {
        self.request(training, false)
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

    /// Waiting for the check of the GPU is over. A question stays on the screen.
    fn check_stopped(&self) {
        let mut state = lock(&self.0);
        if !matches!(*state, State::Abandoned | State::Asking { .. }) {
            *state = State::CheckStopped;
        }
    }

    /// True if the check of the GPU was waited for.
    fn has_stopped_check(&self) -> bool {
        *lock(&self.0) == State::CheckStopped
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

/// Stops the check of the GPU and waits for its end, but not for long. Not on the window's thread.
pub fn stop_check(app: &AppHandle) {
    trainer::DeviceCheck::stop_and_wait(EXIT_WAIT);
    app.state::<Quit>().check_stopped();
}

/// True if the app may quit now. Otherwise a question is shown, and the app quits when it is
/// answered and the checkpoint is written; or a check of the GPU is stopped first.
pub fn request(app: &AppHandle) -> bool {
    let training = app.state::<Arc<Shell>>().active.running();
    let checking = trainer::DeviceCheck::progress().is_some();
    let answer = app.state::<Quit>().request(training.is_some(), checking);
    if answer == Answer::StopCheck {
        let app = app.clone();
        std::thread::spawn(move || {
            stop_check(&app);
            // Asks first if a training has begun meanwhile.
            quit(&app);
        });
    }
    perform(app, answer, training)
}

/// The system asks whether the app may end: the user quits it from the menu or the Dock, logs out,
/// or shuts down. False only while a training runs; then a question is shown.
#[cfg_attr(
    not(target_os = "macos"),
    allow(dead_code, reason = "other systems do not ask")
)]
pub fn may_terminate(app: &AppHandle) -> bool {
    let training = app.state::<Arc<Shell>>().active.running();
    let answer = app.state::<Quit>().system_request(training.is_some());
    if training.is_none() {
        // Ends after the present comparison, which `at_exit` waits for. A window that does not
        // answer meanwhile would look frozen.
        hide_window(app);
        trainer::DeviceCheck::stop();
    }
    perform(app, answer, training)
}

/// Shows the question that the answer needs. True if the app may quit now.
fn perform(app: &AppHandle, answer: Answer, training: Option<Arc<Training>>) -> bool {
    if matches!(answer, Answer::StopCheck | Answer::Wait) && training.is_none() {
        return false;
    }
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
            Question {
                title: "Stop the training?",
                message: format!(
                    "Training is at step {step}. Stop & checkpoint saves the run before Ebb quits; Resume continues it. To keep training in the background, close the window instead."
                ),
                yes: "Stop & checkpoint",
                no: "Keep training",
            },
            move |app| {
                training.stop_and_wait();
                stop_check(&app);
                app.exit(0);
            },
        ),
        Answer::AskToAbandon => ask(
            app,
            Question {
                title: "Quit without the checkpoint?",
                message: "The checkpoint is still being written. If you quit now, the run resumes from the previous checkpoint.".to_owned(),
                yes: "Quit now",
                no: "Wait",
            },
            |app| app.exit(0),
        ),
        Answer::Quit | Answer::StopCheck | Answer::Wait => {}
    }
    false
}

/// A question before the app quits.
struct Question {
    title: &'static str,
    message: String,
    /// Labels of the two buttons.
    yes: &'static str,
    no: &'static str,
}

/// Asks on the window without blocking, and runs `on_yes` on a thread of its own.
fn ask(app: &AppHandle, question: Question, on_yes: impl FnOnce(AppHandle) + Send + 'static) {
    let (yes, no) = (translate(question.yes), translate(question.no));
    let buttons = MessageDialogButtons::OkCancelCustom(yes, no);
    let dialog = app.dialog().message(translate(&question.message));
    let dialog = dialog.title(translate(question.title)).buttons(buttons);
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

/// The app ends, whatever the reason: saves the training if it still runs, and stops a check of the
/// GPU, which would otherwise look as if it had ended the process. This is the window's own thread,
/// so both together have a limit; the last checkpoint stays valid.
pub fn at_exit(app: &AppHandle) {
    let end = Instant::now() + EXIT_WAIT;
    let shell = app.state::<Arc<Shell>>();
    let quit = app.state::<Quit>();
    if let Some(training) = shell.active.running()
        && !quit.is_abandoned()
    {
        training.stop_and_wait_for(EXIT_WAIT);
    }
    if !quit.has_stopped_check() {
        trainer::DeviceCheck::stop_and_wait(end.saturating_duration_since(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_training_the_app_quits_at_once() {
        let quit = Quit::default();
        assert_eq!(quit.request(false, false), Answer::Quit);
        assert_eq!(quit.request(false, false), Answer::Quit);
    }

    #[test]
    fn a_training_is_asked_about_once_at_a_time() {
        let quit = Quit::default();
        assert_eq!(quit.request(true, false), Answer::AskToStop);
        assert_eq!(quit.request(true, false), Answer::Wait);
        quit.answered(false);
        assert_eq!(
            quit.request(true, false),
            Answer::AskToStop,
            "the training goes on"
        );
    }

    #[test]
    fn while_the_checkpoint_is_written_the_user_may_leave_without_it() {
        let quit = Quit::default();
        quit.request(true, false);
        quit.answered(true);
        assert_eq!(quit.request(true, false), Answer::AskToAbandon);
        quit.answered(false);
        assert!(!quit.is_abandoned());
        assert_eq!(
            quit.request(true, false),
            Answer::AskToAbandon,
            "asked again"
        );
        quit.answered(true);
        assert!(quit.is_abandoned());
        assert_eq!(quit.request(true, false), Answer::Quit);
    }

    #[test]
    fn a_training_that_ended_while_asking_lets_the_app_quit() {
        let quit = Quit::default();
        quit.request(true, false);
        assert_eq!(quit.request(false, false), Answer::Quit);
    }

    #[test]
    fn a_check_of_the_gpu_is_stopped_once_and_then_the_app_quits() {
        let quit = Quit::default();
        assert_eq!(quit.request(false, true), Answer::StopCheck);
        assert_eq!(quit.request(false, true), Answer::Wait);
        assert!(!quit.has_stopped_check());
        quit.check_stopped();
        assert!(quit.has_stopped_check(), "nothing waits for it again");
        assert_eq!(quit.request(false, true), Answer::Quit, "it takes too long");
        assert_eq!(quit.request(false, false), Answer::Quit);
    }

    #[test]
    fn a_check_of_the_gpu_does_not_cancel_a_logout() {
        let quit = Quit::default();
        assert_eq!(quit.system_request(false), Answer::Quit);
        // The window was closed, so the check is being stopped for it already.
        assert_eq!(quit.request(false, true), Answer::StopCheck);
        assert_eq!(quit.system_request(false), Answer::Quit);
        assert!(!quit.has_stopped_check(), "the exit waits for its end");
        assert_eq!(quit.system_request(true), Answer::AskToStop);
        assert_eq!(quit.system_request(true), Answer::Wait);
    }

    #[test]
    fn a_training_that_begins_while_the_check_is_stopped_is_asked_about() {
        for waited in [false, true] {
            let quit = Quit::default();
            assert_eq!(quit.request(false, true), Answer::StopCheck);
            if waited {
                quit.check_stopped();
            }
            assert_eq!(quit.request(true, true), Answer::AskToStop);
            quit.check_stopped();
            assert_eq!(quit.request(true, true), Answer::Wait, "asked once");
            quit.answered(false);
            assert!(quit.is_open(), "the training goes on");
        }
    }

    #[test]
    fn a_check_that_a_training_waits_for_needs_no_other_wait() {
        let quit = Quit::default();
        assert_eq!(quit.request(true, true), Answer::AskToStop);
        quit.answered(true);
        quit.check_stopped();
        assert_eq!(quit.request(false, true), Answer::Quit);
        // A user who left without the checkpoint waits for nothing.
        let quit = Quit(Mutex::new(State::Abandoned));
        quit.check_stopped();
        assert!(quit.is_abandoned());
    }
}
