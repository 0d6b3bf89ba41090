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

fn begun(home: &TestHome, args: &[&str]) -> Child {
    let mut command = home.ebb(args);
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
fn a_stress_test_ends_with_its_parent_process() {
    if !cfg!(target_os = "linux") {
        return println!("skipped: processes are looked up in /proc");
    }
    let home = TestHome::new();
    let mut drill = begun(&home, &["drill", "--size", "200MB", "--seconds", "60"]);
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
fn a_stress_test_ends_after_its_time() {
    let home = TestHome::new();
    let begun = Instant::now();
    let output = home.run("drill --size 50MB --seconds 1").expect_code(0);
    assert!(
        output.out.contains("Taking") && output.out.contains("back"),
        "{output:#?}"
    );
    assert!(begun.elapsed() >= Duration::from_secs(1));
}

#[test]
fn a_dangerous_stress_test_is_refused() {
    let home = TestHome::new();
    let output = home.run("drill --size 100000GB").expect_code(1);
    assert!(
        output
            .err
            .contains("would endanger this machine: choose 1 to"),
        "{output:#?}"
    );
    home.run("drill --seconds 100000").expect_code(2);
}
