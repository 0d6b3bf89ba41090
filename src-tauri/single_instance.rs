//! One window per data folder. A second `ebb app` hands its argument to the first process, which
//! shows it, and ends. Tauri's plugin for this has one instance per user, and needs the session bus
//! on Linux; trainings with different `EBB_HOME` must not meet.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tauri::async_runtime::{spawn, spawn_blocking};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

const LOCK: &str = "window.lock";
const SOCKET: &str = "window.socket";
/// How long the first process may take to answer, for example while it starts.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Pause between two attempts to reach it, or to accept a caller.
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
        ::disk::create_dir_all(folder)?;
        // tidy: not durable: the lock of a process
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
        // tidy: not durable: the socket of a process
        match fs::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(socket)?;
        listener.set_nonblocking(true)?;
        Ok(Some(First { lock, listener }))
    }

    /// Calls `show` with every target that another process hands over, until this process ends.
    ///
    /// # Errors
    /// The runtime cannot wait for other processes.
    pub fn listen(self, show: impl Fn(Option<PathBuf>) + Send + Sync + 'static) -> io::Result<()> {
        let runtime = tauri::async_runtime::handle();
        let listener = {
            let _context = runtime.inner().enter();
            tokio::net::UnixListener::from_std(self.listener)?
        };
        let (lock, show) = (self.lock, Arc::new(show));
        spawn(async move {
            let _held = lock;
            loop {
                match listener.accept().await {
                    // A caller that goes away is not answered.
                    Ok((stream, _)) => drop(spawn(answer(stream, Arc::clone(&show)))),
                    // For example, too many files are open.
                    Err(_) => sleep(RETRY).await,
                }
            }
        });
        Ok(())
    }
}

async fn answer<S>(stream: tokio::net::UnixStream, show: Arc<S>) -> io::Result<()>
where
    S: Fn(Option<PathBuf>) + Send + Sync + 'static,
{
    let mut stream = tokio::io::BufReader::new(stream);
    let mut line = String::new();
    timeout(ANSWER_WAIT, stream.read_line(&mut line)).await??;
    let target: Option<PathBuf> = serde_json::from_str(&line)?;
    // A folder on a sleeping network volume may take long to answer.
    let shown = spawn_blocking(move || show(target)).await;
    shown.map_err(io::Error::other)?;
    stream.write_all(format!("{SHOWN}\n").as_bytes()).await
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
        let listening = first(home.path()).listen(move |target| drop(shown.send(target)));
        listening.expect("it can wait for others");
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
    fn a_silent_caller_does_not_hold_up_others() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let (shown, targets) = channel();
        let listening = first(home.path()).listen(move |target| drop(shown.send(target)));
        listening.expect("it can wait for others");
        let begin = Instant::now();
        let silent = UnixStream::connect(home.path().join(SOCKET));
        let second = claim(home.path(), None).expect("it is answered");
        assert!(matches!(second, Instance::Second));
        assert_eq!(targets.recv(), Ok(None));
        assert!(begin.elapsed() < ANSWER_WAIT, "{:?}", begin.elapsed());
        drop(silent.expect("it was connected"));
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
