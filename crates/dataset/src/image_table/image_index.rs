//! Finds the image that a cell of a table names. Only listed images are found: whatever a cell
//! says, nothing outside the folder is opened.

use crate::folder_listing::Entry;
use std::collections::HashMap;
use unicode_normalization::UnicodeNormalization;

/// The result of looking up a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CellMatch {
    /// The image with this index in the list.
    Image(usize),
    /// A path outside the folder.
    Outside,
    /// No listed image.
    NotFound,
}

/// The images of a folder, by the names that a cell may use.
pub(super) struct ImageIndex {
    by_path: HashMap<String, usize>,
    /// By the last name, with and without its extension; `None` if several images have it.
    by_name: HashMap<String, Option<usize>>,
    paths: Vec<String>,
}

impl ImageIndex {
    /// Indexes images by their names from the folder down.
    pub(super) fn new<'a>(entries: impl Iterator<Item = &'a Entry>) -> Self {
        let mut index = ImageIndex {
            by_path: HashMap::new(),
            by_name: HashMap::new(),
            paths: Vec::new(),
        };
        for (image, entry) in entries.enumerate() {
            let path = entry.joined_names().to_lowercase();
            let name = entry.name().to_lowercase();
            let stem = name.rsplit_once('.').map(|(stem, _)| stem.to_owned());
            for key in [Some(name), stem].into_iter().flatten() {
                let known = index.by_name.entry(key).or_insert(Some(image));
                if *known != Some(image) {
                    *known = None;
                }
            }
            index.by_path.insert(path.clone(), image);
            index.paths.push(path);
        }
        index
    }

    /// Finds the image that a cell names: by its path from the table's folder `folder` or from the
    /// dataset's folder, or by a name that only one image has.
    pub(super) fn find(&self, folder: &[String], cell: &str) -> CellMatch {
        let cell: String = cell.trim().nfc().collect::<String>().replace('\\', "/");
        if leads_outside(&cell) {
            return CellMatch::Outside;
        }
        let steps: Vec<&str> = cell
            .split('/')
            .filter(|step| !step.is_empty() && *step != ".")
            .collect();
        let Some(last) = steps.last() else {
            return CellMatch::NotFound;
        };
        let inner = steps.join("/").to_lowercase();
        let from_table = match folder {
            [] => inner.clone(),
            folders => format!("{}/{inner}", folders.join("/").to_lowercase()),
        };
        if let Some(image) = [&from_table, &inner]
            .into_iter()
            .find_map(|path| self.by_path.get(path))
        {
            return CellMatch::Image(*image);
        }
        let named = self.by_name.get(&last.to_lowercase()).copied().flatten();
        let fits =
            |image: &usize| steps.len() == 1 || self.paths[*image].ends_with(&format!("/{inner}"));
        named
            .filter(fits)
            .map_or(CellMatch::NotFound, CellMatch::Image)
    }
}

/// Whether a path is absolute, has a drive, is a URL, starts in a home folder, or goes up.
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

    #[test]
    fn a_cell_names_an_image_inside_the_folder_or_none() {
        let entries: Vec<Entry> = ["images/a.jpg", "images/b.JPG", "x/c.png", "y/c.png"]
            .iter()
            .map(|path| Entry::for_test(path, 1))
            .collect();
        let index = ImageIndex::new(entries.iter());
        let check = |folder: &[&str], cell: &str, expected: CellMatch| {
            let folder: Vec<String> = folder.iter().map(|s| (*s).to_owned()).collect();
            assert_eq!(index.find(&folder, cell), expected, "{cell}");
        };
        check(&[], "images/a.jpg", CellMatch::Image(0));
        check(&[], " ./images\\a.jpg ", CellMatch::Image(0));
        check(&["images"], "a.jpg", CellMatch::Image(0));
        check(&[], "a.jpg", CellMatch::Image(0));
        check(&[], "a", CellMatch::Image(0));
        check(&[], "images/b.jpg", CellMatch::Image(1));
        check(&[], "c.png", CellMatch::NotFound);
        check(&["x"], "c.png", CellMatch::Image(2));
        check(&[], "z/a.jpg", CellMatch::NotFound);
        check(&[], "", CellMatch::NotFound);
        for cell in [
            "../../etc/passwd",
            "images/../../a.jpg",
            "/etc/passwd",
            "..\\a.jpg",
            "C:\\a.jpg",
            "~/a.jpg",
            "https://example.org/a.jpg",
        ] {
            check(&[], cell, CellMatch::Outside);
        }
    }
}
