//! A drill takes what it says, gives it back, and never outlives whoever began it.

use crate::support::TestHome;
use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

fn until<T>(what: &str, wanted: impl Fn() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        match wanted() {
            Some(found) => return found,
            None => assert!(
                begun.elapsed() < Duration::from_secs(20),
                "{what} did not come"
            ),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn begun(place: &TestHome, args: &[&str]) -> Child {
    let mut command = place.ebb(args);
    command.stdout(Stdio::null()).spawn().expect("ebb starts")
}

/// The process that holds the memory of a drill.
fn holder(drill: &Child) -> Option<u32> {
    let id = drill.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

fn resident_bytes(process: u32) -> Option<u64> {
    let pages = fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    let pages: u64 = pages.split(' ').nth(1)?.parse().ok()?;
    (pages > 0).then_some(pages * 4096)
}

#[test]
fn a_drill_ends_with_who_began_it() {
    if !cfg!(target_os = "linux") {
        return println!("left out: processes are looked up in /proc");
    }
    let place = TestHome::new();
    let mut drill = begun(&place, &["drill", "--size", "200MB", "--seconds", "60"]);
    let holder = until("the holder", || holder(&drill));
    until("200 MB taken", || {
        resident_bytes(holder).filter(|bytes| *bytes > 200 << 20)
    });
    drill.kill().expect("it can be killed");
    drill.wait().expect("it ends");
    until("the holder's end", || {
        resident_bytes(holder).is_none().then_some(())
    });
}

#[test]
fn a_drill_gives_back_after_its_time() {
    let place = TestHome::new();
    let begun = Instant::now();
    let output = place.run("drill --size 50MB --seconds 1").ended(0);
    assert!(
        output.out.contains("Taking") && output.out.contains("back"),
        "{output:#?}"
    );
    assert!(begun.elapsed() >= Duration::from_secs(1));
}

#[test]
fn a_drill_that_would_endanger_the_machine_is_refused() {
    let place = TestHome::new();
    let output = place.run("drill --size 100000GB").ended(1);
    assert!(
        output
            .err
            .contains("would endanger this machine: choose 1 to"),
        "{output:#?}"
    );
    place.run("drill --seconds 100000").ended(2);
}
