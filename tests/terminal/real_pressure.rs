//! Real memory pressure on Linux: another process in the same cgroup, a cgroup that thrashes, and a
//! limit changed by `prlimit`. The training survives, uses smaller micro-batches, grows again, and
//! its losses are those of a calm run.

use crate::memory_cgroup::Group;
use crate::support::{COMMON_ARGS, EBB, TestHome, event, losses};
use pressure::{Change, Level, Phase};
use runlog::RunEvent;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const MB: u64 = 1 << 20;
const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/sample/groceries");
/// Longest wait for an expected event.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Largest difference between two losses in f64, as in `pressure_invariance.rs`.
const ALLOWED: f64 = 1e-10;

/// Python: allocates the number of bytes of each line, touches every page, and frees the previous
/// allocation.
const CONSUME: &str = "
import ctypes, mmap, sys
for line in sys.stdin:
    held = None
    if int(line):
        held = mmap.mmap(-1, int(line))
        ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(held)), 1, int(line))
    print('done', flush=True)
";

/// Python: reads a file again and again that is larger than the limit of the cgroup.
const THRASH: &str = "
import mmap, os, sys
with open(sys.argv[1], 'w+b') as file:
    for _ in range(192):
        file.write(os.urandom(1 << 20))
    file.flush()
    os.fsync(file.fileno())
    pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    while True:
        sum(pages[at] for at in range(0, len(pages), 4096))
";

/// A run in the background whose events a thread collects. Killed on drop.
struct PressedTraining {
    child: Child,
    events: Arc<Mutex<Vec<RunEvent>>>,
    reader: Option<JoinHandle<()>>,
}

impl PressedTraining {
    fn start(home: &TestHome, mut command: Command) -> PressedTraining {
        // At this size one micro-batch of 32 is 1.5 times as fast as 32 of one sample, so the
        // controller grows.
        let options = "--image-size 32 --model vit_micro --precision f64 --effective-batch 32 --steps 5000 --json";
        command
            .args(["train", SAMPLE])
            .args(COMMON_ARGS)
            .args(options.split(' '))
            .env("EBB_HOME", home.path("home"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("ebb starts");
        let lines = BufReader::new(child.stdout.take().expect("the stream is piped")).lines();
        let events = Arc::new(Mutex::new(Vec::new()));
        let collected = events.clone();
        let reader = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                collected
                    .lock()
                    .expect("the lock is not poisoned")
                    .push(event(&line));
            }
        });
        PressedTraining {
            child,
            events,
            reader: Some(reader),
        }
    }

    fn events(&self) -> Vec<RunEvent> {
        self.events
            .lock()
            .expect("the lock is not poisoned")
            .clone()
    }

    /// Waits until `wanted` returns a value. Fails if the training ends before.
    #[track_caller]
    fn until<T>(&mut self, what: &str, wanted: impl Fn(&[RunEvent]) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            let events = self.events();
            if let Some(found) = wanted(&events) {
                return found;
            }
            let ended = self.child.try_wait().expect("the process can be polled");
            assert!(
                ended.is_none() && begun.elapsed() < TIMEOUT,
                "no {what} ({ended:?}): {:#?}",
                messages(&events)
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops the training, which must exit with code 0. Returns its losses.
    #[track_caller]
    fn stop(mut self) -> Vec<f64> {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-INT", &id]).status();
        assert!(sent.is_ok_and(|status| status.success()));
        let code = self
            .child
            .wait()
            .expect("the process can be waited for")
            .code();
        // The thread reads all events to the end.
        let _ = self.reader.take().map(JoinHandle::join);
        assert_eq!(code, Some(0), "{:#?}", messages(&self.events()));
        println!("{:#?}", messages(&self.events()));
        losses(&self.events())
    }
}

impl Drop for PressedTraining {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn messages(events: &[RunEvent]) -> Vec<String> {
    let message = |event: &RunEvent| match event {
        RunEvent::Decision { at_ms, message, .. } => Some(format!("{at_ms} ms: {message}")),
        RunEvent::Failed { message, .. } => Some(message.clone()),
        _ => None,
    };
    events.iter().filter_map(message).collect()
}

/// The decided micro-batch sizes in order. 0 is a wait.
fn sizes(events: &[RunEvent]) -> Vec<u32> {
    let size = |event: &RunEvent| match event {
        RunEvent::Decision {
            phase: Phase::Train,
            decision,
            ..
        } => Some(decision.micro_batch),
        _ => None,
    };
    events.iter().filter_map(size).collect()
}

/// The number of decisions once the micro-batch is the whole batch of 32.
fn grown(events: &[RunEvent]) -> Option<usize> {
    let all = sizes(events);
    (all.last()? == &32).then_some(all.len())
}

/// The smallest size after the first `known` decisions, once it is at max `max`.
fn fallen(known: usize, max: u32) -> impl Fn(&[RunEvent]) -> Option<u32> {
    move |events| {
        let smallest = sizes(events).into_iter().skip(known).min();
        smallest.filter(|size| *size <= max)
    }
}

/// Whether the size grew after the first `known` decisions and six steps are done.
fn grown_back(known: usize) -> impl Fn(&[RunEvent]) -> Option<()> {
    move |events| {
        let grew = |event: &&RunEvent| matches!(event, RunEvent::Decision { decision, .. } if decision.change == Change::Grow);
        let decisions = |event: &&RunEvent| {
            matches!(
                event,
                RunEvent::Decision {
                    phase: Phase::Train,
                    ..
                }
            )
        };
        let back = events
            .iter()
            .filter(decisions)
            .skip(known)
            .any(|event| grew(&event));
        (back && losses(events).len() >= 6).then_some(())
    }
}

/// Trains the same number of steps without pressure and compares the losses.
#[track_caller]
fn assert_losses_of_a_calm_run(pressed: &[f64]) {
    let home = TestHome::new();
    let mut training = PressedTraining::start(&home, Command::new(EBB));
    let steps = pressed.len();
    training.until("equal number of steps", |events| {
        (losses(events).len() >= steps).then_some(())
    });
    let calm = training.stop();
    let differences = pressed
        .iter()
        .zip(&calm)
        .map(|(one, other)| (one - other).abs());
    let largest = differences.fold(0.0, f64::max);
    println!("the losses of {steps} steps differ by at max {largest:.2e}");
    assert!(
        steps >= 6 && largest <= ALLOWED,
        "{largest:.3e} in {steps} steps"
    );
}

/// A process that takes memory on request. Killed on drop.
struct MemoryConsumer {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl MemoryConsumer {
    fn in_group(group: &Group) -> MemoryConsumer {
        let mut command = group.command("/usr/bin/python3");
        command.args(["-c", CONSUME]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("sh starts");
        MemoryConsumer {
            stdin: child.stdin.take().expect("the stream is piped"),
            stdout: BufReader::new(child.stdout.take().expect("the stream is piped")),
            child,
        }
    }

    #[track_caller]
    fn take(&mut self, bytes: u64) {
        writeln!(self.stdin, "{bytes}").expect("the process runs");
        let mut answer = String::new();
        let _ = self.stdout.read_line(&mut answer);
        assert_eq!(
            answer.trim(),
            "done",
            "python3 is missing (run scripts/setup test), or the process was killed"
        );
    }
}

impl Drop for MemoryConsumer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_micro_batch_follows_memory_use_in_its_cgroup() {
    let Some(group) = Group::limited(512 * MB) else {
        return;
    };
    let home = TestHome::new();
    let mut consumer = MemoryConsumer::in_group(&group);
    let mut training = PressedTraining::start(&home, group.command(EBB));
    let known = training.until("micro-batch of the whole batch", grown);
    consumer.take(260 * MB);
    let smallest = training.until("smaller micro-batch", fallen(known, 8));
    println!("from 32 to {smallest}");
    consumer.take(0);
    training.until("growth", grown_back(known));
    consumer.take(0); // Still running: the kernel killed no process.
    let pressed = training.stop();
    assert_losses_of_a_calm_run(&pressed);
}

#[test]
fn the_micro_batch_follows_a_changed_prlimit() {
    if !cfg!(target_os = "linux") {
        return println!("skipped: this system does not count these limits");
    }
    let home = TestHome::new();
    let mut training = PressedTraining::start(&home, Command::new(EBB));
    let known = training.until("micro-batch of the whole batch", grown);
    let limit = |training: &PressedTraining, bytes: &str| {
        let mut prlimit = Command::new("prlimit");
        prlimit.args(["--pid", &training.child.id().to_string()]);
        let set = prlimit.arg(format!("--data={bytes}:unlimited")).status();
        assert!(
            set.is_ok_and(|status| status.success()),
            "prlimit is missing: install util-linux"
        );
    };
    limit(&training, "440000000");
    let smallest = training.until("smaller micro-batch", fallen(known, 8));
    println!("from 32 to {smallest}");
    limit(&training, "unlimited");
    training.until("growth", grown_back(known));
    let pressed = training.stop();
    assert_losses_of_a_calm_run(&pressed);
}

#[test]
fn a_thrashing_cgroup_shrinks_the_micro_batch() {
    if !Path::new("/proc/pressure/memory").exists() {
        return println!("skipped: this kernel counts no memory stalls");
    }
    let Some(group) = Group::limited(96 * MB) else {
        return;
    };
    let home = TestHome::new();
    let mut training = PressedTraining::start(&home, Command::new(EBB));
    let known = training.until("micro-batch of the whole batch", grown);
    // The file must be on a disk: pages of a tmpfs cannot be dropped and read again.
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
    // Each process creates its file inside the cgroup, because pages are charged to the first user.
    let thrashing = |number: u32| {
        let mut command = group.command("/usr/bin/python3");
        command
            .args(["-c", THRASH])
            .arg(disk.path().join(format!("pages-{number}")));
        command.spawn().expect("sh starts")
    };
    let mut thrash: Vec<Child> = (0..3).map(thrashing).collect();
    let level = training.until("raised level", |events| {
        let raised = |event: &RunEvent| match event {
            RunEvent::Memory { level, sample, .. } if *level > Level::Normal => {
                Some((*level, sample.stall_fraction))
            }
            _ => None,
        };
        events.iter().find_map(raised)
    });
    println!("{level:?}");
    training.until("smaller micro-batch", fallen(known, 16));
    let shrunk = |event: &RunEvent| matches!(event, RunEvent::Decision { phase: Phase::Train, decision, .. } if decision.change == Change::Shrink);
    assert!(
        training.events().iter().any(shrunk),
        "{:#?}",
        messages(&training.events())
    );
    drop(group);
    thrash.iter_mut().for_each(|child| drop(child.wait()));
    training.stop();
}
