//! Real pressure on Linux: a hog in the same memory group, a group that thrashes, a limit that
//! `prlimit` moves. The training lives, works in smaller pieces, comes back, and its losses are
//! those of a calm run.

use crate::memory_group::Group;
use crate::support::{COMMON_ARGS, EBB, TestHome, event};
use pressure::{Change, Level};
use runlog::RunEvent;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const MB: u64 = 1 << 20;
const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/sample/groceries");
/// Longest wait for anything, on a machine that does other work too.
const PATIENCE: Duration = Duration::from_secs(120);
/// Largest difference of two losses in f64, as in `wave.rs`.
const ALLOWED: f64 = 1e-10;

/// Takes as many bytes as a line says, every page of them, and gives them back at the next.
const HOG: &str = "
import ctypes, mmap, sys
for line in sys.stdin:
    held = None
    if int(line):
        held = mmap.mmap(-1, int(line))
        ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(held)), 1, int(line))
    print('done', flush=True)
";

/// Reads a file that the group has no room for, again and again.
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

/// A training at work, heard by a thread. It ends with the test.
struct PressedTraining {
    child: Child,
    received: Arc<Mutex<Vec<RunEvent>>>,
    listener: Option<JoinHandle<()>>,
}

impl PressedTraining {
    fn of(home: &TestHome, mut command: Command) -> PressedTraining {
        // At this size a piece of 32 is half as fast again as 32 pieces of one, so that growth pays
        // and is worth waiting for.
        let how = "--image-size 32 --model vit_micro --precision f64 --effective-batch 32 --steps 5000 --json";
        command
            .args(["train", SAMPLE])
            .args(COMMON_ARGS)
            .args(how.split(' '))
            .env("EBB_HOME", home.path("home"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("ebb starts");
        let lines = BufReader::new(child.stdout.take().expect("the stream is piped")).lines();
        let received = Arc::new(Mutex::new(Vec::new()));
        let messages = received.clone();
        let listener = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                messages.lock().expect("a plain list").push(event(&line));
            }
        });
        PressedTraining {
            child,
            received,
            listener: Some(listener),
        }
    }

    fn events(&self) -> Vec<RunEvent> {
        self.received.lock().expect("a plain list").clone()
    }

    /// Waits until the events have what is wanted; the training must live until then.
    #[track_caller]
    fn until<T>(&mut self, what: &str, wanted: impl Fn(&[RunEvent]) -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            let events = self.events();
            if let Some(found) = wanted(&events) {
                return found;
            }
            let ended = self.child.try_wait().expect("it can be asked");
            assert!(
                ended.is_none() && begun.elapsed() < PATIENCE,
                "{what} did not come ({ended:?}): {:#?}",
                messages(&events)
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asks for a stop; it must end well. All losses.
    #[track_caller]
    fn stopped(mut self) -> Vec<f64> {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-INT", &id]).status();
        assert!(sent.is_ok_and(|status| status.success()));
        let code = self
            .child
            .wait()
            .expect("the process can be waited for")
            .code();
        // It hears everything to the end.
        let _ = self.listener.take().map(JoinHandle::join);
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
    let sentence = |event: &RunEvent| match event {
        RunEvent::Decision {
            at_ms,
            message: sentence,
            ..
        } => Some(format!("{at_ms} ms: {sentence}")),
        RunEvent::Failed { message, .. } => Some(message.clone()),
        _ => None,
    };
    events.iter().filter_map(sentence).collect()
}

fn losses(events: &[RunEvent]) -> Vec<f64> {
    let loss = |event: &RunEvent| match event {
        RunEvent::Step { loss, .. } => Some(*loss),
        _ => None,
    };
    events.iter().filter_map(loss).collect()
}

/// The micro-batches decided, in order; 0 stands for a wait.
fn sizes(events: &[RunEvent]) -> Vec<u32> {
    let size = |event: &RunEvent| match event {
        RunEvent::Decision { decision, .. } => Some(decision.micro_batch),
        _ => None,
    };
    events.iter().filter_map(size).collect()
}

/// The training works its whole batch of 32 in one piece.
fn grown(events: &[RunEvent]) -> Option<usize> {
    let all = sizes(events);
    (all.last()? == &32).then_some(all.len())
}

/// The smallest size decided after the first `known`, once it is `most` or less.
fn fallen(known: usize, most: u32) -> impl Fn(&[RunEvent]) -> Option<u32> {
    move |events| {
        let smallest = sizes(events).into_iter().skip(known).min();
        smallest.filter(|size| *size <= most)
    }
}

/// It grew after the first `known` decisions, and six steps are done.
fn grown_back(known: usize) -> impl Fn(&[RunEvent]) -> Option<()> {
    move |events| {
        let grew = |event: &&RunEvent| matches!(event, RunEvent::Decision { decision, .. } if decision.change == Change::Grow);
        let decisions = |event: &&RunEvent| matches!(event, RunEvent::Decision { .. });
        let back = events
            .iter()
            .filter(decisions)
            .skip(known)
            .any(|event| grew(&event));
        (back && losses(events).len() >= 6).then_some(())
    }
}

/// The same training on a free machine has the same losses.
#[track_caller]
fn assert_losses_of_a_calm_run(pressed: &[f64]) {
    let home = TestHome::new();
    let mut training = PressedTraining::of(&home, Command::new(EBB));
    let steps = pressed.len();
    training.until("as many steps", |events| {
        (losses(events).len() >= steps).then_some(())
    });
    let calm = training.stopped();
    let differences = pressed
        .iter()
        .zip(&calm)
        .map(|(one, other)| (one - other).abs());
    let largest = differences.fold(0.0, f64::max);
    println!("the losses of {steps} steps differ by at most {largest:.2e}");
    assert!(
        steps >= 6 && largest <= ALLOWED,
        "{largest:.3e} in {steps} steps"
    );
}

/// A process that takes memory when it is told to.
struct Hog {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Hog {
    fn in_group(group: &Group) -> Hog {
        let mut command = group.command("/usr/bin/python3");
        command.args(["-c", HOG]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("sh starts");
        Hog {
            ask: child.stdin.take().expect("the stream is piped"),
            answers: BufReader::new(child.stdout.take().expect("the stream is piped")),
            child,
        }
    }

    #[track_caller]
    fn take(&mut self, bytes: u64) {
        writeln!(self.ask, "{bytes}").expect("the hog lives");
        let mut answer = String::new();
        let _ = self.answers.read_line(&mut answer);
        assert_eq!(
            answer.trim(),
            "done",
            "python3 is missing (run scripts/setup test), or the hog was killed"
        );
    }
}

impl Drop for Hog {
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
    let mut hog = Hog::in_group(&group);
    let mut training = PressedTraining::of(&home, group.command(EBB));
    let known = training.until("the whole batch in a piece", grown);
    hog.take(260 * MB);
    let smallest = training.until("a smaller piece", fallen(known, 8));
    println!("from 32 to {smallest}");
    hog.take(0);
    training.until("growth", grown_back(known));
    hog.take(0); // it lives: nobody was killed
    let pressed = training.stopped();
    assert_losses_of_a_calm_run(&pressed);
}

#[test]
fn the_micro_batch_follows_a_changed_prlimit() {
    if !cfg!(target_os = "linux") {
        return println!("skipped: this system does not count these limits");
    }
    let home = TestHome::new();
    let mut training = PressedTraining::of(&home, Command::new(EBB));
    let known = training.until("the whole batch in a piece", grown);
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
    let smallest = training.until("a smaller piece", fallen(known, 8));
    println!("from 32 to {smallest}");
    limit(&training, "unlimited");
    training.until("growth", grown_back(known));
    let pressed = training.stopped();
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
    let mut training = PressedTraining::of(&home, Command::new(EBB));
    let known = training.until("the whole batch in a piece", grown);
    // On a disk: what lies in memory alone would be killed, not read again.
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
    // Each creates its file inside the group: pages belong to whoever touches them first.
    let thrashing = |number: u32| {
        let mut command = group.command("/usr/bin/python3");
        command
            .args(["-c", THRASH])
            .arg(disk.path().join(format!("pages-{number}")));
        command.spawn().expect("sh starts")
    };
    let mut thrash: Vec<Child> = (0..3).map(thrashing).collect();
    let level = training.until("a raised level", |events| {
        let raised = |event: &RunEvent| match event {
            RunEvent::Memory { level, sample, .. } if *level > Level::Normal => {
                Some((*level, sample.stall_fraction))
            }
            _ => None,
        };
        events.iter().find_map(raised)
    });
    println!("{level:?}");
    training.until("a smaller piece", fallen(known, 16));
    let shrunk = |event: &RunEvent| matches!(event, RunEvent::Decision { decision, .. } if decision.change == Change::Shrink);
    assert!(
        training.events().iter().any(shrunk),
        "{:#?}",
        messages(&training.events())
    );
    drop(group);
    thrash.iter_mut().for_each(|child| drop(child.wait()));
    training.stopped();
}
