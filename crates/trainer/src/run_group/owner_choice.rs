//! Decides at the start of a session which ranks of a group have the optimizer's moments. All ranks
//! decide the same, because they decide from the same figures.

use super::{Owners, RunGroup, unreadable_message};
use crate::error::Result;
use pressure::{StateShortage, WholeStateNeed};
use runlog::{ShardingChoice, format_bytes};

/// Largest group in which rank 0 may have the moments for all ranks.
const SMALL_GROUP: usize = 4;
/// The memory that a rank needs for its parameters, and how much it may use.
#[derive(Debug, Clone)]
pub(crate) struct StateMemory {
    /// Bytes of the moments of each parameter, by position.
    pub(crate) moments: Vec<u64>,
    /// What this process needs if it has all moments.
    pub(crate) whole: WholeStateNeed,
    /// Bytes of the machine's memory that the processes on it may use together; 0 if unknown.
    pub(crate) machine_bytes: u64,
    /// Most bytes that this process may use of them; 0 without such a limit.
    pub(crate) process_bytes: u64,
}

/// Which rank has the moments of which parameter, and why. By default, every rank has all.
#[derive(Debug, Clone, Default)]
pub(crate) struct OwnerChoice {
    owners: Option<Owners>,
    /// For the event about the group, as the end of its sentence.
    description: String,
}

/// Where the moments are, and the first rank that has no memory for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Placement {
    Everywhere,
    AtRank0(ShortRank),
    InParts(ShortRank),
}

/// A rank without memory for all moments, and what it has too little of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ShortRank {
    rank: usize,
    shortage: StateShortage,
}

impl OwnerChoice {
    /// Decides for a group. With [`ShardingChoice::Auto`], all ranks have to call it at the same
    /// time.
    ///
    /// # Errors
    /// The group is broken.
    pub(crate) fn new(
        group: &RunGroup,
        sharding: ShardingChoice,
        state: &StateMemory,
    ) -> Result<Self> {
        let (ranks, rank) = (group.size(), group.rank());
        if ranks < 2 {
            return Ok(OwnerChoice::default());
        }
        let in_parts = || Some(Owners::new(&state.moments, ranks, rank));
        match sharding {
            ShardingChoice::None => Ok(OwnerChoice::default()),
            ShardingChoice::Optimizer => Ok(OwnerChoice {
                owners: in_parts(),
                description: "; each machine has a part of the optimizer state".to_owned(),
            }),
            ShardingChoice::Auto => {
                let placement = Placement::new(&gather_memory(group, state)?);
                Ok(OwnerChoice {
                    owners: match placement {
                        Placement::Everywhere => None,
                        Placement::AtRank0(_) => {
                            Some(Owners::all_at_rank_0(state.moments.len(), rank))
                        }
                        Placement::InParts(_) => in_parts(),
                    },
                    description: placement.describe(group),
                })
            }
        }
    }

    /// Which rank has the moments of which parameter; `None` if every rank has all.
    pub(crate) fn owners(&self) -> Option<&Owners> {
        self.owners.as_ref()
    }

    /// The choice and its reason, as the end of a sentence. Empty if the user chose that every rank
    /// has all moments.
    pub(super) fn describe(&self) -> &str {
        &self.description
    }
}

impl Placement {
    /// Places moments on ranks with this memory.
    fn new(ranks: &[RankMemory]) -> Self {
        let short = ranks.iter().enumerate().find_map(|(rank, memory)| {
            let shortage = memory.whole.shortage(memory.limit(ranks))?;
            Some(ShortRank { rank, shortage })
        });
        match short {
            None => Placement::Everywhere,
            Some(short) if ranks.len() <= SMALL_GROUP && short.rank > 0 => {
                Placement::AtRank0(short)
            }
            Some(short) => Placement::InParts(short),
        }
    }

    fn describe(self, group: &RunGroup) -> String {
        let (placed, short) = match self {
            Placement::Everywhere => {
                return "; each machine has the whole optimizer state, which fits into its memory"
                    .to_owned();
            }
            Placement::AtRank0(short) => ("only rank 0 has the optimizer state", short),
            Placement::InParts(short) => ("each machine has a part of the optimizer state", short),
        };
        let host = group.member(short.rank).host;
        match short.shortage {
            StateShortage::State {
                needed_bytes,
                allowed_bytes,
            } => format!(
                "; {placed}, because weights, gradients and the whole optimizer state need {}, but {host} has only {} for them",
                format_bytes(needed_bytes),
                format_bytes(allowed_bytes)
            ),
            StateShortage::MicroBatch {
                needed_bytes,
                allowed_bytes,
            } => format!(
                "; {placed}, because the smallest micro-batch with the whole optimizer state needs {}, but {host} may use only {}",
                format_bytes(needed_bytes),
                format_bytes(allowed_bytes)
            ),
        }
    }
}

/// The memory of each rank, in the order of ranks.
fn gather_memory(group: &RunGroup, state: &StateMemory) -> Result<Vec<RankMemory>> {
    let whole = [state.whole.state_bytes, state.whole.peak_bytes];
    let mine = [state.machine_bytes, state.process_bytes];
    let mine = serde_json::to_vec(&[mine, whole]).map_err(unreadable_message)?;
    let all = group.gather(mine)?.into_iter().enumerate();
    let memory = |(rank, bytes): (usize, Vec<u8>)| {
        let bytes = serde_json::from_slice(&bytes).map_err(unreadable_message)?;
        let [limits, whole]: [[u64; 2]; 2] = bytes;
        let [machine_bytes, process_bytes] = limits;
        let [state_bytes, peak_bytes] = whole;
        Ok(RankMemory {
            host: group.member(rank).host,
            machine_bytes,
            process_bytes,
            whole: WholeStateNeed {
                state_bytes,
                peak_bytes,
            },
        })
    };
    all.map(memory).collect()
}

/// The memory that a rank may use, and what it needs with all moments.
struct RankMemory {
    host: String,
    machine_bytes: u64,
    process_bytes: u64,
    whole: WholeStateNeed,
}

impl RankMemory {
    /// Most bytes of this rank, which shares its machine with some of `all` ranks; 0 if unknown.
    /// Ranks of one host that see different amounts of memory are in separate memory groups.
    fn limit(&self, all: &[RankMemory]) -> u64 {
        let shares = |other: &&RankMemory| {
            other.host == self.host && other.machine_bytes == self.machine_bytes
        };
        let sharing = all.iter().filter(shares).count().max(1) as u64;
        let limits = [self.machine_bytes / sharing, self.process_bytes].into_iter();
        limits.filter(|bytes| *bytes > 0).min().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use distributed::{ThreadOptions, thread_ranks};

    const GB: u64 = 1 << 30;

    fn need(state_bytes: u64, peak_bytes: u64) -> WholeStateNeed {
        WholeStateNeed {
            state_bytes,
            peak_bytes,
        }
    }

    /// Where the moments are, and the first rank that is short: "everywhere", "rank 0" or "parts".
    fn placed(whole: WholeStateNeed, limits: &[u64]) -> (&'static str, Option<usize>) {
        let rank = |(rank, limit): (usize, &u64)| RankMemory {
            host: format!("machine {rank}"),
            machine_bytes: 0,
            process_bytes: *limit,
            whole,
        };
        let ranks: Vec<RankMemory> = limits.iter().enumerate().map(rank).collect();
        match Placement::new(&ranks) {
            Placement::Everywhere => ("everywhere", None),
            Placement::AtRank0(short) => ("rank 0", Some(short.rank)),
            Placement::InParts(short) => ("parts", Some(short.rank)),
        }
    }

    #[test]
    fn the_state_is_shared_only_if_it_does_not_fit_everywhere() {
        let of_9_gb = |limits: &[u64]| placed(need(9 * GB, 0), limits);
        assert_eq!(of_9_gb(&[12 * GB, 16 * GB]), ("everywhere", None));
        // Unknown limits decide nothing.
        assert_eq!(of_9_gb(&[0, 0]), ("everywhere", None));
        assert_eq!(of_9_gb(&[64 * GB, 8 * GB]), ("rank 0", Some(1)));
        // A quarter is for activations.
        assert_eq!(of_9_gb(&[11 * GB, 16 * GB]), ("parts", Some(0)));
        let large = [64 * GB, 64 * GB, 8 * GB, 64 * GB, 64 * GB];
        assert_eq!(of_9_gb(&large[..4]), ("rank 0", Some(2)));
        assert_eq!(of_9_gb(&large), ("parts", Some(2)));
    }

    #[test]
    fn a_plan_that_fits_only_in_parts_is_trained_in_parts() {
        let placed = |limits: &[u64]| placed(need(4 * GB, 9 * GB), limits);
        assert_eq!(placed(&[9 * GB, 9 * GB]), ("everywhere", None));
        assert_eq!(placed(&[8 * GB, 8 * GB]), ("parts", Some(0)));
        assert_eq!(placed(&[9 * GB, 8 * GB]), ("rank 0", Some(1)));
    }

    #[test]
    fn ranks_share_the_memory_of_their_machine_unless_they_are_in_memory_groups() {
        let rank = |host: &str, machine_bytes, process_bytes| RankMemory {
            host: host.to_owned(),
            machine_bytes,
            process_bytes,
            whole: WholeStateNeed::default(),
        };
        let limits = |ranks: &[RankMemory]| -> Vec<u64> {
            ranks.iter().map(|rank| rank.limit(ranks)).collect()
        };
        let pair = [
            rank("studio", 64, 0),
            rank("studio", 64, 20),
            rank("air", 8, 0),
        ];
        assert_eq!(limits(&pair), [32, 20, 8]);
        let groups = [rank("studio", 15, 0), rank("studio", 4, 0)];
        assert_eq!(limits(&groups), [15, 4]);
        // A GPU with memory of its own, and a machine that cannot be read.
        let gpus = [rank("box", 0, 80), rank("box", 0, 80), rank("other", 0, 0)];
        assert_eq!(limits(&gpus), [80, 80, 0]);
    }

    /// The choices of all ranks of a group whose processes have these limits.
    fn choices(sharding: ShardingChoice, limits: &[u64]) -> Vec<OwnerChoice> {
        let ranks = thread_ranks(limits.len(), ThreadOptions::default());
        std::thread::scope(|scope| {
            let start = |(rank, process_bytes): (distributed::ThreadRank, u64)| {
                scope.spawn(move || {
                    let group = RunGroup::new(rank.join().expect("all ranks join"));
                    let state = StateMemory {
                        moments: vec![4 * GB, GB, GB],
                        whole: need(12 * GB, 0),
                        machine_bytes: 0,
                        process_bytes,
                    };
                    let choice = OwnerChoice::new(&group, sharding, &state);
                    group.leave().expect("all ranks leave");
                    choice.expect("no rank is lost")
                })
            };
            let limits = limits.iter().copied();
            let threads: Vec<_> = ranks.into_iter().zip(limits).map(start).collect();
            let choices = threads.into_iter().map(|thread| thread.join());
            choices.collect::<std::thread::Result<_>>()
        })
        .expect("no rank panics")
    }

    /// For each rank, which parameters it owns; `None` if it has all moments.
    fn owned(choices: &[OwnerChoice]) -> Vec<Option<Vec<bool>>> {
        let mine = |choice: &OwnerChoice| choice.owners().map(Owners::mine);
        choices.iter().map(mine).collect()
    }

    #[test]
    fn all_ranks_choose_the_same_and_name_the_reason() {
        let fits = choices(ShardingChoice::Auto, &[32 * GB, 32 * GB]);
        assert_eq!(owned(&fits), [None, None]);
        assert!(fits[1].describe().ends_with("which fits into its memory"));
        let small = choices(ShardingChoice::Auto, &[32 * GB, 8 * GB]);
        assert_eq!(
            owned(&small),
            [Some(vec![true; 3]), Some(vec![false; 3])],
            "rank 0 has all"
        );
        let reason = small[0].describe();
        assert_eq!(reason, small[1].describe());
        let (begin, end) = (
            "; only rank 0 has the optimizer state, because weights, gradients and the whole optimizer state need ",
            format!(" has only {} for them", format_bytes(6 * GB)),
        );
        assert!(
            reason.starts_with(begin) && reason.ends_with(&end),
            "{reason}"
        );
        let parts = choices(ShardingChoice::Auto, &[8 * GB, 32 * GB]);
        assert_eq!(
            owned(&parts),
            [
                Some(vec![true, false, false]),
                Some(vec![false, true, true])
            ]
        );
        assert!(parts[0].describe().starts_with("; each machine has a part"));
    }

    #[test]
    fn a_choice_of_the_user_is_followed() {
        let none = choices(ShardingChoice::None, &[GB, GB]);
        assert_eq!(owned(&none), [None, None]);
        assert_eq!(none[0].describe(), "");
        let parts = choices(ShardingChoice::Optimizer, &[64 * GB, 64 * GB]);
        assert!(parts.iter().all(|choice| choice.owners().is_some()));
        let alone = RunGroup::default();
        let state = StateMemory {
            moments: vec![GB],
            whole: need(2 * GB, 0),
            machine_bytes: 1,
            process_bytes: 1,
        };
        for sharding in [ShardingChoice::Auto, ShardingChoice::Optimizer] {
            let choice = OwnerChoice::new(&alone, sharding, &state).expect("nothing is exchanged");
            assert!(choice.owners().is_none());
        }
    }
}
