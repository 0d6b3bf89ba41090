//! A class folder as users have it: each of its 122 files is used, or left out for the right
//! reason. The folder is unpacked from `tests/corpus/dirty_folder`; an archive keeps its links and
//! the names that no version control stores.

use dataset::{ImageInspection, InspectOptions, inspect_images};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use unicode_normalization::UnicodeNormalization;

/// What a reason must contain, by a word of the expectations.
const REASONS: [(&str, &str); 7] = [
    ("HTML", "web page"),
    ("LFS pointer", "git lfs pull"),
    ("zero bytes", "empty"),
    ("1.6 GB bomb", "million"),
    ("header bomb", "million"),
    ("JPEG SOF bomb", "million"),
    ("HEIF", "HEIC"),
];

fn composed(path: &Path) -> String {
    path.display().to_string().nfc().collect()
}

#[test]
fn every_file_is_used_or_left_out_for_the_right_reason() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/dirty_folder");
    let target = tempfile::tempdir().expect("a temporary folder can be created");
    let unpacked = Command::new("tar")
        .arg("xzf")
        .arg(data.join("folder.tar.gz"))
        .arg("-C")
        .arg(target.path())
        .status();
    assert!(unpacked.is_ok_and(|status| status.success()));
    let folder = target.path().join("dirty_folder");
    let found =
        inspect_images(&folder, &InspectOptions::default(), &|_| {}).expect("it can be read");
    let expected = std::fs::read_to_string(data.join("expected.csv")).expect("it is there");
    let mut reader = csv::Reader::from_reader(expected.as_bytes());
    let rows: Vec<[String; 3]> = reader
        .records()
        .map(|row| row.expect("the expectations can be read"))
        .map(|row| [0, 1, 2].map(|i| row[i].nfc().collect()))
        .collect();
    assert!(rows.len() > 100);
    check(&found, &rows);
}

/// The files of an inspection by what became of them.
struct Outcomes<'a> {
    used: BTreeSet<String>,
    /// By path: the reason.
    skipped: BTreeMap<String, &'a str>,
    /// Files that systems leave behind.
    hidden: BTreeSet<String>,
    /// Files that are ignored without a reason.
    silent: BTreeSet<String>,
}

impl Outcomes<'_> {
    /// Checks one row of the expectations: a path, `use`, `skip` or `either`, and why.
    fn check(&mut self, row: &[String; 3]) {
        let [path, expected, why] = row;
        let is_used = self.used.contains(path);
        match expected.as_str() {
            "use" => assert!(
                is_used,
                "{path} ({why}) is not used: {:?}",
                self.skipped.get(path)
            ),
            "skip" => assert!(!is_used, "{path} ({why}) is used"),
            "either" => assert!(
                is_used || self.skipped.contains_key(path),
                "{path} ({why}) is neither used nor reported"
            ),
            other => panic!("unknown expectation {other}"),
        }
        if is_used {
            return;
        }
        let wanted = REASONS.iter().find(|(of, _)| why.contains(of));
        match (self.skipped.get(path), wanted) {
            (Some(reason), Some((_, part))) => {
                assert!(reason.contains(part), "{path} ({why}): {reason}")
            }
            (Some(_), None) => {}
            (None, Some(_)) => panic!("{path} ({why}) is left out without a reason"),
            // Files that systems leave behind, and texts.
            (None, None) => {
                let top = path.split('/').find(|name| {
                    name.starts_with('.') || *name == "__MACOSX" || *name == "Thumbs.db"
                });
                match top {
                    Some(_) => self.hidden.insert(path.clone()),
                    None => self.silent.insert(path.clone()),
                };
            }
        }
    }
}

fn check(found: &ImageInspection, rows: &[[String; 3]]) {
    let used = found.files.iter().map(|file| composed(&file.path));
    let skipped = found.skipped.iter();
    let skipped = skipped.map(|file| (composed(&file.path), file.reason.as_str()));
    let mut outcomes = Outcomes {
        used: used.collect(),
        skipped: skipped.collect(),
        hidden: BTreeSet::new(),
        silent: BTreeSet::new(),
    };
    rows.iter().for_each(|row| outcomes.check(row));
    let Outcomes {
        used,
        skipped,
        hidden,
        silent,
    } = outcomes;
    assert!(
        silent.iter().all(|path| path.ends_with(".txt")),
        "{silent:?}"
    );
    assert_eq!(found.ignored.other, silent.len() as u64);
    // A hidden folder counts as one. Here each contains one expected file.
    assert_eq!(found.ignored.system, hidden.len() as u64, "{hidden:?}");
    let known: BTreeSet<&String> = rows.iter().map(|[path, ..]| path).collect();
    assert!(
        used.iter().all(|path| known.contains(path)),
        "nothing else is used"
    );
    let links = skipped.keys().filter(|path| !known.contains(path));
    for (path, reason) in links.map(|path| (path, skipped[path])) {
        assert!(reason.contains("link"), "{path}: {reason}");
    }
    let named = skipped.keys().filter(|path| known.contains(path)).count();
    assert_eq!(
        used.len() + named + silent.len() + hidden.len(),
        rows.len(),
        "the counts add up"
    );
    let names: Vec<&str> = found
        .classes
        .iter()
        .map(|class| class.name.as_str())
        .collect();
    let expected = [
        "Crème brûlée",
        "butterfly",
        "one_image_class",
        "with space & (parens)",
        "класс 寿司 🍣",
    ];
    assert_eq!(names, expected.map(|name| name.nfc().collect::<String>()));
}
