//! The signals that ask the process to end: SIGINT (Ctrl-C), SIGTERM, and SIGHUP, which a closed
//! terminal sends.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A signal that asks the process to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndSignal {
    /// SIGINT: the user pressed Ctrl-C.
    Interrupt,
    /// SIGTERM: another program, or the system, ends the process.
    Terminate,
    /// SIGHUP: the terminal was closed.
    Hangup,
}

/// Receives the signals, which no longer end the process by themselves.
pub struct EndSignals([(EndSignal, Signal); 3]);

impl EndSignals {
    /// Receives signals from now on. Call this function in the context of a runtime.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub fn new() -> io::Result<Self> {
        Ok(EndSignals([
            (EndSignal::Interrupt, signal(SignalKind::interrupt())?),
            (EndSignal::Terminate, signal(SignalKind::terminate())?),
            (EndSignal::Hangup, signal(SignalKind::hangup())?),
        ]))
    }

    /// Waits for the next signal of any kind, and returns which one it was. Signals of one kind
    /// that arrived before this call count once.
    pub async fn received(&mut self) -> EndSignal {
        poll_fn(|context| {
            // If there is no signal, all kinds are polled, so that each of them wakes this task.
            let received = self.0.iter_mut().find_map(|(kind, signal)| {
                let is_received = signal.poll_recv(context).is_ready();
                is_received.then_some(*kind)
            });
            received.map_or(Poll::Pending, Poll::Ready)
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
            for (option, kind) in [
                ("-INT", EndSignal::Interrupt),
                ("-TERM", EndSignal::Terminate),
                ("-HUP", EndSignal::Hangup),
                ("-INT", EndSignal::Interrupt),
                ("-HUP", EndSignal::Hangup),
            ] {
                send(option);
                assert_eq!(signals.received().await, kind);
            }
        });
    }
}
