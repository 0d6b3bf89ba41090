//! Groups of processes under `mpirun`. Without Open MPI's `mpirun` the tests say that they are left
//! out. So do the tests of groups that continue without a process, if there is no Open MPI 5:
//! neither in the path nor in `.cache/mpi/openmpi`, where `scripts/setup test` installs it.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use distributed::{Claim, ClaimRequest, Ended, Group, GroupError, Values, join_launched};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Set for the processes that a test starts: what they shall do.
const ROLE: &str = "EBB_TEST_ROLE";

/// The launcher ends a group that takes longer, in seconds. The test then fails with the output of
/// the ranks, which the time limit of nextest would lose.
const HANGS_AFTER: &str = "90";

/// Whether there is a launcher to test with.
fn has_launcher() -> bool {
    let version = Command::new("mpirun").arg("--version").output();
    let found =
        version.is_ok_and(|version| String::from_utf8_lossy(&version.stdout).contains("Open MPI"));
    if !found {
        println!("left out: there is no mpirun of Open MPI (Debian: apt-get install openmpi-bin)");
    }
    found
}

/// A launcher that lets the other processes continue if one ends.
struct TolerantLauncher {
    program: PathBuf,
    /// Where its library is, if the system does not find it by itself.
    libraries: Option<PathBuf>,
}

/// Open MPI 5, if there is one to test with.
fn tolerant_launcher() -> Option<TolerantLauncher> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/mpi/openmpi");
    let installed = TolerantLauncher {
        program: folder.join("bin/mpirun"),
        libraries: Some(folder.join("lib")),
    };
    let of_system = TolerantLauncher {
        program: "mpirun".into(),
        libraries: None,
    };
    let found = [installed, of_system].into_iter().find(|launcher| {
        let version = Command::new(&launcher.program).arg("--version").output();
        let version = version.map(|version| String::from_utf8_lossy(&version.stdout).into_owned());
        let major = version.ok().and_then(|version| {
            let (_, number) = version.split_once("(Open MPI) ")?;
            number.split('.').next()?.parse::<u32>().ok()
        });
        major.is_some_and(|major| major >= 5)
    });
    if found.is_none() {
        println!("left out: there is no Open MPI 5 (scripts/setup test installs it)");
    }
    found
}

/// Runs this test program as a group of `size` ranks in which each plays `role`, and which can
/// continue without a process.
fn launch_tolerant(launcher: &TolerantLauncher, size: usize, role: &str) -> Output {
    let mut mpirun = Command::new(&launcher.program);
    if let Some(folder) = &launcher.libraries {
        let name = if cfg!(target_os = "macos") {
            "libmpi.40.dylib"
        } else {
            "libmpi.so.40"
        };
        mpirun.env("EBB_MPI", folder.join(name));
        mpirun.env("LD_LIBRARY_PATH", folder);
    }
    mpirun.env("EBB_GROUP_PATIENCE", PATIENCE.as_secs().to_string());
    start(mpirun, size, role, &["--with-ft", "ulfm"])
}

/// Runs this test program as a group of `size` ranks, in which each plays `role`.
fn launch(size: usize, role: &str, options: &[&str]) -> Output {
    start(Command::new("mpirun"), size, role, options)
}

fn start(mut mpirun: Command, size: usize, role: &str, options: &[&str]) -> Output {
    mpirun.args([
        "--oversubscribe",
        "--allow-run-as-root",
        "--bind-to",
        "none",
        "--timeout",
        HANGS_AFTER,
    ]);
    mpirun.args(options).args(["-n", &size.to_string()]);
    mpirun.arg(std::env::current_exe().unwrap());
    mpirun.args(["--exact", "plays_its_role_in_a_group", "--nocapture"]);
    mpirun.env(ROLE, role).output().unwrap()
}

fn text(output: &Output) -> String {
    let streams = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&streams).into_owned()
}

/// What the processes of a group do. Without a role, nothing: it is then one of the tests.
#[test]
fn plays_its_role_in_a_group() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    if role == "foreign library" {
        // SAFETY: no other thread of this process reads the environment at the same time.
        unsafe { std::env::set_var("OMPI_COMM_WORLD_SIZE", "7") };
        let refused = join_launched().err().unwrap().to_string();
        assert!(refused.contains("different MPI installations"), "{refused}");
        println!("it was refused");
        return;
    }
    if role == "die before joining" {
        die_before_joining();
        return;
    }
    let mut group = join_launched().unwrap().unwrap();
    match role.as_str() {
        "continue" => continue_without_processes(&mut *group),
        "stop rank 1" => stop_rank_1(&mut *group),
        "lose rank 0" => lose_rank_0(&mut *group),
        "work" => work(&mut *group),
        "fail" => fail(&mut *group),
        "die" => die(&mut *group),
        other => panic!("{other}"),
    }
}

/// A sum of 4.8 MB and a barrier take less on two cores, in milliseconds.
const FAST_SUM_MS: f64 = 80.0;

fn work(group: &mut dyn Group) {
    let (rank, size) = (group.rank(), group.size());
    let all = group.gather(vec![rank as u8; 1 + 100_000 * rank]).unwrap();
    assert!(
        all.iter()
            .enumerate()
            .all(|(r, bytes)| bytes.len() == 1 + 100_000 * r)
    );
    // Several windows of buckets, the last one short.
    for count in [1, 1000, 20 * (1 << 20) + 17] {
        let value = |i: usize| 1.0 / (1 + i % 1000 + rank) as f32;
        let sum = group
            .sum(Values::Single((0..count).map(value).collect()))
            .unwrap();
        let Values::Single(sum) = sum else {
            panic!("f32 was passed");
        };
        for (i, sum) in sum.iter().enumerate() {
            let expected: f32 = (0..size).map(|r| 1.0 / (1 + i % 1000 + r) as f32).sum();
            assert!(
                (sum - expected).abs() <= 1e-6 * expected,
                "{i}: {sum} {expected}"
            );
        }
        let bytes: Vec<u8> = sum.iter().flat_map(|value| value.to_le_bytes()).collect();
        let same = group.gather(hash(&bytes).to_vec()).unwrap();
        assert!(
            same.iter().all(|hash| *hash == same[0]),
            "the same bits on all ranks"
        );
    }
    let took_ms = fastest_sum_ms(group);
    println!("rank {rank} of {size}: {took_ms:.1} ms for a sum of 4.8 MB and a barrier");
    assert!(
        took_ms < FAST_SUM_MS,
        "the messenger advances a sum without naps"
    );
    sum_rounded(group);
    let doubles = group.sum(Values::Double(vec![0.1; 12])).unwrap();
    let Values::Double(doubles) = doubles else {
        panic!("f64 was passed");
    };
    assert!((doubles[11] - 0.1 * size as f64).abs() < 1e-15);
    let mut processed = 0;
    for step in 0..20 {
        processed += claim_all(group, 50 + step);
        group.barrier().unwrap();
    }
    let total: u32 = group
        .gather(processed.to_le_bytes().to_vec())
        .unwrap()
        .iter()
        .map(|bytes| u32::from_le_bytes(bytes[..].try_into().unwrap()))
        .sum();
    assert_eq!(total, (0..20).map(|step| 50 + step).sum());
    group.leave().unwrap();
    println!("rank {rank} of {size} worked");
}

/// Sums in bf16: every rank gets the same bits, close to the exact sum.
fn sum_rounded(group: &mut dyn Group) {
    let (rank, size) = (group.rank(), group.size());
    // Fewer values than ranks, and messages that the library sends in several parts.
    for count in [1, 1000, 3_000_017] {
        let value = |at: usize, rank: usize| 1.0 / (1 + at % 1000 + rank) as f32;
        let began = Instant::now();
        let values = (0..count).map(|at| value(at, rank)).collect();
        let sum = group.sum_rounded(values).unwrap().sum;
        let took_ms = began.elapsed().as_secs_f64() * 1e3;
        println!("rank {rank} of {size}: {took_ms:.1} ms for a sum of {count} values in bf16");
        for (at, sum) in sum.iter().enumerate() {
            let expected: f32 = (0..size).map(|rank| value(at, rank)).sum();
            let difference = (sum - expected).abs();
            assert!(difference <= expected / 128.0, "{at}: {sum} {expected}");
        }
        let bytes: Vec<u8> = sum.iter().flat_map(|value| value.to_le_bytes()).collect();
        let same = group.gather(hash(&bytes).to_vec()).unwrap();
        assert!(same.iter().all(|hash| *hash == same[0]), "the same bits");
    }
}

/// The shortest time of a sum and a barrier in milliseconds: other processes may hold up any rank.
/// All ranks end after the same number of sums, when the sums of one of them have taken 20 s or
/// one was fast on all ranks.
fn fastest_sum_ms(group: &mut dyn Group) -> f64 {
    let mut fastest = f64::INFINITY;
    let begin = Instant::now();
    loop {
        let began = Instant::now();
        group.sum(Values::Single(vec![1.0; 1_200_000])).unwrap();
        group.barrier().unwrap();
        fastest = fastest.min(began.elapsed().as_secs_f64() * 1e3);
        let is_done = fastest < FAST_SUM_MS;
        let is_late = begin.elapsed().as_secs() >= 20;
        let all = group.gather(vec![is_done.into(), is_late.into()]).unwrap();
        if all.iter().all(|rank| rank[0] == 1) || all.iter().any(|rank| rank[1] == 1) {
            return fastest;
        }
    }
}

fn hash(bytes: &[u8]) -> [u8; 8] {
    let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, fnv).to_le_bytes()
}

fn claim_all(group: &mut dyn Group, samples: u32) -> u32 {
    group.begin_step(samples);
    let (mut processed, mut ended) = (0, None);
    loop {
        let request = ClaimRequest {
            at_most: 4,
            ended: ended.take(),
            stop: false,
        };
        match group.claim(request).unwrap() {
            Claim::Samples { samples, .. } => {
                std::thread::sleep(Duration::from_millis(1));
                processed += samples.end - samples.start;
                ended = Some(Ended::Confirmed);
            }
            Claim::Wait => std::thread::sleep(Duration::from_micros(500)),
            Claim::Complete => return processed,
            Claim::Stop => panic!("no rank asked for it"),
        }
    }
}

fn fail(group: &mut dyn Group) {
    if group.rank() == 1 {
        group.fail("the disk is full");
    }
    let error = group.barrier().unwrap_err().to_string();
    assert!(
        error.contains("rank 1 (") && error.contains("the disk is full"),
        "{error}"
    );
    group.leave().unwrap();
    println!("rank {} reports: {error}", group.rank());
}

/// Rank 1 ends without a word; rank 0 notices while it waits for a sum, and reports it in time.
fn die(group: &mut dyn Group) {
    group.barrier().unwrap();
    if group.rank() == 1 {
        kill_this_process();
    }
    static INTERRUPTED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    extern "C" fn interrupt(_signal: libc::c_int) {
        INTERRUPTED.store(true, std::sync::atomic::Ordering::Relaxed);
    }
    // SAFETY: the handler only stores a flag.
    unsafe { libc::signal(libc::SIGTERM, interrupt as *const () as libc::sighandler_t) };
    group.check_when(Box::new(|| {
        INTERRUPTED.load(std::sync::atomic::Ordering::Relaxed)
    }));
    let began = Instant::now();
    let error = group
        .sum(Values::Single(vec![1.0]))
        .unwrap_err()
        .to_string();
    println!("rank {} reports: {error}", group.rank());
    assert!(began.elapsed() < Duration::from_secs(5));
    let _ = group.leave();
}

fn kill_this_process() {
    // SAFETY: it ends this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// A process counts as lost if it is silent for this long, or has not joined.
const PATIENCE: Duration = Duration::from_secs(5);
/// From a death to the end of the step that is repeated.
const CONTINUES_WITHIN: Duration = Duration::from_secs(3);
/// Steps of a group that loses processes, and the steps in which each rank ends.
const STEPS: u64 = 30;
const DEATHS: [(usize, u64); 2] = [(2, 8), (1, 19)];

/// Ranks end without a word in the middle of a step; the others repeat the step and go on.
fn continue_without_processes(group: &mut dyn Group) {
    let number = group.member(group.rank()).rank;
    let (mut done, mut longest) = (0, Duration::ZERO);
    let mut began = Instant::now();
    while done < STEPS {
        let dies = DEATHS.contains(&(number, done));
        match step(group, dies) {
            Ok(()) => {
                done += 1;
                longest = longest.max(began.elapsed());
                began = Instant::now();
            }
            Err(error) => {
                println!("rank {number} reports: {error}");
                assert!(matches!(error, GroupError::Lost(_)), "{error:?}");
                group.rejoin().unwrap();
                let steps = group.gather(done.to_le_bytes().to_vec()).unwrap();
                let of_rank_0 = u64::from_le_bytes(steps[0][..].try_into().unwrap());
                assert!(of_rank_0.abs_diff(done) <= 1);
                done = of_rank_0;
            }
        }
    }
    assert_eq!(group.size(), 2);
    group.leave().unwrap();
    println!("rank {number} has done all steps; the longest took {longest:?}");
    assert!(longest < CONTINUES_WITHIN, "{longest:?}");
}

/// A step with claims and sums, in whose middle this process may end.
fn step(group: &mut dyn Group, dies: bool) -> Result<(), GroupError> {
    group.begin_step(20);
    let (mut processed, mut ended) = (0, None);
    loop {
        let request = ClaimRequest {
            at_most: 2,
            ended: ended.take(),
            stop: false,
        };
        match group.claim(request)? {
            Claim::Samples { samples, .. } => {
                std::thread::sleep(Duration::from_millis(1));
                processed += samples.end - samples.start;
                ended = Some(Ended::Confirmed);
                if dies && processed > 2 {
                    kill_this_process();
                }
            }
            Claim::Wait => std::thread::sleep(Duration::from_micros(500)),
            Claim::Complete => break,
            Claim::Stop => panic!("no rank asked for it"),
        }
    }
    if dies {
        kill_this_process();
    }
    let mut values = vec![1.0; 3 << 20];
    values[0] = processed as f32;
    let Values::Single(sum) = group.sum(Values::Single(values))? else {
        panic!("f32 was passed");
    };
    let size = group.size() as f32;
    assert_eq!((sum[0], sum[1], sum[sum.len() - 1]), (20.0, size, size));
    Ok(())
}

/// Rank 0 ends without a word. No other rank can continue.
fn lose_rank_0(group: &mut dyn Group) {
    // Rank 0 may be noticed to have ended before its last message is read.
    let together = group.barrier();
    if group.rank() == 0 {
        assert_eq!(together, Ok(()));
        kill_this_process();
    }
    let mut outcome = together;
    let error = loop {
        match outcome {
            Ok(()) => outcome = group.sum(Values::Single(vec![1.0])).map(drop),
            Err(error) => break error,
        }
    };
    println!("rank {} reports: {error}", group.rank());
    assert!(group.rejoin().is_err());
    let _ = group.leave();
}

/// Rank 1 stops without an end. The others cannot leave it out, and end it.
fn stop_rank_1(group: &mut dyn Group) {
    group.barrier().unwrap();
    if group.rank() == 1 {
        // SAFETY: the signal is sent to this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
    }
    let error = loop {
        if let Err(error) = group.barrier() {
            break error;
        }
    };
    println!("rank {} reports: {error}", group.rank());
    let _ = group.leave();
}

/// Rank 1 ends before it has joined. The others do not wait for it without an end.
fn die_before_joining() {
    if std::env::var("OMPI_COMM_WORLD_RANK").unwrap() == "1" {
        kill_this_process();
    }
    let error = join_launched().err().unwrap();
    println!("it was not joined: {error}");
}

#[test]
fn a_group_continues_without_processes_that_were_killed() {
    let Some(launcher) = tolerant_launcher() else {
        return;
    };
    let text = text(&launch_tolerant(&launcher, 4, "continue"));
    println!("{text}");
    for rank in [0, 3] {
        let done = format!("rank {rank} has done all steps");
        assert!(text.contains(&done) && !text.contains("panicked"), "{text}");
        for ended in [1, 2] {
            let reported = format!("rank {rank} reports: rank {ended} (");
            assert!(text.contains(&reported), "{text}");
        }
    }
}

#[test]
fn a_group_that_loses_rank_0_ends_soon() {
    let Some(launcher) = tolerant_launcher() else {
        return;
    };
    let began = Instant::now();
    let text = text(&launch_tolerant(&launcher, 3, "lose rank 0"));
    assert!(began.elapsed() < Duration::from_secs(20), "{text}");
    for rank in [1, 2] {
        let reported = format!("rank {rank} reports: rank 0 (");
        assert!(
            text.contains(&reported) && !text.contains("panicked"),
            "{text}"
        );
    }
}

#[test]
fn a_group_ends_a_process_that_is_silent() {
    let Some(launcher) = tolerant_launcher() else {
        return;
    };
    let began = Instant::now();
    let text = text(&launch_tolerant(&launcher, 3, "stop rank 1"));
    assert!(began.elapsed() < Duration::from_secs(20), "{text}");
    for rank in [0, 2] {
        let reported = format!("rank {rank} reports: rank 1 (");
        assert!(
            text.contains(&reported) && !text.contains("panicked"),
            "{text}"
        );
    }
}

#[test]
fn a_group_does_not_wait_for_a_process_that_never_joins() {
    let Some(launcher) = tolerant_launcher() else {
        return;
    };
    let began = Instant::now();
    let text = text(&launch_tolerant(&launcher, 3, "die before joining"));
    assert!(began.elapsed() < Duration::from_secs(20), "{text}");
    assert!(text.contains("have joined it within 5 s"), "{text}");
}

#[test]
fn processes_sum_claim_and_gather() {
    if !has_launcher() {
        return;
    }
    let over_tcp = ["--mca", "pml", "ob1", "--mca", "btl", "self,tcp"];
    for (size, options) in [(2, &[][..]), (3, &[]), (2, &over_tcp)] {
        let began = Instant::now();
        let output = launch(size, "work", options);
        let text = text(&output);
        assert!(output.status.success(), "{text}");
        for rank in 0..size {
            assert!(
                text.contains(&format!("rank {rank} of {size} worked")),
                "{text}"
            );
        }
        println!(
            "{size} ranks {options:?}: {:.1} s",
            began.elapsed().as_secs_f64()
        );
        let times = text.lines().filter(|line| line.contains(" ms for a sum"));
        times.for_each(|line| println!("{line}"));
    }
}

#[test]
fn an_error_of_one_process_reaches_the_others() {
    if !has_launcher() {
        return;
    }
    let text = text(&launch(3, "fail", &[]));
    for rank in 0..3 {
        assert!(
            text.contains(&format!("rank {rank} reports: rank 1 (")),
            "{text}"
        );
    }
}

#[test]
fn the_death_of_a_process_is_reported_before_the_launcher_ends_the_others() {
    if !has_launcher() {
        return;
    }
    let is_soon = (0..3).any(|_| {
        let began = Instant::now();
        let output = launch(2, "die", &[]);
        let text = text(&output);
        assert!(!output.status.success());
        assert!(text.contains("rank 0 reports: rank 1 ("), "{text}");
        println!("{text}");
        // Rank 0 also checks how long it waited.
        !text.contains("panicked") && began.elapsed() < Duration::from_secs(20)
    });
    assert!(is_soon, "rank 0 waited for long in three groups");
}

#[test]
fn a_library_of_another_launcher_is_refused() {
    if !has_launcher() {
        return;
    }
    let output = launch(1, "foreign library", &[]);
    assert!(
        text(&output).contains("it was refused"),
        "{}",
        text(&output)
    );
}

#[test]
fn without_a_launcher_nothing_is_joined() {
    if std::env::var_os("OMPI_COMM_WORLD_SIZE").is_none() {
        assert!(join_launched().unwrap().is_none());
    }
}
