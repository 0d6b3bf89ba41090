//! The memory of the machines of a group over time, as the charts of the window get it.

use crate::support::demo;
use runlog::{GroupMember, MachineShare, Query, Run, RunEvent};

fn fold(events: &[RunEvent]) -> Run {
    let mut run = Run::default();
    events.iter().for_each(|event| run.apply(event));
    run
}

/// The memory of three machines at a time.
fn report(at_ms: u64, own: [u64; 3]) -> RunEvent {
    let share = |(rank, own_bytes): (u32, u64)| MachineShare {
        rank,
        samples: 8,
        busy_ms: 900.0,
        own_bytes,
        peak_bytes: own_bytes + 1000,
        others_bytes: 50_000,
        budget_bytes: 20_000,
        ..MachineShare::default()
    };
    RunEvent::Machines {
        at_ms,
        step: at_ms / 1000,
        exchange_ms: 1.0,
        machines: (0..).zip(own).map(share).collect(),
    }
}

fn group() -> RunEvent {
    let member = |(rank, host): (u32, &str)| GroupMember {
        rank,
        host: host.to_owned(),
        ..GroupMember::default()
    };
    RunEvent::Group {
        at_ms: 0,
        step: 0,
        members: (0..).zip(["studio", "air", "mini"]).map(member).collect(),
        message: "Training on 3 machines".to_owned(),
        sync_every: 0,
    }
}

fn query(rank: Option<u32>) -> Query {
    Query {
        columns: 100,
        rank,
        ..Query::default()
    }
}

#[test]
fn a_pull_has_the_memory_of_the_chosen_machine() {
    let reports = [report(1000, [1, 4000, 7000]), report(2000, [2, 5000, 9000])];
    let events = [[group()].as_slice(), &reports].concat();
    let run = fold(&events);
    // The memory of rank 0 is that of the run, so another rank is shown first.
    for (chosen, shown, ebb) in [
        (None, 1, [5000.0, 6000.0]),
        (Some(2), 2, [8000.0, 10_000.0]),
        (Some(0), 0, [1001.0, 1002.0]),
        (Some(9), 1, [5000.0, 6000.0]),
    ] {
        let pull = run.pull(query(chosen));
        assert_eq!(pull.header.shown_rank, Some(shown), "{chosen:?}");
        assert_eq!(pull.array("machine.at"), [1000.0, 2000.0]);
        assert_eq!(pull.array("machine.ebb"), ebb);
        assert_eq!(pull.array("machine.others"), [50_000.0; 2]);
        assert_eq!(pull.array("machine.budget"), [70_000.0; 2]);
    }
}

#[test]
fn rare_exchanges_are_not_shown_as_the_training_of_one_machine() {
    let detail = |sync_every| {
        let mut event = group();
        if let RunEvent::Group {
            sync_every: every, ..
        } = &mut event
        {
            *every = sync_every;
        }
        let pull = fold(&[event]).pull(query(None));
        pull.header.status_line.detail
    };
    assert!(detail(0).ends_with("The result is the same as on a single machine."));
    assert!(detail(100).contains("differs from that of a single machine"));
}

#[test]
fn a_run_on_one_machine_has_no_such_arrays() {
    let pull = fold(&demo::events()).pull(query(Some(0)));
    assert_eq!(pull.header.shown_rank, None);
    assert!(pull.array("machine.at").is_empty());
}
