//! Requests to a hub: small JSON responses, and large files that continue after an interruption.

use super::access::Access;
use super::observer::Observer;
use super::token::Token;
use super::verify_checksum::RemoteFile;
use super::{HubError, Repository, disk, remove};
use runlog::format_bytes;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};
use ureq::http::Response;
use ureq::typestate::WithoutBody;
use ureq::{Agent, RequestBuilder};

/// Largest size of a list of files, in bytes.
const MOST_LISTED: u64 = 32 << 20;
/// Redirects that are followed for one request.
const MAX_REDIRECTS: u32 = 5;
/// Attempts at a file before the download fails.
const ATTEMPTS: u32 = 5;
/// Wait before the second attempt; it grows by as much with each further attempt.
const PAUSE: Duration = Duration::from_millis(300);
/// Timeout of a connection.
const CONNECT: Duration = Duration::from_secs(20);
/// Timeout of the beginning of a response.
const ANSWER: Duration = Duration::from_secs(60);
/// Speed below which a download fails, in bytes per second.
const SLOWEST: u64 = 50_000;
/// Time without data after which a connection counts as broken.
const SILENCE: Duration = Duration::from_secs(60);
/// Interval at which a download looks whether it was cancelled.
pub const LOOK: Duration = Duration::from_millis(100);
/// Bytes that are read at once.
const BUFFER: usize = 1 << 16;
/// Buffers that wait for the disk.
const BUFFERS: usize = 16;

/// Client for one repository at a hub.
pub struct Hub<'a> {
    repository: Repository<'a>,
    agent: Agent,
    token: Option<Token>,
    observer: &'a dyn Observer,
}

/// Outcome of one attempt at a file.
enum Attempt {
    Done,
    /// The connection broke, with the network's error.
    Broken(String),
}

impl<'a> Hub<'a> {
    /// Sends no request yet. A hub may redirect to another encrypted address, which gets no token.
    /// A hub on this machine may not redirect at all.
    pub fn new(repository: Repository<'a>, access: Access, observer: &'a dyn Observer) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .https_only(!access.is_local)
            .max_redirects(if access.is_local { 0 } else { MAX_REDIRECTS })
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(ANSWER))
            .user_agent(concat!("ebb/", env!("CARGO_PKG_VERSION")));
        Hub {
            repository,
            agent: config.build().into(),
            token: access.token,
            observer,
        }
    }

    fn get(&self, url: &str) -> RequestBuilder<WithoutBody> {
        let request = self.agent.get(url);
        match &self.token {
            Some(token) => request.header("Authorization", token.header()),
            None => request,
        }
    }

    /// A JSON response about the repository.
    pub fn read(&self, about: &str) -> Result<Vec<u8>, HubError> {
        let Repository { name, endpoint } = self.repository;
        let url = format!("{endpoint}/api/models/{name}/{about}");
        let asked = self.get(&url).config().timeout_recv_body(Some(ANSWER));
        let asked = asked.build();
        let answer = self.interruptible(name, move || {
            let mut answer = asked.call()?;
            let status = answer.status().as_u16();
            if !is_success(status) {
                return Ok((status, Vec::new()));
            }
            let body = answer.body_mut().with_config().limit(MOST_LISTED);
            Ok::<_, ureq::Error>((status, body.read_to_vec()?))
        })?;
        let (status, body) = answer.map_err(|error| self.unreachable(name, error.to_string()))?;
        self.expect_success(name, status)?;
        Ok(body)
    }

    /// The first bytes of a file, at most `most`.
    #[cfg(feature = "desktop")]
    pub fn read_start(&self, commit: &str, path: &str, most: u64) -> Result<Vec<u8>, HubError> {
        let asked = self.get(&self.file_url(commit, path));
        let asked = asked.header("Range", format!("bytes=0-{}", most.saturating_sub(1)));
        let slowest = ANSWER + Duration::from_secs(most / SLOWEST);
        let asked = asked.config().timeout_recv_body(Some(slowest)).build();
        let answer = self.interruptible(path, move || {
            let answer = asked.call()?;
            let status = answer.status().as_u16();
            let mut start = Vec::new();
            if is_success(status) {
                // A hub may send the whole file.
                let mut body = answer.into_body().into_reader().take(most);
                body.read_to_end(&mut start)?;
            }
            Ok::<_, ureq::Error>((status, start))
        })?;
        let (status, start) = answer.map_err(|error| self.unreachable(path, error.to_string()))?;
        self.expect_success(path, status)?;
        Ok(start)
    }

    fn file_url(&self, commit: &str, path: &str) -> String {
        let Repository { name, endpoint } = self.repository;
        format!("{endpoint}/{name}/resolve/{commit}/{path}")
    }

    /// Runs `work`, which waits for the network, on a thread of its own: a cancelled download does
    /// not wait for it.
    fn interruptible<T: Send + 'static>(
        &self,
        what: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, HubError> {
        let (send, receive) = channel();
        // Fails only if the download was cancelled.
        let run = move || drop(send.send(work()));
        self.start(what, run)?;
        loop {
            match receive.recv_timeout(LOOK) {
                Ok(done) => return Ok(done),
                Err(RecvTimeoutError::Timeout) => self.expect_wanted()?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.unreachable(what, "the request ended".to_owned()));
                }
            }
        }
    }

    fn start(&self, what: &str, run: impl FnOnce() + Send + 'static) -> Result<(), HubError> {
        let thread = thread::Builder::new().name("hub".to_owned()).spawn(run);
        match thread {
            Ok(_) => Ok(()),
            Err(error) => Err(self.unreachable(what, error.to_string())),
        }
    }

    fn expect_wanted(&self) -> Result<(), HubError> {
        if self.observer.is_cancelled() {
            Err(HubError::Cancelled)
        } else {
            Ok(())
        }
    }

    /// Downloads one file into `folder` and checks it. A partial download continues where it
    /// stopped.
    pub fn fetch(&self, commit: &str, file: &RemoteFile, folder: &Path) -> Result<(), HubError> {
        let path = folder.join(&file.path);
        self.expect_wanted()?;
        if file.fits(&path).is_ok() {
            self.observer.progress(file, file.size);
            return Ok(());
        }
        let parent = path.parent().unwrap_or(folder);
        ::disk::create_dir_all(parent).map_err(disk(parent))?;
        let draft = path.with_added_extension("part");
        let there = fs::metadata(&draft).map_or(0, |found| found.len());
        let rest = match there {
            0 => String::new(),
            there => format!(", {} of it downloaded before", format_bytes(there)),
        };
        self.check_space(file, parent, there)?;
        let (endpoint, size) = (self.repository.endpoint, format_bytes(file.size));
        self.observer.print(&format!(
            "Downloading {} ({size}{rest}) from {endpoint}",
            file.path
        ));
        let mut broken = String::new();
        for attempt in 0..ATTEMPTS {
            thread::sleep(PAUSE * attempt);
            self.expect_wanted()?;
            match self.attempt(commit, file, &draft)? {
                Attempt::Done => {
                    if let Err(reason) = file.fits(&draft) {
                        remove(&draft)?;
                        return Err(HubError::Damaged {
                            name: self.repository.name.to_owned(),
                            file: file.path.clone(),
                            reason,
                        });
                    }
                    let renamed = ::disk::rename(&draft, &path);
                    return renamed
                        .and_then(|()| ::disk::sync_parent(&path))
                        .map_err(disk(&path));
                }
                Attempt::Broken(reason) => broken = reason,
            }
        }
        Err(self.unreachable(&file.path, broken))
    }

    /// Refuses a file whose missing part does not fit on the disk. `there` bytes are on it.
    fn check_space(&self, file: &RemoteFile, folder: &Path, there: u64) -> Result<(), HubError> {
        let needed = file.size.saturating_sub(there);
        match ::disk::available_bytes(folder) {
            Ok(free) if free < needed => Err(HubError::Space {
                file: file.path.clone(),
                needed: format_bytes(needed),
                free: format_bytes(free),
            }),
            // A disk that gives no answer may have space.
            _ => Ok(()),
        }
    }

    /// Requests the missing part of a file.
    fn attempt(&self, commit: &str, file: &RemoteFile, draft: &Path) -> Result<Attempt, HubError> {
        let mut there = fs::metadata(draft).map_or(0, |found| found.len());
        if there > file.size {
            remove(draft)?;
            there = 0;
        }
        if there == file.size && there > 0 {
            return Ok(Attempt::Done);
        }
        let url = self.file_url(commit, &file.path);
        let slowest = Duration::from_secs(60 + (file.size - there) / SLOWEST);
        let mut asked = self.get(&url);
        if there > 0 {
            asked = asked.header("Range", format!("bytes={there}-"));
        }
        let asked = asked.config().timeout_recv_body(Some(slowest)).build();
        let answer = match self.interruptible(&file.path, move || asked.call())? {
            Ok(answer) => answer,
            Err(error) => return Ok(Attempt::Broken(error.to_string())),
        };
        let status = answer.status().as_u16();
        // 416: the partial file is longer than the published one, so it is a different file.
        if status == 416 || status >= 500 {
            if status == 416 {
                remove(draft)?;
            }
            return Ok(Attempt::Broken(format!("the hub answered {status}")));
        }
        self.expect_success(&file.path, status)?;
        if status != 206 {
            // The hub sends the whole file.
            remove(draft)?;
            there = 0;
        }
        self.receive(answer, file, draft, there)
    }

    fn receive(
        &self,
        answer: Response<ureq::Body>,
        file: &RemoteFile,
        draft: &Path,
        there: u64,
    ) -> Result<Attempt, HubError> {
        // tidy: not durable: the sum of a download is checked before it is renamed
        let to = File::options().create(true).append(true).open(draft);
        let mut to = to.map_err(disk(draft))?;
        self.observer.progress(file, there);
        // Reads one byte more than expected, so that the size check notices a longer file.
        let body = answer.into_body().into_reader();
        let buffers = self.read_ahead(&file.path, body.take(file.size - there + 1))?;
        let (mut done, mut newest) = (there, Instant::now());
        let broken = loop {
            if self.observer.is_cancelled() {
                ::disk::sync(&to).map_err(disk(draft))?;
                return Err(HubError::Cancelled);
            }
            match buffers.recv_timeout(LOOK) {
                Ok(Ok(buffer)) if buffer.is_empty() => break None,
                Ok(Ok(buffer)) => {
                    to.write_all(&buffer).map_err(disk(draft))?;
                    done += buffer.len() as u64;
                    newest = Instant::now();
                    self.observer.progress(file, done);
                }
                Ok(Err(error)) => break Some(error.to_string()),
                Err(RecvTimeoutError::Timeout) if newest.elapsed() < SILENCE => {}
                Err(_) => break Some("the hub sends no data".to_owned()),
            }
        };
        ::disk::sync(&to).map_err(disk(draft))?;
        let size = fs::metadata(draft).map_err(disk(draft))?.len();
        Ok(match broken {
            None if size >= file.size => Attempt::Done,
            None => Attempt::Broken(format!(
                "the connection ended after {} of {} bytes",
                size, file.size
            )),
            Some(reason) => Attempt::Broken(reason),
        })
    }

    /// Reads a body on a thread of its own. An empty buffer is its end.
    fn read_ahead(
        &self,
        what: &str,
        mut body: impl Read + Send + 'static,
    ) -> Result<Receiver<io::Result<Vec<u8>>>, HubError> {
        let (send, buffers) = sync_channel(BUFFERS);
        self.start(what, move || {
            loop {
                let mut buffer = vec![0; BUFFER];
                let read = match body.read(&mut buffer) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    read => read,
                };
                let is_last = !matches!(read, Ok(1..));
                let sent = send.send(read.map(|read| {
                    buffer.truncate(read);
                    buffer
                }));
                // Sending fails if the download was cancelled.
                if is_last || sent.is_err() {
                    break;
                }
            }
        })?;
        Ok(buffers)
    }

    fn expect_success(&self, what: &str, status: u16) -> Result<(), HubError> {
        if is_success(status) {
            return Ok(());
        }
        let next = match status {
            300..=399 => "a hub on this machine must not redirect; start the hub without redirects",
            401 | 403 => {
                "the model does not exist, or only users who accepted its terms may download it; accept the terms on the page of the model, then set HF_TOKEN to your access token"
            }
            404 => "the hub has no such model or file; check the spelling of the name",
            429 => "the hub received too many requests; wait a few minutes, then try again",
            _ => "try again later",
        };
        Err(HubError::Refused {
            what: what.to_owned(),
            endpoint: self.repository.endpoint.to_owned(),
            status,
            next,
        })
    }

    fn unreachable(&self, what: &str, reason: String) -> HubError {
        HubError::Unreachable {
            what: what.to_owned(),
            endpoint: self.repository.endpoint.to_owned(),
            reason,
        }
    }

    /// The error for a response that does not have the format of a hub.
    pub fn no_hub(&self, reason: String) -> HubError {
        HubError::NoHub {
            endpoint: self.repository.endpoint.to_owned(),
            reason,
        }
    }
}

fn is_success(status: u16) -> bool {
    (200..=299).contains(&status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub_download::observer::TerminalObserver;
    use std::net::TcpListener;

    /// A hub that is not on this machine redirects to an address without encryption, or has one
    /// itself: the request fails before anything is sent, so the token is not either.
    #[test]
    fn nothing_is_fetched_without_encryption() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a free port");
        server.set_nonblocking(true).expect("it can be set");
        let url = format!("http://{}/model", server.local_addr().expect("it has one"));
        let print = |_: &str| {};
        let observer = TerminalObserver::new(&print);
        let hub = |is_local| {
            let access = Access {
                is_local,
                token: Token::from_text("secret"),
            };
            let repository = Repository {
                name: "org/name",
                endpoint: "https://example.org",
            };
            Hub::new(repository, access, &observer)
        };
        let refused = hub(false).get(&url).call();
        let refused = refused.expect_err("it is not encrypted");
        assert!(
            matches!(refused, ureq::Error::RequireHttpsOnly(_)),
            "{refused:?}"
        );
        let asked = server.accept().expect_err("nothing has connected");
        assert_eq!(asked.kind(), io::ErrorKind::WouldBlock);
    }
}
