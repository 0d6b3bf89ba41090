//! `ebb stress` takes memory, gives it back, and never outlives its parent process.

use crate::support::TestHome;
use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

fn until<T>(what: &str, wanted: impl Fn() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        match wanted() {
            Some(found) => return found,
            None => assert!(begun.elapsed() < Duration::from_secs(60), "no {what}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn start(home: &TestHome, args: &[&str]) -> Child {
    let mut command = home.ebb(args);
    command.stdout(Stdio::null()).spawn().expect("ebb starts")
}

/// The child process that allocates memory during a stress test.
fn holder(stress_test: &Child) -> Option<u32> {
    let id = stress_test.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

fn resident_bytes(process: u32) -> Option<u64> {
    let pages = fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    let pages: u64 = pages.split(' ').nth(1)?.parse().ok()?;
    (pages > 0).then_some(pages * 4096)
}

#[test]
fn a_stress_test_ends_with_its_parent_process() {
    if !cfg!(target_os = "linux") {
        return println!("skipped: processes are looked up in /proc");
    }
    let home = TestHome::new();
    let mut stress_test = start(&home, &["stress", "--size", "200MB", "--seconds", "300"]);
    let holder = until("holder process", || holder(&stress_test));
    until("allocation of 200 MB", || {
        resident_bytes(holder).filter(|bytes| *bytes > 200 << 20)
    });
    stress_test.kill().expect("it can be killed");
    stress_test.wait().expect("it ends");
    until("end of the holder process", || {
        resident_bytes(holder).is_none().then_some(())
    });
}

#[test]
fn a_stress_test_ends_after_its_time() {
    let home = TestHome::new();
    let begun = Instant::now();
    let output = home.run("stress --size 50MB --seconds 1").expect_code(0);
    assert!(
        output.out.contains("Taking") && output.out.contains("back"),
        "{output:#?}"
    );
    assert!(begun.elapsed() >= Duration::from_secs(1));
}

#[test]
fn a_dangerous_stress_test_is_refused() {
    let home = TestHome::new();
    let output = home.run("stress --size 100000GB").expect_code(1);
    assert!(
        output
            .err
            .contains("would endanger this machine: choose 1 to"),
        "{output:#?}"
    );
    home.run("stress --seconds 100000").expect_code(2);
}
