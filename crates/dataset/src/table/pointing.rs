//! From a cell of a table to the photograph that it names. Sees the names of photographs that were listed, never the file
//! system: whatever a cell says, nothing outside the folder is opened.

use crate::walk::Entry;
use std::collections::HashMap;
use unicode_normalization::UnicodeNormalization;

/// What a cell names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Pointed {
    /// The photograph at this place of the list.
    At(usize),
    /// A place outside the folder.
    Outside,
    /// No photograph that can be read.
    Nowhere,
}

/// The photographs of a folder, by what a cell may call them.
pub(super) struct Photographs {
    by_path: HashMap<String, usize>,
    /// By the last name, with and without its end; nothing where several have it.
    by_name: HashMap<String, Option<usize>>,
    paths: Vec<String>,
}

impl Photographs {
    /// Photographs by their names from the folder down.
    pub(super) fn new<'a>(entries: impl Iterator<Item = &'a Entry>) -> Self {
        let mut found = Photographs {
            by_path: HashMap::new(),
            by_name: HashMap::new(),
            paths: Vec::new(),
        };
        for (place, entry) in entries.enumerate() {
            let path = entry.names.join("/").to_lowercase();
            let name = entry.names.last().map(|name| name.to_lowercase());
            let name = name.unwrap_or_default();
            let stem = name.rsplit_once('.').map(|(stem, _)| stem.to_owned());
            for key in [Some(name), stem].into_iter().flatten() {
                let known = found.by_name.entry(key).or_insert(Some(place));
                if *known != Some(place) {
                    *known = None;
                }
            }
            found.by_path.insert(path.clone(), place);
            found.paths.push(path);
        }
        found
    }

    /// The photograph that a cell of a table in the folder `beside` names: by its path from there or from the dropped folder,
    /// or by a name that only one photograph has.
    pub(super) fn find(&self, beside: &[String], cell: &str) -> Pointed {
        let cell: String = cell.trim().nfc().collect::<String>().replace('\\', "/");
        if leads_outside(&cell) {
            return Pointed::Outside;
        }
        let steps: Vec<&str> = cell
            .split('/')
            .filter(|step| !step.is_empty() && *step != ".")
            .collect();
        let Some(last) = steps.last() else {
            return Pointed::Nowhere;
        };
        let inner = steps.join("/").to_lowercase();
        let from_table = match beside {
            [] => inner.clone(),
            folders => format!("{}/{inner}", folders.join("/").to_lowercase()),
        };
        if let Some(place) = [&from_table, &inner]
            .into_iter()
            .find_map(|path| self.by_path.get(path))
        {
            return Pointed::At(*place);
        }
        let named = self.by_name.get(&last.to_lowercase()).copied().flatten();
        let fits =
            |place: &usize| steps.len() == 1 || self.paths[*place].ends_with(&format!("/{inner}"));
        named.filter(fits).map_or(Pointed::Nowhere, Pointed::At)
    }
}

/// Absolute paths, drives, addresses, homes, and every step up.
fn leads_outside(cell: &str) -> bool {
    let drive = cell.as_bytes().get(1) == Some(&b':') && cell.as_bytes()[0].is_ascii_alphabetic();
    cell.starts_with('/')
        || cell.starts_with('~')
        || drive
        || cell.contains("://")
        || cell.split('/').any(|step| step == "..")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn a_cell_names_a_photograph_inside_the_folder_or_none() {
        let entries: Vec<Entry> = ["images/a.jpg", "images/b.JPG", "x/c.png", "y/c.png"]
            .iter()
            .map(|path| Entry {
                path: PathBuf::from(path),
                names: path.split('/').map(str::to_owned).collect(),
                bytes: 1,
            })
            .collect();
        let photographs = Photographs::new(entries.iter());
        let check = |beside: &[&str], cell: &str, expected: Pointed| {
            let beside: Vec<String> = beside.iter().map(|s| (*s).to_owned()).collect();
            assert_eq!(photographs.find(&beside, cell), expected, "{cell}");
        };
        check(&[], "images/a.jpg", Pointed::At(0));
        check(&[], " ./images\\a.jpg ", Pointed::At(0));
        check(&["images"], "a.jpg", Pointed::At(0));
        check(&[], "a.jpg", Pointed::At(0));
        check(&[], "a", Pointed::At(0));
        check(&[], "images/b.jpg", Pointed::At(1));
        check(&[], "c.png", Pointed::Nowhere);
        check(&["x"], "c.png", Pointed::At(2));
        check(&[], "z/a.jpg", Pointed::Nowhere);
        check(&[], "", Pointed::Nowhere);
        for cell in [
            "../../etc/passwd",
            "images/../../a.jpg",
            "/etc/passwd",
            "..\\a.jpg",
            "C:\\a.jpg",
            "~/a.jpg",
            "https://example.org/a.jpg",
        ] {
            check(&[], cell, Pointed::Outside);
        }
    }
}
