//! What of published weights a person may choose to train, each by one word, and the config that such a word makes. What is
//! offered is what [`Origin::of`] allows.
//!
//! Refuses to know which choice is best.

use super::{Origin, tuning};
use crate::published::{Trains, Tuning};
use runlog::RunConfig;

/// Rank of the adapters that are offered.
const RANK: u32 = 8;
/// How many last blocks are offered.
const LAST: [u32; 3] = [1, 2, 4];
/// The word before an adapter's rank.
const ADAPTER: &str = "adapter:";

/// One choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrainsChoice {
    /// `all`, `last:2`, `head`, `adapter:8`: for [`Origin::training`].
    pub word: String,
    /// "The last 2 blocks".
    pub label: String,
}

impl Origin {
    /// The config in which that trains which the word says. A word that nobody offered is refused when the config is checked.
    pub fn training(word: &str, config: RunConfig) -> RunConfig {
        let rank = word.strip_prefix(ADAPTER).map(str::parse);
        match rank {
            Some(Ok(rank)) => RunConfig {
                train_only: None,
                adapter_rank: Some(rank),
                ..config
            },
            _ => RunConfig {
                train_only: Some(word.to_owned()),
                adapter_rank: None,
                ..config
            },
        }
    }

    /// What may train of these weights, from everything to next to nothing.
    pub fn choices(&self) -> Vec<TrainsChoice> {
        let last = LAST.into_iter().rev().filter(|last| *last < self.blocks());
        let last = last.map(|last| format!("last:{last}"));
        let words = std::iter::once("all".to_owned()).chain(last);
        let words = words.chain([format!("{ADAPTER}{RANK}"), "head".to_owned()]);
        let of = |word: String| {
            let config = Origin::training(&word, RunConfig::default());
            let tuned = Origin {
                tuning: tuning(&config, self.folder.blocks()).ok()?,
                ..self.clone()
            };
            tuned.allowed().ok()?;
            let label = tuned.label();
            Some(TrainsChoice { word, label })
        };
        words.filter_map(of).collect()
    }

    /// The word for what trains.
    pub fn chosen(&self) -> String {
        match self.tuning.adapter {
            Some(shape) => format!("{ADAPTER}{}", shape.rank),
            None => super::trains_name(self.tuning.trains),
        }
    }

    fn label(&self) -> String {
        match self.tuning {
            Tuning {
                adapter: Some(shape),
                ..
            } => format!("Adapters of rank {} (LoRA)", shape.rank),
            Tuning { trains, .. } => match trains {
                Trains::All => "Everything".to_owned(),
                Trains::Last(1) => "The last block".to_owned(),
                Trains::Last(last) => format!("The last {last} blocks"),
                Trains::Head => "A new head alone".to_owned(),
            },
        }
    }
}
