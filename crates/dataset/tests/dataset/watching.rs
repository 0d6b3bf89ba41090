//! A watched folder says that it changed.

use crate::support::Folder;
use dataset::{DatasetError, watch};
use std::fs;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Far longer than a change takes to be told.
const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn changes_at_any_depth_are_told_until_the_watch_is_dropped() {
    let folder = Folder::of(&["ant/1.jpg", "bee/1.jpg"]);
    let (tell, told) = channel();
    let watching = watch(folder.path(), move || {
        let _ = tell.send(());
    })
    .expect("the folder can be watched");
    folder.put("ant/2.jpg", b"new");
    told.recv_timeout(LIMIT).expect("a new file is told");
    fs::remove_file(folder.path().join("bee/1.jpg")).expect("it was there");
    told.recv_timeout(LIMIT).expect("a file that went is told");
    drop(watching);
    while told.try_recv().is_ok() {}
    assert!(told.recv().is_err(), "the listener is gone with the watch");
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
