//! Drives the built binary: a place of its own for each test, generated photographs, events read
//! back. Refuses to know what any command should answer.

use runlog::{RunEvent, RunFolder, RunStore};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use tempfile::TempDir;

/// The built binary.
pub const EBB: &str = env!("CARGO_BIN_EXE_ebb");

/// What every training of these tests has in common: the same on every machine.
pub const COMMON_ARGS: [&str; 6] = ["--device", "cpu", "--threads", "2", "--seed", "7"];

/// A temporary folder that holds Ebb's home and the photographs of one test.
pub struct TestHome(TempDir);

/// What a command said, and how it ended.
#[derive(Debug)]
pub struct CommandOutput {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl CommandOutput {
    /// The events of `--json`, every line one.
    pub fn events(&self) -> Vec<RunEvent> {
        self.out.lines().map(event).collect()
    }

    /// It ended with this code; else everything it said is shown.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> CommandOutput {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }
}

/// One line of `--json`.
pub fn event(line: &str) -> RunEvent {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{line} is no event: {error}"))
}

/// A memory script: a machine with `total_bytes`, and what others use of it, a line every
/// `apart_ms`.
pub fn memory_script(
    total_bytes: u64,
    apart_ms: u64,
    others_bytes: impl IntoIterator<Item = u64>,
) -> String {
    let line = |(line, others): (u64, u64)| {
        let at_ms = line * apart_ms;
        format!("{{\"at_ms\":{at_ms},\"total_bytes\":{total_bytes},\"others_bytes\":{others}}}\n")
    };
    (0..).zip(others_bytes).map(line).collect()
}

/// The loss of every step, to be compared to the last bit.
pub fn losses(events: &[RunEvent]) -> Vec<f64> {
    let loss = |event: &RunEvent| match event {
        RunEvent::Step { loss, .. } => Some(*loss),
        _ => None,
    };
    events.iter().filter_map(loss).collect()
}

impl TestHome {
    pub fn new() -> TestHome {
        TestHome(tempfile::tempdir().expect("a temporary folder"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file.
    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("a file can be written");
        path
    }

    /// `ebb` with a home of its own.
    pub fn ebb<S: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(EBB);
        command
            .args(args)
            .env("EBB_HOME", self.path("home"))
            .stdin(Stdio::null());
        command
    }

    /// Runs a line of words to its end. A word in braces is a name in this place: `{birds}`.
    pub fn run(&self, line: &str) -> CommandOutput {
        run_command(&mut self.ebb(self.words(line)))
    }

    /// Trains to the end on the CPU: `train LINE` with the steady arguments and `--json`.
    pub fn train(&self, line: &str) -> CommandOutput {
        run_command(&mut self.training(&format!("train {line}")))
    }

    /// Begins a training, or a resume, and listens to its events.
    pub fn start(&self, line: &str) -> RunningTraining {
        let received = self.path("stderr");
        let file = File::create(&received).expect("a file can be made");
        let mut child = self
            .training(line)
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn()
            .expect("ebb starts");
        let out = child.stdout.take().expect("it is a pipe");
        RunningTraining {
            child,
            lines: BufReader::new(out).lines(),
            received,
        }
    }

    fn training(&self, line: &str) -> Command {
        let mut command = self.ebb(self.words(line));
        if line.starts_with("train ") {
            command.args(COMMON_ARGS);
        }
        command.arg("--json");
        command
    }

    fn words(&self, line: &str) -> Vec<PathBuf> {
        let named = |word: &str| word.strip_prefix('{')?.strip_suffix('}').map(str::to_owned);
        let word = |word: &str| named(word).map_or_else(|| word.into(), |name| self.path(&name));
        line.split_whitespace().map(word).collect()
    }

    /// All runs, newest first.
    pub fn runs(&self) -> Vec<RunFolder> {
        let store = RunStore::open(self.path("home/runs"));
        store.list().expect("the store can be read")
    }

    /// The run whose events begin with this.
    pub fn only_run(&self) -> RunFolder {
        let mut runs = self.runs();
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs.remove(0)
    }

    /// Everything that stands in the folder of all runs, whatever it is.
    pub fn leftover_files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("home/runs"));
        entries.map_or_else(
            |_| Vec::new(),
            |entries| entries.flatten().map(|entry| entry.path()).collect(),
        )
    }
}

/// Runs a command to its end.
pub fn run_command(command: &mut Command) -> CommandOutput {
    let output = command.output().expect("the command starts");
    CommandOutput {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A training at work.
pub struct RunningTraining {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    received: PathBuf,
}

impl RunningTraining {
    /// Listens until an event is the wanted one; all events up to it.
    pub fn until(&mut self, wanted: impl Fn(&RunEvent) -> bool) -> Vec<RunEvent> {
        let mut events = Vec::new();
        for line in self.lines.by_ref() {
            events.push(event(&line.expect("events are text")));
            if events.last().is_some_and(&wanted) {
                return events;
            }
        }
        panic!(
            "the training ended first: {events:#?}\n{}",
            self.stderr()
        );
    }

    /// Sends a signal: `INT`, `KILL`.
    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &id])
            .status();
        assert!(
            sent.is_ok_and(|status| status.success()),
            "kill -{name} {id}"
        );
    }

    /// What it has said on stderr so far.
    pub fn stderr(&self) -> String {
        fs::read_to_string(&self.received).unwrap_or_default()
    }

    /// Waits for its end without listening.
    pub fn wait(mut self) -> Option<i32> {
        self.child.wait().expect("it can be waited for").code()
    }

    /// Listens to its end: exit code and the remaining whole events.
    pub fn finish(mut self) -> (Option<i32>, Vec<RunEvent>) {
        let rest = self.lines.by_ref().map_while(Result::ok);
        // The last line of a killed process may be torn.
        let events = rest
            .filter_map(|line| serde_json::from_str(&line).ok())
            .collect();
        (self.wait(), events)
    }
}

/// Draws class folders of seeded photographs that differ by colour and pattern, JPEG and PNG in
/// turn.
pub fn draw_classes(folder: &Path, classes: &[&str], each: u32) {
    for (label, class) in classes.iter().enumerate() {
        let class_folder = folder.join(class);
        fs::create_dir_all(&class_folder).expect("a folder can be made");
        for number in 0..each {
            let end = if number % 2 == 0 { "png" } else { "jpg" };
            let path = class_folder.join(format!("{number:03}.{end}"));
            let image = draw(label as u32, number);
            image.save(path).expect("a photograph can be written");
        }
    }
}

/// A striped photograph of 32 x 32 px in the colour of its class, with seeded noise.
fn draw(label: u32, number: u32) -> image::RgbImage {
    let mut state = 0x9E37_79B9u32 ^ (label << 16) ^ number.wrapping_mul(2_654_435_761);
    let mut noise = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 26) as i32 - 32
    };
    let colours = [[200, 60, 60], [60, 200, 60], [60, 60, 200], [200, 200, 60]];
    let colour = colours[label as usize % colours.len()];
    image::RgbImage::from_fn(32, 32, |x, y| {
        let along = if label.is_multiple_of(2) { x } else { y };
        let stripe = if ((along + number) / 4).is_multiple_of(2) {
            30
        } else {
            -30
        };
        image::Rgb(colour.map(|part: i32| (part + stripe + noise()).clamp(0, 255) as u8))
    })
}
