//! Runs the built binary: each test has its own home folder, generated images and parsed events.

use runlog::{RunEvent, RunFolder, RunStore, read_events};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use tempfile::TempDir;

/// The built binary.
pub const EBB: &str = env!("CARGO_BIN_EXE_ebb");

/// Arguments of every training, so that results are the same on every machine.
pub const COMMON_ARGS: [&str; 6] = ["--device", "cpu", "--threads", "2", "--seed", "7"];

/// A temporary folder with Ebb's home and the datasets of one test. Deleted on drop.
pub struct TestHome(TempDir);

/// Exit code, stdout and stderr of a finished command. The code is `None` after a signal.
#[derive(Debug)]
pub struct CommandOutput {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl CommandOutput {
    /// The events that `--json` printed, one per line.
    pub fn events(&self) -> Vec<RunEvent> {
        self.out.lines().map(event).collect()
    }

    /// Fails and shows the whole output if the exit code is another one.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> CommandOutput {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }
}

/// Parses one line of `--json`.
pub fn event(line: &str) -> RunEvent {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{line} is not an event: {error}"))
}

/// Parses one line of JSON that is not an event.
pub fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// A memory script for a machine with `total_bytes`: the memory of other apps, one line per
/// `interval_ms`.
pub fn memory_script(
    total_bytes: u64,
    interval_ms: u64,
    others_bytes: impl IntoIterator<Item = u64>,
) -> String {
    let line = |(line, others): (u64, u64)| {
        let at_ms = line * interval_ms;
        format!("{{\"at_ms\":{at_ms},\"total_bytes\":{total_bytes},\"others_bytes\":{others}}}\n")
    };
    (0..).zip(others_bytes).map(line).collect()
}

/// The loss of every step.
pub fn losses(events: &[RunEvent]) -> Vec<f64> {
    let loss = |event: &RunEvent| match event {
        RunEvent::Step { loss, .. } => Some(*loss),
        _ => None,
    };
    events.iter().filter_map(loss).collect()
}

/// The bits of the loss of every step of a run. A repeated step counts once, with its last loss.
pub fn loss_bits(run: &RunFolder) -> Vec<u64> {
    let mut by_step = BTreeMap::new();
    for event in read_events(&run.events_path()).expect("the events can be read") {
        if let RunEvent::Step { step, loss, .. } = event {
            by_step.insert(step, loss.to_bits());
        }
    }
    by_step.into_values().collect()
}

/// The metric with this name in every evaluation that has it.
pub fn evaluated(events: &[RunEvent], metric: &str) -> Vec<f64> {
    let found = |event: &RunEvent| match event {
        RunEvent::Evaluation { metrics, .. } => metrics.get(metric).copied(),
        _ => None,
    };
    events.iter().filter_map(found).collect()
}

/// The disk in memory of Linux.
const MEMORY_DISK: &str = "/dev/shm";
/// Free space that it needs, in bytes. In a container it is often smaller.
const LEAST_SPACE: u64 = 2 << 30;

/// Whether there is a disk in memory with enough space, from which scripts can be run.
fn has_memory_disk() -> bool {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let is_it = |line: &&str| line.split(' ').nth(1) == Some(MEMORY_DISK);
    if mounts
        .lines()
        .find(is_it)
        .is_none_or(|line| line.contains("noexec"))
    {
        return false;
    }
    let free = Command::new("df").args(["-Pk", MEMORY_DISK]).output();
    let text = free.map(|free| String::from_utf8_lossy(&free.stdout).into_owned());
    let text = text.unwrap_or_default();
    let line = text.lines().nth(1).unwrap_or_default();
    let kilobytes = line.split_whitespace().nth(3);
    kilobytes.and_then(|text| text.parse::<u64>().ok()) >= Some(LEAST_SPACE >> 10)
}

impl TestHome {
    /// In memory if possible: there, a training does not wait for the disk after each checkpoint.
    pub fn new() -> TestHome {
        if has_memory_disk() {
            TestHome(tempfile::tempdir_in(MEMORY_DISK).expect("a temporary folder"))
        } else {
            TestHome::on_disk()
        }
    }

    /// In the system's folder for temporary files.
    pub fn on_disk() -> TestHome {
        TestHome(tempfile::tempdir().expect("a temporary folder"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file and returns its path.
    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("the file can be written");
        path
    }

    /// A command that runs `ebb` with this home.
    pub fn ebb<S: AsRef<std::ffi::OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(EBB);
        command
            .args(args)
            .env("EBB_HOME", self.path("home"))
            // Not the models that the user of this machine has downloaded, and not their token.
            .env("HF_HOME", self.path("huggingface"))
            .env_remove("HF_HUB_CACHE")
            .env_remove("HF_ENDPOINT")
            .env_remove("HF_TOKEN")
            .env_remove("HF_TOKEN_PATH")
            .stdin(Stdio::null());
        command
    }

    /// Runs `ebb` with a line of arguments. `{birds}` becomes the path of `birds` in this home.
    pub fn run(&self, line: &str) -> CommandOutput {
        run_command(&mut self.ebb(self.words(line)))
    }

    /// Runs `ebb` with a line of arguments and this standard input.
    pub fn run_with_input(&self, line: &str, input: impl AsRef<[u8]>) -> CommandOutput {
        let file = self.file("input", input);
        let file = File::open(file).expect("the file was written");
        run_command(self.ebb(self.words(line)).stdin(file))
    }

    /// Runs `ebb train LINE` with [`COMMON_ARGS`] and `--json`.
    pub fn train(&self, line: &str) -> CommandOutput {
        run_command(&mut self.training_command(&format!("train {line}")))
    }

    /// Starts `ebb train …` or `ebb resume …` with `--json` in the background.
    pub fn start(&self, line: &str) -> RunningTraining {
        self.spawn(self.training_command(line))
    }

    /// Starts a command without further arguments in the background.
    pub fn start_for_people(&self, line: &str) -> RunningTraining {
        self.spawn(self.ebb(self.words(line)))
    }

    /// Starts a command in the background.
    pub fn spawn(&self, mut command: Command) -> RunningTraining {
        let stderr_path = self.path("stderr");
        let file = File::create(&stderr_path).expect("the file can be created");
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn()
            .expect("ebb starts");
        let out = child.stdout.take().expect("the stream is piped");
        RunningTraining {
            child,
            lines: BufReader::new(out).lines(),
            stderr_path,
        }
    }

    fn training_command(&self, line: &str) -> Command {
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
        store.list().expect("the runs can be listed")
    }

    /// The run, if there is exactly one.
    pub fn only_run(&self) -> RunFolder {
        let mut runs = self.runs();
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs.remove(0)
    }

    /// Every entry of the runs folder, also partial runs.
    pub fn leftover_files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("home/runs"));
        entries.map_or_else(
            |_| Vec::new(),
            |entries| entries.flatten().map(|entry| entry.path()).collect(),
        )
    }
}

/// Runs a command and waits for it.
pub fn run_command(command: &mut Command) -> CommandOutput {
    let output = command.output().expect("the command starts");
    CommandOutput {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A run in the background. Killed on drop.
pub struct RunningTraining {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    stderr_path: PathBuf,
}

impl RunningTraining {
    /// Reads events until one matches. Returns all events up to and including it.
    pub fn until(&mut self, wanted: impl Fn(&RunEvent) -> bool) -> Vec<RunEvent> {
        let mut events = Vec::new();
        for line in self.lines.by_ref() {
            events.push(event(&line.expect("events are text")));
            if events.last().is_some_and(&wanted) {
                return events;
            }
        }
        panic!(
            "the training ended before the event: {events:#?}\n{}",
            self.stderr()
        );
    }

    /// Reads one line of any form.
    pub fn read_line(&mut self) -> String {
        let line = self.lines.next().expect("there is a line");
        line.expect("the line is text")
    }

    /// The id of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal: `INT`, `KILL`.
    pub fn signal(&self, name: &str) {
        let id = self.id().to_string();
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &id])
            .status();
        assert!(
            sent.is_ok_and(|status| status.success()),
            "kill -{name} {id}"
        );
    }

    /// The text on stderr so far.
    pub fn stderr(&self) -> String {
        fs::read_to_string(&self.stderr_path).unwrap_or_default()
    }

    /// Waits for the exit code without reading events.
    pub fn wait(mut self) -> Option<i32> {
        self.child
            .wait()
            .expect("the process can be waited for")
            .code()
    }

    /// Reads to the end. Returns the exit code and the remaining events.
    pub fn finish(mut self) -> (Option<i32>, Vec<RunEvent>) {
        let rest = self.lines.by_ref().map_while(Result::ok);
        // The last line of a killed process may be incomplete.
        let events = rest
            .filter_map(|line| serde_json::from_str(&line).ok())
            .collect();
        (self.wait(), events)
    }
}

impl Drop for RunningTraining {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes `each` seeded images per class, PNG and JPEG in turn. Classes differ in color and
/// pattern.
pub fn draw_classes(folder: &Path, classes: &[&str], each: u32) {
    for (label, class) in classes.iter().enumerate() {
        let class_folder = folder.join(class);
        fs::create_dir_all(&class_folder).expect("the folder can be created");
        for number in 0..each {
            let extension = if number % 2 == 0 { "png" } else { "jpg" };
            let path = class_folder.join(format!("{number:03}.{extension}"));
            let image = draw(label as u32, number);
            image.save(path).expect("the image can be saved");
        }
    }
}

/// A striped image of 32 x 32 px in the color of its class, with seeded noise.
fn draw(label: u32, number: u32) -> image::RgbImage {
    let mut state = 0x9E37_79B9u32 ^ (label << 16) ^ number.wrapping_mul(2_654_435_761);
    let mut noise = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 26) as i32 - 32
    };
    let colors = [[200, 60, 60], [60, 200, 60], [60, 60, 200], [200, 200, 60]];
    let color = colors[label as usize % colors.len()];
    image::RgbImage::from_fn(32, 32, |x, y| {
        let along = if label.is_multiple_of(2) { x } else { y };
        let stripe = if ((along + number) / 4).is_multiple_of(2) {
            30
        } else {
            -30
        };
        image::Rgb(color.map(|part: i32| (part + stripe + noise()).clamp(0, 255) as u8))
    })
}
