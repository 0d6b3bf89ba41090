//! What the ranks of a group report at the end of each step, and the events that rank 0 emits about
//! it.

use super::{MachineReport, RunGroup, StepExchange, unreadable_message};
use crate::error::Result;
use runlog::{GroupMember, MachineShare, RunEvent, describe_group, format_count};
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

    /// The event that names the ranks, which exchange as `exchange` says; `None` alone.
    pub(crate) fn group_event(
        &self,
        exchange: &StepExchange,
        at_ms: u64,
        step: u64,
    ) -> Option<RunEvent> {
        (!self.members.is_empty()).then(|| RunEvent::Group {
            at_ms,
            step,
            message: describe_group(&self.members) + &exchange.describe(),
            members: self.members.clone(),
            sync_every: exchange.sync_every(),
        })
    }

    /// Leaves out the ranks that have ended: only those with these numbers are left. Reports that
    /// have not arrived are forgotten. Returns the event about it, as [`MachineLog::group_event`].
    pub(crate) fn leave_out(
        &mut self,
        left: &[u32],
        exchange: &StepExchange,
        at_ms: u64,
        step: u64,
    ) -> Option<RunEvent> {
        let (members, ended): (Vec<_>, Vec<_>) = std::mem::take(&mut self.members)
            .into_iter()
            .partition(|member| left.contains(&member.rank));
        self.members = members;
        self.shares.retain(|share| left.contains(&share.rank));
        (self.has_changed, self.restores_ranks) = (true, false);
        let name = |member: &GroupMember| format!("rank {} ({})", member.rank, member.host);
        let names = ended.iter().map(name).collect::<Vec<_>>().join(", ");
        let mut event = self.group_event(exchange, at_ms, step)?;
        if let RunEvent::Group { message, .. } = &mut event {
            let step = format_count(step);
            *message += &format!("; {names} ended, and the others continue at step {step}");
        }
        Some(event)
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
        let ranks = self.members.iter().zip(&mut self.shares);
        for (report, (member, sum)) in reports.into_iter().zip(ranks) {
            let (rank, host) = (member.rank, member.host.clone());
            self.has_changed |= report.share.is_suspended != sum.is_suspended;
            *sum = MachineShare {
                rank,
                samples: sum.samples + report.share.samples,
                busy_ms: sum.busy_ms + report.share.busy_ms,
                wait_ms: sum.wait_ms + report.share.wait_ms,
                exchange_ms: sum.exchange_ms + report.share.exchange_ms,
                peak_bytes: sum.peak_bytes.max(report.share.peak_bytes),
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
            peak_bytes: 0,
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
    use tape::Parameters;

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
                peak_bytes: 100 * samples,
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
        let event = log.due_event(9, 3);
        let peaks: Vec<u64> = match &event {
            Some(RunEvent::Machines { machines, .. }) => {
                machines.iter().map(|machine| machine.peak_bytes).collect()
            }
            _ => Vec::new(),
        };
        assert_eq!(peaks, [500, 300], "the highest since the previous event");
        assert_eq!(shares(event), [10, 3], "a rank was suspended");
    }

    #[test]
    fn the_event_about_the_group_names_a_rounded_exchange() {
        let member = |rank| GroupMember {
            rank,
            host: format!("host{rank}"),
            ..GroupMember::default()
        };
        let log = MachineLog::new(vec![member(0), member(1)]);
        let exact = StepExchange::default();
        let alone = MachineLog::default().group_event(&exact, 0, 0);
        assert!(alone.is_none());
        let message = |exchange: &StepExchange| match log.group_event(exchange, 0, 0) {
            Some(RunEvent::Group { message, .. }) => message,
            other => panic!("{other:?}"),
        };
        let mut rounded = StepExchange::default();
        rounded.prepare(&Parameters::default(), true);
        assert_eq!(
            message(&rounded),
            format!("{}; gradients are exchanged in bf16", message(&exact))
        );
    }

    #[test]
    fn the_event_about_ranks_that_have_ended_names_them() {
        let member = |rank| GroupMember {
            rank,
            host: format!("host{rank}"),
            ..GroupMember::default()
        };
        let mut log = MachineLog::new((0..4).map(member).collect());
        let event = log.leave_out(&[0, 2], &StepExchange::default(), 9, 1234);
        let Some(RunEvent::Group {
            message, members, ..
        }) = event
        else {
            panic!("{event:?}");
        };
        assert_eq!(members, [member(0), member(2)]);
        assert_eq!(
            message,
            "Training on 2 machines: host0 (rank 0), host2 (rank 2); rank 1 (host1), rank 3 (host3) ended, and the others continue at step 1,234"
        );
        // The reports of the ranks that are left.
        let report = |samples| MachineReport {
            share: MachineShare {
                samples,
                ..MachineShare::default()
            },
            ..MachineReport::default()
        };
        log.add(vec![report(5), report(3)], 10, 1235);
        let Some(RunEvent::Machines { machines, .. }) = log.due_event(10, 1235) else {
            panic!("the group has changed");
        };
        let shares = machines.iter().map(|share| (share.rank, share.samples));
        assert_eq!(shares.collect::<Vec<_>>(), [(0, 5), (2, 3)]);
    }
}
