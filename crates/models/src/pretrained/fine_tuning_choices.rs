//! The ways to fine-tune that a user can choose from, each a single word for the window.

use super::{FineTuningSettings, Pretrained};
use crate::hub_format::TrainedLayers;

/// Rank of the offered adapters.
const RANK: u32 = 8;
/// Numbers of last blocks that are offered.
const LAST: [u32; 3] = [4, 2, 1];
/// Prefix of an adapter's rank.
const ADAPTER: &str = "adapter:";

/// One way to fine-tune.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FineTuningChoice {
    /// `all`, `last:2`, `head` or `adapter:8`, for [`FineTuningSettings::with_choice`].
    pub word: String,
    /// "The last 2 blocks".
    pub label: String,
}

impl FineTuningSettings {
    /// The settings for a choice. A word that is not a choice becomes `train_only`, which is
    /// refused when the settings are checked.
    #[must_use]
    pub fn with_choice(self, word: &str) -> Self {
        let rank = word
            .strip_prefix(ADAPTER)
            .and_then(|rank| rank.parse().ok());
        FineTuningSettings {
            train_only: rank.is_none().then(|| word.to_owned()),
            adapter_rank: rank,
            ..self
        }
    }
}

impl Pretrained {
    /// The ways to fine-tune these weights, from all parameters to the fewest.
    pub fn choices(&self) -> Vec<FineTuningChoice> {
        let last = LAST.into_iter().filter(|last| *last < self.blocks());
        let last = last.map(|last| TrainedLayers::Last(last).name());
        let words = std::iter::once("all".to_owned()).chain(last);
        let words = words.chain([format!("{ADAPTER}{RANK}"), "head".to_owned()]);
        words.filter_map(|word| self.choice(word)).collect()
    }

    /// The word for the current fine-tuning.
    pub fn current_choice(&self) -> String {
        match self.tuning.adapter {
            Some(shape) => format!("{ADAPTER}{}", shape.rank),
            None => self.tuning.trained.name(),
        }
    }

    /// A choice, if the network supports it.
    fn choice(&self, word: String) -> Option<FineTuningChoice> {
        let settings = FineTuningSettings::default().with_choice(&word);
        let tuned = Pretrained {
            tuning: settings.tuning(self.folder.blocks()).ok()?,
            ..self.clone()
        };
        tuned.check_tuning().ok()?;
        let label = match (tuned.tuning.adapter, tuned.tuning.trained) {
            (Some(shape), _) => format!("Adapters of rank {} (LoRA)", shape.rank),
            (None, TrainedLayers::All) => "Everything".to_owned(),
            (None, TrainedLayers::Last(1)) => "The last block".to_owned(),
            (None, TrainedLayers::Last(last)) => format!("The last {last} blocks"),
            (None, TrainedLayers::Head) => "Only a new head".to_owned(),
        };
        Some(FineTuningChoice { word, label })
    }
}
