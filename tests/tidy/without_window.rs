//! A build without the window (`--no-default-features`) compiles: what it declares uses neither the
//! window's modules nor its libraries. No test builds it, because that compiles everything again.

use crate::none;
use crate::sources::{Source, rust_sources};

const GATE: &str = "#[cfg(feature = \"desktop\")]";
/// Libraries that only the feature `desktop` has.
const LIBRARIES: &[&str] = &[
    "block2",
    "gio",
    "mac_notification_sys",
    "notify",
    "objc2",
    "objc2_core_graphics",
    "objc2_foundation",
    "tauri",
    "tauri_plugin_dialog",
    "tauri_plugin_window_state",
    "webkit2gtk",
];

/// The modules that `main.rs` declares, and whether only the window has them.
fn modules(main: &str) -> Vec<(String, bool)> {
    let lines: Vec<&str> = main.lines().collect();
    let declared = lines.iter().enumerate().filter_map(|(at, line)| {
        let name = line.strip_prefix("mod ")?.strip_suffix(';')?;
        let above = at.checked_sub(1).map_or("", |above| lines[above]);
        let is_gated = above.starts_with("#[cfg(") && above.contains("feature = \"desktop\"");
        Some((name.to_owned(), is_gated))
    });
    declared.collect()
}

/// The code that a build without the window compiles: without gated items and comments.
fn code(text: &str) -> String {
    let mut parts = text.split(GATE);
    let mut code = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // An item ends with its closing brace, a declaration with its line.
        let ends = part.lines().nth(1).filter(|line| line.ends_with(';'));
        let end = if ends.is_some() { ";\n" } else { "\n}\n" };
        code += part.split_once(end).map_or("", |(_, rest)| rest);
    }
    let lines = code.lines().map(str::trim_start);
    let lines: Vec<&str> = lines.filter(|line| !line.starts_with("//")).collect();
    lines.join("\n")
}

fn needs_the_window(main: &str, sources: &[Source]) -> Vec<String> {
    let modules = modules(main);
    let windows: Vec<&str> = gated(&modules, true);
    let mut complaints = Vec::new();
    for name in gated(&modules, false) {
        let (file, folder) = (format!("src-tauri/{name}.rs"), format!("src-tauri/{name}/"));
        let own = |source: &&Source| source.path == file || source.path.starts_with(&folder);
        for source in sources.iter().filter(own) {
            let code = code(&source.text);
            let uses = |path: String| {
                code.match_indices(&path).any(|(at, _)| {
                    let before = code[..at].chars().next_back();
                    !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':')
                })
            };
            let module = windows.iter().find(|module| {
                uses(format!("crate::{module}::")) || uses(format!("crate::{module};"))
            });
            let library = LIBRARIES
                .iter()
                .find(|library| uses(format!("{library}::")));
            complaints.extend(module.into_iter().chain(library).map(|what| {
                format!(
                    "{} is built without the window, but uses {what}",
                    source.path
                )
            }));
        }
    }
    complaints
}

fn gated(modules: &[(String, bool)], wanted: bool) -> Vec<&str> {
    let chosen = modules.iter().filter(|(_, is_gated)| *is_gated == wanted);
    chosen.map(|(name, _)| name.as_str()).collect()
}

#[test]
fn a_build_without_the_window_needs_nothing_of_it() {
    let sources = rust_sources();
    let main = sources
        .iter()
        .find(|source| source.path == "src-tauri/main.rs");
    let main = &main.expect("it is the program").text;
    let modules = modules(main);
    assert!(gated(&modules, false).contains(&"cli") && gated(&modules, true).contains(&"quit"));
    none(&needs_the_window(main, &sources));
}

#[test]
fn a_planted_use_of_the_window_is_named() {
    let main = format!("mod cli;\nmod status;\n{GATE}\nmod quit;\n");
    let source = |path: &str, text: &str| Source {
        path: path.into(),
        text: text.into(),
    };
    let complaints = needs_the_window(
        &main,
        &[
            source("src-tauri/cli/app.rs", "use crate::quit::Quit;\n"),
            source(
                "src-tauri/status.rs",
                "use tauri::AppHandle;\n// use gio::prelude;\n",
            ),
            source("src-tauri/quit.rs", "use tauri::AppHandle;\n"),
            source(
                "src-tauri/cli.rs",
                &format!(
                    "{GATE}\nuse tauri::App;\n{GATE}\nfn app() {{\n    crate::quit::quit();\n}}\nfn other() {{}}\n"
                ),
            ),
        ],
    );
    assert_eq!(complaints.len(), 2, "{complaints:?}");
    assert!(
        complaints[0].starts_with("src-tauri/cli/app.rs"),
        "{complaints:?}"
    );
    assert!(complaints[1].ends_with("uses tauri"), "{complaints:?}");
}
