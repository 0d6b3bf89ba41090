//! What a power failure leaves. Contents survive if their file was synced after they were written;
//! entries survive if their folder was synced after they were created, renamed or removed. Of
//! everything else any part may survive, in any order.

use super::Change;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Bytes that survive together.
const BLOCK: usize = 4096;

/// Which of the changes that were not synced survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survivors {
    /// All of them: only the process was killed.
    All,
    /// None of them.
    None,
    /// About half of them, chosen by this seed.
    Seed(u64),
}

impl Survivors {
    /// Whether the change with this key survives.
    fn has(self, key: [u64; 3]) -> bool {
        match self {
            Survivors::All => true,
            Survivors::None => false,
            Survivors::Seed(seed) => {
                let mix = |hash: u64, part: u64| {
                    // The finalizer of SplitMix64.
                    let mut hash = (hash ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
                    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                    hash ^ (hash >> 31)
                };
                key.into_iter().fold(seed, mix).is_multiple_of(2)
            }
        }
    }
}

/// Where an entry is: the number of its folder, and its name.
type Place = (usize, OsString);

/// A file or folder, whatever its name is now.
enum Node {
    Folder,
    File {
        /// Its content at its last sync.
        synced: Vec<u8>,
        /// What was written since.
        edits: Vec<Edit>,
    },
}

enum Edit {
    Write { at: usize, bytes: Vec<u8> },
    Truncate(usize),
}

/// A change of entries that its folder has not been synced after.
struct EntryChange {
    /// The folder whose sync completes it.
    folder: usize,
    node: usize,
    removed: Option<Place>,
    added: Option<Place>,
}

impl EntryChange {
    fn apply(&self, entries: &mut BTreeMap<Place, usize>) {
        if let Some(place) = &self.removed
            && entries.get(place) == Some(&self.node)
        {
            entries.remove(place);
        }
        if let Some(place) = &self.added {
            entries.insert(place.clone(), self.node);
        }
    }
}

/// The power failures after each change of a disk.
pub struct PowerCuts {
    changes: std::vec::IntoIter<Change>,
    nodes: Vec<Node>,
    /// The entries as the process sees them. Node 0 is the folder of the disk.
    entries: BTreeMap<Place, usize>,
    /// The entries that are certain to survive.
    synced: BTreeMap<Place, usize>,
    pending: Vec<EntryChange>,
}

impl PowerCuts {
    pub(super) fn new(changes: Vec<Change>) -> Self {
        PowerCuts {
            changes: changes.into_iter(),
            nodes: vec![Node::Folder],
            entries: BTreeMap::new(),
            synced: BTreeMap::new(),
            pending: Vec::new(),
        }
    }

    /// Makes the next change, and describes it; `None` after the last one.
    pub fn next_change(&mut self) -> Option<String> {
        let change = self.changes.next()?;
        let about = match &change {
            Change::Write { path, at, bytes } => {
                format!("write {} at {at}: {} bytes", path.display(), bytes.len())
            }
            other => format!("{other:?}"),
        };
        self.apply(change);
        Some(about)
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::CreateFolder(path) => self.add(&path, Node::Folder),
            Change::CreateFile(path) => self.add(
                &path,
                Node::File {
                    synced: Vec::new(),
                    edits: Vec::new(),
                },
            ),
            Change::Write { path, at, bytes } => self.edit(
                &path,
                Edit::Write {
                    at: at as usize,
                    bytes,
                },
            ),
            Change::Truncate { path, len } => self.edit(&path, Edit::Truncate(len as usize)),
            Change::Sync(path) => self.sync(&path),
            Change::Rename(from, to) => {
                let (from, to) = (self.place(&from), self.place(&to));
                let node = self.entries[&from];
                self.change_entries(to.0, node, Some(from), Some(to));
            }
            Change::Remove(path) => {
                let place = self.place(&path);
                let node = self.entries[&place];
                self.change_entries(place.0, node, Some(place), None);
            }
        }
    }

    fn add(&mut self, path: &Path, node: Node) {
        let place = self.place(path);
        self.nodes.push(node);
        self.change_entries(place.0, self.nodes.len() - 1, None, Some(place));
    }

    fn change_entries(
        &mut self,
        folder: usize,
        node: usize,
        removed: Option<Place>,
        added: Option<Place>,
    ) {
        let change = EntryChange {
            folder,
            node,
            removed,
            added,
        };
        change.apply(&mut self.entries);
        self.pending.push(change);
    }

    fn edit(&mut self, path: &Path, edit: Edit) {
        let node = self.node(path);
        if let Node::File { edits, .. } = &mut self.nodes[node] {
            edits.push(edit);
        }
    }

    fn sync(&mut self, path: &Path) {
        // Files that exist only while a process runs, such as locks, are not created here.
        let Some(node) = self.find(path) else {
            return;
        };
        match &mut self.nodes[node] {
            Node::File { synced, edits } => {
                for edit in std::mem::take(edits) {
                    edit.apply(synced, &|_| true);
                }
            }
            Node::Folder => {
                let pending = std::mem::take(&mut self.pending);
                for change in pending {
                    if change.folder == node {
                        change.apply(&mut self.synced);
                    } else {
                        self.pending.push(change);
                    }
                }
            }
        }
    }

    fn find(&self, path: &Path) -> Option<usize> {
        let mut names = path.components();
        names.try_fold(0, |folder, name| {
            let place = (folder, name.as_os_str().to_owned());
            self.entries.get(&place).copied()
        })
    }

    fn node(&self, path: &Path) -> usize {
        self.find(path).expect("the path was created in this layer")
    }

    fn place(&self, path: &Path) -> Place {
        let folder = self.node(path.parent().unwrap_or(Path::new("")));
        (folder, path.file_name().unwrap_or_default().to_owned())
    }

    /// Creates in an empty folder what a power failure now would leave.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn leave(&self, survivors: Survivors, folder: &Path) -> io::Result<()> {
        let mut entries = self.synced.clone();
        for (number, change) in self.pending.iter().enumerate() {
            if survivors.has([0, number as u64, self.nodes.len() as u64]) {
                change.apply(&mut entries);
            }
        }
        let mut folders: Vec<(usize, PathBuf)> = vec![(0, folder.to_owned())];
        while let Some((number, path)) = folders.pop() {
            let inside = entries.iter().filter(|((folder, _), _)| *folder == number);
            for ((_, name), node) in inside {
                let path = path.join(name);
                match &self.nodes[*node] {
                    Node::Folder => {
                        fs::create_dir(&path)?;
                        folders.push((*node, path));
                    }
                    Node::File { synced, edits } => {
                        fs::write(&path, content(*node, synced, edits, survivors))?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The content of a file after a power failure.
fn content(node: usize, synced: &[u8], edits: &[Edit], survivors: Survivors) -> Vec<u8> {
    let mut content = synced.to_owned();
    for (number, edit) in edits.iter().enumerate() {
        edit.apply(&mut content, &|block| {
            survivors.has([1 + node as u64, number as u64, block])
        });
    }
    content
}

impl Edit {
    /// Applies the blocks of the edit that survive.
    fn apply(&self, content: &mut Vec<u8>, survives: &dyn Fn(u64) -> bool) {
        match self {
            Edit::Truncate(len) if survives(0) => content.resize(*len, 0),
            Edit::Truncate(_) => {}
            Edit::Write { at, bytes } => {
                for (number, block) in bytes.chunks(BLOCK).enumerate() {
                    if survives(number as u64) {
                        let at = at + number * BLOCK;
                        content.resize(content.len().max(at + block.len()), 0);
                        content[at..at + block.len()].copy_from_slice(block);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::{Fault, SimulatedDisk};
    use std::io::ErrorKind;

    /// All files that are left, with their contents.
    fn left(cuts: &PowerCuts, survivors: Survivors) -> BTreeMap<String, String> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        cuts.leave(survivors, folder.path())
            .expect("it can be written");
        files(folder.path())
    }

    fn files(folder: &Path) -> BTreeMap<String, String> {
        let (mut found, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
        while let Some(path) = folders.pop() {
            for entry in fs::read_dir(path).expect("it can be read").flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let name = path.strip_prefix(folder).expect("it is inside");
                let text = fs::read_to_string(&path).expect("it is text");
                found.insert(name.display().to_string(), text);
            }
        }
        found
    }

    fn one(name: &str, text: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(name.to_owned(), text.to_owned())])
    }

    #[test]
    fn what_was_not_synced_may_be_lost() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let disk = SimulatedDisk::new(root.path());
        let _installed = disk.install();
        let path = root.path().join("a");
        crate::write(&path, b"first").expect("it can be written");
        crate::sync_path(root.path()).expect("it can be synced");
        crate::sync_path(&path).expect("it can be synced");
        crate::write(&path, b"other").expect("it can be written");
        crate::rename(&path, &root.path().join("b")).expect("it can be renamed");
        let mut cuts = disk.power_cuts();
        let mut seen = Vec::new();
        while let Some(change) = cuts.next_change() {
            seen.push((
                change,
                left(&cuts, Survivors::All),
                left(&cuts, Survivors::None),
            ));
        }
        let none = BTreeMap::new();
        let expected = [
            (one("a", ""), none.clone()),
            (one("a", "first"), none),
            (one("a", "first"), one("a", "")),
            (one("a", "first"), one("a", "first")),
            (one("a", ""), one("a", "first")),
            (one("a", "other"), one("a", "first")),
            (one("b", "other"), one("a", "first")),
        ];
        let states = seen
            .iter()
            .map(|(_, all, none)| (all.clone(), none.clone()));
        assert_eq!(states.collect::<Vec<_>>(), expected, "{seen:#?}");
        assert_eq!(files(root.path()), one("b", "other"));
        let some: Vec<_> = (0..64)
            .map(|seed| left(&cuts, Survivors::Seed(seed)))
            .collect();
        for text in ["", "first", "other"] {
            for name in ["a", "b"] {
                assert!(some.contains(&one(name, text)), "{name} {text}: {some:?}");
            }
        }
    }

    #[test]
    fn an_operation_fails_as_it_is_asked_to() {
        let check = |fault: Fault, first: Option<ErrorKind>, second: Option<ErrorKind>, text| {
            let root = tempfile::tempdir().expect("a temporary folder");
            let disk = SimulatedDisk::new(root.path());
            let _installed = disk.install();
            let path = root.path().join("a");
            crate::write(&path, b"before").expect("it can be written");
            // The write after opening.
            disk.fail(fault, 3);
            let write = || {
                crate::write(&path, b"after!")
                    .err()
                    .map(|error| error.kind())
            };
            let found = (write(), write());
            // The system's error 5 has no kind with a stable name.
            let known = |kind: Option<ErrorKind>, expected: Option<ErrorKind>| match fault {
                Fault::InputOutput => kind.is_some() == expected.is_some(),
                _ => kind == expected,
            };
            assert!(
                known(found.0, first) && known(found.1, second),
                "{fault:?} {found:?}"
            );
            assert_eq!(files(root.path()), one("a", text), "{fault:?}");
            let is_seen = disk.failed().as_deref() == Some("write a");
            assert!(is_seen, "{fault:?}: {:?}", disk.failed());
            disk.heal();
            assert_eq!(write(), None);
            assert_eq!(files(root.path()), one("a", "after!"));
        };
        let full = Some(ErrorKind::StorageFull);
        let read_only = Some(ErrorKind::ReadOnlyFilesystem);
        check(Fault::NoSpace, full, full, "");
        check(Fault::InputOutput, Some(ErrorKind::Other), None, "after!");
        check(Fault::ReadOnly, read_only, read_only, "aft");
        check(Fault::Interrupted, None, None, "after!");
    }
}
