//! Pretrained weights are downloaded by name from the configured hub: interrupted downloads resume,
//! checksums are verified, and nothing is downloaded without a request. The hub is a local server.

use crate::support::{CommandOutput, TestHome, draw_classes, run_command};
use runlog::RunEvent;
use serde_json::{Value, json};
use sha1::{Digest, Sha1};
use sha2::Sha256;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const TRAIN: &str = "train {birds} --from tiny/vit --steps 2 --effective-batch 8 --device cpu";

/// A hub with one repository, `tiny/vit`.
struct Hub {
    address: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<String, Vec<u8>>,
    /// The next responses with weights break off after these numbers of bytes.
    breaks: Vec<usize>,
    /// A wrong checksum of the weights in the list of files.
    checksum: Option<String>,
    /// The size of the weights in the list of files, if it is not their real one.
    size: Option<u64>,
    /// Weights are at this other hub.
    redirect: Option<String>,
    /// The header `Authorization` of the newest request, in lower case.
    authorization: Option<String>,
    /// First line and requested range of every request.
    requests: Vec<(String, Option<String>)>,
}

impl Hub {
    /// A hub that serves the tiny vision transformer of the model tests.
    fn open() -> Hub {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let fixture = here.join("crates/models/tests/fixtures/published/vit");
        let names = [
            "config.json",
            "model.safetensors",
            "preprocessor_config.json",
        ];
        let files = names.map(|name| (name.to_owned(), fs::read(fixture.join(name))));
        let found = files
            .into_iter()
            .filter_map(|(name, read)| Some((name, read.ok()?)));
        let state = State {
            files: found.collect(),
            ..State::default()
        };
        let state = Arc::new(Mutex::new(state));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!(
            "http://{}",
            listener.local_addr().expect("the listener has an address")
        );
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = handle(stream, &shared);
            }
        });
        Hub { address, state }
    }

    fn change(&self, how: impl FnOnce(&mut State)) {
        how(&mut self.state.lock().expect("the lock is not poisoned"));
    }

    /// The requested ranges of the weights since the last call.
    fn ranges(&self) -> Vec<Option<String>> {
        let mut state = self.state.lock().expect("the lock is not poisoned");
        let requests = std::mem::take(&mut state.requests);
        let weights = requests
            .into_iter()
            .filter(|(line, _)| line.contains(".safetensors "));
        weights.map(|(_, range)| range).collect()
    }

    /// Runs `ebb` with this hub as the endpoint.
    fn run(&self, home: &TestHome, line: &str) -> CommandOutput {
        run_command(&mut self.command(home, line))
    }

    /// `ebb` with this hub as the endpoint.
    fn command(&self, home: &TestHome, line: &str) -> Command {
        let words = line.split_whitespace().map(|word| match word {
            "{birds}" => home.path("birds"),
            word => word.into(),
        });
        let mut command = home.ebb(words);
        command.env("HF_ENDPOINT", &self.address);
        command
    }
}

/// The first line of a request, and two of its headers.
struct Request {
    first: String,
    range: Option<String>,
    authorization: Option<String>,
}

impl Request {
    fn read(stream: &TcpStream) -> std::io::Result<Self> {
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        let mut request = Request {
            first: lines.next().transpose()?.unwrap_or_default(),
            range: None,
            authorization: None,
        };
        for line in lines {
            let line = line?.to_ascii_lowercase();
            match line.split_once(": ") {
                Some(("range", found)) => request.range = Some(found.to_owned()),
                Some(("authorization", found)) => request.authorization = Some(found.to_owned()),
                _ if line.is_empty() => break,
                _ => {}
            }
        }
        Ok(request)
    }
}

fn handle(mut stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let Request {
        first,
        range,
        authorization,
    } = Request::read(&stream)?;
    let mut state = state.lock().expect("the lock is not poisoned");
    state.requests.push((first.clone(), range.clone()));
    state.authorization = authorization;
    let path = first.split(' ').nth(1).unwrap_or_default();
    let resolve = format!("/tiny/vit/resolve/{COMMIT}/");
    if path == "/api/models/tiny/vit/revision/main" {
        return respond(
            &mut stream,
            "200 OK",
            json!({"sha": COMMIT, "cardData": {"license": "apache-2.0"}})
                .to_string()
                .as_bytes(),
            None,
        );
    }
    if path.starts_with(&format!("/api/models/tiny/vit/tree/{COMMIT}")) {
        return respond(
            &mut stream,
            "200 OK",
            file_list(&state).to_string().as_bytes(),
            None,
        );
    }
    let Some((name, bytes)) = path
        .strip_prefix(&resolve)
        .and_then(|name| Some((name, state.files.get(name)?.clone())))
    else {
        return respond(&mut stream, "404 Not Found", b"no", None);
    };
    if let Some(other) = &state.redirect {
        let header = format!("HTTP/1.1 302 Found\r\nLocation: {other}{path}\r\n");
        return write!(
            stream,
            "{header}Content-Length: 0\r\nConnection: close\r\n\r\n"
        );
    }
    let breaks = if name.ends_with(".safetensors") && !state.breaks.is_empty() {
        Some(state.breaks.remove(0))
    } else {
        None
    };
    let from = range.and_then(|range| {
        range
            .strip_prefix("bytes=")?
            .strip_suffix('-')?
            .parse()
            .ok()
    });
    match from {
        Some(from) => respond(&mut stream, "206 Partial Content", &bytes[from..], breaks),
        None => respond(&mut stream, "200 OK", &bytes, breaks),
    }
}

/// Sends a response, or only its first `breaks` bytes.
fn respond(
    to: &mut TcpStream,
    status: &str,
    body: &[u8],
    breaks: Option<usize>,
) -> std::io::Result<()> {
    let length = body.len();
    write!(
        to,
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    to.write_all(&body[..breaks.unwrap_or(length).min(length)])
}

/// The list of files in the format of the hub: SHA-256 for weights, git's SHA-1 for small files.
fn file_list(state: &State) -> Value {
    let hex = |checksum: &[u8]| {
        checksum
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let entry = |(path, bytes): (&String, &Vec<u8>)| {
        let blob = [format!("blob {}\0", bytes.len()).as_bytes(), bytes].concat();
        let mut entry = json!({
            "type": "file", "path": path, "size": bytes.len(), "oid": hex(&Sha1::digest(blob)),
        });
        if path.ends_with(".safetensors") {
            let checksum = state
                .checksum
                .clone()
                .unwrap_or_else(|| hex(&Sha256::digest(bytes)));
            let size = state.size.unwrap_or(bytes.len() as u64);
            entry["lfs"] = json!({"oid": checksum, "size": size, "pointerSize": 132});
        }
        entry
    };
    let folder = json!({"type": "directory", "path": "onnx", "oid": "0", "size": 0});
    [folder]
        .into_iter()
        .chain(state.files.iter().map(entry))
        .collect()
}

fn birds() -> TestHome {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 6);
    home
}

#[test]
fn weights_are_downloaded_once_and_only_on_request() {
    let (hub, home) = (Hub::open(), birds());
    let first = hub.run(&home, TRAIN).expect_code(0);
    assert!(
        first.err.contains("Downloading model.safetensors"),
        "{first:?}"
    );
    assert_eq!(hub.ranges(), [None]);
    // Exports name the base and its licence.
    home.run("export birds {out}").expect_code(0);
    let card = fs::read_to_string(home.path("out/README.md")).expect("it has a model card");
    let expected =
        "---\nlicense: apache-2.0\nbase_model: tiny/vit\nbase_model_relation: finetune\n";
    assert!(card.starts_with(expected), "{card}");
    // A second training uses the downloaded files and needs no hub.
    let again = home.run(TRAIN).expect_code(0);
    assert!(again.err.contains("was downloaded before"), "{again:?}");
    assert_eq!(hub.ranges(), []);
    hub.run(
        &home,
        "train {birds} --steps 1 --effective-batch 8 --image-size 16",
    )
    .expect_code(0);
    let state = hub.state.lock().expect("the lock is not poisoned");
    assert_eq!(
        state.requests,
        [],
        "nothing is downloaded without a request"
    );
}

#[test]
fn an_interrupted_download_resumes() {
    let (hub, home) = (Hub::open(), birds());
    hub.change(|state| state.breaks = vec![5000, 3000]);
    hub.run(&home, TRAIN).expect_code(0);
    let at = |from: &str| Some(format!("bytes={from}-"));
    assert_eq!(hub.ranges(), [None, at("5000"), at("8000")]);
    // If the network stays down, the partial file is resumed by the next command.
    let home = birds();
    hub.change(|state| state.breaks = vec![1000; 5]);
    let broken = hub.run(&home, TRAIN).expect_code(1);
    assert!(
        broken.err.contains("and the download continues"),
        "{broken:?}"
    );
    assert_eq!(hub.ranges().len(), 5);
    let resumed = hub.run(&home, TRAIN).expect_code(0);
    assert!(
        resumed.err.contains("5 kB of it downloaded before"),
        "{resumed:?}"
    );
    assert_eq!(hub.ranges(), [at("5000")]);
}

#[test]
fn files_with_a_wrong_checksum_are_discarded() {
    let (hub, home) = (Hub::open(), birds());
    hub.change(|state| state.checksum = Some("00".repeat(32)));
    let refused = hub.run(&home, TRAIN).expect_code(1);
    assert!(
        refused
            .err
            .contains("model.safetensors of tiny/vit differs from the published file")
            && refused.err.contains(&"00".repeat(32)),
        "{refused:?}"
    );
    assert!(home.runs().is_empty(), "no run was created");
    hub.change(|state| state.checksum = None);
    hub.ranges();
    hub.run(&home, TRAIN).expect_code(0);
    assert_eq!(hub.ranges(), [None], "the whole file is downloaded again");
    // Only a file that has been changed since is downloaded again.
    let folder = home.path("home/hub/tiny/vit").join(COMMIT);
    fs::write(folder.join("config.json"), "{}").expect("the file can be written");
    hub.run(&home, TRAIN).expect_code(0);
    assert_eq!(hub.ranges(), []);
}

#[test]
fn failed_downloads_suggest_a_remedy() {
    let (hub, home) = (Hub::open(), birds());
    let check = |output: CommandOutput, code: i32, parts: &[&str]| {
        let output = output.expect_code(code);
        for part in parts {
            assert!(output.err.contains(part), "{part}: {output:?}");
        }
        assert!(home.runs().is_empty(), "no run was created");
    };
    check(
        home.run(TRAIN),
        2,
        &["set the environment variable HF_ENDPOINT", "to download"],
    );
    let unreachable = Hub {
        address: "http://127.0.0.1:9".to_owned(),
        state: Arc::default(),
    };
    check(
        unreachable.run(&home, TRAIN),
        1,
        &["tiny/vit could not be downloaded from http://127.0.0.1:9"],
    );
    let other = TRAIN.replace("tiny/vit", "tiny/vat");
    check(
        hub.run(&home, &other),
        1,
        &["answered 404 for tiny/vat", "spelling"],
    );
    let change = |how: fn(&mut State)| hub.change(how);
    change(|state| {
        let weights = state.files.remove("model.safetensors").unwrap_or_default();
        state.files.insert("pytorch_model.bin".to_owned(), weights);
    });
    check(
        hub.run(&home, TRAIN),
        1,
        &[
            "pickled weights (pytorch_model.bin)",
            "could run any program",
        ],
    );
    change(|state| {
        state.files.remove("config.json");
    });
    check(
        hub.run(&home, TRAIN),
        1,
        &["the repository has no config.json"],
    );
    let planned = hub.run(&home, "plan {birds} --from tiny/vit --device cpu");
    check(planned, 1, &["the repository has no config.json"]);
}

/// A home with images and a model of the model tests in the cache of the Hugging Face libraries.
fn home_with_cache(model: &str) -> TestHome {
    let home = TestHome::new();
    draw_classes(&home.path("birds"), &["jay", "owl"], 8);
    let place = home.path(&format!("huggingface/hub/models--tiny--{model}"));
    let snapshot = place.join("snapshots").join(COMMIT);
    fs::create_dir_all(&snapshot).expect("the folder can be created");
    fs::create_dir_all(place.join("refs")).expect("the folder can be created");
    fs::write(place.join("refs/main"), COMMIT).expect("the commit can be written");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fixture = here
        .join("crates/models/tests/fixtures/published")
        .join(model);
    for entry in fs::read_dir(fixture)
        .expect("the fixture is there")
        .flatten()
    {
        fs::copy(entry.path(), snapshot.join(entry.file_name())).expect("it can be copied");
    }
    home
}

/// Trains from a model in the cache of the Hugging Face libraries.
fn train_from_cache(model: &str) -> CommandOutput {
    let line = format!("train {{birds}} --from tiny/{model} --steps 1 --device cpu");
    home_with_cache(model).run(&line)
}

#[test]
fn a_model_on_this_machine_is_offered_if_it_suits_the_task() {
    let offer = "tiny/vit is on this machine; to start from it, add --from tiny/vit";
    let home = home_with_cache("vit");
    let trained = home
        .run("train {birds} --steps 1 --device cpu")
        .expect_code(0);
    assert!(trained.err.contains(offer), "{}", trained.err);
    let planned = home.run("plan {birds} --device cpu").expect_code(0);
    assert!(planned.out.contains(offer), "{}", planned.out);
    for line in [
        "train {birds} --from tiny/vit --steps 1 --device cpu",
        "train {birds} --model convnet --steps 1 --device cpu",
    ] {
        let output = home.run(line).expect_code(0);
        assert!(!output.err.contains("is on this machine"), "{}", output.err);
    }
    home.file(
        "texts.csv",
        "text,label\n".to_owned() + &"sun,a\nrain,b\nfog today,a\nhail,b\n".repeat(6),
    );
    let texts = home.run("train {texts.csv} --steps 1 --device cpu");
    assert!(!texts.err.contains("is on this machine"), "{}", texts.err);
}

#[test]
fn weights_that_another_program_has_downloaded_are_used() {
    let output = train_from_cache("vit").expect_code(0);
    assert!(
        output
            .err
            .contains("tiny/vit was downloaded by another program: "),
        "{}",
        output.err
    );
}

#[test]
fn a_text_model_without_a_tokenizer_is_not_completely_downloaded() {
    let output = train_from_cache("bert").expect_code(2);
    for part in [
        "tiny/bert was downloaded by another program, but",
        "has no tokenizer.json; download tokenizer.json too, or set the environment variable HF_ENDPOINT",
    ] {
        assert!(output.err.contains(part), "{part}: {}", output.err);
    }
}

#[test]
fn weights_and_tokens_are_not_sent_unencrypted_or_elsewhere() {
    let (hub, other, home) = (Hub::open(), Hub::open(), birds());
    let train = |endpoint: &str, token: &str| {
        let words = TRAIN.split_whitespace().map(|word| match word {
            "{birds}" => home.path("birds"),
            word => word.into(),
        });
        let mut command = home.ebb(words);
        run_command(command.env("HF_ENDPOINT", endpoint).env("HF_TOKEN", token))
    };
    let plain = train("http://hub.invalid", "").expect_code(1);
    assert!(plain.err.contains("starts with https://"), "{plain:?}");
    let wrong = train(&hub.address, "two words").expect_code(1);
    assert!(
        wrong.err.contains("copy your access token again"),
        "{wrong:?}"
    );
    assert!(!wrong.err.contains("two words"), "{wrong:?}");
    hub.change(|state| state.redirect = Some(other.address.clone()));
    let redirected = train(&hub.address, "hf_secret").expect_code(1);
    assert!(
        redirected.err.contains("answered 302") && redirected.err.contains("must not redirect"),
        "{redirected:?}"
    );
    let requests = |hub: &Hub| {
        let state = hub.state.lock().expect("the lock is not poisoned");
        state.requests.len()
    };
    assert_eq!(requests(&other), 0, "the other hub was not asked");
    hub.change(|state| state.redirect = None);
    let trained = train(&hub.address, "hf_secret").expect_code(0);
    hub.change(|state| assert_eq!(state.authorization.as_deref(), Some("bearer hf_secret")));
    for output in [redirected, trained] {
        let printed = output.out + &output.err;
        assert!(!printed.contains("hf_secret"), "{printed}");
    }
    expect_nowhere(&home, "hf_secret");
}

/// No file of Ebb contains this text: no log, crash report, config or report.
fn expect_nowhere(home: &TestHome, secret: &str) {
    let files = files_below(&home.path("home"));
    assert!(files.len() > 10, "{files:?}");
    for file in files {
        let bytes = fs::read(&file).expect("it can be read");
        let mut parts = bytes.windows(secret.len());
        let is_there = parts.any(|part| part == secret.as_bytes());
        assert!(!is_there, "{}", file.display());
    }
}

#[test]
fn the_crash_report_of_a_killed_run_has_no_token() {
    let (hub, home) = (Hub::open(), birds());
    let endless = TRAIN.replace("--steps 2", "--steps 100000 --json");
    let mut command = hub.command(&home, &endless);
    command.env("HF_TOKEN", "hf_secret");
    let mut training = home.spawn(command);
    training.until(|event| matches!(event, RunEvent::Step { step: 2, .. }));
    training.signal("KILL");
    assert_eq!(training.finish().0, None, "it was killed");
    hub.change(|state| assert_eq!(state.authorization.as_deref(), Some("bearer hf_secret")));
    let id = home.only_run().id();
    let shown = home.run(&format!("runs show {id}")).expect_code(0);
    let printed = shown.out + &shown.err;
    assert!(printed.contains("Ebb quit unexpectedly"), "{printed}");
    assert!(!printed.contains("hf_secret"), "{printed}");
    expect_nowhere(&home, "hf_secret");
}

/// The file of the Hugging Face libraries has the token of their own hub.
#[test]
fn another_hub_does_not_get_the_token_in_the_file() {
    let (hub, home) = (Hub::open(), birds());
    let folder = home.path("huggingface");
    fs::create_dir_all(&folder).expect("it can be made");
    fs::write(folder.join("token"), "hf_stored\n").expect("it can be written");
    hub.run(&home, TRAIN).expect_code(0);
    hub.change(|state| assert_eq!(state.authorization, None));
    expect_nowhere(&home, "hf_stored");
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is there").flatten();
    let below = entries.flat_map(|entry| match entry.path() {
        path if path.is_dir() => files_below(&path),
        path => vec![path],
    });
    below.collect()
}

#[test]
fn a_file_that_does_not_fit_on_the_disk_is_not_begun() {
    let (hub, home) = (Hub::open(), birds());
    hub.change(|state| state.size = Some(1 << 60));
    let refused = hub.run(&home, TRAIN).expect_code(1);
    assert!(
        refused.err.contains("tiny/vit needs") && refused.err.contains("free up space"),
        "{refused:?}"
    );
    assert_eq!(hub.ranges(), [], "the weights were not requested");
}

/// Each part of the weights would fit alone.
#[test]
fn parts_that_do_not_fit_on_the_disk_together_are_not_begun() {
    let (hub, home) = (Hub::open(), birds());
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let fixture = here.join("crates/models/tests/fixtures/published/gpt2-sharded");
    let entries = fs::read_dir(fixture)
        .expect("the fixture is there")
        .flatten();
    let read = |path: PathBuf| fs::read(path).expect("it can be read");
    let files = entries.map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        (name, read(entry.path()))
    });
    let files: BTreeMap<String, Vec<u8>> = files.collect();
    let parts = files.keys().filter(|name| name.ends_with(".safetensors"));
    assert_eq!(parts.count(), 3);
    let free = disk::available_bytes(&home.path("birds")).expect("the disk answers");
    hub.change(|state| (state.files, state.size) = (files, Some(free / 2)));
    let refused = hub.run(&home, TRAIN).expect_code(1);
    assert!(
        refused.err.contains("tiny/vit needs") && refused.err.contains("free up space"),
        "{refused:?}"
    );
    assert_eq!(hub.ranges(), [], "no part was requested");
}

#[test]
fn a_second_download_waits_for_the_first() {
    let (hub, home) = (Hub::open(), birds());
    let place = home.path("home/hub/tiny/vit");
    fs::create_dir_all(&place).expect("the folder can be made");
    let lock = fs::File::create(place.join("download.lock")).expect("it can be made");
    lock.lock().expect("no one holds it");
    let training = home.spawn(hub.command(&home, TRAIN));
    let begun = Instant::now();
    while !training
        .stderr()
        .contains("Another process is downloading tiny/vit")
    {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{}",
            training.stderr()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    hub.change(|state| assert_eq!(state.requests, [], "nothing is requested yet"));
    drop(lock);
    let errors = home.path("stderr");
    let code = training.wait();
    let errors = fs::read_to_string(errors).unwrap_or_default();
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(hub.ranges(), [None]);
}
