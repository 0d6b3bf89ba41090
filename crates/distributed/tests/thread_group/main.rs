//! Groups of threads: the messages, the sums and the end of a group, with seeded delays and deaths.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

mod deaths;
mod waiting_uses_no_cpu;

use distributed::{
    Claim, ClaimRequest, Ended, Group, GroupError, ThreadOptions, Values, thread_ranks,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Runs `rank` on every rank of a group, and returns what each returned.
fn in_group<T: Send>(
    size: usize,
    options: ThreadOptions,
    rank: impl Fn(&mut dyn Group) -> T + Sync,
) -> Vec<T> {
    std::thread::scope(|scope| {
        let ranks = thread_ranks(size, options).into_iter();
        let run = |thread: distributed::ThreadRank| {
            let rank = &rank;
            scope.spawn(move || rank(&mut *thread.join().unwrap()))
        };
        let threads: Vec<_> = ranks.map(run).collect();
        let results = threads.into_iter().map(|thread| thread.join().unwrap());
        results.collect()
    })
}

fn delayed(seed: u64) -> ThreadOptions {
    ThreadOptions {
        seed,
        max_delay: Duration::from_millis(3),
        ..ThreadOptions::default()
    }
}

fn request(at_most: u32, ended: Option<Ended>) -> ClaimRequest {
    ClaimRequest {
        at_most,
        ended,
        stop: false,
    }
}

/// Works one step and returns the samples that this rank confirmed.
fn work(group: &mut dyn Group, samples: u32, at_most: u32) -> BTreeSet<u32> {
    group.begin_step(samples);
    let (mut confirmed, mut ended) = (BTreeSet::new(), None);
    loop {
        match group.claim(request(at_most, ended.take())).unwrap() {
            Claim::Samples { samples, .. } => {
                let is_given_back = samples.start % 7 == 3 && at_most > 1;
                ended = Some(if is_given_back {
                    Ended::GivenBack
                } else {
                    confirmed.extend(samples);
                    Ended::Confirmed
                });
                if is_given_back {
                    // Another claim of one sample succeeds.
                    return work_rest(group, confirmed, ended);
                }
            }
            Claim::Wait => std::thread::sleep(Duration::from_micros(200)),
            Claim::Complete => return confirmed,
            Claim::Stop => panic!("no rank asked for it"),
        }
    }
}

fn work_rest(
    group: &mut dyn Group,
    mut confirmed: BTreeSet<u32>,
    mut ended: Option<Ended>,
) -> BTreeSet<u32> {
    loop {
        match group.claim(request(1, ended.take())).unwrap() {
            Claim::Samples { samples, .. } => {
                confirmed.extend(samples);
                ended = Some(Ended::Confirmed);
            }
            Claim::Wait => std::thread::sleep(Duration::from_micros(200)),
            Claim::Complete => return confirmed,
            Claim::Stop => panic!("no rank asked for it"),
        }
    }
}

#[test]
fn every_sample_is_confirmed_by_one_rank() {
    for (seed, size) in [(1, 1), (2, 2), (3, 3), (4, 5)] {
        let steps = 6;
        let by_rank = in_group(size, delayed(seed), |group| {
            let mut step = |step: u32| {
                let at_most = 1 + (group.rank() as u32 + step) % 5;
                let confirmed = work(group, 20 + step, at_most);
                group.barrier().unwrap();
                let ledger = group.ledger();
                let in_ledger: u32 = ledger.iter().map(|s| s.samples.end - s.samples.start).sum();
                let expected = if group.rank() == 0 { 20 + step } else { 0 };
                assert_eq!(in_ledger, expected);
                confirmed
            };
            let confirmed: Vec<_> = (0..steps).map(&mut step).collect();
            group.leave().unwrap();
            confirmed
        });
        for step in 0..steps {
            let all: Vec<u32> = by_rank
                .iter()
                .flat_map(|steps| steps[step as usize].iter().copied())
                .collect();
            assert_eq!(all.len() as u32, 20 + step, "seed {seed}: none twice");
            let different: BTreeSet<u32> = all.into_iter().collect();
            assert_eq!(different, (0..20 + step).collect(), "seed {seed}");
        }
    }
}

#[test]
fn sums_and_gathers_are_the_same_on_all_ranks() {
    for size in [1, 2, 3, 4] {
        let results = in_group(size, delayed(size as u64), |group| {
            let rank = group.rank();
            let member = group.member(size - 1);
            assert_eq!(member.rank, size - 1);
            assert!(!member.host.is_empty());
            let mut results = Vec::new();
            for round in 0..10 {
                let value = |i: usize| 1.0 / (1 + i + rank * 1000 + round) as f64;
                let values = Values::Double((0..1000).map(value).collect());
                results.push(group.sum(values).unwrap());
                let single = Values::Single(vec![rank as f32 + 0.1; 3]);
                results.push(group.sum(single).unwrap());
                let all = group.gather(vec![rank as u8; rank + round]).unwrap();
                let expected: Vec<Vec<u8>> = (0..size).map(|r| vec![r as u8; r + round]).collect();
                assert_eq!(all, expected);
                let sent = group.broadcast(vec![rank as u8; 2]).unwrap();
                assert_eq!(sent, [0, 0]);
            }
            group.leave().unwrap();
            results
        });
        assert!(results.iter().all(|result| *result == results[0]), "{size}");
        let Values::Double(first) = &results[0][0] else {
            panic!("f64 was passed");
        };
        let expected: f64 = (0..size).map(|rank| 1.0 / (1 + rank * 1000) as f64).sum();
        assert!((first[0] - expected).abs() < 1e-15);
    }
}

#[test]
fn rounded_sums_are_the_same_on_all_ranks() {
    let count = 1000;
    let value =
        |rank: usize, round: usize, at: usize| (0.3 + rank as f32) / (1 + at + round) as f32;
    for size in [1, 2, 3, 5] {
        let results = in_group(size, delayed(40 + size as u64), |group| {
            let rank = group.rank();
            let sums = (0..10).map(|round| {
                if round % 3 == rank {
                    // The others are then one sum ahead.
                    std::thread::sleep(Duration::from_millis(5));
                }
                let values = (0..count).map(|at| value(rank, round, at)).collect();
                group.sum_rounded(values).unwrap()
            });
            let sums: Vec<_> = sums.collect();
            // Other calls may follow at once.
            group.barrier().unwrap();
            group.leave().unwrap();
            sums
        });
        for round in 0..10 {
            let sum = &results[0][round].sum;
            assert!(results.iter().all(|of_rank| of_rank[round].sum == *sum));
            for (at, sum) in sum.iter().enumerate() {
                let exact: f32 = (0..size).map(|rank| value(rank, round, at)).sum();
                let errors: f32 = results.iter().map(|of_rank| of_rank[round].error[at]).sum();
                assert!((sum - exact).abs() <= exact / 128.0, "{size}");
                assert!((sum + errors - exact).abs() <= 2e-6 * exact, "{size}");
            }
        }
    }
}

#[test]
fn a_rank_that_dies_in_a_rounded_sum_is_named() {
    let options = ThreadOptions {
        // Long enough that no living rank is silent for this long on a busy machine.
        silence: Duration::from_secs(3),
        death: Some((2, 40)),
        ..ThreadOptions::default()
    };
    let errors = in_group(3, options, |group| {
        let error = loop {
            if let Err(error) = group.sum_rounded(vec![1.0; 100]) {
                break error;
            }
        };
        // A rank is lost, so leaving reports it, too.
        group.leave().unwrap_err();
        error
    });
    let named = |error: &GroupError| match error {
        GroupError::Silent { member, .. } | GroupError::Lost(member) => member.rank,
        other => panic!("{other:?}"),
    };
    assert_eq!((named(&errors[0]), named(&errors[1])), (2, 2));
}

#[test]
fn rank_0_answers_claims_while_its_training_thread_is_busy() {
    let (processed_all, wait) = std::sync::mpsc::channel();
    let wait = std::sync::Mutex::new(wait);
    in_group(2, ThreadOptions::default(), |group| {
        group.begin_step(100);
        if group.rank() == 0 {
            // The training thread does nothing for the group until rank 1 has all samples.
            let waited = wait.lock().unwrap().recv_timeout(Duration::from_secs(60));
            waited.expect("rank 0 answers the claims of rank 1");
            assert_eq!(group.claim(request(8, None)).unwrap(), Claim::Complete);
        } else {
            let (mut processed, mut ended) = (0, None);
            while processed < 100 {
                let claim = group.claim(request(8, ended)).unwrap();
                let Claim::Samples { samples, .. } = claim else {
                    panic!("{claim:?} after {processed} samples");
                };
                processed += samples.end - samples.start;
                ended = Some(Ended::Confirmed);
            }
            assert_eq!(group.claim(request(8, ended)).unwrap(), Claim::Wait);
            processed_all.send(()).unwrap();
        }
        group.leave().unwrap();
    });
}

#[test]
fn an_error_of_one_rank_reaches_all_others() {
    for failing in 0..3 {
        let errors = in_group(3, delayed(failing), |group| {
            if group.rank() == failing as usize {
                std::thread::sleep(Duration::from_millis(20));
                group.fail("the disk is full");
            }
            let error = group.barrier().unwrap_err();
            // All ranks that are left disconnect in order.
            group.leave().unwrap();
            error
        });
        for error in errors {
            let GroupError::Failed { member, message } = &error else {
                panic!("{error:?}");
            };
            assert_eq!(
                (member.rank, message.as_str()),
                (failing as usize, "the disk is full")
            );
            let text = format!(
                "rank {failing} ({}) ended the run: the disk is full",
                member.host
            );
            assert_eq!(error.to_string(), text);
        }
    }
}

#[test]
fn a_silent_rank_is_named() {
    let options = ThreadOptions {
        // Long enough that no living rank is silent for this long on a busy machine.
        silence: Duration::from_secs(3),
        death: Some((2, 12)),
        ..ThreadOptions::default()
    };
    let errors = in_group(3, options, |group| {
        let error = loop {
            if let Err(error) = group.barrier() {
                break error;
            }
        };
        let left = group.leave();
        (error, left)
    });
    let (at_0, left) = &errors[0];
    assert!(
        matches!(at_0, GroupError::Silent { member, .. } if member.rank == 2),
        "{at_0:?}"
    );
    assert_eq!(left.as_ref().unwrap_err(), at_0);
    let (at_1, _) = &errors[1];
    assert!(
        matches!(at_1, GroupError::Lost(member) if member.rank == 2),
        "{at_1:?}"
    );
    // The dead rank itself receives nothing.
    let (at_2, _) = &errors[2];
    assert!(
        matches!(at_2, GroupError::Silent { member, .. } if member.rank == 0),
        "{at_2:?}"
    );
}

#[test]
fn a_dead_rank_is_found_at_once_if_the_process_is_interrupted() {
    let options = ThreadOptions {
        silence: Duration::from_secs(5),
        death: Some((1, 8)),
        ..ThreadOptions::default()
    };
    let took = in_group(2, options, |group| {
        if group.rank() == 1 {
            // It never comes to the sum that rank 0 waits for.
            while group.barrier().is_ok() && group.sum(Values::Single(vec![1.0])).is_ok() {}
            return Duration::ZERO;
        }
        let interrupted = Arc::new(AtomicBool::new(false));
        let is_set = Arc::clone(&interrupted);
        group.check_when(Box::new(move || is_set.load(Ordering::Relaxed)));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                interrupted.store(true, Ordering::Relaxed);
            });
            let error = loop {
                let sum = group
                    .barrier()
                    .and_then(|()| group.sum(Values::Single(vec![1.0])));
                if let Err(error) = sum {
                    break error;
                }
            };
            assert!(matches!(error, GroupError::Lost(member) if member.rank == 1));
        });
        let began = Instant::now();
        group.leave().unwrap_err();
        began.elapsed()
    });
    // Much less than the silence.
    assert!(took[0] < Duration::from_secs(3), "{:?}", took[0]);
}

#[test]
fn an_interruption_of_a_whole_group_changes_nothing() {
    let is_unchanged = || {
        let ranks = in_group(3, delayed(9), |group| {
            group.check_when(Box::new(|| true));
            let alive = group.check_alive();
            if group.rank() == 1 {
                std::thread::sleep(Duration::from_millis(700));
            }
            let results = [alive, group.barrier(), group.leave()];
            results.into_iter().collect::<Result<(), GroupError>>()
        });
        println!("{ranks:?}");
        ranks.iter().all(Result::is_ok)
    };
    // On a busy machine, a living rank may take too long to answer.
    assert!((0..4).any(|_| is_unchanged()));
}

#[test]
fn a_stop_of_any_rank_stops_all() {
    in_group(3, delayed(5), |group| {
        group.begin_step(1_000_000);
        let (mut ended, mut claims) = (None, 0);
        loop {
            let stop = group.rank() == 2 && claims == 5;
            let request = ClaimRequest {
                stop,
                ..request(1, ended.take())
            };
            claims += 1;
            match group.claim(request).unwrap() {
                Claim::Samples { .. } => ended = Some(Ended::Confirmed),
                Claim::Stop => break,
                other => panic!("{other:?}"),
            }
        }
        group.leave().unwrap();
    });
}
