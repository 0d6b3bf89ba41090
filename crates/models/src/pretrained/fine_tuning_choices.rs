//! The ways to fine-tune that a user can choose from, each a single word for the window.

use super::{ALPHA_PER_RANK, FineTuningSettings, Pretrained};
use crate::hub_format::{FineTuning, TrainedLayers};
use crate::parameter_builder::AdapterShape;
use tape::Bits;

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
        let words = words.chain([Pretrained::adapter_word(), "head".to_owned()]);
        words.filter_map(|word| self.choice(word)).collect()
    }

    /// The word for the current fine-tuning.
    pub fn current_choice(&self) -> String {
        match self.tuning.adapter {
            Some(shape) => format!("{ADAPTER}{}", shape.rank),
            None => self.tuning.trained.name(),
        }
    }

    /// The choice that trains adapters.
    fn adapter_word() -> String {
        format!("{ADAPTER}{RANK}")
    }

    /// The choice that trains a smaller part without adapters: only a new head or, if the network
    /// gets none, at most the second half of the blocks. `None` if there is none, and for a network
    /// with adapters, which leave less to train.
    pub fn smaller_part(&self) -> Option<FineTuningChoice> {
        let trained = self.tuning.trained;
        if self.tuning.adapter.is_some() || trained == TrainedLayers::Head {
            return None;
        }
        let trained_blocks = match trained {
            TrainedLayers::Last(last) => last,
            TrainedLayers::All | TrainedLayers::Head => self.blocks(),
        };
        let last = LAST.into_iter().find(|last| 2 * last <= trained_blocks);
        let last = last.map(|last| TrainedLayers::Last(last).name());
        let head = self.choice(TrainedLayers::Head.name());
        head.or_else(|| self.choice(last?))
    }

    /// Whether the network is a language model, which gets no new head.
    pub fn is_language_model(&self) -> bool {
        !self.folder.architecture().network().has_new_head()
    }

    /// The same weights with adapters of the usual rank instead of trained weights. `None` if they
    /// have adapters, or support none.
    pub fn with_adapters(&self) -> Option<Self> {
        let shape = AdapterShape::new(RANK as usize, ALPHA_PER_RANK * f64::from(RANK));
        let tuning = FineTuning {
            trained: TrainedLayers::Head,
            adapter: Some(shape),
            ..self.tuning
        };
        let has_adapters = self.tuning.adapter.is_some();
        (!has_adapters).then(|| self.tuned(tuning)).flatten()
    }

    /// The same weights with the frozen ones in `bits`. `None` if all weights train, or if the
    /// frozen ones have no more bits already.
    pub fn with_bits(&self, bits: Bits) -> Option<Self> {
        let has_frozen = self.tuning.trained != TrainedLayers::All || self.tuning.adapter.is_some();
        let stored = self.tuning.bits;
        let is_less = stored.is_none_or(|stored| stored == Bits::Eight && bits != Bits::Eight);
        let tuning = FineTuning {
            bits: Some(bits),
            ..self.tuning
        };
        (has_frozen && is_less)
            .then(|| self.tuned(tuning))
            .flatten()
    }

    /// The same weights with another fine-tuning, if the network supports it.
    fn tuned(&self, tuning: FineTuning) -> Option<Self> {
        let tuned = Pretrained {
            tuning,
            ..self.clone()
        };
        tuned.check_tuning().is_ok().then_some(tuned)
    }

    /// A choice, if the network supports it.
    fn choice(&self, word: String) -> Option<FineTuningChoice> {
        let settings = FineTuningSettings::default().with_choice(&word);
        let tuned = self.tuned(settings.tuning(self.folder.blocks()).ok()?)?;
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
