//! Asks the machines of a list whether they can train with this one: through ssh, or directly if
//! it is this machine.

use super::super::hosts::Host;
use crate::cli::args::BUILD;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use trainer::RunGroup;

/// A machine that has not answered within this time is left out.
const PATIENCE: Duration = Duration::from_secs(7);
/// How often an answer is looked for.
const POLL: Duration = Duration::from_millis(20);
/// ssh asks no questions, and gives up sooner than [`PATIENCE`].
pub const SSH_OPTIONS: [&str; 4] = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=5"];
/// Exit code of the remote shell if it finds no Ebb.
const NO_EBB: i32 = 127;

/// What a machine answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Version and commit of its Ebb.
    pub build: String,
    /// Where its Ebb is.
    pub program: String,
    pub cores: u32,
    pub total_bytes: u64,
    /// The MPI library that Ebb finds there, or why it finds none.
    pub library: Result<String, String>,
}

impl Answer {
    /// The answer of this machine.
    pub fn here() -> Answer {
        let program = std::env::current_exe().unwrap_or_default();
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        Answer {
            build: BUILD.to_owned(),
            program: program.to_string_lossy().into_owned(),
            cores,
            total_bytes: crate::cli::scripted_machine::total_bytes(&trainer::Machine::default()),
            library: RunGroup::find_library(),
        }
    }
}

/// A machine, and its answer or why it cannot take part.
#[derive(Debug, Clone)]
pub struct Probed {
    pub host: Host,
    pub is_here: bool,
    pub answer: Result<Answer, String>,
}

/// Asks all machines at the same time. Takes at most 8 s.
pub fn probe(hosts: &[Host]) -> Vec<Probed> {
    let own_name = RunGroup::host_name();
    let here = Answer::here();
    thread::scope(|scope| {
        let ask = |host: &Host| {
            let (host, is_here) = (host.clone(), host.is_here(&own_name));
            let here = &here;
            scope.spawn(move || {
                let answer = if is_here {
                    Ok(here.clone())
                } else {
                    ask_by_ssh(&host.name, &here.program)
                };
                let answer = answer.and_then(|answer| fitting(answer, here));
                Probed {
                    host,
                    is_here,
                    answer,
                }
            })
        };
        let asked: Vec<_> = hosts.iter().map(ask).collect();
        let answers = asked.into_iter().zip(hosts);
        let answers = answers.map(|(thread, host)| {
            thread.join().unwrap_or_else(|_| Probed {
                host: host.clone(),
                is_here: false,
                answer: Err(
                    "Ebb failed while asking the machine; please report this fault".to_owned(),
                ),
            })
        });
        answers.collect()
    })
}

/// Refuses a machine whose version or MPI differs from those here.
fn fitting(answer: Answer, here: &Answer) -> Result<Answer, String> {
    if answer.build != here.build {
        return Err(format!(
            "the machine has Ebb {}, but this machine has {}; install the same version on both",
            answer.build, here.build
        ));
    }
    let library = answer.library.as_ref().map_err(Clone::clone)?;
    let is_standard = |library: &str| library.contains("libmpi_abi");
    if let Ok(own) = &here.library
        && is_standard(own) != is_standard(library)
    {
        return Err(format!(
            "the machine has the MPI library {library}, but this machine has {own}; install the same MPI on both"
        ));
    }
    Ok(answer)
}

fn ask_by_ssh(name: &str, program: &str) -> Result<Answer, String> {
    let mut ssh = Command::new("ssh");
    ssh.args(SSH_OPTIONS)
        .args(["--", name, &remote_command(program)])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = ssh
        .spawn()
        .map_err(|error| format!("ssh cannot be started here ({error}); install OpenSSH"))?;
    let out = read_in_thread(child.stdout.take());
    let err = read_in_thread(child.stderr.take());
    let Some(code) = wait(&mut child) else {
        return Err(format!(
            "the machine has not answered for {} s; it may be asleep, or behind a firewall",
            PATIENCE.as_secs()
        ));
    };
    let join = |text: thread::JoinHandle<String>| text.join().unwrap_or_default();
    let (out, err) = (join(out), join(err));
    if code != 0 {
        return Err(reason(code, &err));
    }
    let answer = out
        .lines()
        .rev()
        .find_map(|line| serde_json::from_str(line).ok());
    answer.ok_or_else(|| {
        "this version of Ebb cannot read the answer of that machine; install the same version on both"
            .to_owned()
    })
}

/// The command that a remote shell runs: Ebb at the same place as here, or the one in its path.
/// Shells that ssh starts often have a short path.
fn remote_command(program: &str) -> String {
    let quoted = program.replace('\'', "'\\''");
    format!(
        "PATH=\"$PATH:/opt/homebrew/bin:/usr/local/bin:$HOME/.cargo/bin\"; export PATH; \
         if [ -x '{quoted}' ]; then exec '{quoted}' cluster --probe; fi; \
         if command -v ebb >/dev/null 2>&1; then exec ebb cluster --probe; fi; exit {NO_EBB}"
    )
}

fn read_in_thread(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read until an error is still useful.
            let _ = pipe.by_ref().take(1 << 20).read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// The exit code of a process, or `None` if it runs too long; then it is ended.
fn wait(child: &mut Child) -> Option<i32> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.code().unwrap_or(-1)),
            Ok(None) => thread::sleep(POLL),
            Err(_) => break,
        }
    }
    // It may have ended meanwhile.
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// Why ssh or the remote shell ended with an error.
fn reason(code: i32, err: &str) -> String {
    let known = [
        (
            "Could not resolve hostname",
            "no machine of this name is known; check the name, and that the machine is on this network",
        ),
        (
            "Connection refused",
            "the machine refuses connections to its ssh port; switch on Remote Login (Mac), or install openssh-server",
        ),
        (
            "Permission denied",
            "the machine accepts none of your ssh keys; copy one with ssh-copy-id",
        ),
        (
            "Host key verification failed",
            "the host key of the machine is unknown or has changed; connect to the machine once with ssh, and check the key",
        ),
        (
            "Connection timed out",
            "the machine does not answer; it may be off, asleep, or behind a firewall",
        ),
        (
            "Operation timed out",
            "the machine does not answer; it may be off, asleep, or behind a firewall",
        ),
        (
            "No route to host",
            "there is no network connection to the machine",
        ),
        (
            "Network is unreachable",
            "there is no network connection to the machine",
        ),
    ];
    if code == NO_EBB {
        return "Ebb is not installed there, or the PATH of a shell that ssh starts does not include it".to_owned();
    }
    if let Some((_, reason)) = known.iter().find(|(text, _)| err.contains(text)) {
        return (*reason).to_owned();
    }
    let last = err.lines().rev().find(|line| !line.trim().is_empty());
    let last = last.unwrap_or("no message").trim();
    if code == 2 {
        return format!(
            "the machine has a different version of Ebb ({last}); install the same version on both"
        );
    }
    format!("ssh ended with code {code}: {last}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(build: &str, library: Result<&str, &str>) -> Answer {
        Answer {
            build: build.to_owned(),
            program: "/usr/bin/ebb".to_owned(),
            cores: 8,
            total_bytes: 8 << 30,
            library: library.map(str::to_owned).map_err(str::to_owned),
        }
    }

    #[test]
    fn machines_that_differ_are_refused() {
        let here = answer("1.0 (a)", Ok("libmpi.so.40"));
        assert!(fitting(here.clone(), &here).is_ok());
        let check = |other: Answer, part: &str| {
            let refused = fitting(other, &here).expect_err("they differ");
            assert!(refused.contains(part), "{refused}");
        };
        check(answer("1.1 (b)", Ok("libmpi.so.40")), "Ebb 1.1 (b)");
        check(answer("1.0 (a)", Ok("libmpi_abi.so.1")), "libmpi_abi.so.1");
        check(answer("1.0 (a)", Err("no MPI library")), "no MPI library");
    }

    #[test]
    fn errors_of_ssh_are_explained() {
        for (code, err, part) in [
            (
                255,
                "ssh: Could not resolve hostname nowhere: Name or service not known",
                "no machine of this name",
            ),
            (
                255,
                "ssh: connect to host air port 22: Connection refused",
                "refuses connections",
            ),
            (255, "me@air: Permission denied (publickey).", "ssh keys"),
            (255, "Host key verification failed.\r", "host key"),
            (127, "", "not installed"),
            (
                2,
                "error: unrecognized subcommand 'cluster'\n\n",
                "different version",
            ),
            (1, "odd\n", "odd"),
        ] {
            let reason = reason(code, err);
            assert!(reason.contains(part), "{reason}");
        }
    }

    #[test]
    fn a_remote_path_cannot_leave_its_quotes() {
        let command = remote_command("/opt/it's/ebb");
        assert!(
            command.contains("exec '/opt/it'\\''s/ebb' cluster --probe"),
            "{command}"
        );
    }
}
