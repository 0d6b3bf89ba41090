//! What is read where a part of the machine is hidden, and what is said when one becomes unreadable.

use super::*;

const JOB: &str = "sys/fs/cgroup/app.slice/job";
const STALLS: &str = "some avg10=0.00 total=5\n";

/// A version 2 group of 4 GB that uses 1 GB, with these of its files beside the limit.
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
fn a_limit_counts_where_its_group_does_not_say_what_is_cache() {
    let root = group(&[("memory.current", "1073741824\n")]);
    let (sample, read) = sample(&root);
    assert_eq!(
        (sample.total_bytes, sample.available_bytes),
        (4 * GB, 3 * GB)
    );
    assert!(read.starts_with("the control group's limit"), "{read}");
}

#[test]
fn a_limit_without_what_is_used_is_left_out_and_said() {
    let root = group(&[]);
    let mut machine = open(&root);
    let told = machine.take_notice().expect("it is said");
    assert!(
        told.contains("control group's limit") && told.contains("memory.current"),
        "{told}"
    );
    assert_eq!(machine.sample().expect("readable").total_bytes, 16 * GB);
    assert_eq!(machine.take_notice(), None, "once");
}

#[test]
fn a_groups_stalls_stay_behind_with_it_where_the_machines_are_hidden() {
    let root = group(&[
        ("memory.current", "1073741824\n"),
        ("memory.pressure", STALLS),
    ]);
    let mut machine = open(&root);
    let whose =
        |machine: &Machine| -> Vec<_> { machine.stalls.iter().map(|it| it.whose).collect() };
    assert_eq!(whose(&machine), [Whose::Group]);
    write(&root, "proc/self/cgroup", "0::/\n");
    machine.opened -= std::time::Duration::from_secs(1);
    assert_eq!(machine.sample().expect("readable").stall_fraction, None);
    assert_eq!(whose(&machine), []);
}

#[test]
fn whose_stalls_are_lost_is_said() {
    let pressure = format!("{JOB}/memory.pressure");
    for (lost, said) in [
        ("proc/pressure/memory", "The machine's memory stalls"),
        (pressure.as_str(), "The stalls of the control group"),
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
        assert_eq!(sample.stall_fraction, Some(0.0), "the other's are read");
        let told = machine.take_notice().expect("the loss is said");
        assert!(told.starts_with(said), "{told}");
    }
}
