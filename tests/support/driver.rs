//! A small WebDriver client: JSON over HTTP to WebKitWebDriver, with a connection for each request.
//! The driver and the app form a process group that ends with the test.

use super::until;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Timeout of one response of the driver.
const PATIENCE: Duration = Duration::from_secs(60);

/// WebKitWebDriver with one session.
pub struct Driver {
    process: Child,
    port: u16,
    session: String,
}

/// A disk of this many megabytes at the home of Ebb, which only the driver and the app see.
pub struct SmallDisk(u64);

/// Fills the disk at `disk` except for `left_bytes`.
pub fn fill(disk: &Path, left_bytes: u64) -> io::Result<()> {
    let free = disk::available_bytes(disk)?;
    let mut zeros = io::repeat(0).take(free.saturating_sub(left_bytes));
    io::copy(&mut zeros, &mut File::create(disk.join("filler"))?)?;
    Ok(())
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout.starts_with(b"0\n"))
}

/// A command that becomes `program` and may read only what its permissions allow, also as root.
pub fn obeying_permissions(program: &str) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-dac_override,-dac_read_search", program]);
    command
}

impl SmallDisk {
    /// `None` if this user may not mount a disk, even in a namespace of its own.
    pub fn allowed(megabytes: u64) -> Option<SmallDisk> {
        let disk = SmallDisk(megabytes);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut mounts = disk.command("true");
        let tried = mounts.env("EBB_HOME", folder.path()).output();
        tried
            .is_ok_and(|tried| tried.status.success())
            .then_some(disk)
    }

    /// A command that mounts the disk, then becomes `program`.
    fn command(&self, program: &str) -> Command {
        let mount = format!("mount -t tmpfs -o size={}m ebb \"$EBB_HOME\"", self.0);
        let mut command = Command::new("unshare");
        command.arg(if is_root() { "-m" } else { "-rm" }).args([
            "sh",
            "-c",
            &format!("{mount} && exec \"$@\""),
            "sh",
            program,
        ]);
        command
    }
}

impl Driver {
    /// Starts the driver, and through it the app.
    pub fn start(app: &Path, args: &[&str], home: &Path) -> Driver {
        Driver::start_by(Command::new("WebKitWebDriver"), app, args, home)
    }

    /// Starts the driver and the app with the folder that contains the user's trash.
    pub fn start_with_trash(app: &Path, args: &[&str], home: &Path, data: &Path) -> Driver {
        let mut command = Command::new("WebKitWebDriver");
        command.env("XDG_DATA_HOME", data);
        Driver::start_by(command, app, args, home)
    }

    /// Starts the driver and the app with a home on a disk of their own.
    pub fn start_on(disk: &SmallDisk, app: &Path, args: &[&str], home: &Path) -> Driver {
        Driver::start_by(disk.command("WebKitWebDriver"), app, args, home)
    }

    /// Starts the driver and the app by [`obeying_permissions`].
    pub fn start_obeying_permissions(app: &Path, args: &[&str], home: &Path) -> Driver {
        Driver::start_by(obeying_permissions("WebKitWebDriver"), app, args, home)
    }

    /// Starts the driver by `command`, whose process becomes the driver.
    fn start_by(mut command: Command, app: &Path, args: &[&str], home: &Path) -> Driver {
        assert!(
            std::env::var_os("DISPLAY").is_some(),
            "no display: run the tests by `make test`, or through scripts/with-display"
        );
        // A port that was just released: the system does not give it to another process so soon.
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|free| free.local_addr())
            .expect("a free port")
            .port();
        let process = command
            .arg(format!("--port={port}"))
            .env("TAURI_WEBVIEW_AUTOMATION", "true")
            .env("EBB_HOME", home)
            .process_group(0)
            .stdout(Stdio::null())
            .spawn()
            .expect(
                "WebKitWebDriver is missing: run scripts/setup test, or install webkit2gtk-driver",
            );
        let mut driver = Driver {
            process,
            port,
            session: String::new(),
        };
        let wanted = json!({"capabilities": {"alwaysMatch": {"webkitgtk:browserOptions": {"binary": app, "args": args}}}});
        let session = until("a session of the driver", PATIENCE, || {
            let answer = driver.ask("POST", "/session", Some(&wanted)).ok()?;
            answer["sessionId"].as_str().map(str::to_owned)
        });
        driver.session = session;
        driver
    }

    /// One request inside the session.
    pub fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, String> {
        self.ask(method, &format!("/session/{}{path}", self.session), body)
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, String> {
        let answer = self
            .exchange(method, path, body)
            .map_err(|error| error.to_string())?;
        let (_, json) = answer
            .split_once("\r\n\r\n")
            .ok_or("an answer without a body")?;
        let mut answer: Value =
            serde_json::from_str(json).map_err(|error| format!("{error}: {json}"))?;
        match answer["value"]["error"].as_str() {
            Some(error) => Err(format!("{error}: {}", answer["value"]["message"])),
            None => Ok(answer["value"].take()),
        }
    }

    fn exchange(&self, method: &str, path: &str, body: Option<&Value>) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let body = body.map(Value::to_string).unwrap_or_default();
        let (port, length) = (self.port, body.len());
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// The process group of driver, app and web process.
    pub fn group(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Ending the session does not reliably end the app; ending the group does.
        let _ = Command::new("kill")
            .args(["-KILL", "--", &format!("-{}", self.group())])
            .status();
        let _ = self.process.wait();
    }
}
