//! The machines of a run that several train, folded from its events.

use crate::amounts::{format_bytes, format_percent};
use crate::event::RunEvent;
use crate::machines::{GroupMember, MachineShare};
use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// One rank as it is shown: who it is, and what it did last.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, TS)]
pub struct MachineView {
    /// Who it is.
    pub member: GroupMember,
    /// What it did since the previous report.
    pub last: MachineShare,
    /// Its part of the samples since the previous report, `0.0..=1.0`.
    pub share: f64,
    /// Samples that it has processed since the group began.
    pub samples: u64,
}

impl MachineView {
    /// "rank 1 (air)".
    pub fn name(&self) -> String {
        format!("rank {} ({})", self.member.rank, self.member.host)
    }

    /// "rank 1 (air): 38 % of the samples, micro-batch 8, 412 MB of 2.1 GB, working 93 % of the
    /// time".
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
        if let Some(utilization) = self.last.utilization() {
            let percent = format_percent(utilization);
            parts.push(format!("working {percent} of the time"));
        }
        format!("{}: {}", self.name(), parts.join(", "))
    }
}

/// The machines of a run, folded from its events. Empty for a run on one machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Machines {
    pub(crate) views: Vec<MachineView>,
    /// Part of the time that adding up the gradients takes, `0.0..=1.0`.
    pub(crate) exchange_fraction: Option<f64>,
}

impl Machines {
    /// Takes the members of a new group; none if the run goes on alone.
    pub(crate) fn begin(&mut self, members: &[GroupMember]) {
        let view = |member: &GroupMember| MachineView {
            member: member.clone(),
            ..MachineView::default()
        };
        *self = Machines {
            views: members.iter().map(view).collect(),
            exchange_fraction: None,
        };
    }

    pub(crate) fn apply(&mut self, event: &RunEvent) {
        let RunEvent::Machines {
            exchange_ms,
            machines,
            ..
        } = event
        else {
            return;
        };
        let all: u64 = machines.iter().map(|machine| machine.samples).sum();
        for share in machines {
            let rank = share.rank;
            let Some(view) = self.views.iter_mut().find(|v| v.member.rank == rank) else {
                continue;
            };
            view.samples += share.samples;
            view.share = share.samples as f64 / all.max(1) as f64;
            view.last = share.clone();
        }
        let all_ms = machines
            .first()
            .map(|rank_0| rank_0.busy_ms + rank_0.wait_ms);
        let all_ms = all_ms.filter(|all_ms| *all_ms > 0.0);
        self.exchange_fraction = all_ms.map(|all_ms| (exchange_ms / all_ms).clamp(0.0, 1.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(rank: u32, host: &str) -> GroupMember {
        GroupMember {
            rank,
            host: host.to_owned(),
            ..GroupMember::default()
        }
    }

    #[test]
    fn shares_follow_the_newest_report() {
        let mut machines = Machines::default();
        machines.begin(&[member(0, "studio"), member(1, "air")]);
        let share = |rank, samples, busy_ms, is_suspended| MachineShare {
            rank,
            samples,
            busy_ms,
            wait_ms: 1000.0 - busy_ms,
            micro_batch: 8,
            own_bytes: 400 << 20,
            budget_bytes: 2 << 30,
            is_suspended,
            ..MachineShare::default()
        };
        let report = |samples: [u64; 2], is_suspended| RunEvent::Machines {
            at_ms: 5,
            step: 3,
            exchange_ms: 80.0,
            machines: vec![
                share(0, samples[0], 900.0, false),
                share(1, samples[1], 450.0, is_suspended),
            ],
        };
        machines.apply(&report([48, 16], false));
        machines.apply(&report([60, 20], false));
        let air = &machines.views[1];
        assert_eq!((air.samples, air.share), (36, 0.25));
        assert_eq!(machines.exchange_fraction, Some(0.08));
        assert_eq!(
            air.describe(),
            "rank 1 (air): 25.0 % of the samples, micro-batch 8, 400 MB of 2.0 GB, working 45.0 % of the time"
        );
        machines.apply(&report([80, 0], true));
        let air = machines.views[1].describe();
        assert!(air.contains("suspended: its memory is short"), "{air}");
    }
}
