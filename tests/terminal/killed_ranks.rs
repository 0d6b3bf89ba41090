//! Ranks of groups that `--on` has started are killed at random moments (`kill -9`), rank 0 too.
//! The supervisor starts the group again each time: at most one interval between checkpoints is
//! repeated, no checkpoint is damaged, no group hangs, and the weights at the end are those of an
//! undisturbed run on one machine. A machine that is away for a while takes part again, a rank that
//! is stopped (SIGSTOP) is left out, and a group that cannot start again ends with a reason.
//!
//! `EBB_RANK_KILLS` sets the number of kills, and `EBB_KILL_SEED` chooses ranks and moments.
//! Without Open MPI's `mpirun` the tests print that they are left out.

use crate::on_hosts::{PLAN, command, kill};
use crate::random_kills::{check, draw, is_finished, setting};
use crate::several_machines::{birds, find_rank, has_launcher};
use crate::support::{TestHome, run_command};
use runlog::{RunEvent, RunFolder, StopReason, read_events};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const STEPS: u64 = 300;
/// Steps between two checkpoints.
const INTERVAL: u64 = 10;
const HOSTS: &str = "localhost,localhost,localhost";
const RANKS: usize = 3;
/// More steps than any test waits for.
const ENDLESS: u64 = 1_000_000;
/// Kills in `make test`.
const KILLS: u64 = 3;
/// From this number of kills on, some of them hit a group that is still starting.
const MANY_KILLS: u64 = 20;
/// Most kills of one run, which should not end before the last of them.
const MOST_PER_RUN: usize = 8;
/// A group that does nothing for this time hangs.
const PATIENCE: Duration = Duration::from_secs(150);
/// Median time from a kill to the next completed step.
const RESTART: Duration = Duration::from_secs(15);
/// Longest time until a group works again without a rank that does not answer any more.
const LEFT_OUT: Duration = Duration::from_secs(75);
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
    fn start(line: &str) -> Training {
        let home = birds();
        let log = File::create(home.path("log")).expect("it can be created");
        let supervisor = command(&home, line)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("ebb starts");
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

    /// Kills a random rank of the group after a random moment.
    fn kill_now(&mut self, training: &mut Training, state: &mut u64) -> bool {
        thread::sleep(Duration::from_millis(50).mul_f64(draw(state)));
        let rank = (RANKS as f64 * draw(state)) as usize;
        let Some(process) = training.wait_for_rank(rank) else {
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
fn last_weights(run: &RunFolder) -> BTreeMap<String, Vec<f64>> {
    let folder = fs::read_dir(run.checkpoints_path()).expect("the folder can be listed");
    for entry in folder.flatten() {
        let name = entry.file_name();
        assert!(name.to_string_lossy().starts_with("step-"), "{name:?}");
    }
    let mut checkpoints = run.checkpoints().expect("the checkpoints can be listed");
    let last = checkpoints.pop().expect("there is a checkpoint");
    assert_eq!(last.step, STEPS);
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
    let alone = birds();
    run_command(&mut command(&alone, &plan(STEPS))).expect_code(0);
    let expected = last_weights(&alone.only_run());
    let mut state = setting("EBB_KILL_SEED", 1);
    let mut kills = Kills {
        wanted: setting("EBB_RANK_KILLS", KILLS),
        ..Kills::default()
    };
    let (mut runs, mut worst) = (0, 0.0f64);
    while kills.count < kills.wanted {
        runs += 1;
        let before = kills.count;
        let mut training = Training::start(&format!("{} --on {HOSTS}", plan(STEPS)));
        kills.train(&mut training, &mut state);
        assert!(
            kills.count > before,
            "the run ended before it was disturbed"
        );
        let drift = difference(&last_weights(&training.home.only_run()), &expected);
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

#[test]
fn a_machine_that_was_away_takes_part_again() {
    if !has_launcher() {
        return;
    }
    // Slower steps: the supervisor looks for the machine only once a minute.
    let plan = plan(ENDLESS)
        .replace("--image-size 16", "--image-size 64")
        .replace("--effective-batch 8", "--effective-batch 16");
    let mut training = Training::start(&format!("{plan} --on localhost,other"));
    assert!(training.wait_for(1, &has_saved));
    let away = training.home.file("home.away", "");
    kill(training.wait_for_rank(1).expect("the training goes on"));
    assert!(training.wait_for(2, &|session| steps(session) > 0));
    let began = Instant::now();
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
    let supervisor = training.supervisor.id().to_string();
    let sent = Command::new("kill").args(["-INT", &supervisor]).status();
    assert!(sent.is_ok_and(|status| status.success()));
    let status = training.wait_for_end();
    assert!(status.success(), "{status}: {}", training.log());
    let events = training.events();
    let Some(RunEvent::Stopped { reason, .. }) = events.last() else {
        panic!("{:?}", events.last());
    };
    assert_eq!(*reason, StopReason::Requested);
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

#[test]
fn a_stopped_rank_is_named_and_left_out() {
    if !has_launcher() {
        return;
    }
    let mut training = Training::start(&format!("{} --on localhost,other", plan(ENDLESS)));
    assert!(training.wait_for(1, &has_saved));
    let process = training.wait_for_rank(1).expect("the training goes on");
    // A machine that sleeps does not answer ssh either.
    training.home.file("home.away", "");
    let stopped = Instant::now();
    let _process = StoppedProcess::new(process);
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
    assert!(left_out <= LEFT_OUT, "{left_out:?}");
    let events = training.events();
    let sessions = begins(&events);
    assert!(members(&events[sessions[1]..]).is_none_or(|count| count == 1));
    check(&events, INTERVAL);
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
