//! A training opens no port: nothing on this machine or the network can connect to it.

use crate::support::TestHome;
use runlog::RunEvent;
use std::fs;
use std::net::{TcpListener, UdpSocket};

/// The ports that a process has open: "tcp 0100007F:1F90".
fn open_ports(process: u32) -> Vec<String> {
    let handles = fs::read_dir(format!("/proc/{process}/fd")).expect("the process runs");
    let targets = handles
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok());
    let sockets: Vec<String> = targets
        .map(|target| target.to_string_lossy().into_owned())
        .collect();
    let mut open = Vec::new();
    for protocol in ["tcp", "tcp6", "udp", "udp6"] {
        let table = fs::read_to_string(format!("/proc/{process}/net/{protocol}"));
        for line in table.unwrap_or_default().lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, local, _, state, ..] = fields[..] else {
                continue;
            };
            let socket = format!("socket:[{}]", fields.get(9).unwrap_or(&""));
            // 0A is a TCP port that listens, 07 an open UDP port.
            if ["0A", "07"].contains(&state) && sockets.contains(&socket) {
                open.push(format!("{protocol} {local}"));
            }
        }
    }
    open
}

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
