//! The network ports of a process, from the system's tables. For Linux.

use std::fs;

/// The ports that a process has open: "tcp 0100007F:1F90".
pub fn open_ports(process: u32) -> Vec<String> {
    let handles = fs::read_dir(format!("/proc/{process}/fd"));
    let targets = handles.into_iter().flatten().flatten();
    let targets = targets.filter_map(|entry| fs::read_link(entry.path()).ok());
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
