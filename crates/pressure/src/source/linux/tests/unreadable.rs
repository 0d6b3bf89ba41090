//! Readings that are hidden or become unreadable, and how that is reported.

use super::*;

const JOB: &str = "sys/fs/cgroup/app.slice/job";
const STALLS: &str = "some avg10=0.00 total=5\n";

/// A version 2 group with a limit of 4 GB and these files.
fn group(files: &[(&str, &str)]) -> TempDir {
    let mut all: Vec<(String, &str)> = vec![
        (V2[0].0.into(), V2[0].1),
        (V2[1].0.into(), V2[1].1),
        (format!("{JOB}/memory.max"), "4294967296"),
    ];
    all.extend(
        files
            .iter()
            .map(|(name, text)| (format!("{JOB}/{name}"), *text)),
    );
    let all: Vec<_> = all
        .iter()
        .map(|(name, text)| (name.as_str(), *text))
        .collect();
    tree(&all)
}

#[test]
fn a_limit_counts_if_the_cache_is_unknown() {
    let root = group(&[("memory.current", "1073741824\n")]);
    let (sample, read) = sample(&root);
    assert_eq!(
        (sample.total_bytes, sample.available_bytes),
        (4 * GB, 3 * GB)
    );
    assert!(read.starts_with("the limit of the cgroup"), "{read}");
}

#[test]
fn a_limit_without_a_use_is_left_out_and_reported() {
    let root = group(&[]);
    let mut machine = open(&root);
    let notice = machine.take_notice().expect("it is reported");
    assert!(
        notice.contains("the limit of its cgroup") && notice.contains("memory.current"),
        "{notice}"
    );
    assert_eq!(machine.sample().expect("readable").total_bytes, 16 * GB);
    assert_eq!(machine.take_notice(), None, "once");
}

#[test]
fn stalls_of_a_group_end_when_the_process_leaves_it() {
    let root = group(&[
        ("memory.current", "1073741824\n"),
        ("memory.pressure", STALLS),
    ]);
    let mut machine = open(&root);
    let owners =
        |machine: &Machine| -> Vec<_> { machine.stalls.iter().map(|it| it.owner).collect() };
    assert_eq!(owners(&machine), [StallOwner::Cgroup]);
    write(&root, "proc/self/cgroup", "0::/\n");
    machine.opened -= std::time::Duration::from_secs(1);
    assert_eq!(machine.sample().expect("readable").stall_fraction, None);
    assert_eq!(owners(&machine), []);
}

#[test]
fn a_lost_stall_reading_names_its_owner() {
    let pressure = format!("{JOB}/memory.pressure");
    for (lost, expected) in [
        ("proc/pressure/memory", "the whole machine waits"),
        (pressure.as_str(), "its cgroup waits"),
    ] {
        let root = group(&[
            ("memory.current", "1073741824\n"),
            ("memory.pressure", STALLS),
        ]);
        fs::create_dir_all(root.path().join("proc/pressure")).expect("a folder can be made");
        write(&root, "proc/pressure/memory", STALLS);
        let mut machine = open(&root);
        write(&root, lost, "a sandbox\n");
        let sample = machine.sample().expect("readable");
        assert_eq!(
            sample.stall_fraction,
            Some(0.0),
            "the other reading remains"
        );
        let notice = machine.take_notice().expect("the loss is reported");
        assert!(notice.contains(expected), "{notice}");
    }
}
