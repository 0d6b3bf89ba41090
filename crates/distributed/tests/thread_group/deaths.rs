//! Groups that continue without ranks that have died: the others notice each death, leave the rank
//! out and repeat the step that was under way.

use crate::{in_group, request};
use distributed::{Claim, Ended, Group, GroupError, Result, ThreadOptions, Values};
use std::time::{Duration, Instant};

/// Steps of a group.
const STEPS: u64 = 12;
/// Samples of a step.
const SAMPLES: u32 = 9;

/// A group in which deaths are tolerated, with delays by `seed`.
fn tolerant(seed: u64, death: (usize, u64)) -> ThreadOptions {
    ThreadOptions {
        seed,
        max_delay: Duration::from_millis(2),
        // Long enough that no living rank is silent for this long on a busy machine.
        silence: Duration::from_secs(3),
        death: Some(death),
        second_death: None,
        tolerates_deaths: true,
    }
}

/// Works one step: all samples are confirmed, and every rank contributes to the sums.
fn step(group: &mut dyn Group) -> Result<()> {
    group.begin_step(SAMPLES);
    let (mut ended, mut confirmed) = (None, 0);
    loop {
        match group.claim(request(2, ended.take()))? {
            Claim::Samples { samples, .. } => {
                confirmed += samples.end - samples.start;
                ended = Some(Ended::Confirmed);
            }
            Claim::Wait => std::thread::sleep(Duration::from_micros(100)),
            Claim::Complete => break,
            Claim::Stop => panic!("no rank asked for it"),
        }
    }
    let sum = group.sum(Values::Double(vec![f64::from(confirmed), 1.0]))?;
    let expected = [f64::from(SAMPLES), group.size() as f64];
    assert_eq!(sum, Values::Double(expected.to_vec()));
    let rounded = group.sum_rounded(vec![1.0; 3])?;
    assert_eq!(rounded.sum, [group.size() as f32; 3]);
    Ok(())
}

/// Continues after a loss, as the training does: rank 0 has the step that counts. The error of a
/// rank that has died itself, or of a group that is broken.
fn rejoin(group: &mut dyn Group, done: u64, mut error: GroupError) -> Result<u64> {
    for _ in 1..group.size() {
        if !matches!(error, GroupError::Lost(_)) {
            break;
        }
        let steps = group
            .rejoin()
            .and_then(|()| group.gather(done.to_le_bytes().to_vec()));
        match steps {
            Ok(steps) => {
                let step = |bytes: &Vec<u8>| u64::from_le_bytes(bytes[..].try_into().unwrap());
                assert!(
                    steps
                        .iter()
                        .all(|of_rank| step(of_rank).abs_diff(done) <= 1)
                );
                return Ok(step(&steps[0]));
            }
            Err(newest) => error = newest,
        }
    }
    Err(error)
}

/// Works all steps. Returns how often the group has continued, and the ranks that are left.
fn work(group: &mut dyn Group) -> Result<(usize, Vec<usize>)> {
    let (mut done, mut continued) = (0, 0);
    while done < STEPS {
        match step(group) {
            Ok(()) => done += 1,
            Err(error) => {
                done = rejoin(group, done, error)?;
                continued += 1;
            }
        }
    }
    let ranks = (0..group.size()).map(|rank| group.member(rank).rank);
    Ok((continued, ranks.collect()))
}

/// Works in a group, and leaves it.
fn work_and_leave(group: &mut dyn Group) -> Result<(usize, Vec<usize>)> {
    let worked = work(group);
    let _ = group.leave();
    worked
}

#[test]
fn a_group_continues_without_a_rank_that_dies() {
    let mut continued = 0;
    for seed in 0..24 {
        // From the first step to some before the last one.
        let dying = 1 + (seed % 2) as usize;
        let ranks = in_group(3, tolerant(seed, (dying, 10 + 2 * seed)), work_and_leave);
        let left = ranks[0].as_ref().unwrap();
        assert_eq!(ranks[3 - dying].as_ref().unwrap().1, left.1, "seed {seed}");
        if left.0 > 0 {
            assert_eq!(left.1, [0, 3 - dying], "seed {seed}");
            assert!(ranks[dying].is_err(), "seed {seed}");
            continued += 1;
        }
    }
    assert!(continued >= 20, "{continued}");
}

#[test]
fn a_group_continues_after_two_deaths() {
    let mut left = Vec::new();
    for seed in 0..12 {
        let options = ThreadOptions {
            second_death: Some((3, 12 + 5 * (seed * 7 % 12))),
            ..tolerant(seed, (1, 12 + 5 * seed))
        };
        let ranks = in_group(4, options, work_and_leave);
        let of_rank_0 = ranks[0].as_ref().unwrap();
        assert_eq!(ranks[2].as_ref().unwrap().1, of_rank_0.1, "seed {seed}");
        left.push(of_rank_0.1.len());
    }
    assert!(left.contains(&2), "{left:?}");
}

#[test]
fn the_last_rank_continues_alone() {
    let ranks = in_group(2, tolerant(5, (1, 30)), work_and_leave);
    assert_eq!(ranks[0].as_ref().unwrap(), &(1, vec![0]));
    assert!(ranks[1].is_err());
}

#[test]
fn without_rank_0_no_rank_continues() {
    let ranks = in_group(3, tolerant(6, (0, 60)), work_and_leave);
    for rank in &ranks[1..] {
        let error = rank.as_ref().unwrap_err();
        let GroupError::Lost(member) = error else {
            panic!("{error:?}");
        };
        assert_eq!(member.rank, 0);
        assert!(!member.host.is_empty());
    }
}

#[test]
fn no_rank_continues_if_another_one_leaves() {
    for leaving in [0, 2] {
        let ranks = in_group(3, tolerant(7, (1, 30)), |group| {
            let error = loop {
                if let Err(error) = step(group) {
                    break error;
                }
            };
            let continued = if group.rank() == leaving {
                Err(error)
            } else {
                group.rejoin()
            };
            let _ = group.leave();
            continued
        });
        for rank in [0, 2] {
            let error = ranks[rank].as_ref().unwrap_err();
            assert!(
                matches!(error, GroupError::Lost(member) if member.rank == 1),
                "{error:?}"
            );
        }
    }
}

#[test]
fn a_group_without_a_loss_cannot_rejoin() {
    in_group(2, ThreadOptions::default(), |group| {
        assert!(group.rejoin().is_err());
        group.barrier().unwrap();
        group.leave().unwrap();
    });
}

#[test]
fn a_rank_that_only_checks_notices_a_death() {
    let ranks = in_group(3, tolerant(1, (1, 12)), |group| {
        if group.rank() == 1 {
            // It dies in one of these.
            let died = (0..50).find_map(|_| group.barrier().err());
            let _ = group.leave();
            return died;
        }
        let began = Instant::now();
        let mut passed = 0;
        let failure = loop {
            match group.check_failure() {
                Ok(()) if began.elapsed() > Duration::from_secs(20) => break None,
                Ok(()) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => break Some(error),
            }
            passed += 1;
        };
        assert!(passed > 0, "the group was not broken at first");
        let _ = group.leave();
        failure
    });
    for (rank, failure) in ranks.iter().enumerate() {
        assert!(matches!(failure, Some(GroupError::Lost(_))), "{rank}");
    }
}
