//! `ebb serve` answers the OpenAI chat API on this machine: whole answers and streamed ones. What
//! it cannot use is named in the form of the API, and pages in a browser are refused.

use crate::conversations::chats;
use crate::support::{RunningTraining, TestHome};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

const CHAT: &str = "/v1/chat/completions";

/// A server for the tiny model of the fixtures.
struct TestServer {
    process: RunningTraining,
    port: u16,
    _home: TestHome,
}

/// An answer of the server.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The data of the server-sent events.
    fn events(&self) -> Vec<&str> {
        let lines = self.body.lines();
        lines
            .filter_map(|line| line.strip_prefix("data: "))
            .collect()
    }

    /// The text of a streamed answer.
    fn streamed_text(&self) -> String {
        let events = self.events().into_iter().filter(|event| *event != "[DONE]");
        let parts = events.map(|event| {
            let event: Value = serde_json::from_str(event).expect("an event is JSON");
            let content = &event["choices"][0]["delta"]["content"];
            content.as_str().unwrap_or_default().to_owned()
        });
        parts.collect()
    }
}

impl TestServer {
    fn start() -> TestServer {
        let home = chats();
        let mut process = home.start_for_people("serve {model} --port 0 --tokens 12");
        let line = process.read_line();
        assert!(line.starts_with("The model model answers at http://127.0.0.1:"));
        let (_, port) = line
            .trim_end_matches("/v1")
            .rsplit_once(':')
            .expect("a port");
        TestServer {
            port: port.parse().expect("a number"),
            process,
            _home: home,
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        let limit = Some(Duration::from_secs(60));
        stream.set_read_timeout(limit).expect("it can be set");
        stream
    }

    /// Sends a request with these lines of headers.
    fn send(&self, first: &str, headers: &[&str], body: &str) -> TcpStream {
        let mut stream = self.connect();
        let mut text = format!("{first} HTTP/1.1\r\nConnection: close\r\n");
        for header in headers {
            text += &format!("{header}\r\n");
        }
        text += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
        // A request that is refused early may not be read to its end.
        let _ = stream.write_all(text.as_bytes());
        stream
    }

    fn host(&self) -> String {
        format!("Host: 127.0.0.1:{}", self.port)
    }

    fn get(&self, path: &str) -> Answer {
        read_answer(self.send(&format!("GET {path}"), &[&self.host()], ""))
    }

    fn ask(&self, body: &Value) -> Answer {
        self.ask_raw(&body.to_string())
    }

    fn ask_raw(&self, body: &str) -> Answer {
        let host = self.host();
        let headers = [host.as_str(), "Content-Type: application/json"];
        read_answer(self.send(&format!("POST {CHAT}"), &headers, body))
    }

    /// Ends the server with a signal.
    fn end(self, signal: &str) {
        self.process.signal(signal);
        assert_eq!(self.process.wait(), Some(0), "{signal}");
    }
}

fn read_answer(mut stream: TcpStream) -> Answer {
    let mut bytes = Vec::new();
    // The connection may be reset after an early refusal, when the answer was read.
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).expect("a status");
    Answer {
        status: status.parse().expect("a number"),
        head: head.to_ascii_lowercase(),
        body: body.to_owned(),
    }
}

fn question(text: &str) -> Value {
    json!({
        "model": "model",
        "messages": [
            {"role": "system", "content": "Brief."},
            {"role": "user", "content": text},
        ],
        "temperature": 0,
    })
}

fn with(mut body: Value, name: &str, value: Value) -> Value {
    body[name] = value;
    body
}

#[test]
fn the_same_answer_comes_at_once_or_in_parts() {
    let server = TestServer::start();
    let models = server.get("/v1/models");
    assert_eq!(models.status, 200, "{models:?}");
    assert_eq!(models.json()["data"][0]["id"], "model");

    let whole = server.ask(&question("What is 3 plus 0?"));
    assert_eq!(whole.status, 200, "{whole:?}");
    assert!(whole.head.contains("content-type: application/json"));
    let found = whole.json();
    let choice = &found["choices"][0];
    let text = choice["message"]["content"].as_str().expect("a text");
    assert_eq!(choice["message"]["role"], "assistant");
    let used = found["usage"]["completion_tokens"].as_u64();
    assert!(used.is_some_and(|used| used <= 12), "{found}");
    assert!(
        found["usage"]["prompt_tokens"].as_u64() > Some(10),
        "{found}"
    );

    let streamed = with(question("What is 3 plus 0?"), "stream", json!(true));
    let streamed = with(streamed, "stream_options", json!({"include_usage": true}));
    let streamed = server.ask(&streamed);
    assert_eq!(streamed.status, 200, "{streamed:?}");
    assert!(streamed.head.contains("content-type: text/event-stream"));
    assert_eq!(streamed.streamed_text(), text);
    let events = streamed.events();
    assert_eq!(events.last(), Some(&"[DONE]"));
    let usage: Value = serde_json::from_str(events[events.len() - 2]).expect("it is JSON");
    assert_eq!(usage["usage"], found["usage"]);
    let end: Value = serde_json::from_str(events[events.len() - 3]).expect("it is JSON");
    assert_eq!(end["choices"][0]["finish_reason"], choice["finish_reason"]);

    let cut = server
        .ask(&with(question("Hi"), "max_tokens", json!(1)))
        .json();
    assert!(cut["usage"]["completion_tokens"].is_u64(), "{cut}");
    if cut["usage"]["completion_tokens"] == 1 {
        assert_eq!(cut["choices"][0]["finish_reason"], "length");
    }
    let drawn = |seed: u64| {
        let body = with(question("Hi"), "temperature", json!(1.5));
        let answer = server.ask(&with(body, "seed", json!(seed))).json();
        answer["choices"][0]["message"]["content"].clone()
    };
    assert_eq!(drawn(3), drawn(3));
    assert_ne!(drawn(3), drawn(4));
    server.end("INT");
}

#[test]
fn what_cannot_be_answered_is_named_in_the_form_of_the_api() {
    let server = TestServer::start();
    let message = |role: &str, text: &str| {
        with(
            question(""),
            "messages",
            json!([{"role": role, "content": text}]),
        )
    };
    for (body, status, word) in [
        (message("planted", "Hi"), 400, "unknown role"),
        (message("user", " "), 400, "messages[0] is empty"),
        (message("assistant", "Hi"), 400, "the role user"),
        (
            message("user", &"word ".repeat(600)),
            400,
            "context_length_exceeded",
        ),
        (message("user", "a\u{FDD0}"), 400, "U+FDD0"),
        (
            with(question("Hi"), "messages", json!([])),
            400,
            "at least one message",
        ),
        (
            with(question("Hi"), "temperature", json!(9)),
            400,
            "from 0 to 2",
        ),
        (with(question("Hi"), "tools", json!([1])), 400, "tools"),
        (
            with(question("Hi"), "model", json!("other")),
            404,
            "model_not_found",
        ),
    ] {
        for is_streamed in [false, true] {
            let body = with(body.clone(), "stream", json!(is_streamed));
            let answer = server.ask(&body);
            assert_eq!(answer.status, status, "{answer:?}");
            assert!(answer.json()["error"]["message"].is_string());
            assert!(answer.body.contains(word), "{word}: {answer:?}");
        }
    }
    assert_eq!(server.ask_raw("{\"messages\": [").status, 400);
    assert_eq!(server.ask_raw("").status, 400);
    let large = server.ask_raw(&"x".repeat((4 << 20) + 1));
    assert_eq!(large.status, 413, "{large:?}");
    assert!(large.json()["error"]["message"].is_string());
    assert_eq!(server.get("/v1/planted").status, 404);
    let wrong_method = server.get(CHAT);
    assert_eq!(wrong_method.status, 405);
    assert!(wrong_method.json()["error"]["message"].is_string());
    // The server still answers.
    assert_eq!(server.ask(&question("Hi")).status, 200);
    server.end("TERM");
}

#[test]
fn pages_in_a_browser_are_refused() {
    let server = TestServer::start();
    let body = question("Hi").to_string();
    let host = server.host();
    let ask =
        |headers: &[&str]| read_answer(server.send(&format!("POST {CHAT}"), headers, &body)).status;
    assert_eq!(ask(&[&host]), 200);
    let own = format!("Origin: http://127.0.0.1:{}", server.port);
    assert_eq!(ask(&[&host, &own]), 200);
    assert_eq!(ask(&[&host, "Origin: http://evil.example"]), 403);
    assert_eq!(ask(&[&host, "Origin: null"]), 403);
    assert_eq!(ask(&[&host, "Sec-Fetch-Site: cross-site"]), 403);
    assert_eq!(ask(&["Host: evil.example"]), 403);
    let models = server.send("GET /v1/models", &["Host: evil.example"], "");
    let models = read_answer(models);
    assert_eq!(models.status, 403);
    assert!(models.json()["error"]["message"].is_string());
    server.end("TERM");
}

#[test]
fn clients_wait_for_each_other_and_may_leave() {
    let server = TestServer::start();
    let long = with(question("Hi"), "max_tokens", json!(200));
    let long = with(long, "temperature", json!(2)).to_string();
    let ask = || server.send(&format!("POST {CHAT}"), &[&server.host()], &long);
    // Eight wait, or more if some of them are answered meanwhile.
    let waiting: Vec<TcpStream> = (0..40).map(|_| ask()).collect();
    let answers: Vec<u16> = waiting
        .into_iter()
        .map(|it| read_answer(it).status)
        .collect();
    let of = |status: u16| answers.iter().filter(|found| **found == status).count();
    assert!(of(200) >= 8, "{answers:?}");
    assert_eq!(of(200) + of(429), 40, "{answers:?}");
    // The server outlives clients that leave in the queue and during an answer.
    for body in [long.clone(), long.replace('{', "{\"stream\": true,")] {
        let leaving: Vec<TcpStream> = (0..4)
            .map(|_| server.send(&format!("POST {CHAT}"), &[&server.host()], &body))
            .collect();
        for stream in leaving {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
    let ask_later = |_| {
        std::thread::sleep(Duration::from_millis(100));
        server.ask(&question("Hi"))
    };
    let answer = (0..300).map(ask_later).find(|answer| answer.status == 200);
    assert!(answer.is_some(), "the server still answers");
    server.end("TERM");
}

#[test]
fn the_answer_of_a_client_that_leaves_ends_early() {
    const MOST_TOKENS: u64 = 400;
    let server = TestServer::start();
    let body = with(question("Hi"), "stream", json!(true));
    let body = with(body, "max_tokens", json!(MOST_TOKENS));
    let body = with(body, "temperature", json!(2)).to_string();
    // The answer may be complete before the server notices that its client has left.
    let ended_early = (0..20).any(|_| {
        let stream = server.send(&format!("POST {CHAT}"), &[&server.host()], &body);
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        while !line.starts_with("data: ") {
            line.clear();
            let read = reader.read_line(&mut line).expect("the answer begins");
            assert!(read > 0, "the answer has a part");
        }
        drop(reader);
        std::thread::sleep(Duration::from_millis(500));
        let log = server.process.stderr();
        let mut ends = log.lines().filter_map(|line| {
            let end =
                line.strip_prefix("A program closed its connection. Its answer ended after ")?;
            end.split(' ').next()?.parse::<u64>().ok()
        });
        ends.next_back().is_some_and(|tokens| tokens < MOST_TOKENS)
    });
    assert!(ended_early, "{}", server.process.stderr());
    server.end("TERM");
}

#[test]
fn a_signal_ends_the_server_during_an_answer() {
    let server = TestServer::start();
    let body = with(question("Hi"), "stream", json!(true));
    let body = with(body, "max_tokens", json!(400));
    let body = with(body, "temperature", json!(2)).to_string();
    let stream = server.send(&format!("POST {CHAT}"), &[&server.host()], &body);
    let mut line = String::new();
    let mut stream = BufReader::new(stream);
    stream.read_line(&mut line).expect("the answer has begun");
    assert!(line.contains("200"), "{line}");
    server.end("TERM");
}

#[test]
fn a_server_that_cannot_start_is_named() {
    let home = chats();
    let used = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = used.local_addr().expect("it has an address").port();
    let line = format!("serve {{model}} --port {port}");
    let error = home.run(&line).expect_code(1).err;
    assert!(error.contains("another program uses it"), "{error}");
    assert!(error.contains("--port"), "{error}");
    let error = home.run("serve nothing --port 0").expect_code(1).err;
    assert!(error.contains("nothing"), "{error}");
    let error = home.run("serve {model} --host 0.0.0.0").expect_code(2).err;
    assert!(error.contains("only programs on this machine"), "{error}");
}
