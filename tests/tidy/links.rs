//! Links between the project's documents, anchors included, have targets, and every page of the
//! book is in its table of contents.

use crate::{none, root};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Every Markdown file below a folder, and those at the root of the project.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut folders = vec![root().join("docs"), root().join(".github")];
    let files = fs::read_dir(root()).expect("the project can be listed");
    pages.extend(files.map(|entry| entry.expect("an entry can be read").path()));
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of documents can be listed") {
            let path = entry.expect("an entry can be read").path();
            if path.is_dir() {
                folders.push(path)
            } else {
                pages.push(path)
            }
        }
    }
    pages.retain(|path| path.extension().is_some_and(|end| end == "md"));
    pages
}

/// The targets of a page's links and pictures: `[text](target)` and `src="target"`.
fn targets(text: &str) -> Vec<&str> {
    let links = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'));
    let pictures = text
        .split("src=\"")
        .skip(1)
        .filter_map(|rest| rest.split_once('"'));
    let sets = text
        .split("srcset=\"")
        .skip(1)
        .filter_map(|rest| rest.split_once('"'));
    let all = links.chain(pictures).chain(sets).map(|(target, _)| target);
    all.filter(|target| !target.contains("://")).collect()
}

/// The anchors of a page: each heading in lower case, with `-` for spaces and without other
/// punctuation, as mdbook and GitHub make them. Lines in code blocks are no headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut in_code = false;
    let mut anchors = BTreeSet::new();
    for line in text.lines() {
        in_code ^= line.trim_start().starts_with("```");
        let heading = line.trim_start_matches('#');
        if in_code || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let kept = |letter: char| match letter {
            ' ' => Some('-'),
            '-' | '_' => Some(letter),
            _ => letter.is_alphanumeric().then_some(letter),
        };
        anchors.insert(
            heading
                .trim()
                .to_lowercase()
                .chars()
                .filter_map(kept)
                .collect(),
        );
    }
    anchors
}

fn broken(page: &Path, text: &str) -> Vec<String> {
    let folder = page.parent().expect("a page lies in a folder");
    let exists = |target: &&str| {
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        if file.is_empty() {
            return anchors(text).contains(anchor);
        }
        let other = folder.join(file);
        let has_anchor =
            || fs::read_to_string(&other).is_ok_and(|text| anchors(&text).contains(anchor));
        other.exists() && (anchor.is_empty() || has_anchor())
    };
    let missing = targets(text).into_iter().filter(|target| !exists(target));
    missing
        .map(|target| format!("{}: {target} does not exist", page.display()))
        .collect()
}

#[test]
fn links_between_documents_lead_somewhere() {
    let read = |page: &PathBuf| fs::read_to_string(page).expect("a page is text");
    let complaints: Vec<String> = pages()
        .iter()
        .flat_map(|page| broken(page, &read(page)))
        .collect();
    none(&complaints);
    let planted = broken(
        &root().join("planted.md"),
        "[here](docs/nowhere.md) ![](README.md) [there](RELEASE.md#signing) [no](RELEASE.md#missing) [no](#missing)",
    );
    assert_eq!(planted.len(), 3);
}

#[test]
fn every_page_of_the_book_is_in_its_contents() {
    let docs = root().join("docs");
    let contents = fs::read_to_string(docs.join("SUMMARY.md")).expect("the book has contents");
    let listed: BTreeSet<PathBuf> = targets(&contents)
        .into_iter()
        .map(|page| docs.join(page))
        .collect();
    let mut all: BTreeSet<PathBuf> = pages()
        .into_iter()
        .filter(|page| page.starts_with(&docs))
        .collect();
    all.remove(&docs.join("SUMMARY.md"));
    let apart: Vec<_> = all
        .symmetric_difference(&listed)
        .map(|page| page.display().to_string())
        .collect();
    none(&apart);
}
