//! What a Mac needs and Linux does not notice: scripts that its bash and tools understand, and a
//! bundle that declares what the app uses.

use crate::{none, root};
use serde_json::Value;
use std::fs;

/// Scripts that `make run`, `make test`, `make app` and the report run on a Mac.
const SCRIPTS: &[&str] = &[
    "Makefile",
    "scripts/browser-tests",
    "scripts/bundle",
    "scripts/check-macos-selftest",
    "scripts/mac-report",
    "scripts/say",
    "scripts/setup",
    "scripts/with-display",
];

/// What bash 3.2 and the tools of macOS do not understand.
const UNPORTABLE: &[(&str, &str)] = &[
    ("mapfile", "bash 3.2 lacks it"),
    ("readarray", "bash 3.2 lacks it"),
    ("declare -A", "bash 3.2 lacks it"),
    ("local -A", "bash 3.2 lacks it"),
    ("local -n", "bash 3.2 lacks it"),
    ("wait -n", "bash 3.2 lacks it"),
    ("coproc ", "bash 3.2 lacks it"),
    ("&>>", "bash 3.2 lacks it"),
    ("|&", "bash 3.2 lacks it"),
    (",,}", "bash 3.2 lacks it"),
    ("^^}", "bash 3.2 lacks it"),
    ("@Q}", "bash 3.2 lacks it"),
    ("EPOCHSECONDS", "bash 3.2 lacks it"),
    ("grep -P", "it is GNU's"),
    ("grep -z", "it is GNU's"),
    ("sed -i", "BSD's takes a suffix"),
    ("sed -r", "it is GNU's"),
    ("readlink -f", "older systems lack it"),
    ("xargs -r", "it is GNU's"),
    ("sort -V", "it is GNU's"),
    ("stat -c", "it is GNU's"),
    ("date -d", "it is GNU's"),
    ("head -n -", "it is GNU's"),
    ("cp -t", "it is GNU's"),
    ("$(nproc", "macOS lacks it"),
    ("realpath ", "older systems lack it"),
    (" timeout ", "macOS lacks it"),
    ("setsid ", "macOS lacks it"),
    ("python3 -", "a bare Mac lacks it"),
];

fn unportable(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with('#') {
            continue;
        }
        for (pattern, reason) in UNPORTABLE {
            if line.contains(pattern) {
                complaints.push(format!("{path}:{}: `{pattern}`: {reason}", at + 1));
            }
        }
    }
    complaints
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Keys and values that the property list lacks.
fn undeclared(plist: &str) -> Vec<String> {
    let needed = [
        "<string>public.folder</string>",
        "<key>NSDesktopFolderUsageDescription</key>",
        "<key>NSDocumentsFolderUsageDescription</key>",
        "<key>NSDownloadsFolderUsageDescription</key>",
        "<key>NSRemovableVolumesUsageDescription</key>",
        "<key>NSNetworkVolumesUsageDescription</key>",
    ];
    let missing = needed.iter().filter(|needed| !plist.contains(**needed));
    missing
        .map(|needed| format!("Info.plist lacks {needed}"))
        .collect()
}

#[test]
fn scripts_run_with_the_tools_of_macos() {
    let found = SCRIPTS
        .iter()
        .flat_map(|path| unportable(path, &text(path)));
    none(&found.collect::<Vec<_>>());
    let planted = "# mapfile in a comment\nmapfile -t lines <file\nx=${name,,}\n";
    assert_eq!(unportable("planted", planted).len(), 2);
}

#[test]
fn the_bundle_declares_folders_and_reasons() {
    none(&undeclared(&text("Info.plist")));
    assert_eq!(undeclared("").len(), 6);
}

#[test]
fn one_oldest_system_is_named_everywhere() {
    let source = text("crates/tape/src/device/mac_support.rs");
    let (_, rest) = source
        .split_once("OLDEST_MACOS: u32 = ")
        .expect("the oldest system is declared");
    let oldest = rest.split(';').next().expect("a number follows");
    let config: Value = serde_json::from_str(&text("tauri.conf.json")).expect("it is JSON");
    let bundle = &config["bundle"]["macOS"];
    assert_eq!(bundle["minimumSystemVersion"], format!("{oldest}.0"));
    assert_eq!(bundle["signingIdentity"], "-", "signed ad hoc by default");
    assert!(text("README.md").contains(&format!("macOS {oldest}")));
    assert!(text("docs/guide/mac.md").contains(&format!("macOS {oldest} or later")));
}
