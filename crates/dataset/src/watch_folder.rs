//! Reports that a folder has changed, after the last of a series of changes. Does not report what
//! changed.

use crate::error::DatasetError;
use notify::event::{AccessKind, AccessMode};
use notify::{Config, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time without changes before a change is reported.
const QUIET: Duration = Duration::from_millis(300);
/// A change is reported after this time even if more changes follow, as in a long copy.
const MAX_DELAY: Duration = Duration::from_secs(3);

/// Watches a folder until it is dropped.
#[derive(Debug)]
pub struct Watch {
    /// Dropped first, which closes the channel of the thread.
    watcher: Option<RecommendedWatcher>,
    thread: Option<JoinHandle<()>>,
}

/// Calls `on_change` after changes anywhere below the folder, on a separate thread.
///
/// # Errors
/// The folder does not exist, or the system cannot report its changes.
pub fn watch(folder: &Path, on_change: impl Fn() + Send + 'static) -> Result<Watch, DatasetError> {
    let root = folder
        .canonicalize()
        .map_err(|source| DatasetError::from_io(folder, source))?;
    let unwatchable = |source| DatasetError::Unwatchable {
        folder: folder.to_path_buf(),
        source,
    };
    let (changes, changed) = channel();
    let on_event = move |event: notify::Result<Event>| {
        if event.map_or(true, |e| is_change(&e.kind)) {
            // Fails only while the watch is being dropped.
            let _ = changes.send(());
        }
    };
    // A link may point to the whole disk, or back to the folder.
    let config = Config::default().with_follow_symlinks(false);
    let mut watcher = RecommendedWatcher::new(on_event, config).map_err(unwatchable)?;
    watcher
        .watch(&root, RecursiveMode::Recursive)
        .map_err(unwatchable)?;
    let thread = std::thread::Builder::new()
        .name("folder-watch".to_string())
        .spawn(move || debounce(&changed, QUIET, MAX_DELAY, on_change))
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
            // `on_change` may drop its own watch, and a thread cannot wait for itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

/// Whether an event is a change. Reading a folder causes events too; reacting to them would never
/// end.
fn is_change(kind: &EventKind) -> bool {
    !matches!(kind, EventKind::Access(access) if *access != AccessKind::Close(AccessMode::Write))
}

/// Calls `on_change` once for each series of changes, until the channel closes.
fn debounce(changed: &Receiver<()>, quiet: Duration, max_delay: Duration, on_change: impl Fn()) {
    while changed.recv().is_ok() {
        let first = Instant::now();
        loop {
            match changed.recv_timeout(quiet) {
                Ok(()) if first.elapsed() < max_delay => {}
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
    fn writing_is_a_change_and_reading_is_not() {
        let closed = |mode| EventKind::Access(AccessKind::Close(mode));
        assert!(!is_change(&EventKind::Access(AccessKind::Open(
            AccessMode::Any
        ))));
        assert!(!is_change(&closed(AccessMode::Read)));
        assert!(is_change(&closed(AccessMode::Write)) && is_change(&EventKind::Any));
    }

    #[test]
    fn a_series_of_changes_is_reported_once() {
        let (changes, changed) = channel();
        for _ in 0..50 {
            changes.send(()).expect("the receiver lives");
        }
        let (changes, reports) = (RefCell::new(Some(changes)), Cell::new(0));
        debounce(&changed, Duration::from_millis(1), MAX_DELAY, || {
            reports.set(reports.get() + 1);
            changes.take();
        });
        assert_eq!(reports.get(), 1);
    }

    #[test]
    fn endless_changes_are_reported_after_the_maximum_delay() {
        let (changes, changed) = channel();
        let reports = Cell::new(0);
        for _ in 0..6 {
            changes.send(()).expect("the receiver lives");
        }
        let changes = RefCell::new(Some(changes));
        debounce(&changed, Duration::from_secs(60), Duration::ZERO, || {
            reports.set(reports.get() + 1);
            if reports.get() == 3 {
                changes.take();
            }
        });
        assert_eq!(reports.get(), 3, "every second change exceeds the delay");
    }
}
