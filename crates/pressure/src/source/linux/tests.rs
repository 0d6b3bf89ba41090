//! Kernel files of different machines, written into a temporary folder.

use super::*;
use std::fs;
use tempfile::TempDir;

#[path = "tests/fast_samples.rs"]
mod fast_samples;
#[path = "tests/unreadable.rs"]
mod unreadable;

const MB: u64 = 1 << 20;
const GB: u64 = 1 << 30;

/// A machine of 16 GB with 10 GB available; `files` are added.
fn tree(files: &[(&str, &str)]) -> TempDir {
    let root = TempDir::new().expect("a scratch folder");
    let meminfo = "MemTotal: 16777216 kB\nMemFree: 100 kB\nMemAvailable: 10485760 kB\nSUnreclaim: 1024 kB\n\
                   SwapTotal: 2048 kB\nSwapFree: 1024 kB\n";
    let common = [
        ("proc/meminfo", meminfo),
        ("proc/self/statm", "262144 65536 0 5 0 131072 0\n"), // 1 GB mapped, 256 MB touched, 512 MB data
        (
            "proc/self/limits",
            "Max data size   unlimited  unlimited  bytes\nMax address space  unlimited unlimited bytes\n",
        ),
    ];
    for (path, text) in common.iter().chain(files) {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().expect("a file lies in a folder"))
            .expect("a folder can be made");
        fs::write(path, text).expect("a file can be written");
    }
    root
}

/// A machine whose data is 256 MB touched and 256 MB of stacks.
fn open(root: &TempDir) -> Machine {
    let machine = Machine::open_at(root.path()).expect("a readable machine");
    machine.with_device(DeviceReadings {
        idle_bytes: Box::new(|| 256 * MB),
        ..DeviceReadings::default()
    })
}

fn write(root: &TempDir, file: &str, text: &str) {
    fs::write(root.path().join(file), text).expect("writable");
}

fn sample(root: &TempDir) -> (MemorySample, String) {
    let mut machine = open(root);
    (
        machine.sample().expect("a readable machine"),
        machine.describe(),
    )
}

const V2: [(&str, &str); 4] = [
    ("proc/self/cgroup", "0::/app.slice/job\n"),
    (
        "proc/self/mountinfo",
        "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n",
    ),
    ("sys/fs/cgroup/app.slice/job/memory.current", "1073741824\n"),
    (
        "sys/fs/cgroup/app.slice/job/memory.stat",
        "anon 5\nactive_file 104857600\ninactive_file 104857600\n",
    ),
];

#[test]
fn a_free_machine_is_read_from_meminfo() {
    let (sample, read) = sample(&tree(&[]));
    assert_eq!(sample.total_bytes, 16 * GB);
    assert_eq!(sample.available_bytes, 10 * GB);
    assert_eq!(sample.own_bytes, 256 * MB);
    assert_eq!(sample.system_bytes, MB);
    assert_eq!(sample.swap_used_bytes, MB);
    assert_eq!(sample.stall_fraction, None);
    assert_eq!(
        read,
        "MemAvailable, no PSI (this kernel does not report how long apps wait for memory)"
    );
}

#[test]
fn of_the_limits_of_machine_and_cgroup_the_tighter_one_is_used() {
    for (max, high, total, available) in [
        ("max", "max", 16 * GB, 10 * GB),
        ("4294967296", "max", 4 * GB, 3 * GB + 200 * MB), // file cache of the group is headroom
        ("4294967296", "3221225472", 3 * GB, 2 * GB + 200 * MB),
        ("15032385536", "max", 14 * GB, 10 * GB), // the machine is tighter
    ] {
        let mut files = V2.to_vec();
        files.push(("sys/fs/cgroup/app.slice/job/memory.max", max));
        files.push(("sys/fs/cgroup/app.slice/job/memory.high", high));
        let (sample, _) = sample(&tree(&files));
        assert_eq!(
            (sample.total_bytes, sample.available_bytes),
            (total, available),
            "max {max}, high {high}"
        );
    }
}

#[test]
fn a_limit_on_a_parent_cgroup_is_used() {
    let mut files = V2.to_vec();
    files.push(("sys/fs/cgroup/app.slice/job/memory.max", "max"));
    files.push(("sys/fs/cgroup/app.slice/memory.max", "2147483648"));
    files.push(("sys/fs/cgroup/app.slice/memory.current", "1610612736"));
    files.push(("sys/fs/cgroup/app.slice/memory.stat", "anon 5\n"));
    files.push((
        "sys/fs/cgroup/app.slice/job/memory.pressure",
        "some avg10=0.00 total=5\n",
    ));
    let (sample, read) = sample(&tree(&files));
    assert_eq!(
        (sample.total_bytes, sample.available_bytes),
        (2 * GB, 512 * MB)
    );
    assert_eq!(
        read,
        "the limit of the cgroup (version 2) and MemAvailable, PSI (how long apps wait for memory)"
    );
}

#[test]
fn cgroup_version_1_is_read_if_version_2_has_no_memory() {
    let root = tree(&[
        ("proc/self/cgroup", "4:memory:/docker/abc\n0::/\n"),
        (
            "proc/self/mountinfo",
            "31 23 0:27 / /cg/unified rw - cgroup2 cgroup2 rw\n32 23 0:28 /docker/abc /cg/memory rw - cgroup cgroup rw,memory\n",
        ),
        ("cg/unified/cgroup.procs", ""),
        ("cg/memory/memory.limit_in_bytes", "1073741824"),
        ("cg/memory/memory.usage_in_bytes", "536870912"),
        (
            "cg/memory/memory.stat",
            "total_inactive_file 1048576\ntotal_active_file 0\n",
        ),
    ]);
    let (sample, read) = sample(&root);
    assert_eq!((sample.total_bytes, sample.available_bytes), (GB, 513 * MB));
    assert!(
        read.starts_with("the limit of the cgroup (version 1)"),
        "{read}"
    );
}

#[test]
fn cgroup_version_1_without_a_limit_is_ignored() {
    let root = tree(&[
        ("proc/self/cgroup", "4:memory:/\n"),
        (
            "proc/self/mountinfo",
            "32 23 0:28 / /cg/memory rw - cgroup cgroup rw,memory\n",
        ),
        ("cg/memory/memory.limit_in_bytes", "9223372036854771712"),
        ("cg/memory/memory.usage_in_bytes", "536870912"),
        ("cg/memory/memory.stat", ""),
    ]);
    assert_eq!(sample(&root).0.total_bytes, 16 * GB);
}

#[test]
fn a_limit_on_the_process_narrows_the_sample() {
    let root = tree(&[(
        "proc/self/limits",
        "Max address space         4294967296  unlimited  bytes\n",
    )]);
    let (sample, read) = sample(&root);
    assert_eq!(
        (sample.total_bytes, sample.available_bytes),
        (4 * GB, 3 * GB)
    );
    assert!(read.contains("the limit set on this process"), "{read}");
}

#[test]
fn the_tightest_limit_on_the_process_is_used() {
    let data = "Max data size  1073741824 unlimited bytes\n";
    for (address, headroom) in [("1610612736", 512 * MB), ("1140850688", 64 * MB)] {
        let limits = format!("{data}Max address space  {address} unlimited bytes\n");
        let root = tree(&[("proc/self/limits", &limits)]);
        let mut machine = open(&root);
        assert_eq!(machine.own_headroom_bytes(), Some(headroom));
        let sample = machine.sample().expect("readable");
        assert_eq!((sample.total_bytes, sample.available_bytes), (GB, headroom));
    }
    assert_eq!(open(&tree(&[])).own_headroom_bytes(), None);
}

#[test]
fn untouched_mappings_are_headroom_if_a_limit_was_lowered() {
    let limits = "Max data size  1073741824 unlimited bytes\n";
    let statm = ("proc/self/statm", "524288 32768 0 5 0 262144 0\n"); // 1 GB data, 128 MB touched, 256 MB stacks
    let lasting = tree(&[("proc/self/limits", limits), statm]);
    assert_eq!(sample(&lasting).0.available_bytes, 0);
    let root = tree(&[statm]);
    let mut machine = open(&root);
    write(&root, "proc/self/limits", limits);
    assert_eq!(
        machine.sample().expect("readable").available_bytes,
        640 * MB
    );
}

#[test]
fn a_limit_that_changes_while_ebb_runs_is_followed() {
    let root = tree(&[]);
    let mut machine = open(&root);
    assert_eq!(machine.sample().expect("readable").total_bytes, 16 * GB);
    let limited = "Max data size  1073741824 unlimited bytes\n";
    write(&root, "proc/self/limits", limited);
    let sample = machine.sample().expect("readable");
    assert_eq!((sample.total_bytes, sample.available_bytes), (GB, 512 * MB));
    assert_eq!(
        machine.own_headroom_bytes(),
        None,
        "a limit that was lowered may be raised again"
    );
    write(
        &root,
        "proc/self/limits",
        "Max data size  unlimited unlimited bytes\n",
    );
    assert_eq!(machine.sample().expect("readable").total_bytes, 16 * GB);
}

#[test]
fn a_new_group_counts_within_a_second() {
    let mut files = V2.to_vec();
    files[0].1 = "0::/\n";
    files.push(("sys/fs/cgroup/app.slice/job/memory.max", "4294967296"));
    files.push((
        "sys/fs/cgroup/app.slice/job/memory.pressure",
        "some avg10=0.00 total=5\n",
    ));
    let root = tree(&files);
    let mut machine = open(&root);
    assert_eq!(machine.sample().expect("readable").total_bytes, 16 * GB);
    assert!(
        machine.describe().starts_with("MemAvailable, no PSI"),
        "{}",
        machine.describe()
    );
    write(&root, "proc/self/cgroup", "0::/app.slice/job\n");
    machine.opened -= std::time::Duration::from_secs(1);
    let sample = machine.sample().expect("readable");
    assert_eq!(sample.total_bytes, 4 * GB);
    assert_eq!(
        sample.stall_fraction,
        Some(0.0),
        "the group counts its stalls"
    );
    assert!(
        machine.describe().starts_with("the limit of the cgroup"),
        "{}",
        machine.describe()
    );
}

#[test]
fn a_lost_reading_is_left_out_and_reported_once() {
    let mut files = V2.to_vec();
    files.push(("sys/fs/cgroup/app.slice/job/memory.max", "4294967296"));
    files.push(("proc/pressure/memory", "some avg10=0.00 total=5\n"));
    let root = tree(&files);
    let mut machine = open(&root);
    assert_eq!(machine.sample().expect("readable").total_bytes, 4 * GB);
    assert_eq!(machine.take_notice(), None);
    for (file, part) in [
        (
            "sys/fs/cgroup/app.slice/job/memory.current",
            "no longer read the limit of its cgroup",
        ),
        (
            "proc/pressure/memory",
            "no longer read how long apps wait for memory",
        ),
    ] {
        write(&root, file, "a sandbox\n");
        let readings: Vec<_> = (0..3)
            .map(|_| machine.sample().expect("readable"))
            .collect();
        let notice = machine.take_notice().expect("the loss is reported");
        assert!(notice.contains(part), "{notice}");
        assert_eq!(readings[2].total_bytes, 16 * GB);
        machine.sample().expect("readable");
        assert_eq!(machine.take_notice(), None, "once");
    }
    assert_eq!(
        machine.describe(),
        "MemAvailable, no PSI (this kernel does not report how long apps wait for memory)"
    );
}

#[test]
fn of_the_stalls_of_machine_and_cgroup_the_longer_one_is_used() {
    let mut files = V2.to_vec();
    files.push(("proc/pressure/memory", "some avg10=0.00 total=1000000\n"));
    files.push((
        "sys/fs/cgroup/app.slice/job/memory.pressure",
        "some avg10=0.00 total=5\n",
    ));
    let root = tree(&files);
    for (file, total) in [
        ("proc/pressure/memory", 1_020_000),
        ("sys/fs/cgroup/app.slice/job/memory.pressure", 20_005),
    ] {
        let mut machine = open(&root);
        assert_eq!(
            machine.sample().expect("readable").stall_fraction,
            Some(0.0)
        );
        write(&root, file, &format!("some avg10=0.00 total={total}\n"));
        let stall = machine.sample().expect("readable").stall_fraction;
        assert!(stall >= Some(0.1), "{file}: {stall:?}");
    }
}

#[test]
fn a_stall_is_the_change_of_the_total() {
    let root = tree(&[(
        "proc/pressure/memory",
        "some avg10=99.00 total=1000000\nfull avg10=0 total=0\n",
    )]);
    let mut machine = Machine::open_at(root.path()).expect("a readable machine");
    assert_eq!(
        machine.sample().expect("readable").stall_fraction,
        Some(0.0)
    );
    fs::write(
        root.path().join("proc/pressure/memory"),
        "some avg10=0.00 total=1020000\n",
    )
    .expect("writable");
    let stall = machine
        .sample()
        .expect("readable")
        .stall_fraction
        .expect("stalls are counted");
    assert!(
        (0.1..=0.2).contains(&stall),
        "20 ms within a tenth of a second, got {stall}"
    );
}

#[test]
fn without_mem_available_the_machine_is_unreadable() {
    let root = tree(&[("proc/meminfo", "MemTotal: 16777216 kB\n")]);
    let message = Machine::open_at(root.path())
        .map(|_| ())
        .expect_err("MemAvailable is missing")
        .to_string();
    assert!(
        message.contains("meminfo, but found no MemAvailable"),
        "{message}"
    );
}
