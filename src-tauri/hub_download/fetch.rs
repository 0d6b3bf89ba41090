//! Requests to a hub: small JSON responses, and large files that continue after an interruption.

use super::access::Access;
use super::verify_checksum::RemoteFile;
use super::{HubError, Repository, disk, remove};
use indicatif::{ProgressBar, ProgressStyle};
use runlog::format_bytes;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;
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

/// Client for one repository at a hub.
pub struct Hub<'a> {
    repository: Repository<'a>,
    agent: Agent,
    token: Option<String>,
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
    pub fn new(repository: Repository<'a>, access: Access) -> Self {
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
        }
    }

    fn get(&self, url: &str) -> RequestBuilder<WithoutBody> {
        let request = self.agent.get(url);
        match &self.token {
            Some(token) => request.header("Authorization", format!("Bearer {token}")),
            None => request,
        }
    }

    /// A JSON response about the repository.
    pub fn read(&self, about: &str) -> Result<Vec<u8>, HubError> {
        let Repository { name, endpoint } = self.repository;
        let url = format!("{endpoint}/api/models/{name}/{about}");
        let asked = self.get(&url).config().timeout_recv_body(Some(ANSWER));
        let answer = asked.build().call();
        let mut answer = answer.map_err(|error| self.unreachable(name, error.to_string()))?;
        self.expect_success(name, answer.status().as_u16())?;
        let body = answer.body_mut().with_config().limit(MOST_LISTED);
        body.read_to_vec()
            .map_err(|error| self.unreachable(name, error.to_string()))
    }

    /// Downloads one file into `folder` and checks it. A partial download continues where it
    /// stopped.
    pub fn fetch(
        &self,
        commit: &str,
        file: &RemoteFile,
        folder: &Path,
        print: &dyn Fn(&str),
    ) -> Result<(), HubError> {
        let path = folder.join(&file.path);
        if file.fits(&path).is_ok() {
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
        print(&format!(
            "Downloading {} ({size}{rest}) from {endpoint}",
            file.path
        ));
        let mut broken = String::new();
        for attempt in 0..ATTEMPTS {
            std::thread::sleep(PAUSE * attempt);
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
        let Repository { name, endpoint } = self.repository;
        let url = format!("{endpoint}/{name}/resolve/{commit}/{}", file.path);
        let slowest = Duration::from_secs(60 + (file.size - there) / SLOWEST);
        let mut asked = self.get(&url);
        if there > 0 {
            asked = asked.header("Range", format!("bytes={there}-"));
        }
        let asked = asked.config().timeout_recv_body(Some(slowest)).build();
        let answer = match asked.call() {
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
        let style = ProgressStyle::with_template("  {bytes} of {total_bytes}, {bytes_per_sec}");
        let bar = ProgressBar::new(file.size).with_position(there);
        if let Ok(style) = style {
            bar.set_style(style);
        }
        // Reads one byte more than expected, so that the size check notices a longer file.
        let mut body = answer.into_body().into_reader().take(file.size - there + 1);
        let mut buffer = vec![0; 1 << 16];
        let broken = loop {
            match body.read(&mut buffer) {
                Ok(0) => break None,
                Ok(read) => {
                    to.write_all(&buffer[..read]).map_err(disk(draft))?;
                    bar.inc(read as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Some(error.to_string()),
            }
        };
        bar.finish_and_clear();
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

    fn expect_success(&self, what: &str, status: u16) -> Result<(), HubError> {
        let next = match status {
            200..=299 => return Ok(()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// A hub that is not on this machine redirects to an address without encryption, or has one
    /// itself: the request fails before anything is sent, so the token is not either.
    #[test]
    fn nothing_is_fetched_without_encryption() {
        let server = TcpListener::bind("127.0.0.1:0").expect("a free port");
        server.set_nonblocking(true).expect("it can be set");
        let url = format!("http://{}/model", server.local_addr().expect("it has one"));
        let hub = |is_local| {
            let access = Access {
                is_local,
                token: Some("secret".to_owned()),
            };
            let repository = Repository {
                name: "org/name",
                endpoint: "https://example.org",
            };
            Hub::new(repository, access)
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
