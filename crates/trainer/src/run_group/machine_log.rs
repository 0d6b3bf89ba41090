//! What the ranks of a group report at the end of each step, and the events that rank 0 emits about
//! it.

use super::{Layout, MachineReport, Owners, RoundingErrors, RunGroup, unreadable_message};
use crate::error::Result;
use runlog::{CheckpointReason, GroupMember, MachineShare, RunEvent, describe_group};
use std::time::{Duration, Instant};

/// Shortest time between two events about the shares of the ranks, unless a rank was suspended or
/// has returned.
const INTERVAL: Duration = Duration::from_secs(1);

/// The members of the group, in the order of ranks.
///
/// # Errors
/// The group is broken.
pub(crate) fn gather_members(group: &RunGroup, mine: GroupMember) -> Result<Vec<GroupMember>> {
    let mine = serde_json::to_vec(&mine).map_err(unreadable_message)?;
    let all = group.gather(mine)?.into_iter();
    all.map(|bytes| serde_json::from_slice(&bytes).map_err(unreadable_message))
        .collect()
}

/// The ranks of a group, and their reports since the newest event. Empty alone.
#[derive(Default)]
pub(crate) struct MachineLog {
    members: Vec<GroupMember>,
    /// Sums since the newest event, by rank.
    shares: Vec<MachineShare>,
    /// Milliseconds that exchanges took since then.
    exchange_ms: f64,
    /// The newest exchange of this rank, in milliseconds.
    last_exchange_ms: f64,
    emitted: Option<Instant>,
    has_changed: bool,
    /// Element types and sizes of the parameters, for a rank that has freed them.
    pub(crate) layout: Layout,
    /// The rounding errors of this rank, if gradients are exchanged in bf16.
    pub(crate) rounding_errors: Option<RoundingErrors>,
    /// Which rank has the moments of which parameter; `None` if every rank has all.
    pub(crate) owners: Option<Owners>,
    /// A checkpoint could not be written because other ranks have moments. It is written after the
    /// running step.
    pub(crate) owed_checkpoint: Option<CheckpointReason>,
    /// A rank needs the weights of the running step.
    pub(crate) restores_ranks: bool,
}

impl MachineLog {
    /// Begins to log these ranks.
    pub(crate) fn new(members: Vec<GroupMember>) -> Self {
        let share = |member: &GroupMember| MachineShare {
            rank: member.rank,
            ..MachineShare::default()
        };
        MachineLog {
            shares: members.iter().map(share).collect(),
            members,
            ..MachineLog::default()
        }
    }

    /// A log of no ranks, which have the moments in parts as `owners` says.
    pub(crate) fn with_owners(owners: Option<Owners>) -> Self {
        MachineLog {
            owners,
            ..MachineLog::default()
        }
    }

    /// The event that names the ranks; `None` alone.
    pub(crate) fn group_event(&self, at_ms: u64, step: u64) -> Option<RunEvent> {
        (!self.members.is_empty()).then(|| RunEvent::Group {
            at_ms,
            step,
            message: self.describe_group(),
            members: self.members.clone(),
        })
    }

    fn describe_group(&self) -> String {
        let mut described = describe_group(&self.members);
        if self.owners.is_some() {
            described += "; each machine has a part of the optimizer state";
        }
        if self.rounding_errors.is_some() {
            described += "; gradients are exchanged in bf16";
        }
        described
    }

    /// Drops what rounding has taken away from the gradients of earlier steps.
    pub(crate) fn drop_rounding_errors(&mut self) {
        if let Some(errors) = &mut self.rounding_errors {
            errors.clear();
        }
    }

    /// Records how long this rank took to exchange the sums of a step.
    pub(crate) fn add_exchange(&mut self, milliseconds: f64) {
        self.exchange_ms += milliseconds;
        self.last_exchange_ms = milliseconds;
    }

    /// Records that the newest exchange took longer.
    pub(crate) fn extend_exchange(&mut self, milliseconds: f64) {
        self.exchange_ms += milliseconds;
        self.last_exchange_ms += milliseconds;
    }

    /// The milliseconds of the newest exchange, once.
    pub(crate) fn take_last_exchange_ms(&mut self) -> f64 {
        std::mem::take(&mut self.last_exchange_ms)
    }

    /// Adds the reports of a step, and returns the messages of other ranks as events.
    pub(crate) fn add(
        &mut self,
        reports: Vec<MachineReport>,
        at_ms: u64,
        step: u64,
    ) -> Vec<RunEvent> {
        let mut events = Vec::new();
        for (report, sum) in reports.into_iter().zip(&mut self.shares) {
            let rank = sum.rank;
            let host = self.members.get(rank as usize);
            let host = host.map_or_else(String::new, |member| member.host.clone());
            self.has_changed |= report.share.is_suspended != sum.is_suspended;
            *sum = MachineShare {
                rank,
                samples: sum.samples + report.share.samples,
                busy_ms: sum.busy_ms + report.share.busy_ms,
                wait_ms: sum.wait_ms + report.share.wait_ms,
                exchange_ms: sum.exchange_ms + report.share.exchange_ms,
                ..report.share
            };
            let message = |message| RunEvent::Machine {
                at_ms,
                step,
                rank,
                host: host.clone(),
                message,
            };
            events.extend(report.messages.into_iter().map(message));
        }
        events
    }

    /// The event about the shares of the ranks, if one is due.
    pub(crate) fn due_event(&mut self, at_ms: u64, step: u64) -> Option<RunEvent> {
        let is_recent = self.emitted.is_some_and(|at| at.elapsed() < INTERVAL);
        if self.members.is_empty() || (is_recent && !self.has_changed) {
            return None;
        }
        (self.emitted, self.has_changed) = (Some(Instant::now()), false);
        let next = |share: &MachineShare| MachineShare {
            samples: 0,
            busy_ms: 0.0,
            wait_ms: 0.0,
            exchange_ms: 0.0,
            ..share.clone()
        };
        let next = self.shares.iter().map(next).collect();
        Some(RunEvent::Machines {
            at_ms,
            step,
            exchange_ms: std::mem::take(&mut self.exchange_ms),
            machines: std::mem::replace(&mut self.shares, next),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_summed_until_an_event_is_due() {
        let member = |rank| GroupMember {
            rank,
            host: format!("host{rank}"),
            ..GroupMember::default()
        };
        let mut log = MachineLog::new(vec![member(0), member(1)]);
        let report = |samples, is_suspended, message: Option<&str>| MachineReport {
            share: MachineShare {
                samples,
                busy_ms: 10.0,
                micro_batch: 4,
                is_suspended,
                ..MachineShare::default()
            },
            messages: message.map(str::to_owned).into_iter().collect(),
            ..MachineReport::default()
        };
        let events = log.add(
            vec![report(6, false, None), report(2, false, Some("less"))],
            7,
            1,
        );
        assert!(
            matches!(&events[..], [RunEvent::Machine { rank: 1, host, .. }] if host == "host1")
        );
        log.add_exchange(3.0);
        let shares = |event: Option<RunEvent>| match event {
            Some(RunEvent::Machines { machines, .. }) => {
                machines.iter().map(|m| m.samples).collect()
            }
            _ => Vec::new(),
        };
        assert_eq!(shares(log.due_event(8, 1)), [6, 2]);
        let calm = || vec![report(5, false, None), report(3, false, None)];
        log.add(calm(), 9, 2);
        assert!(log.due_event(9, 2).is_none(), "one per second");
        log.add(vec![report(5, false, None), report(0, true, None)], 9, 3);
        assert_eq!(shares(log.due_event(9, 3)), [10, 3], "a rank was suspended");
        let alone = MachineLog::default().group_event(0, 0);
        assert!(alone.is_none());
        let message = |log: &MachineLog| match log.group_event(0, 0) {
            Some(RunEvent::Group { message, .. }) => message,
            other => panic!("{other:?}"),
        };
        let exact = message(&log);
        log.rounding_errors = Some(RoundingErrors::default());
        assert_eq!(
            message(&log),
            format!("{exact}; gradients are exchanged in bf16")
        );
        log.owners = Some(Owners::new(&[8, 8], 2, 0));
        assert_eq!(
            message(&log),
            format!(
                "{exact}; each machine has a part of the optimizer state; gradients are exchanged in bf16"
            )
        );
    }
}
