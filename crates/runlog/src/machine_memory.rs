//! The memory of each machine of a group over time. The longer a run trains, the coarser its older
//! points are.

use crate::machines::{GroupMember, MachineShare};
use crate::time_series::{Columns, Series};

/// Values of each point: see [`memory_values`].
pub(crate) const MACHINE_COLUMNS: usize = 3;
/// Most points of a process; then neighbors are merged.
const MAX_POINTS: usize = 4096;
/// Most processes whose memory is recorded.
const MAX_PROCESSES: usize = 64;

/// The memory of the processes that train a run, or have trained it.
#[derive(Debug, Clone, Default)]
pub(crate) struct MachineMemory {
    histories: Vec<History>,
    /// For each rank of the present group, its place in `histories`.
    places: Vec<(u32, usize)>,
}

/// The memory of one process over time. Ranks change when a group restarts, so a process is known
/// by its machine and by its number among the processes there.
#[derive(Debug, Clone)]
struct History {
    host: String,
    number: usize,
    points: Series<MACHINE_COLUMNS>,
}

/// Ebb's highest footprint, what the system and other apps use, and the budget line on top of
/// that; in bytes.
fn memory_values(share: &MachineShare) -> [f64; MACHINE_COLUMNS] {
    let others = share.others_bytes as f64;
    let budget_line = others + share.budget_bytes as f64;
    [share.highest_bytes() as f64, others, budget_line]
}

impl MachineMemory {
    /// Continues with the processes of a new group. The memory of Ebb on a machine that has left,
    /// or that was away, is 0 meanwhile.
    pub(crate) fn begin(&mut self, members: &[GroupMember], at_ms: u64) {
        let before = std::mem::take(&mut self.places);
        let was_there = |place: usize| before.iter().any(|(_, other)| *other == place);
        for (index, member) in members.iter().enumerate() {
            let same_host = |other: &&GroupMember| other.host == member.host;
            let number = members[..index].iter().filter(same_host).count();
            let known = self.histories.iter();
            let known = known
                .enumerate()
                .find(|(_, history)| history.host == member.host && history.number == number);
            let known = known.map(|(place, _)| place);
            let place = known.unwrap_or(self.histories.len());
            if known.is_none() && place < MAX_PROCESSES {
                self.histories.push(History {
                    host: member.host.clone(),
                    number,
                    points: Series::default(),
                });
            } else if let Some(history) = self.histories.get_mut(place)
                && !was_there(place)
            {
                history.push(at_ms, [0.0; MACHINE_COLUMNS]);
            }
            if place < self.histories.len() {
                self.places.push((member.rank, place));
            }
        }
        for (_, place) in before {
            if !self.places.iter().any(|(_, other)| *other == place) {
                self.histories[place].push(at_ms, [0.0; MACHINE_COLUMNS]);
            }
        }
    }

    /// The run was resumed, and its clock may have been set back.
    pub(crate) fn end(&mut self, at_ms: u64) {
        for history in &mut self.histories {
            history.points.truncate_after(at_ms as f64);
        }
    }

    /// Adds what a process reported.
    pub(crate) fn add(&mut self, share: &MachineShare, at_ms: u64) {
        // A rank that has reported nothing yet knows no memory.
        if share.highest_bytes() == 0 {
            return;
        }
        if let Some(place) = self.place(share.rank) {
            self.histories[place].push(at_ms, memory_values(share));
        }
    }

    /// The memory of a rank of the present group over time; `None` if it is not recorded.
    pub(crate) fn of_rank(&self, rank: u32) -> Option<Columns<'_, MACHINE_COLUMNS>> {
        let history = &self.histories[self.place(rank)?];
        (history.points.len() > 0).then(|| history.points.all())
    }

    fn place(&self, rank: u32) -> Option<usize> {
        let found = self.places.iter().find(|(other, _)| *other == rank);
        found.map(|(_, place)| *place)
    }
}

impl History {
    fn push(&mut self, at_ms: u64, values: [f64; MACHINE_COLUMNS]) {
        if self.points.len() >= MAX_POINTS {
            self.points = merged_pairs(&self.points.all());
        }
        self.points.push(at_ms as f64, values);
    }
}

/// Half as many points: of every two, the one with the higher footprint, and the lower budget
/// line.
fn merged_pairs(points: &Columns<MACHINE_COLUMNS>) -> Series<MACHINE_COLUMNS> {
    let mut merged = Series::default();
    let value = |column: usize, at: usize| f64::from(points.values[column][at]);
    for first in (0..points.at_ms.len()).step_by(2) {
        let second = (first + 1).min(points.at_ms.len() - 1);
        let highest = if value(0, second) > value(0, first) {
            second
        } else {
            first
        };
        let budget = value(2, first).min(value(2, second));
        merged.push(
            points.at_ms[first],
            [value(0, highest), value(1, highest), budget],
        );
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::member;

    fn share(rank: u32, peak_bytes: u64) -> MachineShare {
        MachineShare {
            rank,
            own_bytes: 100,
            peak_bytes,
            others_bytes: 1000,
            budget_bytes: 700,
            ..MachineShare::default()
        }
    }

    /// Times and Ebb's footprints of a rank.
    fn footprints(memory: &MachineMemory, rank: u32) -> Vec<(f64, f32)> {
        let all = memory.of_rank(rank).expect("it is recorded");
        let times = all.at_ms.iter().copied();
        times.zip(all.values[0].iter().copied()).collect()
    }

    #[test]
    fn each_process_keeps_its_memory_when_ranks_change() {
        let mut memory = MachineMemory::default();
        memory.begin(
            &[member(0, "studio"), member(1, "air"), member(2, "mini")],
            0,
        );
        assert!(memory.of_rank(1).is_none(), "nothing was reported");
        memory.add(&share(1, 400), 10);
        memory.add(&share(2, 500), 10);
        let air = memory.of_rank(1).expect("it is recorded");
        assert_eq!(air.values, [&[400.0][..], &[1000.0], &[1700.0]]);
        // Without air, mini is rank 1.
        memory.begin(&[member(0, "studio"), member(1, "mini")], 20);
        memory.add(&share(1, 50), 30);
        assert_eq!(footprints(&memory, 1), [(10.0, 500.0), (30.0, 100.0)]);
        assert!(memory.of_rank(2).is_none());
        // Air is back.
        memory.begin(
            &[member(0, "studio"), member(1, "mini"), member(2, "air")],
            40,
        );
        memory.add(&share(2, 300), 50);
        let air = [(10.0, 400.0), (20.0, 0.0), (40.0, 0.0), (50.0, 300.0)];
        assert_eq!(footprints(&memory, 2), air);
        // The run continues from a checkpoint, and the clock is set back.
        memory.end(45);
        assert_eq!(footprints(&memory, 2), air[..3]);
    }

    #[test]
    fn two_processes_of_a_machine_are_distinguished() {
        let mut memory = MachineMemory::default();
        memory.begin(&[member(0, "box"), member(1, "box")], 0);
        memory.add(&share(0, 200), 1);
        memory.add(&share(1, 300), 1);
        assert_eq!(footprints(&memory, 0), [(1.0, 200.0)]);
        assert_eq!(footprints(&memory, 1), [(1.0, 300.0)]);
    }

    #[test]
    fn a_long_run_keeps_its_peaks_in_few_points() {
        let mut memory = MachineMemory::default();
        let members: Vec<_> = (0..100)
            .map(|rank| member(rank, &rank.to_string()))
            .collect();
        memory.begin(&members, 0);
        for second in 0..100_000 {
            let peak = if second == 777 { 9000 } else { 400 };
            memory.add(&share(3, peak), second * 1000);
        }
        let points = footprints(&memory, 3);
        assert!(points.len() <= MAX_POINTS && points.len() >= MAX_POINTS / 2);
        assert_eq!(points.iter().filter(|(_, own)| *own == 9000.0).count(), 1);
        assert_eq!(points.last(), Some(&(99_999_000.0, 400.0)));
        assert!(memory.of_rank(99).is_none(), "too many processes");
    }
}
