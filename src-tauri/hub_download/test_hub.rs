//! A hub on this machine with one repository, for tests.

use super::{Access, Observer, RemoteFile, Repository};
use serde_json::{Value, json};
use sha1::{Digest, Sha1};
use sha2::Sha256;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
/// The file that [`State`] describes.
const WEIGHTS: &str = "model.safetensors";

/// A hub with a model of the model tests.
pub struct TestHub {
    pub address: String,
    name: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
pub struct State {
    pub files: BTreeMap<String, Vec<u8>>,
    /// Bytes after which each of the next responses with the rest of the weights ends.
    pub breaks: Vec<usize>,
    /// Such a response sends nothing more after its first bytes.
    pub stalls: bool,
    /// The status of every response with a file, if it is refused.
    pub refusal: Option<&'static str>,
    /// The size of the weights in the list of files, if it is not their real one.
    pub listed_bytes: Option<u64>,
    /// The header `Authorization` of the newest request.
    pub authorization: Option<String>,
    /// The number of requests.
    pub requests: usize,
    sent: BTreeMap<String, u64>,
}

/// An observer that only watches.
pub struct Ignore;

impl Observer for Ignore {
    fn print(&self, _: &str) {}

    fn progress(&self, _: &RemoteFile, _: u64) {}
}

impl TestHub {
    /// A hub with the repository `tiny/NAME`.
    pub fn open(fixture: &str) -> Self {
        let published = "crates/models/tests/fixtures/published";
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(published);
        let entries = std::fs::read_dir(folder.join(fixture)).expect("the fixture is there");
        let files = entries.flatten().map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, std::fs::read(entry.path()).expect("it can be read"))
        });
        let state = State {
            files: files.collect(),
            ..State::default()
        };
        let state = Arc::new(Mutex::new(state));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it has an address");
        let name = format!("tiny/{fixture}");
        let shared = (Arc::clone(&state), name.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (state, name) = shared.clone();
                std::thread::spawn(move || handle(stream, &state, &name));
            }
        });
        TestHub {
            address: format!("http://{address}"),
            name,
            state,
        }
    }

    pub fn change(&self, how: impl FnOnce(&mut State)) {
        how(&mut lock(&self.state));
    }

    pub fn repository(&self) -> Repository<'_> {
        Repository {
            name: &self.name,
            endpoint: &self.address,
        }
    }

    pub fn access(&self) -> Access {
        Access::new(&self.address, "").expect("the hub is on this machine")
    }

    pub fn weights(&self) -> Vec<u8> {
        lock(&self.state).files[WEIGHTS].clone()
    }

    /// Size of the files that Ebb downloads.
    pub fn bytes(&self) -> u64 {
        let state = lock(&self.state);
        let names = state.files.keys().filter(|name| *name != "reference.json");
        names.map(|name| state.files[name].len() as u64).sum()
    }

    /// Bytes of a file that were sent.
    pub fn sent_bytes(&self, name: &str) -> u64 {
        lock(&self.state).sent.get(name).copied().unwrap_or(0)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("no test panics with the lock")
}

/// The path of a request, its range and its header `Authorization`.
fn request(stream: &TcpStream) -> Result<(String, Option<String>, Option<String>)> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let (mut range, mut authorization) = (None, None);
    for line in lines {
        let line = line?;
        match line.split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("range") => {
                range = Some(value.to_owned());
            }
            Some((name, value)) if name.eq_ignore_ascii_case("authorization") => {
                authorization = Some(value.to_owned());
            }
            _ if line.is_empty() => break,
            _ => {}
        }
    }
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    Ok((path, range, authorization))
}

fn handle(mut stream: TcpStream, state: &Mutex<State>, name: &str) -> Result<()> {
    let (path, range, authorization) = request(&stream)?;
    let mut state_now = lock(state);
    state_now.requests += 1;
    state_now.authorization = authorization;
    let api = format!("/api/models/{name}");
    if path == format!("{api}/revision/main") || path == format!("{api}/revision/{COMMIT}") {
        let about = json!({"sha": COMMIT, "cardData": {"license": "apache-2.0"}});
        return respond(&mut stream, "200 OK", about.to_string().as_bytes());
    }
    if path.starts_with(&format!("{api}/tree/{COMMIT}")) {
        let listed = file_list(&state_now).to_string();
        return respond(&mut stream, "200 OK", listed.as_bytes());
    }
    let file = path.strip_prefix(&format!("/{name}/resolve/{COMMIT}/"));
    let found = file.and_then(|file| Some((file, state_now.files.get(file)?.clone())));
    let Some((file, bytes)) = found else {
        return respond(&mut stream, "404 Not Found", b"no");
    };
    if let Some(status) = state_now.refusal {
        return respond(&mut stream, status, b"no");
    }
    let range = range
        .as_deref()
        .and_then(|range| range.strip_prefix("bytes="));
    let (from, to) = range
        .and_then(|range| range.split_once('-'))
        .unwrap_or(("0", ""));
    let end = to
        .parse()
        .map_or(bytes.len(), |last: usize| (last + 1).min(bytes.len()));
    let body = &bytes[from.parse().unwrap_or(0)..end];
    let is_rest = file == WEIGHTS && to.is_empty();
    let breaks = is_rest && !state_now.breaks.is_empty();
    let sent = if breaks {
        state_now.breaks.remove(0)
    } else {
        body.len()
    };
    *state_now.sent.entry(file.to_owned()).or_default() += sent as u64;
    let is_stalled = is_rest && state_now.stalls;
    drop(state_now);
    let status = if range.is_some() {
        "206 Partial Content"
    } else {
        "200 OK"
    };
    head(&mut stream, status, body.len())?;
    if is_stalled {
        stream.write_all(&body[..body.len() / 2])?;
        std::thread::sleep(Duration::from_secs(30));
    }
    stream.write_all(&body[..sent])
}

fn head(to: &mut TcpStream, status: &str, length: usize) -> Result<()> {
    write!(
        to,
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )
}

fn respond(to: &mut TcpStream, status: &str, body: &[u8]) -> Result<()> {
    head(to, status, body.len())?;
    to.write_all(body)
}

/// The list of files: SHA-256 for weights, git's SHA-1 for small files.
fn file_list(state: &State) -> Value {
    let hex = |sum: &[u8]| {
        sum.iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let entry = |(path, bytes): (&String, &Vec<u8>)| {
        let blob = [format!("blob {}\0", bytes.len()).as_bytes(), bytes].concat();
        let mut entry = json!({
            "type": "file", "path": path, "size": bytes.len(), "oid": hex(&Sha1::digest(blob)),
        });
        if path == WEIGHTS {
            let size = state.listed_bytes.unwrap_or(bytes.len() as u64);
            entry["lfs"] = json!({"oid": hex(&Sha256::digest(bytes)), "size": size});
        }
        entry
    };
    state.files.iter().map(entry).collect()
}
