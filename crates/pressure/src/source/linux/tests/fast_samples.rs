//! Fast samples, and when a full one is taken instead.

use super::*;

/// A machine of 16 GB: `free`, `available` in MB.
fn meminfo(free: u64, available: u64) -> String {
    let [free, available] = [free, available].map(|mb| mb << 10);
    format!("MemTotal: 16777216 kB\nMemFree: {free} kB\nMemAvailable: {available} kB\n")
}

#[test]
fn a_fast_sample_follows_free_memory_until_others_move() {
    let root = tree(&[]);
    write(&root, "proc/meminfo", &meminfo(6144, 10240));
    let mut machine = open(&root);
    // Available memory is not read; it follows free memory. Ebb uses 256 MB.
    write(&root, "proc/meminfo", &meminfo(6134, 77));
    let sample = machine.sample_fast().expect("readable");
    assert_eq!(sample.available_bytes, 10230 * MB);
    assert_eq!(sample.total_bytes, 16 * GB);
    // Ebb uses 1 GB more, and as much less is free.
    write(&root, "proc/self/statm", "524288 327680 0 5 0 393216 0\n");
    write(&root, "proc/meminfo", &meminfo(5120, 77));
    let sample = machine.sample_fast().expect("readable");
    assert_eq!(
        (sample.available_bytes, sample.own_bytes),
        (9216 * MB, 1280 * MB)
    );
    // 100 MB less are free than Ebb accounts for: other apps or the cache.
    write(&root, "proc/meminfo", &meminfo(5020, 9200));
    let sample = machine.sample_fast().expect("readable");
    assert_eq!(sample.available_bytes, 9200 * MB);
}

#[test]
fn with_little_free_memory_a_fast_sample_is_recent() {
    let root = tree(&[]);
    write(&root, "proc/meminfo", &meminfo(200, 10240));
    let mut machine = open(&root);
    let mut last = 10240;
    for available in [9000, 8000, 7000, 6000] {
        write(&root, "proc/meminfo", &meminfo(200, available));
        let seen = machine.sample_fast().expect("readable").available_bytes / MB;
        assert!(seen == available || seen == last, "{seen}");
        last = available;
    }
    assert_eq!(
        machine.sample_fast().expect("readable").available_bytes,
        6000 * MB
    );
}

#[test]
fn a_fast_sample_follows_the_use_of_a_group() {
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
    let sample = machine.sample_fast().expect("readable");
    assert_eq!(
        (sample.total_bytes, sample.available_bytes),
        (4 * GB, 3 * GB + 199 * MB)
    );
    group("memory.current", &(1134 * MB).to_string());
    let sample = machine.sample_fast().expect("readable");
    assert_eq!(
        (sample.total_bytes, sample.available_bytes),
        (2 * GB, 914 * MB),
        "another process took 110 MB"
    );
}

#[test]
fn a_fast_sample_has_stalls_and_changes_of_a_limit() {
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
    let samples = [0, 1].map(|_| machine.sample_fast().expect("readable"));
    for sample in samples {
        assert_eq!((sample.total_bytes, sample.available_bytes), (GB, 512 * MB));
    }
    let stalls = samples.map(|sample| sample.stall_fraction);
    assert!(stalls[1] >= Some(0.1), "{stalls:?}");
}

#[test]
fn without_stalls_every_second_fast_sample_reads_them() {
    let total = |us: u64| format!("some avg10=0.00 total={us}\n");
    let root = tree(&[("proc/pressure/memory", &total(5))]);
    write(&root, "proc/meminfo", &meminfo(8192, 10240));
    let mut machine = open(&root);
    let read = |machine: &mut Machine| {
        let sample = machine.sample_fast().expect("readable");
        (!machine.stalls_reused, sample.stall_fraction > Some(0.0))
    };
    let (reused, calm, stalled) = ((false, false), (true, false), (true, true));
    let samples = [0; 4].map(|_| read(&mut machine));
    assert_eq!(samples, [reused, calm, reused, calm]);
    write(&root, "proc/pressure/memory", &total(5_005));
    let samples = [0; 4].map(|_| read(&mut machine));
    assert_eq!(samples, [reused, stalled, stalled, stalled]);
}

#[test]
fn the_footprint_is_read_if_free_memory_moves_or_is_limited() {
    let statm = |mb: u64| format!("524288 {} 0 5 0 131072 0\n", mb << 8);
    let own = |machine: &mut Machine| machine.sample_fast().expect("readable").own_bytes / MB;
    let root = tree(&[("proc/self/statm", &statm(256))]);
    write(&root, "proc/meminfo", &meminfo(6144, 10240));
    let mut machine = open(&root);
    // On 16 GB, changes up to 4 MB since the last reading are ignored.
    for (free, held, seen) in [
        (6140, 260, 256),
        (6139, 261, 261),
        (6136, 264, 261),
        (6134, 266, 266),
        (6143, 257, 257),
    ] {
        write(&root, "proc/self/statm", &statm(held));
        write(&root, "proc/meminfo", &meminfo(free, 77));
        assert_eq!(own(&mut machine), seen, "{free} MB is free");
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
