//! `--on HOSTS`: Ebb starts the processes of a group by itself, stops them and starts them again.
//! A script in the place of ssh stands in for other machines: it fails like ssh, or runs the
//! command here.

use crate::several_machines::{birds, has_launcher};
#[cfg(target_os = "linux")]
use crate::support::RunningTraining;
use crate::support::{CommandOutput, TestHome, losses, run_command};
use runlog::RunEvent;
#[cfg(target_os = "linux")]
use runlog::{StopReason, read_events};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
#[cfg(target_os = "linux")]
use std::time::Duration;
use std::time::Instant;

pub const PLAN: &str = "--json --device cpu --seed 7 --image-size 16 --effective-batch 8 --baseline none --precision f64 --threads 1";

/// Fails like ssh for some hosts. For `other` it runs the command, unless the file `away` exists,
/// or the file `broken`, with which the machine answers but starts no process.
const SSH: &str = r#"#!/bin/sh
echo "$@" >> "$EBB_HOME.ssh"
while [ $# -gt 1 ]; do
  case $1 in -o) shift 2 ;; -*) shift ;; *) break ;; esac
done
host=$1; shift
case $host in
  nowhere) echo "ssh: Could not resolve hostname nowhere: Name or service not known" >&2; exit 255 ;;
  closed) echo "ssh: connect to host closed port 22: Connection refused" >&2; exit 255 ;;
  locked) echo "me@locked: Permission denied (publickey)." >&2; exit 255 ;;
  slow) exec sleep 60 ;;
  empty) exit 127 ;;
  old) echo '{"build":"0.0.1 (commit abc)","program":"/bin/ebb","cores":8,"total_bytes":8,"library":{"Ok":"libmpi.so.40"}}' ;;
  other) [ ! -e "$EBB_HOME.away" ] || { echo "ssh: connect to host other port 22: No route to host" >&2; exit 255; }
    case $* in *--probe*) ;; *) [ ! -e "$EBB_HOME.broken" ] || exit 1 ;; esac
    exec sh -c "$*" ;;
esac
"#;

/// A folder of programs that comes first in the path, with [`SSH`].
fn with_ssh(home: &TestHome, command: &mut Command) {
    let folder = home.path("programs");
    std::fs::create_dir_all(&folder).expect("it can be created");
    let ssh = home.file("programs/ssh", SSH);
    std::fs::set_permissions(ssh, std::fs::Permissions::from_mode(0o755)).expect("it is a file");
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", folder.display()));
}

/// `ebb LINE`, with the folder for temporary files and ssh of this test.
pub fn command(home: &TestHome, line: &str) -> Command {
    let birds = home.path("birds").display().to_string();
    let words = line.split(' ').map(|word| word.replace("{birds}", &birds));
    let mut command = home.ebb(words);
    command.env("TMPDIR", home.path(""));
    // Most tests watch how a group starts again.
    command.env("EBB_FAULT_TOLERANCE", "none");
    // All hosts are this machine, but mpirun takes those of ssh for other ones. Through shared
    // memory, their processes would use each other's queues.
    command.env("OMPI_MCA_btl", "self,tcp");
    with_ssh(home, &mut command);
    command
}

fn run(home: &TestHome, line: &str) -> CommandOutput {
    run_command(&mut command(home, line))
}

/// What ssh was called with.
fn ssh_calls(home: &TestHome) -> String {
    std::fs::read_to_string(home.path("home.ssh")).unwrap_or_default()
}

#[test]
fn hostile_host_names_start_no_process() {
    let home = birds();
    let long = "a".repeat(300);
    for list in [
        "-oProxyCommand=touch",
        "a,-b",
        "",
        "a,,b",
        "a\nb",
        "a;b",
        "$(touch x)",
        long.as_str(),
        "me@other",
    ] {
        for line in ["cluster", "train {birds} --steps 1", "resume any"] {
            let mut command = command(&home, line);
            // `--` and `=` keep the argument parser from taking the name for an option.
            let args = match line {
                "cluster" => vec!["--".to_owned(), list.to_owned()],
                _ => vec![format!("--on={list}")],
            };
            let output = run_command(command.args(args));
            assert_eq!(output.code, Some(2), "{list:?} {line}: {output:#?}");
        }
    }
    assert_eq!(ssh_calls(&home), "", "no process was started");
    assert_eq!(home.leftover_files(), [] as [PathBuf; 0]);
}

/// Longest time, in seconds, until machines that do not answer are named, and until a group stops.
const SOON_S: f64 = 8.0;
/// Most times that a time is measured: other processes may hold one of them up.
const TRIES: usize = 3;

#[test]
fn more_gpus_than_the_machine_has_are_refused() {
    let home = birds();
    for line in [
        "train {birds} --steps 1 --gpus 1000",
        "train {birds} --steps 1 --gpus 0",
        "train {birds} --steps 1 --gpus 2 --on localhost",
        "resume any --gpus 1000",
        "plan {birds} --gpus 2",
    ] {
        let refused = run(&home, line).expect_code(2);
        assert!(refused.err.contains("--gpus"), "{line}: {refused:#?}");
    }
    assert_eq!(home.leftover_files(), [] as [PathBuf; 0]);
}

#[test]
fn a_patience_that_is_no_number_is_refused() {
    let home = birds();
    let line = format!("train {{birds}} {PLAN} --steps 1 --on localhost,localhost");
    let mut command = command(&home, &line);
    let refused = run_command(command.env("EBB_GROUP_PATIENCE", "soon")).expect_code(2);
    assert!(
        refused.err.contains("EBB_GROUP_PATIENCE must be a number"),
        "{refused:#?}"
    );
    assert_eq!(home.leftover_files(), [] as [PathBuf; 0]);
}

#[test]
fn machines_that_cannot_take_part_are_named_soon() {
    if !has_launcher() {
        return;
    }
    let home = birds();
    let hosts = "localhost,nowhere,closed,locked,slow,empty,old,other";
    let (mut fastest, mut tries) = (f64::INFINITY, 0);
    let found = loop {
        let began = Instant::now();
        let found = run(&home, &format!("cluster {hosts}")).expect_code(1);
        let seconds = began.elapsed().as_secs_f64();
        println!("7 machines that do not answer are named within {seconds:.1} s");
        fastest = fastest.min(seconds);
        tries += 1;
        if fastest <= SOON_S || tries == TRIES {
            break found;
        }
    };
    assert!(fastest <= SOON_S, "{fastest}");
    for line in [
        "nowhere: no machine of this name is known",
        "closed: the machine refuses connections to its ssh port",
        "locked: the machine accepts none of your ssh keys",
        "slow: the machine has not answered for",
        "empty: Ebb is not installed there",
        "old: the machine has Ebb 0.0.1 (commit abc), but this machine has",
    ] {
        assert!(found.out.contains(line), "{line}: {found:#?}");
    }
    assert!(found.out.contains("other: "), "{found:#?}");
    assert!(
        found.err.contains("6 of 8 machines cannot take part"),
        "{found:#?}"
    );
    // A training does not begin, and the rest is offered.
    let line = format!("train {{birds}} {PLAN} --on localhost,nowhere,other --steps 1");
    let refused = run(&home, &line).expect_code(1);
    assert!(
        refused.err.contains("nowhere: no machine of this name"),
        "{refused:#?}"
    );
    assert!(
        refused.err.contains("use --on localhost,other"),
        "{refused:#?}"
    );
    let elsewhere = run(&home, &format!("train {{birds}} {PLAN} --on other")).expect_code(2);
    assert!(
        elsewhere.err.contains("must be one of the machines"),
        "{elsewhere:#?}"
    );
    assert_eq!(home.leftover_files(), [] as [PathBuf; 0]);
}

/// Losses by step: a repeated step counts once, with its last loss.
#[cfg(target_os = "linux")]
pub fn losses_by_step(home: &TestHome) -> Vec<f64> {
    let events = read_events(&home.only_run().events_path()).expect("they can be read");
    let mut losses = std::collections::BTreeMap::new();
    for event in events {
        if let RunEvent::Step { step, loss, .. } = event {
            losses.insert(step, loss);
        }
    }
    losses.into_values().collect()
}

/// Compares the losses of a group with those of one machine.
#[track_caller]
pub fn assert_same(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            (found - expected).abs() <= 1e-10 * expected,
            "{found} {expected}"
        );
    }
}

#[test]
fn two_machines_train_one_run() {
    if !has_launcher() {
        return;
    }
    let alone = birds();
    let expected = run(&alone, &format!("train {{birds}} {PLAN} --steps 30")).expect_code(0);
    let expected = losses(&expected.events());
    for hosts in ["localhost,localhost", "localhost,other"] {
        let home = birds();
        let line = format!("train {{birds}} {PLAN} --steps 30 --on {hosts}");
        let group = run(&home, &line).expect_code(0);
        assert_same(&losses(&group.events()), &expected);
        let members = group.events().into_iter().find_map(|event| match event {
            RunEvent::Group { members, .. } => Some(members.len()),
            _ => None,
        });
        assert_eq!(members, Some(2), "{group:#?}");
        if hosts == "localhost,localhost" {
            continue;
        }
        // A finished run is trained longer, by three processes.
        let run_path = home.only_run().path;
        let longer = format!(
            "resume {} --json --steps 34 --on localhost,{hosts}",
            run_path.display()
        );
        let longer = run(&home, &longer).expect_code(0);
        assert_eq!(losses(&longer.events()).len(), 4, "{longer:#?}");
    }
}

/// A group of two processes that has trained for 20 steps, and does not end by itself.
#[cfg(target_os = "linux")]
fn training_group(home: &TestHome) -> RunningTraining {
    let line = format!("train {{birds}} {PLAN} --steps 1000000 --on localhost,localhost");
    let training = home.spawn(command(home, &line));
    let began = Instant::now();
    loop {
        let runs = home.runs();
        let events = runs.first().map(|run| read_events(&run.events_path()));
        let events = events.and_then(Result::ok).unwrap_or_default();
        if losses(&events).len() >= 20 {
            return training;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "{events:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[cfg(target_os = "linux")]
pub fn kill(process: u32) {
    let killed = Command::new("kill")
        .args(["-KILL", &process.to_string()])
        .status();
    assert!(killed.is_ok_and(|status| status.success()));
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupt_stops_the_group_with_a_checkpoint() {
    if !has_launcher() {
        return;
    }
    let fastest = (0..TRIES)
        .map(|_| seconds_to_stop(&birds()))
        .find(|seconds| *seconds <= SOON_S);
    assert!(fastest.is_some(), "no group stopped within {SOON_S} s");
}

/// Interrupts a group that trains. Returns how long it takes to save a checkpoint and to end.
#[cfg(target_os = "linux")]
fn seconds_to_stop(home: &TestHome) -> f64 {
    let training = training_group(home);
    let began = Instant::now();
    training.signal("INT");
    assert_eq!(training.wait(), Some(0));
    let seconds = began.elapsed().as_secs_f64();
    println!("stopped with a checkpoint, and ended, within {seconds:.1} s");
    let events = read_events(&home.only_run().events_path()).expect("they can be read");
    let Some(RunEvent::Stopped { reason, step, .. }) = events.last() else {
        panic!("{:?}", events.last());
    };
    assert_eq!(*reason, StopReason::Requested);
    let saved = home.only_run().checkpoints().expect("they can be listed");
    assert_eq!(saved.last().map(|saved| saved.step), Some(*step));
    seconds
}

#[cfg(target_os = "linux")]
#[test]
fn a_group_saves_and_stops_if_its_supervisor_is_killed() {
    if !has_launcher() {
        return;
    }
    let home = birds();
    let training = training_group(&home);
    training.signal("KILL");
    let began = Instant::now();
    let run = home.only_run();
    while run.is_alive() {
        assert!(began.elapsed() < Duration::from_secs(60), "it stops");
        std::thread::sleep(Duration::from_millis(50));
    }
    let events = read_events(&run.events_path()).expect("they can be read");
    assert!(
        matches!(events.last(), Some(RunEvent::Stopped { .. })),
        "{:?}",
        events.last()
    );
}
