//! The machines of a run that several train, folded from its events.

use crate::amounts::{counted, format_bytes, format_count, format_percent};
use crate::event::RunEvent;
use crate::machine_memory::MachineMemory;
use crate::machines::{GroupMember, MachineShare};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use ts_rs::TS;

/// Most changes that are kept.
const MAX_CHANGES: usize = 100;
/// If more machines than this leave or join at once, they are counted instead of named.
const MAX_NAMED: usize = 4;

/// The code of a run that failed because a machine was lost.
const LOST: &str = "group";

/// A run that several machines train, or have trained.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, TS)]
pub struct GroupView {
    /// The ranks in order; empty if the run now trains on one machine.
    pub ranks: Vec<RankView>,
    /// What changed in the group, oldest first.
    pub changes: Vec<GroupChange>,
}

/// One rank as it is shown: who it is, and what it did last.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, TS)]
pub struct RankView {
    /// Who it is.
    pub member: GroupMember,
    /// What it did since the previous report.
    pub last: MachineShare,
    /// Its part of the samples since the previous report, `0.0..=1.0`.
    pub share: f64,
    /// The fractions of the time in which it worked, waited for others or for memory, and exchanged
    /// gradients; `None` before the first report.
    pub times: Option<RankTimes>,
    /// Samples that it has processed since the group began.
    pub samples: u64,
}

/// How a rank spent its time, `0.0..=1.0` each.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, TS)]
pub struct RankTimes {
    /// Processing samples.
    pub working: f64,
    /// Waiting for other ranks or for memory.
    pub waiting: f64,
    /// Adding its gradients up with those of the others.
    pub exchange: f64,
}

/// Something that changed in the group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct GroupChange {
    /// When, on the run's clock.
    pub at_ms: u64,
    /// Completed optimizer steps.
    pub step: u64,
    /// What happened: "Training on 2 machines: studio (rank 0), air (rank 1)".
    pub message: String,
}

impl RankView {
    /// "rank 1 (air)".
    pub fn name(&self) -> String {
        format!("rank {} ({})", self.member.rank, self.member.host)
    }

    /// "rank 1 (air): 38 % of the samples, micro-batch 8, 412 MB of 2.1 GB, working 93 % of the
    /// time, waiting 4 %, exchange 3 %".
    pub fn describe(&self) -> String {
        let MachineShare {
            micro_batch,
            own_bytes,
            budget_bytes,
            is_suspended,
            ..
        } = &self.last;
        let mut parts = vec![format!("{} of the samples", format_percent(self.share))];
        if *is_suspended {
            parts.push("suspended: its memory is short".to_owned());
        } else {
            parts.push(format!("micro-batch {micro_batch}"));
        }
        if *own_bytes > 0 {
            let (own, budget) = (format_bytes(*own_bytes), format_bytes(*budget_bytes));
            parts.push(format!("{own} of {budget}"));
        }
        if let Some(times) = self.times {
            let working = format_percent(times.working);
            parts.push(format!("working {working} of the time"));
            parts.push(format!("waiting {}", format_percent(times.waiting)));
            parts.push(format!("exchange {}", format_percent(times.exchange)));
        }
        format!("{}: {}", self.name(), parts.join(", "))
    }
}

/// The machines of a run, folded from its events. Empty for a run on one machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Machines {
    pub(crate) views: Vec<RankView>,
    changes: VecDeque<GroupChange>,
    /// Part of the time that adding up the gradients takes, `0.0..=1.0`.
    pub(crate) exchange_fraction: Option<f64>,
    /// The memory of each machine over time.
    pub(crate) memory: MachineMemory,
    /// The newest group, also after it has ended.
    newest: Vec<GroupMember>,
}

impl Machines {
    /// The group; `None` if the run has only ever trained on one machine.
    pub(crate) fn view(&self) -> Option<GroupView> {
        let was_alone = self.views.is_empty() && self.changes.is_empty();
        (!was_alone).then(|| GroupView {
            ranks: self.views.clone(),
            changes: self.changes.iter().cloned().collect(),
        })
    }

    /// Takes the members of a new group, or those that are left if a rank has ended.
    fn begin(&mut self, members: &[GroupMember]) {
        let known = std::mem::take(&mut self.views);
        let view = |member: &GroupMember| {
            let known = known.iter().find(|view| view.member == *member);
            known.cloned().unwrap_or_else(|| RankView {
                member: member.clone(),
                ..RankView::default()
            })
        };
        self.views = members.iter().map(view).collect();
        self.exchange_fraction = None;
    }

    /// The run was resumed: a group names itself again. What happened before stays, also if the
    /// clock was set back to that of the checkpoint.
    pub(crate) fn end(&mut self, at_ms: u64) {
        self.views.clear();
        self.exchange_fraction = None;
        self.memory.end(at_ms);
        for change in &mut self.changes {
            change.at_ms = change.at_ms.min(at_ms);
        }
    }

    pub(crate) fn apply(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Group {
                at_ms,
                step,
                members,
                message,
                ..
            } => {
                self.begin(members);
                self.memory.begin(members, *at_ms);
                self.change(*at_ms, *step, message.clone());
                let before = std::mem::replace(&mut self.newest, members.clone());
                for message in differences(&before, members) {
                    self.change(*at_ms, *step, message);
                }
            }
            RunEvent::Machine {
                at_ms,
                step,
                rank,
                host,
                message,
            } => self.change(*at_ms, *step, format!("rank {rank} ({host}): {message}")),
            RunEvent::Failed {
                at_ms,
                step,
                code,
                message,
            } if code == LOST => self.change(*at_ms, *step, message.clone()),
            RunEvent::Machines {
                at_ms,
                step,
                exchange_ms,
                machines,
            } => {
                self.share(machines, *at_ms, *step);
                let rank_0 = machines.first();
                let all_ms = rank_0.map(|rank_0| rank_0.busy_ms + rank_0.wait_ms);
                let all_ms = all_ms.filter(|all_ms| *all_ms > 0.0);
                let fraction = |all_ms: f64| (exchange_ms / all_ms).clamp(0.0, 1.0);
                self.exchange_fraction = all_ms.map(fraction);
            }
            _ => {}
        }
    }

    fn change(&mut self, at_ms: u64, step: u64, message: String) {
        self.changes.push_back(GroupChange {
            at_ms,
            step,
            message,
        });
        if self.changes.len() > MAX_CHANGES {
            self.changes.pop_front();
        }
    }

    /// Takes what each rank did, and records which ranks rest or are back.
    fn share(&mut self, machines: &[MachineShare], at_ms: u64, step: u64) {
        let all: u64 = machines.iter().map(|machine| machine.samples).sum();
        let mut changes = Vec::new();
        for share in machines {
            let rank = share.rank;
            let Some(view) = self.views.iter_mut().find(|v| v.member.rank == rank) else {
                continue;
            };
            if share.is_suspended != view.last.is_suspended {
                let name = view.name();
                changes.push(if share.is_suspended {
                    format!("{name} has freed its weights, because its memory is short")
                } else {
                    format!("{name} has loaded the weights again and continues training")
                });
            }
            self.memory.add(share, at_ms);
            view.samples += share.samples;
            view.share = share.samples as f64 / all.max(1) as f64;
            view.times = times(share);
            view.last = share.clone();
        }
        for message in changes {
            self.change(at_ms, step, message);
        }
    }
}

/// What distinguishes a group from the one before: "air has left the group".
fn differences(before: &[GroupMember], now: &[GroupMember]) -> Vec<String> {
    if before.is_empty() {
        return Vec::new();
    }
    let count = |members: &[GroupMember], host: &str| {
        members.iter().filter(|member| member.host == host).count() as u64
    };
    let mut hosts: Vec<&str> = Vec::new();
    for member in before.iter().chain(now) {
        if !hosts.contains(&member.host.as_str()) {
            hosts.push(&member.host);
        }
    }
    let (mut left, mut joined, mut messages) = (Vec::new(), Vec::new(), Vec::new());
    for host in hosts {
        match (count(before, host), count(now, host)) {
            (_, 0) => left.push(host),
            (0, _) => joined.push(host),
            (old, new) if old != new => {
                let processes = counted(new, "process", "processes");
                messages.push(format!("{host} now trains in {processes} instead of {old}"));
            }
            _ => {}
        }
    }
    let (one, many) = ("has left the group", "machines have left the group");
    messages.extend(named(&left, one, many));
    let (one, many) = ("has joined the group", "machines have joined the group");
    messages.extend(named(&joined, one, many));
    messages
}

/// A sentence for each machine, or one that counts them.
fn named(hosts: &[&str], one: &str, many: &str) -> Vec<String> {
    if hosts.len() > MAX_NAMED {
        return vec![format!("{} {many}", format_count(hosts.len() as u64))];
    }
    hosts.iter().map(|host| format!("{host} {one}")).collect()
}

fn times(share: &MachineShare) -> Option<RankTimes> {
    Some(RankTimes {
        working: share.utilization()?,
        waiting: share.waiting()?,
        exchange: share.exchange()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::{describe_group, member};

    fn group(hosts: &[&str]) -> RunEvent {
        let members: Vec<_> = (0..)
            .zip(hosts)
            .map(|(rank, host)| member(rank, host))
            .collect();
        RunEvent::Group {
            at_ms: 1,
            step: 0,
            message: describe_group(&members),
            members,
            sync_every: 0,
        }
    }

    fn report(samples: [u64; 2], is_suspended: bool) -> RunEvent {
        let share = |rank, samples, busy_ms, is_suspended| MachineShare {
            rank,
            samples,
            busy_ms,
            wait_ms: 1000.0 - busy_ms,
            exchange_ms: 80.0,
            micro_batch: 8,
            own_bytes: 400 << 20,
            budget_bytes: 2 << 30,
            is_suspended,
            ..MachineShare::default()
        };
        RunEvent::Machines {
            at_ms: 5,
            step: 3,
            exchange_ms: 80.0,
            machines: vec![
                share(0, samples[0], 900.0, false),
                share(1, samples[1], 450.0, is_suspended),
            ],
        }
    }

    #[test]
    fn shares_follow_the_newest_report() {
        let mut machines = Machines::default();
        assert_eq!(machines.view(), None, "one machine");
        machines.apply(&group(&["studio", "air"]));
        machines.apply(&report([48, 16], false));
        machines.apply(&report([60, 20], false));
        let air = &machines.views[1];
        assert_eq!((air.samples, air.share), (36, 0.25));
        assert_eq!(machines.exchange_fraction, Some(0.08));
        assert_eq!(
            air.describe(),
            "rank 1 (air): 25.0 % of the samples, micro-batch 8, 400 MB of 2.0 GB, working 45.0 % of the time, waiting 47.0 %, exchange 8.0 %"
        );
        machines.apply(&report([80, 0], true));
        let air = machines.views[1].describe();
        assert!(air.contains("suspended: its memory is short"), "{air}");
    }

    #[test]
    fn ranks_that_are_left_keep_what_they_did() {
        let mut machines = Machines::default();
        machines.apply(&group(&["studio", "air"]));
        machines.apply(&report([48, 16], false));
        let left = vec![member(0, "studio")];
        machines.apply(&RunEvent::Group {
            at_ms: 7,
            step: 4,
            message: "rank 1 (air) ended".to_owned(),
            members: left,
            sync_every: 0,
        });
        assert_eq!(machines.views.len(), 1);
        assert_eq!(machines.views[0].samples, 48);
        // A group that begins anew starts from nothing.
        machines.end(7);
        machines.apply(&group(&["studio", "air"]));
        assert_eq!(machines.views[0].samples, 0);
    }

    #[test]
    fn every_change_of_the_group_has_its_sentence() {
        let mut machines = Machines::default();
        machines.apply(&group(&["studio", "air"]));
        machines.apply(&report([48, 16], false));
        machines.apply(&report([64, 0], true));
        machines.apply(&RunEvent::Machine {
            at_ms: 6,
            step: 4,
            rank: 1,
            host: "air".to_owned(),
            message: "Micro-batch reduced from 16 to 8".to_owned(),
        });
        machines.apply(&report([48, 16], false));
        machines.apply(&RunEvent::Failed {
            at_ms: 90,
            step: 5,
            code: LOST.to_owned(),
            message: "rank 1 (air) has not answered for 60 s".to_owned(),
        });
        machines.end(40);
        machines.apply(&group(&["studio"]));
        let view = machines.view().expect("it was a group");
        let reported: Vec<_> = view
            .changes
            .iter()
            .map(|change| change.message.as_str())
            .collect();
        assert_eq!(
            reported,
            [
                "Training on 2 machines: studio (rank 0), air (rank 1)",
                "rank 1 (air) has freed its weights, because its memory is short",
                "rank 1 (air): Micro-batch reduced from 16 to 8",
                "rank 1 (air) has loaded the weights again and continues training",
                "rank 1 (air) has not answered for 60 s",
                "Training in 1 process on studio",
                "air has left the group",
            ]
        );
        assert_eq!(view.changes[4].at_ms, 40, "before the clock was set back");
        assert_eq!(view.ranks.len(), 1);
    }

    #[test]
    fn machines_that_leave_and_join_are_named() {
        let members = |hosts: &[&str]| -> Vec<GroupMember> {
            let ranks = (0..).zip(hosts);
            ranks.map(|(rank, host)| member(rank, host)).collect()
        };
        let changes = |before: &[&str], now: &[&str]| differences(&members(before), &members(now));
        assert!(
            changes(&[], &["studio", "air"]).is_empty(),
            "the first group"
        );
        assert!(changes(&["studio", "air"], &["studio", "air"]).is_empty());
        assert_eq!(
            changes(&["studio", "air", "box", "box"], &["studio", "mini", "box"]),
            [
                "box now trains in 1 process instead of 2",
                "air has left the group",
                "mini has joined the group"
            ]
        );
        let many = ["a", "b", "c", "d", "e", "f"];
        assert_eq!(changes(&many, &["f"]), ["5 machines have left the group"]);
        assert_eq!(changes(&["f"], &many), ["5 machines have joined the group"]);
    }
}
