//! What the end-to-end tests drive the window with: a WebDriver session over plain HTTP, a drag
//! with the mouse, a home folder for runs.

pub mod drag;
pub mod driver;
pub mod home;
pub mod open_ports;
pub mod window;
pub mod xdotool;

use std::time::{Duration, Instant};

/// Repeats a question until it has an answer; panics with `what` after `longest`.
pub fn until<T>(what: &str, longest: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begin.elapsed() < longest, "{what}: not within {longest:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
