//! Communicators of a library that stands in for NCCL: its processes are threads, and the memory of
//! the device is that of the host.

use super::{Buffer, Communicator, Element, Operation};
use crate::device::nccl::library::Library;
use crate::kernels::emulator::scratch;
use std::process::Command;
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

const SOURCE: &str = include_str!("stand_in.cpp");

/// The path of the library, compiled with these options.
fn compiled(name: &str, options: &[&str]) -> String {
    let own = format!("{name}-{}", std::process::id());
    let names = [
        format!("{own}.cpp"),
        format!("{own}.so"),
        format!("{name}.so"),
    ];
    let [from, to, made] = names.map(|name| scratch(&name));
    std::fs::write(&from, SOURCE).expect("the target folder can be written to");
    let outcome = Command::new("c++")
        .args(["-std=c++17", "-O1", "-shared", "-fPIC"])
        .args(options)
        .arg("-o")
        .args([&to, &from])
        .output()
        .expect("the system has a C++ compiler");
    let output = String::from_utf8_lossy(&outcome.stderr);
    assert!(outcome.status.success(), "{output}");
    std::fs::rename(&to, &made).expect("the target folder can be written to");
    made.display().to_string()
}

fn stand_in() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| Library::open(&compiled("ebb-nccl", &[])).expect("it is complete"))
}

/// Waits until the communicator is ready, or the reason why it never is.
fn until_ready(communicator: &Communicator) -> Result<(), String> {
    let began = Instant::now();
    while !communicator.is_ready()? {
        assert!(began.elapsed() < Duration::from_secs(30), "it hangs");
        std::thread::sleep(Duration::from_micros(100));
    }
    Ok(())
}

/// Calls `work` with the communicator of each of `size` ranks, and returns what it returns.
fn each_rank<R: Send>(size: usize, work: impl Fn(usize, Communicator) -> R + Sync) -> Vec<R> {
    let id = stand_in().new_id().expect("it makes one");
    std::thread::scope(|scope| {
        let start = |rank: usize| {
            let (id, work) = (&id, &work);
            scope.spawn(move || {
                let communicator = Communicator::begin(stand_in(), id, rank, size);
                work(rank, communicator.expect("its arguments are valid"))
            })
        };
        let threads: Vec<_> = (0..size).map(start).collect();
        let results = threads.into_iter().map(|thread| thread.join());
        results.collect::<std::thread::Result<_>>()
    })
    .expect("no rank panics")
}

fn singles(values: &mut [f32]) -> Buffer {
    Buffer {
        address: values.as_mut_ptr() as u64,
        count: values.len(),
        element: Element::Single,
    }
}

fn doubles(values: &mut [f64]) -> Buffer {
    Buffer {
        address: values.as_mut_ptr() as u64,
        count: values.len(),
        element: Element::Double,
    }
}

fn run(communicator: &Communicator, operations: &[Operation]) -> Result<(), String> {
    communicator.start(operations, std::ptr::null_mut())?;
    until_ready(communicator)
}

#[test]
fn all_ranks_get_the_sums_and_the_values_of_the_owners() {
    let end = Barrier::new(3);
    let ranks = each_rank(3, |rank, communicator| {
        until_ready(&communicator).expect("all ranks join");
        let mut first = vec![1.0 + rank as f32, -0.0, 0.5];
        let mut second = vec![0.1 * (1.0 + rank as f64); 2];
        let sums = [
            Operation::Sum(singles(&mut first)),
            Operation::Sum(doubles(&mut second)),
        ];
        run(&communicator, &sums).expect("no rank is lost");
        let (mut of_2, mut of_0) = (vec![rank as f32; 2], vec![10.0 + rank as f64; 3]);
        let spreads = [
            Operation::Spread(singles(&mut of_2), 2),
            Operation::Spread(doubles(&mut of_0), 0),
        ];
        run(&communicator, &spreads).expect("no rank is lost");
        // A rank that drops its communicator breaks those of the others.
        end.wait();
        (first, second, of_2, of_0)
    });
    for (first, second, of_2, of_0) in ranks {
        assert_eq!(first, [6.0, 0.0, 1.5]);
        assert!(first[1].is_sign_negative(), "a negative zero stays one");
        assert_eq!(second, [0.1 + 0.2 + 0.1 * 3.0; 2]);
        assert_eq!((of_2, of_0), (vec![2.0; 2], vec![10.0; 3]));
    }
}

#[test]
fn the_others_do_not_wait_for_a_rank_that_aborts() {
    let begin = Barrier::new(3);
    let ranks = each_rank(3, |rank, communicator| {
        until_ready(&communicator).expect("all ranks join");
        begin.wait();
        if rank == 1 {
            // It ends before it takes part.
            drop(communicator);
            return Err("dropped".to_owned());
        }
        let mut values = vec![1.0; 4];
        run(&communicator, &[Operation::Sum(singles(&mut values))])
    });
    for rank in [0, 2] {
        let reason = ranks[rank].clone().expect_err("rank 1 is lost");
        assert_eq!(reason, "NCCL failed: remote process exited");
    }
}

#[test]
fn a_connection_does_not_wait_for_a_rank_that_never_comes() {
    let id = stand_in().new_id().expect("it makes one");
    let communicator = Communicator::begin(stand_in(), &id, 0, 2).expect("it begins");
    for _ in 0..100 {
        assert_eq!(communicator.is_ready(), Ok(false));
    }
    let refused = Communicator::begin(stand_in(), &id, 5, 2).err();
    assert_eq!(refused.as_deref(), Some("NCCL failed: invalid use"));
    assert!(Communicator::begin(stand_in(), &[1, 2], 0, 2).is_err());
}

#[test]
fn another_version_is_a_sentence() {
    for (version, text) in [("21003", "2.10.3"), ("30000", "3.0.0")] {
        let name = format!("ebb-nccl-{version}");
        let path = compiled(&name, &[&format!("-DSTAND_IN_VERSION={version}")]);
        let reason = Library::open(&path).err().expect("the version is refused");
        let expected =
            format!("{path} has version {text}, but Ebb needs NCCL 2, from version 2.14 on");
        assert_eq!(reason, expected);
    }
    assert_eq!(stand_in().name(), "NCCL 2.28.3");
}
