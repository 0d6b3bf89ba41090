//! Groups whose devices exchange gradients and weights directly, as GPUs do with NCCL. Here the
//! devices are threads. The bits are those of the exchange through the host, also if ranks process
//! nothing, free their weights or die, and no failure makes a rank hang.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::distributed_runs::{
    SAVED_STEPS, STEPS, Session, Trained, Turns, delayed, distance, each_rank, in_turns, ledgers,
    of_documents, of_images, of_texts, saving_every, train, train_session, write_short_memory,
};
use crate::watchdog::Watchdog;
use distributed::{Claim, ClaimRequest, Group, Share, ThreadOptions, Values};
use runlog::{ExchangeChoice, PrecisionChoice, RunConfig, RunEvent, ShardingChoice};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tape::device::{ThreadExchange, thread_exchanges};
use trainer::{Control, Machine, MemoryScript, Request, RunGroup, ScriptBy};

/// Longest time of an exchange that is not expected to fail.
const PATIENCE: Duration = Duration::from_secs(60);
/// A test that takes longer hangs.
const HANGS_AFTER: Duration = Duration::from_secs(240);
const DIRECTLY: &str = "; gradients are exchanged directly between the GPUs (threads)";
const THROUGH_HOST: &str = "; gradients are exchanged through the memory of the host, because ";

/// The group of a rank whose device exchanges as one of `exchanges`, if there are any.
fn linked(group: Box<dyn Group>, exchanges: &[ThreadExchange], patience: Duration) -> RunGroup {
    let exchange = exchanges.get(group.rank()).cloned();
    let group = RunGroup::new(group).comparing_weights_every(1);
    match exchange {
        Some(exchange) => group.exchanging_by(Arc::new(exchange), patience),
        None => group,
    }
}

/// Trains in a group of `size` ranks whose devices exchange as `exchanges` say.
fn train_linked(
    config: &RunConfig,
    size: usize,
    options: ThreadOptions,
    exchanges: &[ThreadExchange],
) -> Vec<Trained> {
    each_rank(&vec![config.clone(); size], options, &|group, config| {
        let group = linked(group, exchanges, PATIENCE);
        train(config, group, Control::default())
    })
}

/// Trains in three ranks that share the samples as the ledgers say.
fn train_as_recorded(
    config: &RunConfig,
    ledgers: &[Vec<Share>],
    exchanges: &[ThreadExchange],
) -> Vec<Trained> {
    each_rank(
        &vec![config.clone(); 3],
        delayed(7),
        &|mut group, config| {
            if group.rank() == 0 {
                group.replay(ledgers.to_vec());
            }
            let group = linked(group, exchanges, PATIENCE);
            train(config, group, Control::default())
        },
    )
}

/// Uneven shares: in every third step rank 1 processes nothing, and in others rank 2 nothing.
fn uneven(ledgers: &[Vec<Share>]) -> Vec<Vec<Share>> {
    let moved = |step: usize, share: &Share| Share {
        rank: match (step % 3, share.rank) {
            (0, 1) => 0,
            (1, 2) => 1,
            (_, rank) => rank,
        },
        samples: share.samples.clone(),
    };
    let steps = ledgers.iter().enumerate();
    let step = |(step, shares): (usize, &Vec<Share>)| -> Vec<Share> {
        shares.iter().map(|share| moved(step, share)).collect()
    };
    steps.map(step).collect()
}

/// How the ranks exchange, as the events say one after the other.
fn ways(trained: &Trained) -> Vec<&str> {
    let events = trained.events.iter();
    let ways = events.filter_map(|event| match event {
        RunEvent::Group { message, .. } => message.get(message.find("; gradients are")?..),
        _ => None,
    });
    ways.collect()
}

/// Checks that a training whose devices exchange ends on the bits of the exchange through the host.
#[track_caller]
fn check_bits(name: &str, config: &RunConfig, exchanges_per_step: u64) {
    let config = saving_every(SAVED_STEPS, config.clone());
    let configs = [2, 3, 1].map(|size| RunConfig {
        micro_batch: Some(size),
        ..config.clone()
    });
    let recorded = in_turns(&configs, delayed(5), Turns::Together);
    let ledgers = uneven(&ledgers(&recorded[0]));
    let exchanges = thread_exchanges(3);
    let host = train_as_recorded(&config, &ledgers, &[]);
    let devices = train_as_recorded(&config, &ledgers, &exchanges);
    for rank in host.iter().chain(&devices) {
        assert_eq!(rank.outcome.as_ref().unwrap().step, STEPS, "{name}");
    }
    assert_eq!(ways(&host[0]), [""; 0], "{name}");
    assert_eq!(ways(&devices[0]), [DIRECTLY], "{name}");
    assert_eq!(devices[0].losses(), host[0].losses(), "{name}");
    for step in (SAVED_STEPS..=STEPS).step_by(SAVED_STEPS as usize) {
        let same = devices[0].tensor_files(step) == host[0].tensor_files(step);
        assert!(same, "{name}: the same bits at step {step}");
    }
    // The first exchange is the self-test.
    for exchange in &exchanges {
        assert_eq!(exchange.begun(), 1 + exchanges_per_step * STEPS, "{name}");
    }
    assert_eq!(exchanges[0].aborted(), 0, "{name}");
    println!("{name}: the same bits as through the host after each of {STEPS} steps");
}

#[test]
fn sums_between_devices_have_the_bits_of_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let (single, double) = (PrecisionChoice::F32, PrecisionChoice::F64);
    for (name, config, precision) in [
        ("texts", of_texts(folder.path()), single),
        ("documents", of_documents(folder.path()), single),
        ("images", of_images(folder.path()), double),
    ] {
        let config = RunConfig {
            precision: Some(precision),
            sharding: Some(ShardingChoice::None),
            ..config
        };
        check_bits(&format!("{name} in {precision:?}"), &config, 1);
    }
}

#[test]
fn weights_spread_between_devices_have_the_bits_of_the_host() {
    let folder = tempfile::tempdir().unwrap();
    for precision in [PrecisionChoice::F32, PrecisionChoice::Bf16] {
        let config = RunConfig {
            precision: Some(precision),
            sharding: Some(ShardingChoice::Optimizer),
            ..of_texts(folder.path())
        };
        check_bits(&format!("divided moments in {precision:?}"), &config, 2);
    }
}

/// Trains as one of two ranks until the third event about the group. The memory of rank 1 is short
/// for a while.
fn train_until_third_way(
    group: Box<dyn Group>,
    config: &RunConfig,
    exchanges: &[ThreadExchange],
    script: &Path,
) -> Trained {
    let is_first = group.rank() == 0;
    let control = Control::default();
    let script = MemoryScript {
        path: script.to_owned(),
        by: ScriptBy::Decision,
    };
    let session = Session {
        control: control.clone(),
        machine: Machine {
            script: (!is_first).then_some(script),
            ..Machine::default()
        },
        ..Session::default()
    };
    let mut seen = 0;
    let group = linked(group, exchanges, PATIENCE);
    train_session(config, group, session, &mut |event| {
        seen += usize::from(matches!(event, RunEvent::Group { .. }));
        if is_first && seen >= 3 && matches!(event, RunEvent::Step { .. }) {
            control.send(Request::Stop);
        }
    })
}

/// Checks that a group ends on the weights of a run on one machine.
#[track_caller]
fn check_as_alone(config: &RunConfig, group: &Trained) {
    let last = group.outcome.as_ref().unwrap().step;
    let session = Session {
        stops_at: Some(last),
        ..Session::default()
    };
    let alone = train_session(config, RunGroup::default(), session, &mut |_| {});
    let (found, expected) = (group.weights(last), alone.weights(last));
    let zeros = |values: &Vec<f64>| vec![0.0; values.len()];
    let origin = expected.iter().map(|(name, it)| (name.clone(), zeros(it)));
    let size = distance(&expected, &origin.collect());
    let difference = distance(&found, &expected) / size;
    println!("step {last}: weights differ by {difference:.1e}");
    assert!(difference <= 1e-12, "{difference:e}");
}

#[test]
fn a_rank_that_frees_its_weights_makes_all_use_the_host_until_it_returns() {
    let folder = tempfile::tempdir().unwrap();
    let config = RunConfig {
        steps: Some(1_000_000),
        keep_checkpoints: Some(100),
        // The controller suspends only what it may also make smaller.
        micro_batch: None,
        sharding: Some(ShardingChoice::None),
        ..of_images(folder.path())
    };
    let script = folder.path().join("script");
    write_short_memory(&script);
    let exchanges = thread_exchanges(2);
    let watchdog = Watchdog::new("a suspended rank", HANGS_AFTER);
    watchdog.begin(0);
    let configs = [config.clone(), config.clone()];
    let ranks = each_rank(&configs, delayed(3), &|group, config| {
        train_until_third_way(group, config, &exchanges, &script)
    });
    let ways = ways(&ranks[0]);
    assert!(ways.len() >= 3, "{ways:?}");
    assert_eq!((ways[0], ways[2]), (DIRECTLY, DIRECTLY));
    assert!(
        ways[1].starts_with(THROUGH_HOST) && ways[1].ends_with(" has freed its weights"),
        "{ways:?}"
    );
    check_as_alone(&config, &ranks[0]);
}

/// A group in which `death` happens, with delays by `seed`.
fn tolerant(seed: u64, death: (usize, u64)) -> ThreadOptions {
    ThreadOptions {
        seed,
        max_delay: Duration::from_millis(3),
        silence: Duration::from_secs(5),
        death: Some(death),
        second_death: None,
        tolerates_deaths: true,
    }
}

#[test]
fn the_others_continue_without_a_rank_that_dies() {
    let folder = tempfile::tempdir().unwrap();
    let config = RunConfig {
        sharding: Some(ShardingChoice::None),
        ..saving_every(SAVED_STEPS, of_texts(folder.path()))
    };
    let alone = train(&config, RunGroup::default(), Control::default());
    let watchdog = Watchdog::new("the seed", HANGS_AFTER);
    let mut continued = 0;
    for seed in 0..6 {
        watchdog.begin(seed);
        let exchanges = thread_exchanges(3);
        let dying = 1 + (seed % 2) as usize;
        let options = tolerant(seed, (dying, 24 + 10 * seed));
        let ranks = train_linked(&config, 3, options, &exchanges);
        continued += usize::from(check_survivors(&ranks, dying, &alone));
    }
    println!("{continued} of 6 groups lost a rank");
    assert!(continued >= 4, "{continued}");
}

/// Checks that rank 0 ends on the weights of a run on one machine, and that the ranks that are left
/// are connected again. Returns whether the rank has died before the end.
#[track_caller]
fn check_survivors(ranks: &[Trained], dying: usize, alone: &Trained) -> bool {
    assert_eq!(ranks[0].outcome.as_ref().unwrap().step, STEPS);
    let last = alone.weights(STEPS);
    let way = distance(&alone.weights(SAVED_STEPS), &last);
    let drift = distance(&ranks[0].weights(STEPS), &last) / way;
    assert!(drift <= 1e-12, "{drift:e}");
    let ways = ways(&ranks[0]);
    let connected = ways.iter().all(|way| way.starts_with(DIRECTLY));
    assert!(connected, "{ways:?}");
    if ways.len() > 1 {
        assert_eq!(ranks[3 - dying].outcome.as_ref().unwrap().step, STEPS);
        assert!(ranks[dying].outcome.is_err());
    }
    ways.len() > 1
}

/// A rank that sends messages while it waits for an exchange, so that it dies in the middle of one.
struct Restless(Box<dyn Group>);

impl Group for Restless {
    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn member(&self, rank: usize) -> distributed::Member {
        self.0.member(rank)
    }

    fn gather(&mut self, mine: Vec<u8>) -> distributed::Result<Vec<Vec<u8>>> {
        self.0.gather(mine)
    }

    fn begin_step(&mut self, samples: u32) {
        self.0.begin_step(samples);
    }

    fn claim(&mut self, request: ClaimRequest) -> distributed::Result<Claim> {
        self.0.claim(request)
    }

    fn sum(&mut self, values: Values) -> distributed::Result<Values> {
        self.0.sum(values)
    }

    fn ledger(&self) -> Vec<Share> {
        self.0.ledger()
    }

    fn check_failure(&mut self) -> distributed::Result<()> {
        (0..20).try_for_each(|_| self.0.check_alive())
    }

    fn fail(&mut self, message: &str) {
        self.0.fail(message);
    }

    fn leave(&mut self) -> distributed::Result<()> {
        self.0.leave()
    }
}

#[test]
fn the_others_abort_the_exchange_in_which_a_rank_dies() {
    let folder = tempfile::tempdir().unwrap();
    let config = RunConfig {
        sharding: Some(ShardingChoice::None),
        ..saving_every(SAVED_STEPS, of_texts(folder.path()))
    };
    let alone = train(&config, RunGroup::default(), Control::default());
    let watchdog = Watchdog::new("a death", HANGS_AFTER);
    watchdog.begin(0);
    let mut exchanges = thread_exchanges(3);
    // It never takes part in the exchange of its second step, so it must die there.
    exchanges[1].stalls_at = Some(3);
    let options = ThreadOptions {
        max_delay: Duration::ZERO,
        ..tolerant(1, (1, 3000))
    };
    let ranks = each_rank(&vec![config; 3], options, &|group, config| {
        let is_dying = group.rank() == 1;
        let group = if is_dying {
            Box::new(Restless(group))
        } else {
            group
        };
        let group = linked(group, &exchanges, PATIENCE);
        train(config, group, Control::default())
    });
    assert!(check_survivors(&ranks, 1, &alone), "rank 1 has died");
    assert_eq!(exchanges[1].begun(), 3);
    let aborted = exchanges[0].aborted();
    println!("{aborted} exchanges were aborted");
    assert_eq!(aborted, 3, "one on each rank");
}

#[test]
fn a_failed_exchange_ends_the_run_on_all_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let config = saving_every(SAVED_STEPS, of_texts(folder.path()));
    let watchdog = Watchdog::new("the case", HANGS_AFTER);
    for (case, fails, stalls) in [(0, Some(9), None), (1, None, Some(9))] {
        watchdog.begin(case);
        let mut exchanges = thread_exchanges(3);
        (exchanges[1].fails_at, exchanges[1].stalls_at) = (fails, stalls);
        let patience = Duration::from_secs(if fails.is_some() { 60 } else { 5 });
        let ranks = each_rank(&vec![config.clone(); 3], delayed(case), &|group, config| {
            let group = linked(group, &exchanges, patience);
            train(config, group, Control::default())
        });
        for rank in &ranks {
            let error = rank.error();
            assert!(error.contains("EBB_NCCL=none"), "{error}");
        }
        let reason = if fails.is_some() {
            "the exchange of this thread fails"
        } else {
            "an exchange between the GPUs takes longer than 5 s"
        };
        let gives_reason = |rank: &Trained| rank.error().contains(reason);
        assert!(ranks.iter().any(gives_reason), "{}", ranks[1].error());
        assert!(!ranks[0].run.checkpoints().unwrap().is_empty());
    }
}

/// The sentence of a group whose exchanges `change` alters, after a training that succeeds.
fn refused(folder: &Path, change: impl Fn(&mut [ThreadExchange])) -> String {
    let config = RunConfig {
        steps: Some(2),
        ..of_texts(folder)
    };
    let mut exchanges = thread_exchanges(2);
    change(&mut exchanges);
    let ranks = train_linked(&config, 2, delayed(1), &exchanges);
    for rank in &ranks {
        assert_eq!(rank.outcome.as_ref().unwrap().step, 2);
    }
    let way = ways(&ranks[0])[0];
    way.strip_prefix(THROUGH_HOST).unwrap().to_owned()
}

#[test]
fn a_group_that_cannot_connect_its_devices_trains_through_the_host_and_gives_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let host = distributed::host_name();
    let same = refused(folder.path(), |exchanges| {
        exchanges[1].offer.device = exchanges[0].offer.device.clone();
    });
    assert_eq!(
        same,
        format!("rank 0 ({host}) and rank 1 ({host}) use the same GPU")
    );
    let missing = refused(folder.path(), |exchanges| {
        exchanges[1].offer.library = Err("NCCL cannot be used (libnccl.so.2: no file)".to_owned());
    });
    assert_eq!(
        missing,
        format!("rank 1 ({host}) reports: NCCL cannot be used (libnccl.so.2: no file)")
    );
    let fails = refused(folder.path(), |exchanges| exchanges[0].fails_at = Some(1));
    assert!(fails.starts_with(&format!("rank 0 ({host}): ")), "{fails}");
}

#[test]
fn rounded_gradients_are_exchanged_through_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let config = RunConfig {
        steps: Some(3),
        exchange: Some(ExchangeChoice::Bf16),
        precision: Some(PrecisionChoice::F32),
        ..of_texts(folder.path())
    };
    let exchanges = thread_exchanges(2);
    let ranks = train_linked(&config, 2, delayed(1), &exchanges);
    assert_eq!(ranks[0].outcome.as_ref().unwrap().step, 3);
    assert_eq!(exchanges[0].begun(), 0);
}
