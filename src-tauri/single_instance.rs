//! One window per data folder. A second `ebb app` hands its argument to the first process, which
//! shows it, and ends. Tauri's plugin for this has one instance per user, and needs the session bus
//! on Linux; trainings with different `EBB_HOME` must not meet.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

const LOCK: &str = "window.lock";
const SOCKET: &str = "window.socket";
/// How long the first process may take to answer, for example while it starts.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Pause between two attempts to reach it.
const RETRY: Duration = Duration::from_millis(50);
/// What the first process answers.
const SHOWN: &str = "shown";

/// Which process this is.
#[derive(Debug)]
pub enum Instance {
    /// The first one of this folder.
    First(First),
    /// Another process shows the target; this one has nothing left to do.
    Second,
    /// The folder cannot be written, so no process can be found there.
    Alone,
}

/// The first process of a folder, until this value is dropped.
#[derive(Debug)]
pub struct First {
    lock: File,
    listener: UnixListener,
}

/// Becomes the first process of `folder`, or hands `target` to it.
///
/// # Errors
/// The first process does not answer.
pub fn claim(folder: &Path, target: Option<&Path>) -> io::Result<Instance> {
    let start = Instant::now();
    loop {
        match First::claim(folder) {
            Ok(Some(first)) => return Ok(Instance::First(first)),
            Err(_) => return Ok(Instance::Alone),
            Ok(None) => {}
        }
        match hand_over(folder, target) {
            Ok(()) => return Ok(Instance::Second),
            // It starts or ends just now, or hangs.
            Err(error) if start.elapsed() > ANSWER_WAIT => return Err(error),
            Err(_) => thread::sleep(RETRY),
        }
    }
}

fn hand_over(folder: &Path, target: Option<&Path>) -> io::Result<()> {
    let mut stream = UnixStream::connect(folder.join(SOCKET))?;
    stream.set_read_timeout(Some(ANSWER_WAIT))?;
    // A folder is meant from where this process was started; anything else is the id of a run.
    let target = target.map(|target| target.canonicalize().unwrap_or_else(|_| target.to_owned()));
    let mut line = serde_json::to_vec(&target)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    if answer.trim_end() == SHOWN {
        return Ok(());
    }
    Err(io::Error::other("it gave no answer"))
}

impl First {
    /// `None` if another process is the first one.
    fn claim(folder: &Path) -> io::Result<Option<First>> {
        fs::create_dir_all(folder)?;
        let lock = File::options()
            .create(true)
            .append(true)
            .open(folder.join(LOCK))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let socket = folder.join(SOCKET);
        // A process that was killed leaves its socket behind.
        match fs::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(socket)?;
        Ok(Some(First { lock, listener }))
    }

    /// Calls `show` with every target that another process hands over, until this process ends.
    pub fn listen(self, show: impl Fn(Option<PathBuf>) + Send + 'static) {
        thread::spawn(move || {
            let _held = self.lock;
            for stream in self.listener.incoming().flatten() {
                // A caller that goes away is not answered.
                let _ = answer(&stream, &show);
            }
        });
    }
}

fn answer(stream: &UnixStream, show: impl Fn(Option<PathBuf>)) -> io::Result<()> {
    stream.set_read_timeout(Some(ANSWER_WAIT))?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    show(serde_json::from_str(&line)?);
    let mut stream = stream;
    writeln!(stream, "{SHOWN}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    fn first(folder: &Path) -> First {
        match claim(folder, None).expect("it can be claimed") {
            Instance::First(first) => first,
            other => panic!("no other process runs: {other:?}"),
        }
    }

    #[test]
    fn a_second_process_hands_its_target_to_the_first() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let (shown, targets) = channel();
        first(home.path()).listen(move |target| drop(shown.send(target)));
        let hand = |target: Option<&Path>| {
            let second = claim(home.path(), target).expect("it is answered");
            assert!(matches!(second, Instance::Second));
            targets.recv().expect("it is shown")
        };
        assert_eq!(hand(None), None);
        let real = home.path().canonicalize().expect("it is there");
        assert_eq!(hand(Some(home.path())), Some(real));
        let id = Path::new("2026-11-20-1402-birds");
        assert_eq!(hand(Some(id)), Some(id.to_owned()));
    }

    #[test]
    fn the_socket_of_a_killed_process_is_no_obstacle() {
        let home = tempfile::tempdir().expect("a temporary folder");
        drop(first(home.path()));
        assert!(home.path().join(SOCKET).exists(), "it was left behind");
        drop(first(home.path()));
    }

    #[test]
    fn another_folder_has_a_window_of_its_own() {
        let (one, other) = (tempfile::tempdir(), tempfile::tempdir());
        let one = first(one.expect("a temporary folder").path());
        let other = first(other.expect("a temporary folder").path());
        drop((one, other));
    }
}
