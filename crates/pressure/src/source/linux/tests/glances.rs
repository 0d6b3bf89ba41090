//! What a glance sees, and when it is no longer enough.

use super::*;

/// A machine of 16 GB: `free`, `available` in MB.
fn meminfo(free: u64, available: u64) -> String {
    let [free, available] = [free, available].map(|mb| mb << 10);
    format!("MemTotal: 16777216 kB\nMemFree: {free} kB\nMemAvailable: {available} kB\n")
}

#[test]
fn a_glance_goes_by_what_is_free_until_others_move() {
    let root = tree(&[]);
    write(&root, "proc/meminfo", &meminfo(6144, 10240));
    let mut machine = open(&root);
    // What is available is not looked at: it follows what is free. 256 MB are held.
    write(&root, "proc/meminfo", &meminfo(6134, 77));
    let glance = machine.glance().expect("readable");
    assert_eq!(glance.available_bytes, 10230 * MB);
    assert_eq!(glance.total_bytes, 16 * GB);
    // 1 GB more is held, and is no longer free: that was Ebb.
    write(&root, "proc/self/statm", "524288 327680 0 5 0 393216 0\n");
    write(&root, "proc/meminfo", &meminfo(5120, 77));
    let glance = machine.glance().expect("readable");
    assert_eq!(
        (glance.available_bytes, glance.own_bytes),
        (9216 * MB, 1280 * MB)
    );
    // 100 MB less are free than Ebb accounts for: others, or the cache.
    write(&root, "proc/meminfo", &meminfo(5020, 9200));
    let glance = machine.glance().expect("readable");
    assert_eq!(glance.available_bytes, 9200 * MB);
}

#[test]
fn where_little_is_free_a_glance_is_a_beat_old_at_most() {
    let root = tree(&[]);
    write(&root, "proc/meminfo", &meminfo(200, 10240));
    let mut machine = open(&root);
    let mut last = 10240;
    for available in [9000, 8000, 7000, 6000] {
        write(&root, "proc/meminfo", &meminfo(200, available));
        let seen = machine.glance().expect("readable").available_bytes / MB;
        assert!(seen == available || seen == last, "{seen}");
        last = available;
    }
    assert_eq!(
        machine.glance().expect("readable").available_bytes,
        6000 * MB
    );
}

#[test]
fn a_glance_at_a_group_goes_by_what_it_uses_and_finds_no_new_limit() {
    let mut files = V2.to_vec();
    files.push(("sys/fs/cgroup/app.slice/job/memory.max", "4294967296"));
    let root = tree(&files);
    write(&root, "proc/meminfo", &meminfo(8192, 10240));
    let mut machine = open(&root);
    let group =
        |file: &str, text: &str| write(&root, &format!("sys/fs/cgroup/app.slice/job/{file}"), text);
    group("memory.stat", "active_file 0\n");
    group("memory.max", "2147483648");
    group("memory.current", &(1025 * MB).to_string());
    let glance = machine.glance().expect("readable");
    assert_eq!(
        (glance.total_bytes, glance.available_bytes),
        (4 * GB, 3 * GB + 199 * MB)
    );
    group("memory.current", &(1134 * MB).to_string());
    let glance = machine.glance().expect("readable");
    assert_eq!(
        (glance.total_bytes, glance.available_bytes),
        (2 * GB, 914 * MB),
        "somebody took 110 MB"
    );
}

#[test]
fn a_glance_sees_stalls_and_moves_of_a_limit_that_is_set() {
    let limits = |data: u64| format!("Max data size  {data} unlimited bytes\n");
    let root = tree(&[
        ("proc/pressure/memory", "some avg10=0.00 total=5\n"),
        ("proc/self/limits", &limits(2 * GB)),
    ]);
    write(&root, "proc/meminfo", &meminfo(8192, 10240));
    let mut machine = open(&root);
    write(
        &root,
        "proc/pressure/memory",
        "some avg10=0.00 total=20005\n",
    );
    write(&root, "proc/self/limits", &limits(GB));
    let glance = machine.glance().expect("readable");
    assert!(glance.stall_fraction >= Some(0.1), "{glance:?}");
    assert_eq!((glance.total_bytes, glance.available_bytes), (GB, 512 * MB));
}
