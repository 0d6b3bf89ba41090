//! The launcher of MPI that starts the processes of a group: its version and its command line.

use super::super::hosts::Host;
use super::probe::SSH_OPTIONS;
use std::ffi::OsString;
use std::fmt;
use std::process::{Command, Stdio};
use trainer::RunGroup;

/// What there is to say if there is no launcher.
const NOT_FOUND: &str = "mpirun is not installed on this machine; install Open MPI (Debian: apt-get install openmpi-bin, Mac: brew install open-mpi)";

/// With the value [`NO_FAULT_TOLERANCE`], a group starts again if one of its processes ends, also
/// if the others could continue.
const FAULT_TOLERANCE: &str = "EBB_FAULT_TOLERANCE";
const NO_FAULT_TOLERANCE: &str = "none";

/// A launcher that Ebb can control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launcher {
    /// Open MPI with this major version.
    OpenMpi(u32),
    /// MPICH, or a relative of it.
    Mpich,
}

/// One process of a group.
#[derive(Debug, Clone)]
pub struct Process {
    pub host: Host,
    pub is_here: bool,
    pub program: OsString,
    pub args: Vec<OsString>,
}

impl fmt::Display for Launcher {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Launcher::OpenMpi(version) => write!(to, "mpirun of Open MPI {version}"),
            Launcher::Mpich => to.write_str("mpirun of MPICH"),
        }
    }
}

impl Launcher {
    /// The launcher of this machine.
    ///
    /// # Errors
    /// There is none.
    pub fn find() -> Result<Launcher, String> {
        let version = Command::new("mpirun")
            .arg("--version")
            .stdin(Stdio::null())
            .output();
        let version = version.map_err(|_| NOT_FOUND.to_owned())?;
        let text = String::from_utf8_lossy(&version.stdout).into_owned();
        Launcher::from_version(&text).ok_or_else(|| {
            // A launcher that cannot start says why in its errors.
            let errors = String::from_utf8_lossy(&version.stderr);
            let line = text.lines().chain(errors.lines()).next();
            let line = line.unwrap_or("it prints no version");
            format!("the mpirun of this machine is unknown to Ebb ({line}); install Open MPI")
        })
    }

    fn from_version(text: &str) -> Option<Launcher> {
        if let Some((_, version)) = text.split_once("Open MPI)") {
            let major = version.trim().split('.').next()?.parse().ok()?;
            return Some(Launcher::OpenMpi(major));
        }
        (text.contains("HYDRA") || text.contains("mpich")).then_some(Launcher::Mpich)
    }

    /// Whether the other processes of a group continue if one ends: the launcher and the library
    /// can, and the user has not forbidden it.
    pub fn tolerates_faults(self) -> bool {
        let is_forbidden =
            std::env::var_os(FAULT_TOLERANCE).is_some_and(|v| v == NO_FAULT_TOLERANCE);
        let has_option = matches!(self, Launcher::OpenMpi(major) if major >= 5);
        has_option && !is_forbidden && RunGroup::tolerates_faults()
    }

    /// The command that starts these processes; rank 0 first. It reads the lines for rank 0 from
    /// its standard input. If a process ends, the others end too, unless the group
    /// `continues_without_process`.
    pub fn command(
        self,
        processes: &[Process],
        interface: Option<&str>,
        continues_without_process: bool,
    ) -> Command {
        let mut command = Command::new("mpirun");
        if continues_without_process {
            command.args(["--with-ft", "ulfm"]);
        }
        command.args(self.options(interface));
        match self {
            // It passes all variables on.
            Launcher::Mpich => {
                command.env("HYDRA_LAUNCHER_EXTRA_ARGS", SSH_OPTIONS.join(" "));
            }
            Launcher::OpenMpi(_) => {
                if std::env::var_os(RunGroup::PATIENCE_VARIABLE).is_some() {
                    command.args(["-x", RunGroup::PATIENCE_VARIABLE]);
                }
            }
        }
        for (index, process) in processes.iter().enumerate() {
            if index > 0 {
                command.arg(":");
            }
            // The launcher starts processes here without ssh.
            let name = if process.is_here {
                "localhost"
            } else {
                &process.host.name
            };
            command.args(["-n", "1", self.host_option(), name]);
            command.arg(&process.program).args(&process.args);
        }
        command
    }

    fn host_option(self) -> &'static str {
        match self {
            Launcher::OpenMpi(_) => "--host",
            Launcher::Mpich => "-host",
        }
    }

    fn options(self, interface: Option<&str>) -> Vec<String> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let ssh = format!("ssh {}", SSH_OPTIONS.join(" "));
        let mut options: Vec<String> = match self {
            Launcher::Mpich => words(&["-launcher", "ssh"]),
            Launcher::OpenMpi(major) => {
                let mut options = words(&["--bind-to", "none", "--oversubscribe"]);
                if is_root() {
                    options.push("--allow-run-as-root".to_owned());
                }
                let (full_names, agent) = if major < 5 {
                    (
                        ["--mca", "orte_keep_fqdn_hostnames", "1"],
                        ["--mca", "plm_rsh_agent"],
                    )
                } else {
                    (
                        ["--prtemca", "prte_keep_fqdn_hostnames", "1"],
                        ["--prtemca", "plm_ssh_agent"],
                    )
                };
                options.extend(words(&full_names));
                options.extend(words(&agent));
                options.push(ssh);
                options
            }
        };
        if let Some(interface) = interface {
            options.extend(match self {
                Launcher::Mpich => words(&["-iface", interface]),
                Launcher::OpenMpi(major) => {
                    let mut options = words(&["--mca", "btl_tcp_if_include", interface]);
                    let control = if major < 5 {
                        ["--mca", "oob_tcp_if_include"]
                    } else {
                        ["--prtemca", "prte_if_include"]
                    };
                    options.extend(words(&control));
                    options.push(interface.to_owned());
                    options
                }
            });
        }
        options
    }
}

/// Whether this user is root, whom Open MPI asks for one more option.
fn is_root() -> bool {
    let id = Command::new("id").arg("-u").stdin(Stdio::null()).output();
    id.is_ok_and(|id| id.stdout.trim_ascii() == b"0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_known_by_their_version() {
        for (text, launcher) in [
            (
                "mpirun (Open MPI) 4.1.4\n\nReport bugs to",
                Some(Launcher::OpenMpi(4)),
            ),
            ("mpirun (Open MPI) 5.0.11", Some(Launcher::OpenMpi(5))),
            (
                "HYDRA build details:\n    Version: 5.0.2",
                Some(Launcher::Mpich),
            ),
            ("something else", None),
        ] {
            assert_eq!(Launcher::from_version(text), launcher, "{text}");
        }
    }

    #[test]
    fn processes_here_need_no_ssh() {
        let process = |name: &str, is_here| Process {
            host: Host {
                name: name.to_owned(),
                folder: None,
            },
            is_here,
            program: "/bin/ebb".into(),
            args: vec!["train".into(), "my birds".into()],
        };
        let processes = [process("studio.local", true), process("air.local", false)];
        let line = |continues| -> String {
            let command = Launcher::OpenMpi(5).command(&processes, None, continues);
            let args = command.get_args().map(|arg| arg.to_string_lossy());
            args.collect::<Vec<_>>().join(" ")
        };
        assert!(line(true).starts_with("--with-ft ulfm --bind-to"));
        assert!(!line(false).contains("--with-ft"));
        let command = Launcher::OpenMpi(4).command(&processes, Some("en0"), false);
        let args: Vec<_> = command
            .get_args()
            .map(|arg| arg.to_string_lossy())
            .collect();
        let line = args.join(" ");
        assert!(
            line.contains(
                "--host localhost /bin/ebb train my birds : -n 1 --host air.local /bin/ebb"
            ),
            "{line}"
        );
        assert!(
            line.contains("btl_tcp_if_include en0") && line.contains("BatchMode=yes"),
            "{line}"
        );
        let position = args.iter().position(|arg| arg == "my birds");
        assert!(position.is_some(), "a folder with a space is one argument");
    }
}
