//! A run is exported as one file and imported again, bit for bit. An archive of a stranger cannot
//! write outside its folder, and an import that fails leaves nothing.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use disk::simulated::{Fault, SimulatedDisk, Survivors};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use runlog::{EventWriter, RunConfig, RunEvent, RunFolder, RunNotes, RunStore};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tar::{Archive, Builder, EntryType, Header};
use tempfile::TempDir;

type Files = BTreeMap<String, Vec<u8>>;

/// All files of a run, without the lock.
fn files(folder: &Path) -> Files {
    let (mut found, mut folders) = (Files::new(), vec![folder.to_owned()]);
    while let Some(path) = folders.pop() {
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    found.remove("lock");
    found
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A run with a checkpoint, and the archive that it is exported to.
fn exported() -> (TempDir, RunFolder, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let run = RunStore::open(home.path().join("runs"))
        .create("birds")
        .unwrap();
    run.write_config(&RunConfig::default()).unwrap();
    let mut events = EventWriter::append(&run).unwrap();
    events.write(&RunEvent::Started(Box::default())).unwrap();
    let notes = RunNotes {
        name: "Käfer".into(),
        ..RunNotes::default()
    };
    run.write_notes(&notes).unwrap();
    let checkpoint = run.path.join(RunFolder::checkpoint_name(400));
    fs::create_dir_all(&checkpoint).unwrap();
    // Like weights, they cannot be compressed.
    let weights: Vec<u8> = (0..10_000_u32)
        .flat_map(|i| Sha256::digest(i.to_le_bytes()))
        .collect();
    fs::write(checkpoint.join("model.safetensors"), weights).unwrap();
    fs::write(checkpoint.join("state.json"), "{}").unwrap();
    // The lock and what a crash left are not exported.
    drop(run.claim().unwrap());
    fs::create_dir(run.path.join(".draft-published.7")).unwrap();
    fs::write(run.path.join(".draft-published.7/half"), "half").unwrap();
    let archive = home.path().join("birds.ebbrun");
    let exported = run.export_archive(&archive).unwrap();
    assert_eq!((exported.files, exported.bytes > 320_000), (5, true));
    fs::remove_dir_all(run.path.join(".draft-published.7")).unwrap();
    (home, run, archive)
}

#[test]
fn a_run_is_imported_as_it_was_exported() {
    let (home, run, archive) = exported();
    assert_eq!(names(home.path()), ["birds.ebbrun", "runs"]);
    let other = RunStore::open(home.path().join("others/runs"));
    let first = other.import_archive(&archive).unwrap();
    assert_eq!((first.folder.id(), first.renamed_from), (run.id(), None));
    assert_eq!(files(&first.folder.path), files(&run.path));
    let mode = fs::metadata(&first.folder.path)
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
    assert!(!first.folder.is_alive());
    // A run with this id is there: the other one gets a free number.
    for number in [2, 3] {
        let next = other.import_archive(&archive).unwrap();
        assert_eq!(next.folder.id(), format!("{}-{number}", run.id()));
        assert_eq!(next.renamed_from, Some(run.id()));
        assert_eq!(files(&next.folder.path), files(&run.path));
    }
    assert_eq!(names(other.root()).len(), 3);
    // Two exports of the same run are the same file.
    let again = home.path().join("again.ebbrun");
    run.export_archive(&again).unwrap();
    assert!(fs::read(again).unwrap() == fs::read(archive).unwrap());
}

#[test]
fn an_export_never_replaces_a_file_and_never_reads_a_running_run() {
    let (home, run, archive) = exported();
    let refused = |path: &Path| run.export_archive(path).unwrap_err().to_string();
    assert!(refused(&archive).contains("exists already; choose another name"));
    let new = home.path().join("new.ebbrun");
    let claim = run.claim().unwrap();
    assert!(refused(&new).contains("is being trained by"));
    drop(claim);
    std::os::unix::fs::symlink("/etc/passwd", run.path.join("link")).unwrap();
    assert!(refused(&new).contains("is a link or a device"));
    fs::remove_file(run.path.join("link")).unwrap();
    let missing = home.path().join("missing/new.ebbrun");
    assert!(refused(&missing).contains("could not be written"));
    assert_eq!(names(home.path()), ["birds.ebbrun", "runs"]);
}

/// The paths in an archive, as any tar program reads them.
fn paths_in(archive: &Path) -> Vec<String> {
    let file = fs::File::open(archive).unwrap();
    let mut archive = Archive::new(GzDecoder::new(file));
    let entries = archive.entries().unwrap().map(Result::unwrap);
    let paths = entries.map(|entry| entry.path_bytes().into_owned());
    paths.map(|path| String::from_utf8(path).unwrap()).collect()
}

#[test]
fn long_names_are_exported_and_imported() {
    let home = tempfile::tempdir().unwrap();
    let run = RunStore::open(home.path().join("runs"))
        .create("birds")
        .unwrap();
    run.write_config(&RunConfig::default()).unwrap();
    let longest = [
        "a".repeat(100),
        "b".repeat(101),
        "c".repeat(180),
        // The letter after 99 bytes has two.
        format!("{}{}", "d".repeat(99), "é".repeat(70)),
        // A header has space for it in two parts.
        format!("{}/{}", "e".repeat(150), "e".repeat(100)),
        format!("{}/{}", "f".repeat(180), "f".repeat(180)),
    ];
    for path in &longest {
        let place = run.path.join(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, path).unwrap();
    }
    let archive = home.path().join("birds.ebbrun");
    run.export_archive(&archive).unwrap();
    let paths = paths_in(&archive);
    for path in &longest {
        assert!(paths.contains(path), "{path}: {paths:?}");
    }
    let other = RunStore::open(home.path().join("others"));
    let imported = other.import_archive(&archive).unwrap();
    assert_eq!(files(&imported.folder.path), files(&run.path));
}

/// One entry of an archive: path, type, content.
struct Entry<'a> {
    path: &'a str,
    kind: EntryType,
    content: &'a [u8],
}

impl<'a> Entry<'a> {
    fn file(path: &'a str, content: &'a [u8]) -> Self {
        Entry {
            path,
            kind: EntryType::Regular,
            content,
        }
    }
}

/// An archive with any manifest and any entries.
fn archive(manifest: &Value, entries: &[Entry]) -> Vec<u8> {
    let mut archive = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let json = manifest.to_string();
    let first = Entry::file("ebbrun-manifest.json", json.as_bytes());
    for entry in [&first].into_iter().chain(entries) {
        let mut header = Header::new_ustar();
        // `set_path` refuses what a stranger would write.
        let name = &mut header.as_old_mut().name;
        name[..entry.path.len()].copy_from_slice(entry.path.as_bytes());
        header.set_entry_type(entry.kind);
        header.set_size(entry.content.len() as u64);
        header.set_cksum();
        archive.append(&header, entry.content).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}

fn sum(content: &[u8]) -> String {
    let bytes = Sha256::digest(content);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The manifest of files with these paths and contents.
fn manifest(listed: &[(&str, &[u8])]) -> Value {
    let file = |(path, content): &(&str, &[u8])| json!({"path": path, "bytes": content.len(), "sha256": sum(content)});
    let files: Vec<Value> = listed.iter().map(file).collect();
    json!({"format": 1, "run": "birds", "files": files})
}

/// Imports an archive that must be refused for this reason, and nothing may be left.
fn refuse(bytes: &[u8], reason: &str) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("birds.ebbrun");
    fs::write(&path, bytes).unwrap();
    let store = RunStore::open(home.path().join("runs"));
    let error = store.import_archive(&path).unwrap_err().to_string();
    assert!(error.contains(reason), "{error}: no {reason}");
    assert!(error.contains("was not imported"), "{error}");
    assert_eq!(names(store.root()), [""; 0], "{reason}");
    let outside = names(home.path());
    assert!(
        outside
            .iter()
            .all(|name| ["birds.ebbrun", "runs"].contains(&name.as_str()))
    );
}

const CONFIG: (&str, &[u8]) = ("config.toml", b"seed = 7\n");

#[test]
fn names_that_lead_elsewhere_are_refused() {
    for path in [
        "../outside",
        "/tmp/outside",
        "a/../../outside",
        "lock",
        "config.toml/",
    ] {
        let listed = manifest(&[CONFIG, (path, b"x".as_slice())]);
        let entries = [
            Entry::file(CONFIG.0, CONFIG.1),
            Entry::file(path, b"x".as_slice()),
        ];
        refuse(&archive(&listed, &entries), "is not a file of a run folder");
        // The manifest is harmless, but the entry is not.
        let listed = manifest(&[CONFIG, ("notes.json", b"x".as_slice())]);
        let reason = "its entry for notes.json differs from its list of files";
        refuse(&archive(&listed, &entries), reason);
    }
    let mut elsewhere = manifest(&[CONFIG]);
    elsewhere["run"] = json!("../birds");
    let entries = [Entry::file(CONFIG.0, CONFIG.1)];
    refuse(&archive(&elsewhere, &entries), "is not the name of a run");
}

#[test]
fn links_devices_and_extensions_are_refused() {
    let listed = manifest(&[CONFIG, ("notes.json", b"".as_slice())]);
    for kind in [
        EntryType::Symlink,
        EntryType::Link,
        EntryType::Char,
        EntryType::Block,
        EntryType::Fifo,
        EntryType::Directory,
        EntryType::GNULongName,
        EntryType::GNUSparse,
        EntryType::XHeader,
    ] {
        let special = Entry {
            path: "notes.json",
            kind,
            content: b"",
        };
        let entries = [Entry::file(CONFIG.0, CONFIG.1), special];
        let reason = "its entry for notes.json differs from its list of files";
        refuse(&archive(&listed, &entries), reason);
    }
}

#[test]
fn a_long_name_that_differs_from_the_manifest_is_refused() {
    let path = "c".repeat(180);
    let listed = manifest(&[CONFIG, (path.as_str(), b"x".as_slice())]);
    let (in_header, whole) = (&path[..100], format!("{path}\0"));
    let (other, huge) = (format!("../{}\0", &path[3..]), "c".repeat(1 << 20));
    let reason = format!("its entry for {path} differs from its list of files");
    let import = |name: Option<&str>, in_header: &str| {
        let long_name = name.map(|name| Entry {
            path: "././@LongLink",
            kind: EntryType::GNULongName,
            content: name.as_bytes(),
        });
        let file = Entry::file(in_header, b"x".as_slice());
        let config = Entry::file(CONFIG.0, CONFIG.1);
        let entries: Vec<Entry> = [config]
            .into_iter()
            .chain(long_name)
            .chain([file])
            .collect();
        archive(&listed, &entries)
    };
    for (name, in_header) in [
        (None, in_header),
        (Some(other.as_str()), in_header),
        (Some(path.as_str()), in_header),
        (Some(huge.as_str()), in_header),
        (Some(whole.as_str()), "notes.json"),
    ] {
        refuse(&import(name, in_header), &reason);
    }
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("birds.ebbrun");
    fs::write(&file, import(Some(whole.as_str()), in_header)).unwrap();
    let store = RunStore::open(home.path().join("runs"));
    let imported = store.import_archive(&file).unwrap();
    assert_eq!(files(&imported.folder.path)[&path], b"x");
}

#[test]
fn an_archive_that_differs_from_its_manifest_is_refused() {
    let notes: (&str, &[u8]) = ("notes.json", b"{}");
    let both = manifest(&[CONFIG, notes]);
    let [config, noted] = [CONFIG, notes].map(|(path, content)| Entry::file(path, content));
    let changed = Entry::file("notes.json", b"[]");
    let longer = Entry::file("notes.json", b"{} ");
    refuse(&archive(&both, &[config]), "notes.json is missing");
    let config = || Entry::file(CONFIG.0, CONFIG.1);
    let reason = "notes.json is damaged: its SHA-256 differs from the list of files";
    refuse(&archive(&both, &[config(), changed]), reason);
    let reason = "its entry for notes.json differs from its list of files";
    refuse(&archive(&both, &[config(), longer]), reason);
    let only_config = manifest(&[CONFIG]);
    let reason = "\"notes.json\" is not in its manifest";
    refuse(&archive(&only_config, &[config(), noted]), reason);
    let twice = manifest(&[CONFIG, CONFIG]);
    refuse(&archive(&twice, &[config(), config()]), "is in it twice");
    let mut later = manifest(&[CONFIG]);
    later["format"] = json!(2);
    refuse(&archive(&later, &[config()]), "it has format 2");
}

/// Sizes are compared with the disk, and with each other, before anything is written.
#[test]
fn sizes_are_checked_first() {
    let mut huge = manifest(&[CONFIG]);
    huge["files"][0]["bytes"] = json!(u64::MAX);
    let entries = [Entry::file(CONFIG.0, CONFIG.1)];
    refuse(&archive(&huge, &entries), "is free on the disk of");
    // A manifest of 17 MiB in a small file.
    let spaces = " ".repeat(17 << 20);
    let bomb = archive(&Value::String(spaces), &[]);
    assert!(bomb.len() < 1_000_000, "{}", bomb.len());
    refuse(
        &bomb,
        "its list of files (ebbrun-manifest.json) is too long",
    );
}

#[test]
fn what_is_no_archive_or_only_a_part_of_one_is_refused() {
    let (home, _run, path) = exported();
    let whole = fs::read(&path).unwrap();
    refuse(b"", "run archive");
    refuse(b"events", "it is damaged or not a run archive");
    refuse(&[0; 5000], "it is damaged or not a run archive");
    for part in 1..10 {
        refuse(&whole[..part * whole.len() / 10], "birds.ebbrun");
    }
    // A changed bit of the weights is noticed.
    for place in (whole.len() / 10..whole.len() * 9 / 10).step_by(whole.len() / 40) {
        let mut changed = whole.clone();
        changed[place] ^= 4;
        refuse(&changed, "birds.ebbrun");
    }
    let store = RunStore::open(home.path().join("runs"));
    let error = store.import_archive(home.path()).unwrap_err().to_string();
    assert!(error.contains("it is not a file"), "{error}");
}

/// Lets two minutes pass for what interrupted imports left in a store, and returns what is left
/// once its runs were listed.
fn names_later(store: &RunStore) -> Vec<String> {
    let begun = SystemTime::now() - Duration::from_secs(120);
    for path in disk::list(store.root()).unwrap_or_default() {
        File::open(path).unwrap().set_modified(begun).unwrap();
    }
    store.list().unwrap();
    if store.root().is_dir() {
        names(store.root())
    } else {
        Vec::new()
    }
}

/// Each operation of an import fails in turn. The run is then imported or absent; nothing else is
/// left once the runs were listed or another one was imported.
#[test]
fn a_failing_disk_leaves_no_part_of_a_run() {
    let (_home, run, archive) = exported();
    let mut failures = 0;
    for fault in Fault::ALL {
        for operation in 0.. {
            let root = tempfile::tempdir().unwrap();
            let disk = SimulatedDisk::new(root.path());
            let _installed = disk.install();
            let store = RunStore::open(root.path().join("runs"));
            disk.fail(fault, operation);
            let imported = store.import_archive(&archive);
            let Some(failed) = disk.failed() else {
                break;
            };
            failures += 1;
            disk.heal();
            let listed = store.list().unwrap();
            assert_eq!(listed.len(), usize::from(imported.is_ok()), "{failed}");
            if operation % 2 == 0 {
                assert_eq!(names_later(&store).len(), listed.len(), "{failed}");
            }
            let again = store.import_archive(&archive).unwrap();
            for folder in store.list().unwrap() {
                assert!(files(&folder.path) == files(&run.path), "{failed}");
            }
            assert_eq!(names(store.root()).len(), listed.len() + 1, "{failed}");
            assert!(!again.folder.is_alive());
        }
    }
    assert!(failures > 40, "{failures}");
}

/// Calls `check` with what each power failure leaves, and a text about it. Returns the number of
/// changes after which the power fails.
fn cut_power_after_each_change(disk: &SimulatedDisk, mut check: impl FnMut(&Path, &str)) -> u64 {
    let (mut cuts, mut changes) = (disk.power_cuts(), 0);
    while let Some(change) = cuts.next_change() {
        changes += 1;
        for survivors in [Survivors::All, Survivors::None, Survivors::Seed(changes)] {
            let left = tempfile::tempdir().unwrap();
            cuts.leave(survivors, left.path()).unwrap();
            check(left.path(), &format!("{survivors:?} after {change}"));
        }
    }
    changes
}

/// The power fails after any change: the run is whole or absent, and nothing else stays.
#[test]
fn a_power_failure_leaves_no_part_of_a_run() {
    let (_home, run, archive) = exported();
    let root = tempfile::tempdir().unwrap();
    let disk = SimulatedDisk::new(root.path());
    {
        let _installed = disk.install();
        let store = RunStore::open(root.path().join("runs"));
        store.import_archive(&archive).unwrap();
    }
    let expected = files(&run.path);
    let mut whole = 0;
    let changes = cut_power_after_each_change(&disk, |left, about| {
        let store = RunStore::open(left.join("runs"));
        let listed = store.list().unwrap();
        for folder in &listed {
            assert!(files(&folder.path) == expected, "{about}");
            whole += 1;
        }
        assert_eq!(names_later(&store).len(), listed.len(), "{about}");
    });
    assert!(changes > 20 && whole > 0, "{changes} changes, {whole} runs");
}

/// A young draft may be an import that is about to lock it.
#[test]
fn an_import_that_begins_is_not_removed() {
    let home = tempfile::tempdir().unwrap();
    let store = RunStore::open(home.path());
    let draft = home.path().join(".draft-birds.ebbrun.7");
    fs::create_dir(&draft).unwrap();
    store.list().unwrap();
    store.create("wrens").unwrap();
    assert!(draft.is_dir());
    let claim = RunFolder {
        path: draft.clone(),
    };
    let claim = claim.claim().unwrap();
    assert_eq!(names_later(&store).len(), 2, "an import that runs");
    drop(claim);
    assert_eq!(names_later(&store).len(), 1);
    assert!(!draft.exists());
}

/// Imports an archive into an empty store, and compares the run with `run`.
fn expect_whole(archive: &Path, run: &RunFolder, about: &str) {
    let home = tempfile::tempdir().unwrap();
    let store = RunStore::open(home.path().join("runs"));
    let imported = store.import_archive(archive);
    let imported = imported.unwrap_or_else(|error| panic!("{about}: {error}"));
    assert!(files(&imported.folder.path) == files(&run.path), "{about}");
}

/// Each operation of an export fails in turn. The archive is then whole or absent; after the next
/// export to its path nothing is left beside it.
#[test]
fn a_failing_disk_leaves_no_part_of_an_archive() {
    let (_home, run, _archive) = exported();
    let mut failures = 0;
    for fault in Fault::ALL {
        for operation in 0.. {
            let root = tempfile::tempdir().unwrap();
            let disk = SimulatedDisk::new(root.path());
            let _installed = disk.install();
            let archive = root.path().join("birds.ebbrun");
            disk.fail(fault, operation);
            let exported = run.export_archive(&archive);
            let Some(failed) = disk.failed() else {
                break;
            };
            failures += 1;
            disk.heal();
            let about = format!("{fault:?} at {failed}");
            if !archive.exists() {
                assert!(exported.is_err(), "{about}");
                // What another process left that was killed.
                fs::write(root.path().join(".draft-birds.ebbrun.7"), "half").unwrap();
                run.export_archive(&archive).unwrap();
            }
            assert_eq!(names(root.path()), ["birds.ebbrun"], "{about}");
            expect_whole(&archive, &run, &about);
        }
    }
    assert!(failures > 10, "{failures}");
}

/// The power fails after any change: the archive is whole or absent.
#[test]
fn a_power_failure_leaves_no_part_of_an_archive() {
    let (_home, run, _archive) = exported();
    let root = tempfile::tempdir().unwrap();
    let disk = SimulatedDisk::new(root.path());
    {
        let _installed = disk.install();
        run.export_archive(&root.path().join("birds.ebbrun"))
            .unwrap();
    }
    let mut whole = 0;
    let changes = cut_power_after_each_change(&disk, |left, about| {
        let archive = left.join("birds.ebbrun");
        if archive.exists() {
            expect_whole(&archive, &run, about);
            whole += 1;
        }
    });
    assert!(
        changes > 4 && whole > 0,
        "{changes} changes, {whole} archives"
    );
}
