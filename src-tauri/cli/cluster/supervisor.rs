//! Trains one run on several machines: starts a process on each, passes the user's stop on, and
//! starts the group again from the newest checkpoint if a machine fails and the others cannot
//! continue without it. The supervisor itself trains nothing. If it is killed, rank 0 notices that
//! its standard input has ended, saves and stops.

use super::super::args::OnHosts;
use super::super::failure::Failure;
use super::super::hosts::{Host, Hosts};
use super::super::interrupt;
use super::super::output::status;
use super::launcher::{Launcher, Process};
use super::probe::{Probed, probe};
use super::supervised::{STOP, VARIABLE, reported_run};
use runlog::{RunEvent, RunFolder, read_events};
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use trainer::RunGroup;

/// How often the supervisor looks at the group.
const POLL: Duration = Duration::from_millis(100);
/// A launcher that has not ended this long after rank 0 is ended.
const LAUNCHER_PATIENCE: Duration = Duration::from_secs(10);
/// A launcher that was asked to end has this long to end its processes.
const ABORT_PATIENCE: Duration = Duration::from_secs(4);
/// Marks the events that name the members of a group.
const GROUP_KIND: &str = "\"kind\":\"group\"";
/// The run ends if the group fails this many times without a new checkpoint.
const MOST_FAILURES: u32 = 5;

/// What to train, and where.
pub struct Job {
    pub hosts: Hosts,
    pub interface: Option<String>,
    /// The command line without the name of the program and without the machines.
    pub args: Vec<OsString>,
    /// The folder of the samples, if the machines of the group get it by an argument.
    pub folder: Option<PathBuf>,
    /// The run to resume; `None` for a new one.
    pub run: Option<RunFolder>,
    pub json: bool,
}

/// Why a group ended.
enum Ended {
    /// The run is finished or stopped.
    Done,
    /// The run ended with an error of its own, which rank 0 has printed.
    Failed(u8),
    /// A process or a machine failed.
    Broken(String),
    /// It was stopped so that a machine can take part again.
    Rejoin,
}

/// Trains the run of `job` until it ends.
///
/// # Errors
/// A machine cannot take part when the run begins, the run itself fails, or the group fails again
/// and again.
pub fn supervise(job: Job) -> Result<(), Failure> {
    let patience = RunGroup::patience().map_err(Failure::usage)?;
    let launcher = Launcher::find().map_err(Failure::new)?;
    let interrupts = Interrupts::handled()?;
    let all = probe(&job.hosts.0);
    require_all(&all, &job)?;
    let folder = TemporaryFolder::create()?;
    let mut supervisor = Supervisor {
        tolerates_faults: launcher.tolerates_faults(),
        launcher,
        patience,
        interrupts,
        report: folder.0.join("run"),
        run: job.run.clone(),
        present: all,
        job,
        failures: 0,
        step: None,
    };
    supervisor.train()
}

/// Runs a command of Ebb once on the machines of `hosts`, in processes of their own.
///
/// # Errors
/// A machine cannot take part, or the command fails.
pub fn run_together(
    hosts: &OnHosts,
    args: Vec<OsString>,
    folder: Option<PathBuf>,
) -> Result<(), Failure> {
    let Some(on) = hosts.on.clone() else {
        return Ok(());
    };
    let job = Job {
        hosts: on,
        interface: hosts.over.clone(),
        args,
        folder,
        run: None,
        json: false,
    };
    let launcher = Launcher::find().map_err(Failure::new)?;
    let present = probe(&job.hosts.0);
    require_all(&present, &job)?;
    let processes = processes(&present, &job, None);
    let mut command = launcher.command(&processes, job.interface.as_deref(), false);
    let status = command.stdin(Stdio::null()).status();
    let status =
        status.map_err(|error| Failure::new(format!("mpirun cannot be started: {error}")))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    match code {
        Some(0) => Ok(()),
        code => Err(Failure::reported(code.unwrap_or(1))),
    }
}

struct Supervisor {
    launcher: Launcher,
    /// If a process ends, the others continue without it.
    tolerates_faults: bool,
    /// After this time, machines that are missing are asked again.
    patience: Duration,
    interrupts: Interrupts,
    job: Job,
    /// The machines that train now, rank 0 first.
    present: Vec<Probed>,
    /// Where rank 0 reports its run.
    report: PathBuf,
    run: Option<RunFolder>,
    /// Failures since the last new checkpoint.
    failures: u32,
    /// Step of the newest checkpoint.
    step: Option<u64>,
}

impl Supervisor {
    fn train(&mut self) -> Result<(), Failure> {
        loop {
            let reason = match self.train_group()? {
                Ended::Done => return Ok(()),
                Ended::Failed(code) => return Err(Failure::reported(code)),
                Ended::Rejoin => None,
                Ended::Broken(reason) => Some(reason),
            };
            if let Some(reason) = &reason {
                self.count_failure(reason)?;
            }
            self.choose_machines();
            if self.interrupts.count() > 0 {
                return Err(self.give_up("stopped while the group was being restarted"));
            }
            if let Some(step) = self.step {
                let (step, names) = (runlog::format_count(step), self.names());
                self.print(&format!("Continuing at step {step} on {names}"));
            }
        }
    }

    /// Counts a failure without progress, and ends the run if there were too many.
    fn count_failure(&mut self, reason: &str) -> Result<(), Failure> {
        let newest = newest_step(self.run.as_ref());
        if newest > self.step {
            self.failures = 0;
        }
        self.step = newest;
        self.failures += 1;
        if newest.is_none() {
            return Err(self.give_up(reason));
        }
        self.print(&format!("The group failed: {reason}"));
        if self.failures >= MOST_FAILURES {
            let reason = format!(
                "the group failed {MOST_FAILURES} times in a row without a new checkpoint; the last time: {reason}"
            );
            return Err(self.give_up(&reason));
        }
        Ok(())
    }

    fn give_up(&self, reason: &str) -> Failure {
        Failure::new(match (&self.run, self.step) {
            (Some(run), Some(step)) => format!(
                "{reason}; the newest checkpoint is from step {}, so continue with `ebb resume {}`",
                runlog::format_count(step),
                run.id()
            ),
            _ => format!("{reason}; there is no checkpoint yet, so start the run again"),
        })
    }

    /// Keeps the machines that answer. This machine always does.
    fn choose_machines(&mut self) {
        let (present, missing): (Vec<_>, Vec<_>) = probe(&self.job.hosts.0)
            .into_iter()
            .partition(|probed| probed.answer.is_ok());
        for Probed { host, answer, .. } in missing {
            if let Err(reason) = answer {
                self.print(&format!(
                    "{}: {reason}; the other machines continue without it",
                    host.name
                ));
            }
        }
        self.present = present;
    }

    /// The machines that do not train now: those that did not answer when the group began, and
    /// those whose process is not one of the `ranks` that are left.
    fn missing(&self, ranks: Option<&[u32]>) -> Vec<Host> {
        let present = in_rank_order(&self.present).into_iter().zip(0..);
        let is_left = |rank: &u32| ranks.is_none_or(|ranks| ranks.contains(rank));
        let present = present.filter(|(_, rank)| is_left(rank));
        let mut present: Vec<&Host> = present.map(|(probed, _)| &probed.host).collect();
        // A machine can be listed twice.
        let is_missing = |host: &&Host| match present.iter().position(|found| found == host) {
            Some(found) => {
                present.swap_remove(found);
                false
            }
            None => true,
        };
        let hosts = self.job.hosts.0.iter();
        hosts.filter(is_missing).cloned().collect()
    }

    fn names(&self) -> String {
        let names = self.present.iter().map(|probed| probed.host.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    }

    fn print(&self, line: &str) {
        if !self.job.json {
            status!("{line}");
        }
    }

    /// Runs one group until it ends.
    fn train_group(&mut self) -> Result<Ended, Failure> {
        let processes = processes(&self.present, &self.job, self.run.as_ref());
        let interface = self.job.interface.as_deref();
        let mut command = self
            .launcher
            .command(&processes, interface, self.tolerates_faults);
        // In a process group of its own, the launcher does not get the user's Ctrl-C.
        command
            .env(VARIABLE, &self.report)
            .stdin(Stdio::piped())
            .process_group(0);
        let mut child = command
            .spawn()
            .map_err(|error| Failure::new(format!("mpirun cannot be started: {error}")))?;
        let mut watch = Watch::new(event_bytes(self.run.as_ref()));
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) => {}
                Err(error) => {
                    return Err(Failure::new(format!("mpirun cannot be observed: {error}")));
                }
            }
            if self.run.is_none() {
                self.run = reported_run(&self.report);
            }
            match self.interrupts.count() {
                0 => {}
                1 => watch.ask_to_stop(&mut child),
                _ => {
                    end_launcher(&mut child);
                    return Err(Failure::new("aborted; the last checkpoint is valid"));
                }
            }
            watch.look(self, &mut child);
            thread::sleep(POLL);
        };
        if self.run.is_none() {
            self.run = reported_run(&self.report);
        }
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        Ok(self.outcome(code.unwrap_or(1), &watch))
    }

    /// Why the group ended, by the exit code of the launcher and the last event of the run.
    fn outcome(&self, code: u8, watch: &Watch) -> Ended {
        let has_begun = event_bytes(self.run.as_ref()) > watch.event_bytes;
        let events = self.run.as_ref().map(|run| read_events(&run.events_path()));
        let events = events.and_then(Result::ok).unwrap_or_default();
        match events.last().filter(|_| has_begun) {
            None if code == 0 => Ended::Done,
            // It has printed why, and would fail again.
            None if self.failures == 0 => Ended::Failed(code),
            None => Ended::Broken("the processes could not be started".to_owned()),
            Some(RunEvent::Stopped { .. }) if watch.rejoins && self.interrupts.count() == 0 => {
                Ended::Rejoin
            }
            Some(RunEvent::Stopped { .. }) => Ended::Done,
            Some(RunEvent::Failed { code, message, .. }) if code == "group" => {
                Ended::Broken(message.clone())
            }
            Some(RunEvent::Failed { .. }) => Ended::Failed(code.max(1)),
            Some(_) => Ended::Broken("rank 0 ended without saving a checkpoint".to_owned()),
        }
    }
}

/// The machines of a group in the order of their ranks: rank 0 is the first one on this machine.
fn in_rank_order(present: &[Probed]) -> Vec<&Probed> {
    let mut present: Vec<&Probed> = present.iter().collect();
    if let Some(here) = present.iter().position(|probed| probed.is_here) {
        present[..=here].rotate_right(1);
    }
    present
}

/// The processes of a group.
fn processes(present: &[Probed], job: &Job, run: Option<&RunFolder>) -> Vec<Process> {
    let processes = in_rank_order(present).into_iter().filter_map(|probed| {
        let answer = probed.answer.as_ref().ok()?;
        Some(Process {
            host: probed.host.clone(),
            is_here: probed.is_here,
            program: OsString::from(&answer.program),
            args: args_for(&probed.host, job, run),
        })
    });
    processes.collect()
}

fn args_for(host: &Host, job: &Job, run: Option<&RunFolder>) -> Vec<OsString> {
    let (mut args, folder) = match run {
        // A new run that has begun is resumed, with the settings and the folder that it has.
        Some(run) if job.run.is_none() => {
            let mut args = vec!["resume".into(), run.path.clone().into_os_string()];
            args.extend(job.json.then(|| "--json".into()));
            (args, None)
        }
        _ => (job.args.clone(), job.folder.as_ref()),
    };
    if let Some(folder) = host.folder.as_ref().or(folder) {
        args.extend(["--folder-here".into(), folder.clone().into_os_string()]);
    }
    args
}

/// What the supervisor remembers of a running group.
struct Watch {
    /// Bytes of the run's events when the group began.
    event_bytes: u64,
    /// Bytes of the run's events that were searched for the members of the group.
    searched_bytes: u64,
    /// The ranks that train, if an event has named them.
    ranks: Option<Vec<u32>>,
    has_asked: bool,
    /// The group was stopped so that a machine can take part again.
    rejoins: bool,
    looked: Instant,
    /// Since when rank 0 has left its run, although the launcher still runs.
    ended: Option<Instant>,
    was_alive: bool,
    answers: Option<thread::JoinHandle<bool>>,
}

impl Watch {
    fn new(event_bytes: u64) -> Self {
        Watch {
            event_bytes,
            searched_bytes: event_bytes,
            ranks: None,
            has_asked: false,
            rejoins: false,
            looked: Instant::now(),
            ended: None,
            was_alive: false,
            answers: None,
        }
    }

    /// Asks rank 0, once, to save and stop.
    fn ask_to_stop(&mut self, child: &mut Child) {
        if !std::mem::replace(&mut self.has_asked, true)
            && let Some(stdin) = &mut child.stdin
        {
            // A launcher that has ended needs no stop.
            let _ = writeln!(stdin, "{STOP}").and_then(|()| stdin.flush());
        }
    }

    /// Reads from new events which ranks train. A line that is not complete is read the next time.
    fn read_ranks(&mut self, run: Option<&RunFolder>) {
        let file = run.and_then(|run| File::open(run.events_path()).ok());
        let Some(mut file) = file else {
            return;
        };
        if file.seek(SeekFrom::Start(self.searched_bytes)).is_err() {
            return;
        }
        let mut file = BufReader::new(file);
        let mut line = Vec::new();
        while file.read_until(b'\n', &mut line).is_ok() && line.ends_with(b"\n") {
            self.searched_bytes += line.len() as u64;
            let text = String::from_utf8_lossy(&line);
            if text.contains(GROUP_KIND)
                && let Some(ranks) = ranks_of(&text)
            {
                self.ranks = Some(ranks);
            }
            line.clear();
        }
    }

    /// Ends a launcher that outlives rank 0, and asks missing machines whether they are back.
    fn look(&mut self, supervisor: &Supervisor, child: &mut Child) {
        let is_alive = supervisor.run.as_ref().is_some_and(RunFolder::is_alive);
        self.was_alive |= is_alive;
        if is_alive || !self.was_alive {
            self.ended = None;
        } else if self.ended.get_or_insert_with(Instant::now).elapsed() > LAUNCHER_PATIENCE {
            end_launcher(child);
        }
        if let Some(answers) = self.answers.take_if(|answers| answers.is_finished())
            && answers.join().unwrap_or(false)
            && is_alive
            && !self.has_asked
        {
            supervisor.print("A machine answers again: the group saves a checkpoint and restarts with this machine");
            self.rejoins = true;
            self.ask_to_stop(child);
        }
        if self.looked.elapsed() >= supervisor.patience && self.answers.is_none() {
            self.looked = Instant::now();
            self.read_ranks(supervisor.run.as_ref());
            let missing = supervisor.missing(self.ranks.as_deref());
            if !missing.is_empty() {
                let ask = move || probe(&missing).iter().any(|probed| probed.answer.is_ok());
                self.answers = Some(thread::spawn(ask));
            }
        }
    }
}

/// The ranks of a group, if this line is the event that names them.
fn ranks_of(line: &str) -> Option<Vec<u32>> {
    match serde_json::from_str(line).ok()? {
        RunEvent::Group { members, .. } => Some(members.iter().map(|member| member.rank).collect()),
        _ => None,
    }
}

/// Counts the user's interrupts.
struct Interrupts(Arc<AtomicUsize>);

impl Interrupts {
    fn handled() -> Result<Self, Failure> {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        interrupt::on_interrupt(move || {
            if counted.fetch_add(1, Ordering::SeqCst) == 0 {
                status!("\nStopping and saving a checkpoint. Press Ctrl-C again to abort.");
            }
        })?;
        Ok(Interrupts(count))
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// A folder that is removed on drop.
struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    fn create() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("ebb-supervisor-{}", std::process::id()));
        disk::create_private_dir(&path)
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        Ok(TemporaryFolder(path))
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // What is left over is in the system's folder for temporary files.
        let _ = disk::remove_dir_all(&self.0);
    }
}

/// Refuses to begin if a machine cannot take part, and names the others. This machine must be one
/// of them, because it keeps the run.
fn require_all(probed: &[Probed], job: &Job) -> Result<(), Failure> {
    if !probed.iter().any(|probed| probed.is_here) {
        let own_name = RunGroup::host_name();
        return Err(Failure::usage(format!(
            "this machine ({own_name}) stores the run folder, so it must be one of the machines: --on localhost,{}",
            job.hosts
        )));
    }
    let (present, missing): (Vec<_>, Vec<_>) =
        probed.iter().partition(|probed| probed.answer.is_ok());
    if missing.is_empty() {
        return Ok(());
    }
    let reasons = missing.iter().filter_map(|probed| {
        let reason = probed.answer.as_ref().err()?;
        Some(format!("{}: {reason}", probed.host.name))
    });
    let reasons = reasons.collect::<Vec<_>>().join("\nebb: ");
    let rest = Hosts(present.iter().map(|probed| probed.host.clone()).collect());
    let advice = match rest.0.len() {
        0 => String::new(),
        1 => "\nebb: to train on this machine alone, leave out --on".to_owned(),
        _ => format!("\nebb: to train on the other machines, use --on {rest}"),
    };
    Err(Failure::new(format!("{reasons}{advice}")))
}

/// Bytes of the events of a run.
fn event_bytes(run: Option<&RunFolder>) -> u64 {
    let file = run.map(|run| std::fs::metadata(run.events_path()));
    file.and_then(Result::ok).map_or(0, |file| file.len())
}

/// Step of the newest checkpoint of a run.
fn newest_step(run: Option<&RunFolder>) -> Option<u64> {
    let checkpoints = run?.checkpoints().ok()?;
    checkpoints.last().map(|checkpoint| checkpoint.step)
}

/// Ends the launcher, which ends its processes.
fn end_launcher(child: &mut Child) {
    let launcher = child.id().to_string();
    // It may have ended by itself.
    let _ = Command::new("kill").args(["-TERM", &launcher]).status();
    let began = Instant::now();
    while began.elapsed() < ABORT_PATIENCE {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        thread::sleep(POLL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// The command line of this process without its program, `--on`, `--gpus` and `--over`.
pub fn own_args() -> Vec<OsString> {
    without_hosts(std::env::args_os().skip(1))
}

fn without_hosts(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut skips_value = false;
    for arg in args {
        if std::mem::take(&mut skips_value) {
            continue;
        }
        let text = arg.to_string_lossy().into_owned();
        let found = ["--on", "--gpus", "--over"].into_iter().find(|name| {
            let value = text.strip_prefix(*name);
            value.is_some_and(|value| value.is_empty() || value.starts_with('='))
        });
        skips_value = found == Some(text.as_str());
        if found.is_none() {
            kept.push(arg);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranks_of_a_group_are_read_from_its_events() {
        let member = |rank| runlog::GroupMember {
            rank,
            ..runlog::GroupMember::default()
        };
        let event = RunEvent::Group {
            at_ms: 1,
            step: 2,
            members: vec![member(0), member(2)],
            message: "rank 1 ended".to_owned(),
            sync_every: 0,
        };
        let line = serde_json::to_string(&event).expect("it is written as JSON");
        assert!(line.contains(GROUP_KIND), "{line}");
        assert_eq!(ranks_of(&line), Some(vec![0, 2]));
        assert_eq!(ranks_of(&line[1..]), None);
    }

    #[test]
    fn processes_get_the_command_line_without_the_machines() {
        let line = "train birds --on a,b --steps 3 --over=en0 --gpus 2 --on=c --gpus=2 --json";
        let args = without_hosts(line.split(' ').map(OsString::from));
        assert_eq!(args, ["train", "birds", "--steps", "3", "--json"]);
    }
}
