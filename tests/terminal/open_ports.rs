//! A command opens no port: nothing on this machine or the network can connect to it. Only `ebb
//! serve` opens one, for this machine.

use crate::conversations::chats;
use crate::port_table::open_ports;
use crate::support::TestHome;
use runlog::RunEvent;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, UdpSocket};
use std::process::Stdio;

#[test]
fn a_training_opens_no_port() {
    let own = std::process::id();
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let found = open_ports(own);
    for protocol in ["tcp ", "udp "] {
        let is_found = found.iter().any(|port| port.starts_with(protocol));
        assert!(is_found, "{protocol}: {found:?}");
    }
    drop((tcp, udp));
    let home = TestHome::new();
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/sample/groceries");
    let mut training = home.start(&format!("train {sample} --steps 500"));
    training.until(|event| matches!(event, RunEvent::Step { step: 3, .. }));
    assert_eq!(open_ports(training.id()), Vec::<String>::new());
    training.signal("INT");
    assert_eq!(training.finish().0, Some(0));
}

/// `ebb controller` answers another program for as long as that one asks.
#[test]
fn a_command_that_waits_for_input_opens_no_port() {
    let home = TestHome::new();
    let mut command = home.ebb(["controller"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    let mut stdin = child.stdin.take().expect("it is piped");
    let sample = r#"{"kind":"sample","at_ms":0,"total_bytes":16000000000,"available_bytes":15000000000,"own_bytes":1000000}"#;
    let ask = r#"{"kind":"ask","remaining":16}"#;
    writeln!(stdin, "{sample}\n{ask}").expect("it reads");
    let stdout = child.stdout.take().expect("it is piped");
    let mut answer = String::new();
    let read = BufReader::new(stdout).read_line(&mut answer);
    read.expect("it answers");
    assert!(answer.contains("decision"), "{answer}");
    assert_eq!(open_ports(child.id()), Vec::<String>::new());
    drop(stdin);
    child.wait().expect("it ends with its input");
}

#[test]
fn the_server_opens_one_port_for_this_machine_only() {
    let home = chats();
    let mut server = home.start_for_people("serve {model} --port 0");
    let line = server.read_line();
    let (_, port) = line
        .trim_end_matches("/v1")
        .rsplit_once(':')
        .expect("a port");
    let port: u16 = port.parse().expect("a number");
    // 127.0.0.1 in the order of the bytes of this machine.
    assert_eq!(
        open_ports(server.id()),
        [format!("tcp 0100007F:{port:04X}")]
    );
    server.signal("TERM");
    assert_eq!(server.finish().0, Some(0));
}
