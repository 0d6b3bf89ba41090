//! The disk becomes full while the window trains: the run ends with a checkpoint while one still
//! fits, the window says what to do, and the run resumes once there is space again.

use crate::SOON;
use crate::support::driver::{SmallDisk, fill};
use crate::support::home::{Home, events_in};
use crate::support::until;
use crate::support::window::Window;
use serde_json::Value;
use std::fs;
use std::path::Path;

const DISK_MB: u64 = 256;
/// Space that is left: less than half of the disk, and enough for a checkpoint.
const LEFT_BYTES: u64 = 100_000_000;

/// The newest event of this kind.
fn newest(run: &Path, kind: &str) -> Option<Value> {
    let mut events = events_in(run).into_iter().rev();
    events.find(|event| event["kind"] == kind)
}

#[test]
fn a_disk_that_becomes_full_ends_the_run_with_a_checkpoint() {
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
    let advice = window.wait_for(
        "the window says what to do",
        "const shown = document.querySelector('#status-line')?.textContent ?? ''; return shown.includes('Free some disk space') ? shown : null",
    );
    let advice = advice.as_str().unwrap_or_default();
    assert!(advice.contains("choose Resume"), "{advice}");
    window.screenshot("full-disk");
    let stopped = newest(&run, "stopped").expect("it ended");
    assert_eq!(stopped["reason"], "disk", "{stopped}");
    let step = stopped["step"].as_u64().expect("a step is a count");
    let saved = run.join(format!("checkpoints/step-{step:06}"));
    assert!(
        saved.is_dir(),
        "the last step is saved: {}",
        saved.display()
    );

    fs::remove_file(disk.join("filler")).expect("the filler is there");
    window.click("#resume");
    let resumed = until("it goes on", SOON, || newest(&run, "resumed"));
    assert_eq!(resumed["step"].as_u64(), Some(step));
    until("it trains again", SOON, || {
        let trained = newest(&run, "step")?["step"].as_u64()?;
        (trained > step).then_some(())
    });
    window.click("#stop");
    window.wait_for_status("stopped");
}
