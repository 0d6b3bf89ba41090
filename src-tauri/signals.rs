//! The signals that ask the process to end: SIGINT (Ctrl-C), SIGTERM, and SIGHUP, which a closed
//! terminal sends.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receives the signals, which no longer end the process by themselves.
pub struct EndSignals([Signal; 3]);

impl EndSignals {
    /// Receives signals from now on. Call this function in the context of a runtime.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub fn new() -> io::Result<Self> {
        Ok(EndSignals([
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ]))
    }

    /// Waits for the next signal of any kind. Signals of one kind that arrived before this call
    /// count once.
    pub async fn received(&mut self) {
        poll_fn(|context| {
            // If there is no signal, `any` polls all kinds, so that each of them wakes this task.
            let mut kinds = self.0.iter_mut();
            if kinds.any(|kind| kind.poll_recv(context).is_ready()) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use tokio::runtime::Builder;

    fn send(kind: &str) {
        let process = std::process::id().to_string();
        let sent = Command::new("kill").args([kind, &process]).status();
        assert!(sent.is_ok_and(|status| status.success()), "{kind} is sent");
    }

    #[test]
    fn every_kind_of_signal_is_received_again_and_again() {
        let runtime = Builder::new_current_thread().enable_io().build();
        runtime.expect("it can be built").block_on(async {
            let mut signals = EndSignals::new().expect("the handlers are accepted");
            for kind in ["-INT", "-TERM", "-HUP", "-INT", "-HUP"] {
                send(kind);
                signals.received().await;
            }
        });
    }
}
