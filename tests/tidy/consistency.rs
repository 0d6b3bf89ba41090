//! What several files must have in common: the version, the commands of the window, the first line
//! of a preset.

use crate::{none, root};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn json(path: &str) -> Value {
    serde_json::from_str(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn odd_ones_out(versions: &[(&str, String)]) -> Vec<String> {
    let ours = env!("CARGO_PKG_VERSION");
    let odd = versions.iter().filter(|(_, version)| version != ours);
    odd.map(|(path, version)| format!("{path} has version {version}, Cargo.toml has {ours}"))
        .collect()
}

/// Commands that only one side has.
fn one_sided(declared: &BTreeSet<String>, allowed: &BTreeSet<String>) -> Vec<String> {
    let both = declared.symmetric_difference(allowed);
    both.map(|command| {
        format!(
            "{command} is not in all of src-tauri/build.rs, capabilities/main.json and command_handler.rs"
        )
    })
    .collect()
}

fn without_purpose(presets: &[(String, String)]) -> Vec<String> {
    let bare = presets.iter().filter(|(_, text)| !text.starts_with("# "));
    bare.map(|(path, _)| format!("{path} does not start with a comment that says who it is for"))
        .collect()
}

#[test]
fn every_file_reports_the_same_version() {
    let version = |path: &'static str| {
        (
            path,
            json(path)["version"].as_str().unwrap_or("none").to_owned(),
        )
    };
    let versions = ["package.json", "package-lock.json", "tauri.conf.json"].map(version);
    none(&odd_ones_out(&versions));
    assert!(
        text("CHANGELOG.md").contains(&format!("## [{}]", env!("CARGO_PKG_VERSION"))),
        "CHANGELOG.md has this version"
    );
    assert_eq!(odd_ones_out(&[("planted.json", "9.9.9".into())]).len(), 1);
}

#[test]
fn every_command_is_declared_and_allowed() {
    let list = text("src-tauri/build.rs");
    let (_, list) = list
        .split_once("COMMANDS: &[&str] = &[")
        .expect("build.rs lists the commands");
    let (list, _) = list.split_once("];").expect("the list ends");
    let declared: BTreeSet<_> = list
        .split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect();
    let permissions = json("src-tauri/capabilities/main.json");
    let permissions = permissions["permissions"]
        .as_array()
        .expect("a capability has permissions");
    let own = permissions
        .iter()
        .filter_map(|permission| permission.as_str()?.strip_prefix("allow-"));
    let allowed: BTreeSet<_> = own.map(|name| name.replace('-', "_")).collect();
    assert!(declared.contains("pull"), "the list is read");
    none(&one_sided(&declared, &allowed));
    none(&one_sided(&declared, &handled_commands()));
    none(&not_called(&declared, &page_sources()));
    let unused = BTreeSet::from(["planted".to_owned()]);
    assert_eq!(not_called(&unused, "invoke(\"pull\")").len(), 1);
    assert_eq!(
        one_sided(&BTreeSet::from(["planted".to_owned()]), &BTreeSet::new()).len(),
        1
    );
}

/// The commands that the program answers.
fn handled_commands() -> BTreeSet<String> {
    let list = text("src-tauri/command_handler.rs");
    let (_, list) = list
        .split_once("generate_handler![")
        .expect("it lists the commands");
    let (list, _) = list.split_once(']').expect("the list ends");
    let commands = list.split(',').map(str::trim);
    let commands = commands.filter_map(|command| command.rsplit_once("::"));
    commands.map(|(_, name)| name.to_owned()).collect()
}

/// The files of the page that may call commands.
fn page_sources() -> String {
    let entries = fs::read_dir(root().join("ui/src/host")).expect("it can be read");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    let files = paths.filter(|path| path.extension().is_some_and(|kind| kind == "ts"));
    let sources = files.map(|path| fs::read_to_string(path).expect("a source file is text"));
    sources.collect()
}

/// Commands that the page may call, but does not.
fn not_called(declared: &BTreeSet<String>, page: &str) -> Vec<String> {
    let is_called = |command: &&String| page.contains(&format!("\"{command}\""));
    let unused = declared.iter().filter(|command| !is_called(command));
    unused
        .map(|command| format!("the page never calls {command}; remove its permission"))
        .collect()
}

/// Lines of code that advise a command-line flag without mentioning the terminal.
fn flags_of_the_terminal(path: &str, code: &str) -> Vec<String> {
    let advises = |line: &str| {
        let flag = line
            .split(" --")
            .skip(1)
            .any(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
        flag && !line.trim_start().starts_with("//") && !line.contains("in the terminal")
    };
    let lines = code.lines().filter(|line| advises(line));
    lines
        .map(|line| format!("{path} is shown in the window too: {}", line.trim()))
        .collect()
}

#[test]
fn what_is_found_in_a_folder_advises_no_flag_to_the_window() {
    let mut folders = vec![root().join("crates/dataset/src")];
    let mut complaints = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("it can be read") {
            let path = entry.expect("it can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs") {
                let code = fs::read_to_string(&path).expect("a source file is text");
                complaints.extend(flags_of_the_terminal(&path.display().to_string(), &code));
            }
        }
    }
    none(&complaints);
    assert_eq!(
        flags_of_the_terminal("planted.rs", "\"held out. --group-by COLUMN\"").len(),
        1
    );
}

#[test]
fn every_preset_reports_for_whom_it_is() {
    let entries = fs::read_dir(root().join("configs")).expect("there are presets");
    let paths = entries.map(|entry| entry.expect("a preset can be read").path());
    let toml = paths.filter(|path| {
        path.extension()
            .is_some_and(|extension| extension == "toml")
    });
    let presets: Vec<_> = toml
        .map(|path| {
            (
                path.display().to_string(),
                fs::read_to_string(&path).expect("a preset is text"),
            )
        })
        .collect();
    assert!(!presets.is_empty(), "there are presets");
    none(&without_purpose(&presets));
    assert_eq!(
        without_purpose(&[("planted.toml".into(), "seed = 1\n".into())]).len(),
        1
    );
}
