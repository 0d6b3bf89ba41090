//! One run in several processes, started by `mpirun`. Without Open MPI's `mpirun` these tests print
//! that they are left out.

#[cfg(target_os = "linux")]
use crate::support::CommandOutput;
use crate::support::{EBB, TestHome, draw_classes, losses, run_command};
#[cfg(target_os = "linux")]
use runlog::RunEvent;
use std::process::{Command, Stdio};
#[cfg(target_os = "linux")]
use std::time::{Duration, Instant};

const PLAN: &str = "train {birds} --json --device cpu --threads 1 --seed 7 --image-size 16 --effective-batch 8 --baseline none";

pub fn birds() -> TestHome {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 14);
    home
}

pub fn has_launcher() -> bool {
    let version = Command::new("mpirun").arg("--version").output();
    let found =
        version.is_ok_and(|version| String::from_utf8_lossy(&version.stdout).contains("Open MPI"));
    if !found {
        println!("left out: there is no mpirun of Open MPI (Debian: apt-get install openmpi-bin)");
    }
    found
}

/// A command that starts these processes of `ebb` as one group.
fn launch(home: &TestHome, processes: &[&str]) -> Command {
    let mut mpirun = Command::new("mpirun");
    mpirun.args([
        "--oversubscribe",
        "--allow-run-as-root",
        "--bind-to",
        "none",
    ]);
    for (index, line) in processes.iter().enumerate() {
        if index > 0 {
            mpirun.arg(":");
        }
        let birds = home.path("birds").display().to_string();
        mpirun.args(["-n", "1", EBB]);
        let words = line.split_whitespace();
        mpirun.args(words.map(|word| word.replace("{birds}", &birds)));
    }
    mpirun
        .env("EBB_HOME", home.path("home"))
        .env("TMPDIR", home.path(""))
        .stdin(Stdio::null());
    mpirun
}

/// Scratch folders of ranks.
fn scratch_folders(home: &TestHome) -> usize {
    let entries = std::fs::read_dir(home.path("")).expect("the folder can be read");
    let names = entries.map(|entry| entry.expect("an entry can be read").file_name());
    names
        .filter(|name| name.to_string_lossy().starts_with("ebb-rank-"))
        .count()
}

#[test]
fn several_processes_train_one_run() {
    if !has_launcher() {
        return;
    }
    let home = birds();
    let plan = format!("{PLAN} --precision f64 --steps 30 --micro-batch");
    let alone = home.run(&format!("{plan} 3")).expect_code(0);
    let expected = losses(&alone.events());
    for sizes in [&[3, 2][..], &[2, 1, 4]] {
        let lines: Vec<String> = sizes.iter().map(|size| format!("{plan} {size}")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let group = run_command(&mut launch(&home, &lines)).expect_code(0);
        let found = losses(&group.events());
        assert_eq!(found.len(), 30, "rank 0 alone prints: {group:#?}");
        for (found, expected) in found.iter().zip(&expected) {
            assert!(
                (found - expected).abs() <= 1e-12 * expected,
                "{found} {expected}"
            );
        }
        assert_eq!(scratch_folders(&home), 0);
    }
    assert_eq!(home.runs().len(), 3, "one run per training");
    // The run continues on one machine.
    let newest = home.runs().remove(0);
    let resumed = format!("resume {} --steps 35 --json", newest.path.display());
    let resumed = home.run(&resumed).expect_code(0);
    assert_eq!(losses(&resumed.events()).len(), 5);
}

#[test]
fn a_difference_between_processes_is_named() {
    if !has_launcher() {
        return;
    }
    let home = birds();
    let here = format!("{PLAN} --steps 3");
    let there = format!("{PLAN} --steps 3 --learning-rate 0.05");
    let refused = run_command(&mut launch(&home, &[&here, &there]));
    assert_ne!(refused.code, Some(0));
    let expected = "ebb: the machines disagree: the first setting that differs is";
    assert_eq!(refused.err.matches(expected).count(), 1, "{}", refused.err);
    assert!(
        refused.err.contains("learning_rate = 0.05"),
        "{}",
        refused.err
    );
    // A folder that only one machine has.
    let missing = here.replace("{birds}", "/nowhere/birds");
    let refused = run_command(&mut launch(&home, &[&here, &missing]));
    assert!(refused.err.contains("ebb: rank 1 ("), "{}", refused.err);
    assert!(refused.err.contains("/nowhere/birds"), "{}", refused.err);
    assert_eq!(
        (home.leftover_files().len(), scratch_folders(&home)),
        (0, 0)
    );
}

/// The process of a rank.
#[cfg(target_os = "linux")]
fn process_of_rank(home: &TestHome, rank: usize) -> u32 {
    find_rank(home, rank).expect("the rank runs")
}

/// The process of a rank, found by its launcher's variable; `None` if it does not run.
#[cfg(target_os = "linux")]
pub fn find_rank(home: &TestHome, rank: usize) -> Option<u32> {
    let (rank, home) = (
        format!("OMPI_COMM_WORLD_RANK={rank}"),
        format!("EBB_HOME={}", home.path("home").display()),
    );
    let processes = std::fs::read_dir("/proc")
        .expect("it can be read")
        .flatten();
    let mut ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_it = |id: &u32| {
        let variables = std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        let variables: Vec<_> = variables.split(|byte| *byte == 0).collect();
        [&rank, &home]
            .iter()
            .all(|wanted| variables.contains(&wanted.as_bytes()))
    };
    ids.find(is_it)
}

#[cfg(target_os = "linux")]
#[test]
fn the_death_of_a_process_ends_the_run_with_a_checkpoint() {
    if !has_launcher() {
        return;
    }
    let home = birds();
    let plan = format!("{PLAN} --steps 1000000");
    let mut command = launch(&home, &[&plan, &plan]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("mpirun starts");
    let begun = Instant::now();
    let steps = || {
        let runs = home.runs();
        let events = runs
            .first()
            .map(|run| runlog::read_events(&run.events_path()));
        let events = events.and_then(Result::ok).unwrap_or_default();
        losses(&events).len()
    };
    while steps() < 20 {
        assert!(begun.elapsed() < Duration::from_secs(120), "it trains");
        std::thread::sleep(Duration::from_millis(100));
    }
    let killed = process_of_rank(&home, 1).to_string();
    let sent = Command::new("kill").args(["-KILL", &killed]).status();
    assert!(sent.is_ok_and(|status| status.success()));
    let output = child.wait_with_output().expect("mpirun ends");
    let output = CommandOutput {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    assert_ne!(output.code, Some(0));
    let run = home.only_run();
    let saved = run.checkpoints().expect("the checkpoints can be listed");
    let newest = saved.iter().map(|saved| saved.step).max();
    let newest = newest.expect("a checkpoint was saved");
    let events = runlog::read_events(&run.events_path()).expect("the events can be read");
    let Some(RunEvent::Failed { message, .. }) = events.last() else {
        panic!("{:?} {}", events.last(), output.err);
    };
    assert!(message.contains("rank 1 ("), "{message}");
    let named = runlog::RunFolder::checkpoint_name(newest);
    assert!(
        message.contains(&named) && message.contains("ebb resume"),
        "{message}"
    );
    assert!(output.err.contains(message.as_str()), "{}", output.err);
}

#[test]
fn processes_can_exchange_gradients_in_bf16() {
    if !has_launcher() {
        return;
    }
    let home = birds();
    let plan = format!("{PLAN} --steps 12 --exchange bf16");
    let trained = run_command(&mut launch(&home, &[&plan, &plan, &plan])).expect_code(0);
    let found = losses(&trained.events());
    assert_eq!(found.len(), 12);
    assert!(found.iter().all(|loss| loss.is_finite()), "{found:?}");
    let run = home.only_run().path;
    let shown = home.run(&format!("runs show {}", run.display()));
    let shown = shown.expect_code(0);
    let changed = shown.out.contains("; gradients are exchanged in bf16");
    let used = shown.out.contains("exchange of gradients in bf16: ");
    assert!(changed && used, "{}", shown.out);
    // All processes must exchange the same type.
    let exact = format!("{PLAN} --steps 12");
    let refused = run_command(&mut launch(&home, &[&plan, &exact]));
    assert_ne!(refused.code, Some(0));
    let named = refused
        .err
        .contains("the first setting that differs is `exchange = ");
    assert!(named, "{refused:#?}");
}

#[test]
fn a_run_goes_on_in_several_processes() {
    if !has_launcher() {
        return;
    }
    let home = birds();
    let plan = format!("{PLAN} --precision f64 --checkpoint-every 4steps --keep 9");
    let whole = home.run(&format!("{plan} --steps 16")).expect_code(0);
    let expected = losses(&whole.events());
    let run = home.only_run().path;
    // As if it had been killed after step 8.
    for saved in home.only_run().checkpoints().expect("they can be listed") {
        if saved.step > 8 {
            std::fs::remove_dir_all(saved.path).expect("it was written");
        }
    }
    let line = format!("resume {} --json", run.display());
    let resumed = run_command(&mut launch(&home, &[&line, &line])).expect_code(0);
    let found = losses(&resumed.events());
    assert_eq!(found.len(), 8, "{resumed:#?}");
    for (found, expected) in found.iter().zip(&expected[8..]) {
        assert!(
            (found - expected).abs() <= 1e-12 * expected,
            "{found} {expected}"
        );
    }
    assert_eq!(scratch_folders(&home), 0);
    let shown = home
        .run(&format!("runs show {}", run.display()))
        .expect_code(0);
    assert!(
        shown.out.contains("Machines:") && shown.out.contains("rank 1 ("),
        "{shown:#?}"
    );
    // A process that does not find the samples is named before anything is trained.
    let missing = format!("{line} --folder /nowhere");
    let refused = run_command(&mut launch(&home, &[&line, &missing]));
    assert_ne!(refused.code, Some(0));
    assert!(
        refused.err.contains("ebb: rank 1 (") && refused.err.contains("/nowhere"),
        "{refused:#?}"
    );
}
