//! Watching a folder for changes.

use crate::support::Folder;
use dataset::{DatasetError, watch};
use std::fs;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Much longer than a change takes to be reported.
const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn changes_at_any_depth_are_reported_until_the_drop() {
    let folder = Folder::with_images(&["ant/1.jpg", "bee/1.jpg"]);
    let (send, changes) = channel();
    let watching = watch(folder.path(), move || {
        let _ = send.send(());
    })
    .expect("the folder can be watched");
    folder.put("ant/2.jpg", b"new");
    changes.recv_timeout(LIMIT).expect("a new file is reported");
    fs::remove_file(folder.path().join("bee/1.jpg")).expect("it was there");
    changes
        .recv_timeout(LIMIT)
        .expect("a removed file is reported");
    drop(watching);
    while changes.try_recv().is_ok() {}
    assert!(
        changes.recv().is_err(),
        "the callback is dropped with the watch"
    );
}

#[test]
fn a_missing_folder_cannot_be_watched() {
    let folder = Folder::new();
    let got = watch(&folder.path().join("nowhere"), || {});
    assert!(
        matches!(got, Err(DatasetError::MissingFolder { .. })),
        "{got:?}"
    );
}
