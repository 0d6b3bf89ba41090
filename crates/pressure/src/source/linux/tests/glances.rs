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
    let glances = [0, 1].map(|_| machine.glance().expect("readable"));
    for glance in glances {
        assert_eq!((glance.total_bytes, glance.available_bytes), (GB, 512 * MB));
    }
    let stalls = glances.map(|glance| glance.stall_fraction);
    assert!(stalls[1] >= Some(0.1), "{stalls:?}");
}

#[test]
fn stalls_are_looked_at_in_every_second_beat_while_there_are_none_and_then_in_each() {
    let total = |us: u64| format!("some avg10=0.00 total={us}\n");
    let root = tree(&[("proc/pressure/memory", &total(5))]);
    write(&root, "proc/meminfo", &meminfo(8192, 10240));
    let mut machine = open(&root);
    let read = |machine: &mut Machine| {
        let glance = machine.glance().expect("readable");
        (!machine.stalled.1, glance.stall_fraction > Some(0.0))
    };
    let (by_the_last, calm, stalled) = ((false, false), (true, false), (true, true));
    let beats = [0; 4].map(|_| read(&mut machine));
    assert_eq!(beats, [by_the_last, calm, by_the_last, calm]);
    write(&root, "proc/pressure/memory", &total(5_005));
    let beats = [0; 4].map(|_| read(&mut machine));
    assert_eq!(beats, [by_the_last, stalled, stalled, stalled]);
}

#[test]
fn what_this_process_holds_is_read_where_free_memory_moves_or_its_mappings_are_limited() {
    let statm = |mb: u64| format!("524288 {} 0 5 0 131072 0\n", mb << 8);
    let own = |machine: &mut Machine| machine.glance().expect("readable").own_bytes / MB;
    let root = tree(&[("proc/self/statm", &statm(256))]);
    write(&root, "proc/meminfo", &meminfo(6144, 10240));
    let mut machine = open(&root);
    // 16 GB stand still within 4 MB, from where that was last looked at.
    for (free, held, seen) in [
        (6140, 260, 256),
        (6139, 261, 261),
        (6136, 264, 261),
        (6134, 266, 266),
        (6143, 257, 257),
    ] {
        write(&root, "proc/self/statm", &statm(held));
        write(&root, "proc/meminfo", &meminfo(free, 77));
        assert_eq!(own(&mut machine), seen, "{free} MB are free");
    }
    let limits = "Max data size  2147483648 unlimited bytes\n";
    let root = tree(&[
        ("proc/self/statm", &statm(256)),
        ("proc/self/limits", limits),
    ]);
    write(&root, "proc/meminfo", &meminfo(6144, 10240));
    let mut machine = open(&root);
    write(&root, "proc/self/statm", &statm(257));
    assert_eq!(own(&mut machine), 257);
}
