//! Neither the window nor a training in it opens a port. WebDriver would open one in the page's
//! process, so this window is driven by the keyboard.

use crate::support::home::Home;
use crate::support::open_ports::open_ports;
use crate::support::until;
use crate::support::xdotool::{self, xdotool};
use crate::{SOON, sample};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The window and the processes of its page, which end with this value.
struct App {
    group: u32,
    process: std::process::Child,
}

impl App {
    fn open(home: &Home) -> App {
        let process = Command::new(env!("CARGO_BIN_EXE_ebb"))
            .arg("app")
            .arg(sample())
            .env("EBB_HOME", home.path())
            .process_group(0)
            .stdout(Stdio::null())
            .spawn()
            .expect("the binary runs");
        App {
            group: process.id(),
            process,
        }
    }

    /// Every process of the window.
    fn processes(&self) -> Vec<u32> {
        let group = self.group.to_string();
        let found = Command::new("pgrep").args(["-g", &group]).output();
        let found = found.expect("pgrep is there").stdout;
        let lines = String::from_utf8_lossy(&found).into_owned();
        lines.lines().filter_map(|line| line.parse().ok()).collect()
    }

    fn expect_no_port(&self) {
        let processes = until("the page has a process of its own", SOON, || {
            Some(self.processes()).filter(|processes| processes.len() >= 2)
        });
        for process in processes {
            assert_eq!(open_ports(process), Vec::<String>::new());
        }
    }
}

impl Drop for App {
    fn drop(&mut self) {
        let group = format!("-{}", self.group);
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.process.wait();
    }
}

/// The run that the window trains.
fn run_in(home: &Home) -> Option<String> {
    let runs = std::fs::read_dir(home.path().join("runs")).ok()?;
    let run = runs.flatten().next()?;
    run.file_name().into_string().ok()
}

#[test]
fn the_window_and_its_training_open_no_port() {
    let home = Home::new();
    let _manager = xdotool::manager();
    let app = App::open(&home);
    let window = xdotool::found("Ebb");
    app.expect_no_port();
    let run = until("the folder is read, and Enter trains", SOON, || {
        xdotool::activate(&window);
        xdotool(&["key", "ctrl+Return"]);
        std::thread::sleep(std::time::Duration::from_millis(500));
        run_in(&home)
    });
    until("it trains", SOON, || (home.step(&run) >= 3).then_some(()));
    app.expect_no_port();
}
