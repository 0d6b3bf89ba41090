//! What a manifest declares is used, and what the page contains has its licence text in a bundle.

use crate::sources::all;
use crate::{none, root};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Dependencies that are declared for another reason: the line before says why.
const NOT_CALLED: &str = "# Not called.";
/// Files of the page that no bundle contains: they show it to tests.
const ONLY_FOR_TESTS: &str = "ui/src/host/replay/";

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The libraries that a manifest declares, as their name in code.
fn declared(manifest: &str) -> BTreeSet<String> {
    let (mut found, mut in_section, mut is_called) = (BTreeSet::new(), false, true);
    for line in manifest.lines() {
        if line.starts_with('[') {
            in_section = line.ends_with("dependencies]") && !line.starts_with("[workspace");
        } else if line.starts_with('#') {
            is_called &= !line.starts_with(NOT_CALLED);
        } else if let Some((name, _)) = line.split_once(" =")
            && in_section
        {
            if is_called && !name.starts_with(' ') {
                found.insert(name.replace('-', "_"));
            }
            is_called = true;
        }
    }
    found
}

/// Whether code names a library.
fn names(code: &str, library: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let lines = code.lines().map(str::trim_start);
    let mut lines = lines.filter(|line| !line.starts_with("//"));
    lines.any(|line| {
        line.match_indices(library).any(|(at, _)| {
            let after = &line[at + library.len()..];
            !line[..at].ends_with(is_word) && !after.starts_with(is_word)
        })
    })
}

fn unused(manifest: &str, code: &[&str]) -> Vec<String> {
    let declared = declared(manifest).into_iter();
    declared
        .filter(|library| !code.iter().any(|code| names(code, library)))
        .collect()
}

#[test]
fn every_declared_library_is_used() {
    let sources = all();
    let mut packages = vec![(
        root().to_owned(),
        vec!["src-tauri/".to_owned(), "tests/".to_owned()],
    )];
    for entry in fs::read_dir(root().join("crates")).expect("it can be read") {
        let path: PathBuf = entry.expect("it can be read").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let within = vec![format!("crates/{name}/")];
        packages.push((path, within));
    }
    let (mut complaints, mut count) = (Vec::new(), 0);
    for (path, within) in packages {
        let manifest = text(&path.join("Cargo.toml"));
        let code: Vec<&str> = sources
            .iter()
            .filter(|source| within.iter().any(|start| source.path.starts_with(start)))
            .map(|source| source.text.as_str())
            .collect();
        count += declared(&manifest).len();
        let unused = unused(&manifest, &code).into_iter();
        let place = path.display();
        complaints.extend(unused.map(|library| format!("{place} declares {library}, unused")));
    }
    assert!(count > 60, "{count} libraries are found");
    none(&complaints);
}

#[test]
fn a_planted_library_is_named() {
    let manifest = "[dependencies]\n# Reads.\nserde-json = \"1\"\n# Not called. For features.\nrand = \"1\"\nplanted = { version = \"1\" }\n[workspace.dependencies]\nother = \"1\"\n[target.'cfg(unix)'.dependencies]\nlibc = \"1\"\n";
    let code = "// planted\nuse serde_json::Value;\nlet planted_once = libc::getpid();\n";
    assert_eq!(unused(manifest, &[code]), ["planted"]);
}

/// The folders that contain fonts, below `folder`.
fn folders_with_fonts(folder: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(folder).expect("it can be read") {
        let path = entry.expect("it can be read").path();
        let kind = path.extension().unwrap_or_default();
        if path.is_dir() {
            folders_with_fonts(&path, found);
        } else if ["otf", "ttf", "ttc", "woff", "woff2"]
            .iter()
            .any(|font| kind == *font)
        {
            found.insert(folder.to_owned());
        }
    }
}

/// Folders with fonts whose licence, `OFL.txt` beside them, the script does not copy.
fn fonts_without_licence(folders: &BTreeSet<PathBuf>, script: &str) -> Vec<String> {
    let missing = folders.iter().filter(|folder| {
        let copy = format!("cp {}/OFL.txt ", folder.display());
        !script.contains(&copy) || !root().join(folder).join("OFL.txt").is_file()
    });
    missing
        .map(|folder| {
            format!(
                "no bundle has the licence of the fonts in {}",
                folder.display()
            )
        })
        .collect()
}

#[test]
fn every_font_has_its_licence_in_a_bundle() {
    let mut folders = BTreeSet::new();
    for folder in ["crates", "src-tauri", "ui/src", "sample", "icons", "linux"] {
        folders_with_fonts(&root().join(folder), &mut folders);
    }
    let below = |path: &PathBuf| path.strip_prefix(root()).map(Path::to_owned);
    let folders: BTreeSet<PathBuf> = folders.iter().flat_map(below).collect();
    assert!(
        folders.contains(Path::new("crates/runlog/assets")),
        "{folders:?}"
    );
    let script = text(&root().join("scripts/third-party-licences"));
    none(&fonts_without_licence(&folders, &script));
    let planted = BTreeSet::from([PathBuf::from("ui/src/fonts")]);
    assert_eq!(fonts_without_licence(&planted, &script).len(), 1);
    // Every bundle contains the folder that the script writes.
    let bundle = text(&root().join("scripts/bundle"));
    let resources = r#"'{"bundle":{"resources":{"target/licences/":"licences/"}}}'"#;
    assert!(bundle.contains(resources));
    assert_eq!(bundle.matches("--config \"$licences\"").count(), 2);
}

/// The packages that a file imports.
fn imported(code: &str) -> BTreeSet<String> {
    let imports = code.lines().filter_map(|line| {
        let (_, from) = line.split_once("from \"")?;
        from.split('"').next()
    });
    let package = |path: &str| {
        let parts = if path.starts_with('@') { 2 } else { 1 };
        let parts: Vec<&str> = path.split('/').take(parts).collect();
        parts.join("/")
    };
    imports
        .filter(|path| !path.starts_with(['.', '$']) && !path.starts_with("node:"))
        .map(package)
        .collect()
}

/// Packages without a licence text in the script that collects them.
fn without_licence(packages: &BTreeSet<String>, script: &str) -> Vec<String> {
    let missing = packages
        .iter()
        .filter(|name| !script.contains(&format!("cp node_modules/{name}/LICENSE")));
    missing
        .map(|name| format!("scripts/third-party-licences copies no licence of {name}"))
        .collect()
}

#[test]
fn every_package_of_the_page_has_its_licence_in_a_bundle() {
    let package: Value =
        serde_json::from_str(&text(&root().join("package.json"))).expect("it is JSON");
    let dependencies = package["dependencies"].as_object().expect("there are some");
    let mut packages: BTreeSet<String> = dependencies.keys().cloned().collect();
    for source in all() {
        let is_test = source.path.starts_with(ONLY_FOR_TESTS) || source.path.contains(".test.");
        if source.path.starts_with("ui/src/") && !is_test {
            packages.extend(imported(&source.text));
        }
    }
    assert!(
        packages.contains("svelte") && packages.contains("uplot"),
        "{packages:?}"
    );
    let script = text(&root().join("scripts/third-party-licences"));
    none(&without_licence(&packages, &script));
    let planted = imported("import { a } from \"@planted/package/file\";\nimport b from \"./b\";");
    assert_eq!(planted, BTreeSet::from(["@planted/package".to_owned()]));
    assert_eq!(without_licence(&planted, &script).len(), 1);
}
