//! `ebb train` and `ebb resume` are killed at random moments of their lives: while they start, read
//! the folder, train, evaluate, save and resume. No kill damages a checkpoint, none costs more than
//! one interval between checkpoints, and the weights at the end are those of an undisturbed run. In
//! every other run other apps take all memory for a moment, so that kills also hit a run that is
//! suspended.
//!
//! Two runs train at the same time. `EBB_KILLS` sets the number of kills, and `EBB_KILL_SEED`
//! chooses the moments.

use crate::support::{TestHome, draw_classes, memory_script};
use pressure::Change;
use runlog::{RunEvent, RunFolder, RunStore, StopReason};
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const STEPS: u64 = 16;
/// Steps between two checkpoints.
const INTERVAL: u64 = 2;
/// Kills in `make test`; `make test-long` kills more often.
const KILLS: u64 = 50;
/// With so many kills, some hit a suspended run.
const MANY_KILLS: u64 = 200;
/// Memory of the scripted machine.
const TOTAL_BYTES: u64 = 16_000_000_000;
/// Decisions of each process before the shortage, and during it. While a run is suspended, it
/// decides ten times per second.
const CALM_DECISIONS: usize = 8;
const SHORT_DECISIONS: usize = 4;
/// Runs that train and are killed at the same time: each of them often waits for the disk.
const WORKERS: usize = 2;
/// How much longer a process lives that is suspended once.
const SUSPENDED: Duration = Duration::from_millis(500);

fn plan(out: &str) -> String {
    format!(
        "train {{birds}} --image-size 16 --effective-batch 4 --steps {STEPS} \
         --checkpoint-every {INTERVAL}steps --out {{{out}}}"
    )
}

/// The arguments of a process on a machine that is short of memory for a moment.
const SHORTAGE: &str = " --memory-script {shortage} --memory-script-by decision";

fn shortage() -> String {
    let calm = TOTAL_BYTES / 16;
    let others = std::iter::repeat_n(calm, CALM_DECISIONS)
        .chain([TOTAL_BYTES; SHORT_DECISIONS])
        .chain([calm; 5_000]);
    memory_script(TOTAL_BYTES, 1_000, others)
}

/// A number from the environment.
pub fn setting(name: &str, usual: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(usual, |text| text.parse().expect("it is a number"))
}

/// SplitMix64 (Steele, Lea and Flood 2014), as a fraction from 0 to 1.
pub fn draw(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut bits = *state;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((bits ^ (bits >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// The run of the folder `out`; `None` if it was killed before its folder existed.
fn run_in(home: &TestHome, out: &str) -> Option<RunFolder> {
    let runs = RunStore::open(home.path(out)).list();
    runs.unwrap_or_default().into_iter().next()
}

fn events(run: &RunFolder) -> Vec<RunEvent> {
    if run.events_path().exists() {
        runlog::read_events(&run.events_path()).expect("the events can be read")
    } else {
        Vec::new()
    }
}

/// Whether the run has ended at its last step.
pub fn is_finished(events: &[RunEvent]) -> bool {
    let finished = |event: &RunEvent| {
        let RunEvent::Stopped { reason, .. } = event else {
            return false;
        };
        *reason == StopReason::Finished
    };
    events.iter().any(finished)
}

/// The step from which a run must at least resume: that of the newest reported checkpoint, and no
/// more than the interval between two checkpoints before the newest step.
fn least_resumed(events: &[RunEvent], interval: u64) -> u64 {
    let steps = events.iter().map(|event| match event {
        RunEvent::Checkpoint { step, .. } => *step,
        RunEvent::Step { step, .. } => step.saturating_sub(interval),
        _ => 0,
    });
    steps.max().unwrap_or(0)
}

/// Fails if a resumed run lost more than an interval, or found a damaged checkpoint.
pub fn check(log: &[RunEvent], interval: u64) {
    for (at, event) in log.iter().enumerate() {
        match event {
            RunEvent::Resumed { step, .. } => {
                let least = least_resumed(&log[..at], interval);
                assert!(
                    *step >= least,
                    "resumed from {step}, not from {least}: {log:#?}"
                );
            }
            RunEvent::Warning { code, message, .. } => {
                assert_ne!(code, "checkpoint_damaged", "{message}");
            }
            _ => {}
        }
    }
}

/// Weights and moments of the last checkpoint. Checks that no draft of another one is left.
fn last_checkpoint(run: &RunFolder) -> [Vec<u8>; 2] {
    let folder = fs::read_dir(run.checkpoints_path()).expect("the folder can be listed");
    for entry in folder.flatten() {
        let name = entry.file_name();
        assert!(name.to_string_lossy().starts_with("step-"), "{name:?}");
    }
    let mut checkpoints = run.checkpoints().expect("the checkpoints can be listed");
    let last = checkpoints.pop().expect("there is a checkpoint");
    assert_eq!(last.step, STEPS);
    let read = |name: &str| fs::read(last.path.join(name)).expect("the file can be read");
    ["model.safetensors", "optimizer.safetensors"].map(read)
}

/// Whether the newest session of a run is suspended.
fn is_suspended(log: &[RunEvent]) -> bool {
    let mut suspended = false;
    for event in log {
        match event {
            RunEvent::Decision { decision, .. } => match decision.change {
                Change::Suspend => suspended = true,
                Change::Continue => suspended = false,
                _ => {}
            },
            RunEvent::Resumed { .. } | RunEvent::Step { .. } => suspended = false,
            _ => {}
        }
    }
    suspended
}

/// The number of kills, how many of them hit a suspended run, and the number of runs that have
/// begun.
#[derive(Default)]
struct Kills {
    all: AtomicU64,
    suspended: AtomicU64,
    runs: AtomicU64,
}

/// Each process of a run.
struct Process {
    /// It lives for at most this time.
    life: Duration,
    arguments: &'static str,
}

/// Trains a run to its end in spite of kills, which it counts.
fn train_despite_kills(
    home: &TestHome,
    out: &str,
    process: &Process,
    state: &mut u64,
    kills: &Kills,
) {
    loop {
        let run = run_in(home, out);
        let saved = run.as_ref().is_some_and(|run| {
            let log = events(run);
            check(&log, INTERVAL);
            let checkpoints = run.checkpoints().unwrap_or_default();
            assert!(
                !checkpoints.is_empty() || least_resumed(&log, INTERVAL) == 0,
                "no checkpoint is left: {log:#?}"
            );
            !checkpoints.is_empty()
        });
        let line = match run {
            Some(run) if is_finished(&events(&run)) => return,
            Some(run) if saved => format!("resume {}", run.path.display()),
            // Nothing was saved yet, so the run begins anew.
            Some(_) => {
                fs::remove_dir_all(home.path(out)).expect("it can be removed");
                plan(out)
            }
            None => plan(out),
        };
        let training = home.start(&(line + process.arguments));
        thread::sleep(process.life.mul_f64(draw(state)));
        training.signal("KILL");
        let stderr = home.path("stderr");
        match training.finish().0 {
            None => {
                kills.all.fetch_add(1, Ordering::Relaxed);
                let run = run_in(home, out);
                let suspended = run.is_some_and(|run| is_suspended(&events(&run)));
                let suspended = u64::from(suspended);
                kills.suspended.fetch_add(suspended, Ordering::Relaxed);
            }
            code => assert_eq!(
                code,
                Some(0),
                "{}",
                fs::read_to_string(stderr).unwrap_or_default()
            ),
        }
    }
}

/// A home with the images of the runs, and the script of a shortage. It is on a real disk, so that
/// kills also hit a process that waits until a checkpoint is on the disk.
fn home() -> TestHome {
    let home = TestHome::on_disk();
    draw_classes(&home.path("birds"), &["jay", "owl"], 8);
    home.file("shortage", shortage());
    home
}

/// Trains runs to their end in spite of kills, until there were `wanted`. Each of them ends with
/// the weights of an undisturbed run. An undisturbed process lives for about `life`.
fn kill_runs(wanted: u64, seed: u64, life: Duration, kills: &Kills) {
    let home = home();
    while kills.all.load(Ordering::Relaxed) < wanted {
        let run = kills.runs.fetch_add(1, Ordering::Relaxed) + 1;
        let process = if run.is_multiple_of(2) {
            Process {
                life: life + SUSPENDED,
                arguments: SHORTAGE,
            }
        } else {
            Process {
                life,
                arguments: "",
            }
        };
        let (out, whole) = (format!("killed{run}"), format!("whole{run}"));
        let mut state = seed + (run << 32);
        train_despite_kills(&home, &out, &process, &mut state, kills);
        let killed = run_in(&home, &out).expect("it is finished");
        let line = format!("{} --replay {}", plan(&whole), killed.path.display());
        let (code, log) = home.start(&line).finish();
        assert_eq!(code, Some(0), "{log:#?}");
        let whole = run_in(&home, &whole).expect("it is finished");
        let same = last_checkpoint(&killed) == last_checkpoint(&whole);
        assert!(same, "the weights of run {run} differ");
    }
}

#[test]
fn kills_at_random_moments_cost_at_most_one_interval() {
    let home = home();
    let begin = Instant::now();
    let (code, log) = home.start(&plan("first")).finish();
    assert_eq!(code, Some(0), "{log:#?}");
    let life = begin.elapsed();
    let (wanted, seed) = (setting("EBB_KILLS", KILLS), setting("EBB_KILL_SEED", 1));
    let kills = Kills::default();
    thread::scope(|scope| {
        let work = || kill_runs(wanted, seed, life, &kills);
        let workers = [(); WORKERS].map(|()| scope.spawn(work));
        for worker in workers {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    let Kills {
        all,
        suspended,
        runs,
    } = kills;
    let (all, suspended, runs) = (all.into_inner(), suspended.into_inner(), runs.into_inner());
    println!("{all} kills in {runs} runs, {life:.1?} each; {suspended} hit a suspended run");
    assert!(all >= wanted);
    assert!(
        suspended > 0 || wanted < MANY_KILLS,
        "no kill hit a suspended run"
    );
}
