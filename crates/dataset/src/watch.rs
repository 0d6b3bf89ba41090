//! Says when a folder changes, once it has come to rest. Says nothing about what changed: whoever listens looks again.

use crate::error::DatasetError;
use notify::event::{AccessKind, AccessMode};
use notify::{Config, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Quiet needed before a change is told.
const QUIET: Duration = Duration::from_millis(300);
/// A change is told after this long even when the folder does not come to rest, as in a long copy.
const PATIENCE: Duration = Duration::from_secs(3);

/// Watches until it is dropped.
#[derive(Debug)]
pub struct Watch {
    /// Taken first on drop: without it the thread's channel ends.
    watcher: Option<RecommendedWatcher>,
    thread: Option<JoinHandle<()>>,
}

/// Calls `on_change` after changes anywhere below the folder, on a thread of its own.
pub fn watch(folder: &Path, on_change: impl Fn() + Send + 'static) -> Result<Watch, DatasetError> {
    let root = folder
        .canonicalize()
        .map_err(|source| DatasetError::of_folder(folder, source))?;
    let unwatchable = |source| DatasetError::Unwatchable {
        folder: folder.to_path_buf(),
        source,
    };
    let (changes, changed) = channel();
    let notice = move |event: notify::Result<Event>| {
        if event.map_or(true, |e| is_change(&e.kind)) {
            // Fails only when the watch is being dropped.
            let _ = changes.send(());
        }
    };
    // A link may lead to the whole disk, or back.
    let config = Config::default().with_follow_symlinks(false);
    let mut watcher = RecommendedWatcher::new(notice, config).map_err(unwatchable)?;
    watcher
        .watch(&root, RecursiveMode::Recursive)
        .map_err(unwatchable)?;
    let thread = std::thread::Builder::new()
        .name("folder-watch".to_string())
        .spawn(move || tell(&changed, QUIET, PATIENCE, on_change))
        .map_err(|source| DatasetError::Unreadable {
            folder: folder.to_path_buf(),
            source,
        })?;
    Ok(Watch {
        watcher: Some(watcher),
        thread: Some(thread),
    })
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.watcher.take());
        if let Some(thread) = self.thread.take() {
            // A listener may drop its own watch; a thread cannot wait for itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

/// Reading a folder makes events too; taking those for changes would never end.
fn is_change(kind: &EventKind) -> bool {
    !matches!(kind, EventKind::Access(access) if *access != AccessKind::Close(AccessMode::Write))
}

/// Gathers changes until they rest, tells once, and again, until the channel ends.
fn tell(changed: &Receiver<()>, quiet: Duration, patience: Duration, on_change: impl Fn()) {
    while changed.recv().is_ok() {
        let first = Instant::now();
        loop {
            match changed.recv_timeout(quiet) {
                Ok(()) if first.elapsed() < patience => {}
                Ok(()) | Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        on_change();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    #[test]
    fn reading_is_no_change_and_writing_is() {
        let closed = |mode| EventKind::Access(AccessKind::Close(mode));
        assert!(!is_change(&EventKind::Access(AccessKind::Open(
            AccessMode::Any
        ))));
        assert!(!is_change(&closed(AccessMode::Read)));
        assert!(is_change(&closed(AccessMode::Write)) && is_change(&EventKind::Any));
    }

    #[test]
    fn a_burst_is_told_once() {
        let (changes, changed) = channel();
        for _ in 0..50 {
            changes.send(()).expect("the receiver lives");
        }
        let (changes, told) = (RefCell::new(Some(changes)), Cell::new(0));
        tell(&changed, Duration::from_millis(1), PATIENCE, || {
            told.set(told.get() + 1);
            changes.take();
        });
        assert_eq!(told.get(), 1);
    }

    #[test]
    fn a_folder_that_never_rests_is_told_all_the_same() {
        let (changes, changed) = channel();
        let told = Cell::new(0);
        for _ in 0..6 {
            changes.send(()).expect("the receiver lives");
        }
        let changes = RefCell::new(Some(changes));
        tell(&changed, Duration::from_secs(60), Duration::ZERO, || {
            told.set(told.get() + 1);
            if told.get() == 3 {
                changes.take();
            }
        });
        assert_eq!(told.get(), 3, "every second change ran out of patience");
    }
}
