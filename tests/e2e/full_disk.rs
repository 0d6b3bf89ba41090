//! The disk becomes full while the window trains: one checkpoint is saved while one still fits, a
//! warning says so, and the run trains on, even without any free space. Once there is space again,
//! its events are complete.

use crate::SOON;
use crate::support::driver::{SmallDisk, fill};
use crate::support::home::{Home, events_in};
use crate::support::until;
use crate::support::window::Window;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;

const DISK_MB: u64 = 256;
/// Space that is left: less than half of the disk, and enough for a checkpoint.
const LEFT_BYTES: u64 = 100_000_000;

/// The newest event of this kind.
fn newest(run: &Path, kind: &str) -> Option<Value> {
    let mut events = events_in(run).into_iter().rev();
    events.find(|event| event["kind"] == kind)
}

/// Fills the disk to its last byte.
fn fill_completely(disk: &Path) {
    let mut file = File::create(disk.join("rest")).expect("it can be created");
    let full = io::copy(&mut io::repeat(0), &mut file).expect_err("it is full");
    assert_eq!(full.kind(), ErrorKind::StorageFull);
}

#[test]
fn a_run_trains_on_while_its_disk_is_full() {
    let home = Home::new();
    let Some(small) = SmallDisk::allowed(DISK_MB) else {
        return println!("skipped: no disk can be mounted here (unshare -m, mount -t tmpfs)");
    };
    let window = Window::open_on(&small, &["app"], home.path());
    // The disk is mounted for the window only.
    let disk = window.path_inside(home.path());
    window.click("#open-sample");
    window.click("#train");
    let run = disk.join("runs").join(window.run_id());
    until("it trains", SOON, || newest(&run, "step"));
    fill(&disk, LEFT_BYTES).expect("the disk has space for the filler");
    let warned = until("the run warns", SOON, || {
        let mut events = events_in(&run).into_iter();
        events.find(|event| event["code"] == "disk_short")
    });
    let message = warned["message"].as_str().unwrap_or_default();
    assert!(message.contains("of disk space is left"), "{message}");
    let saved = newest(&run, "checkpoint").expect("one still fits");
    let path = saved["path"].as_str().unwrap_or_default();
    assert!(run.join(path).is_dir(), "{path} is saved");

    fill_completely(&disk);
    let step = || newest(&run, "step").and_then(|event| event["step"].as_u64());
    let written = step();
    window.click("#open-notes");
    window.wait_for(
        "the window says that no events can be written",
        "return document.body.textContent.includes('its events are written once the disk accepts them') || null",
    );
    window.screenshot("full-disk");
    window.wait_for_status("training");
    fs::remove_file(disk.join("rest")).expect("it is there");
    fs::remove_file(disk.join("filler")).expect("it is there");
    until("the events are complete", SOON, || {
        (step() > written).then_some(())
    });
    let steps: Vec<u64> = events_in(&run)
        .iter()
        .filter(|event| event["kind"] == "step")
        .filter_map(|event| event["step"].as_u64())
        .collect();
    let expected: Vec<u64> = (1..=steps.len() as u64).collect();
    assert_eq!(steps, expected, "no step is lost");
    window.click("#stop");
    window.wait_for_status("stopped");
}
