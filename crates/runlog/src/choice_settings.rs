//! Settings that are one of a few words: each is an enum whose variants carry the word that a user
//! writes.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// An enum of words, with its list of variants, `Display`, `FromStr` and serde, all from one list.
macro_rules! choice {
    ($(#[doc = $doc:literal])+ $name:ident { $($(#[doc = $help:literal])+ $variant:ident = $word:literal,)+ }) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name {
            $($(#[doc = $help])+ #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// Every choice, the default one first.
            pub const ALL: &[$name] = &[$($name::$variant),+];
            /// The word of every choice, in the same order.
            pub const WORDS: &[&str] = &[$($word),+];

            /// The word that a user writes.
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(self.name())
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<$name, String> {
                let known = $name::ALL.iter().find(|choice| choice.name() == text);
                known.copied().ok_or_else(|| format!("write one of {}", $name::WORDS.join(", ")))
            }
        }
    };
}

choice! {
    /// What a run learns.
    TaskChoice {
        /// Classes of images, regression targets, or both.
        ImageClassification = "image-classification",
        /// Classes of texts.
        TextClassification = "text-classification",
        /// The next token of documents.
        LanguageModel = "language-model",
        /// Which tokens of documents can be left out.
        TokenCompression = "token-compression",
    }
}

choice! {
    /// How weights are updated.
    OptimizerChoice {
        /// Adam with decoupled weight decay (Loshchilov and Hutter 2019).
        AdamW = "adamw",
        /// AdamW with moments of 8 bits: a quarter of the state.
        AdamW8bit = "adamw8bit",
        /// Stochastic gradient descent with momentum 0.9.
        Sgd = "sgd",
        /// Uses only the sign of its momentum, and has half the state of AdamW (Chen et al. 2023).
        Lion = "lion",
    }
}

choice! {
    /// Random changes to images during training.
    Augmentation {
        /// Random crop, mirror and color.
        Standard = "standard",
        /// Random crop of at least 80 % of the image, mirror and color.
        Light = "light",
        /// Random rotation, slant, zoom, shift and color, without crop and mirror.
        NoMirror = "no-mirror",
        /// Smaller crops, and RandAugment (Cubuk et al. 2020).
        RandAugment = "randaugment",
        /// Center crop only.
        None = "none",
    }
}

choice! {
    /// What an adapter trains.
    AdapterKind {
        /// Two low-rank matrices (Hu et al. 2021).
        Lora = "lora",
        /// They and the norm of each row of the weight (Liu et al. 2024).
        Dora = "dora",
    }
}

choice! {
    /// What the scale of adapters is divided by.
    AdapterScaling {
        /// Their rank (Hu et al. 2021).
        Standard = "standard",
        /// The square root of their rank (Kalajdzievski 2023).
        RankStabilized = "rank-stabilized",
    }
}

choice! {
    /// How two images of a batch are mixed.
    MixChoice {
        /// Images are not mixed.
        None = "none",
        /// Replaces an image by the weighted mean of two images (Zhang et al. 2018).
        Mixup = "mixup",
        /// Pastes a rectangle of one image into the other (Yun et al. 2019).
        CutMix = "cutmix",
        /// Mixup or CutMix, chosen per sample.
        Both = "both",
    }
}

choice! {
    /// When a run rests between micro-batches.
    PowerPolicyChoice {
        /// On battery, in low power mode and while the machine is hot.
        Auto = "auto",
        /// Always.
        Always = "always",
        /// Never.
        Off = "off",
    }
}

choice! {
    /// The simple model that Ebb trains before the network and compares the network with.
    BaselineChoice {
        /// A model that also has a part in the predictions.
        Combined = "combined",
        /// A model that is only compared.
        Ngrams = "ngrams",
        /// No model.
        None = "none",
    }
}

choice! {
    /// How much each class counts in the loss.
    ClassWeights {
        /// Every sample counts the same.
        None = "none",
        /// Every class counts the same, however many samples it has.
        Balanced = "balanced",
    }
}

choice! {
    /// How the losses of classes and regression targets are weighted against each other.
    LossBalance {
        /// By `target_weight`.
        Fixed = "fixed",
        /// By learned uncertainties (Kendall et al. 2018).
        Uncertainty = "uncertainty",
    }
}

choice! {
    /// Which tokens of a conversation are learned.
    LossOn {
        /// The answers of the assistant, and the marks that end them.
        Completions = "completions",
        /// All tokens.
        All = "all",
    }
}

choice! {
    /// Whether several conversations share a window.
    PackingChoice {
        /// If most conversations are short, and the network separates them.
        Auto = "auto",
        /// Always.
        On = "on",
        /// Never.
        Off = "off",
    }
}

choice! {
    /// Whether a step has samples of similar lengths.
    LengthBuckets {
        /// Samples of similar lengths share a step.
        On = "on",
        /// Steps have samples of any lengths.
        Off = "off",
    }
}

choice! {
    /// The course of the learning rate.
    ScheduleChoice {
        /// Linear warm-up, then cosine decay.
        Cosine = "cosine",
        /// Grows by the same factor every step, to find a learning rate.
        Rising = "rising",
    }
}

choice! {
    /// Which device trains.
    DeviceChoice {
        /// A GPU if there is one that passed its check, else the CPU.
        Auto = "auto",
        /// Apple's GPU.
        Metal = "metal",
        /// An NVIDIA GPU.
        Cuda = "cuda",
        /// The CPU.
        Cpu = "cpu",
    }
}

choice! {
    /// The number type that micro-batches are computed in. Weights, moments and sums stay f32.
    PrecisionChoice {
        /// 32 bits.
        F32 = "f32",
        /// 16 bits with the range of f32.
        Bf16 = "bf16",
        /// 16 bits with a loss scale.
        F16 = "f16",
        /// 64 bits, CPU only.
        F64 = "f64",
    }
}

choice! {
    /// Who chooses the tokens that a token compression keeps.
    DropPolicyChoice {
        /// A network that is trained with the language model.
        Learned = "learned",
        /// Chance.
        Random = "random",
        /// Every k-th token.
        EveryKth = "every-kth",
        /// The rarest tokens.
        Frequency = "frequency",
    }
}

choice! {
    /// How the policy of a token compression is trained.
    PolicyTraining {
        /// The sum of both gradients.
        Joint = "joint",
        /// Straight-through Gumbel gradient.
        Gumbel = "gumbel",
        /// REINFORCE with a learned baseline.
        PolicyGradient = "policy-gradient",
    }
}

choice! {
    /// The data type in which the machines of a run exchange gradients.
    ExchangeChoice {
        /// Every bit of the gradients.
        F32 = "f32",
        /// Half of the bytes; what rounding takes away is added in the next step.
        Bf16 = "bf16",
    }
}

choice! {
    /// What the machines of a run have in parts instead of completely.
    ShardingChoice {
        /// The optimizer state, if a machine has no memory for all of it.
        Auto = "auto",
        /// Nothing.
        None = "none",
        /// The optimizer state (ZeRO stage 1, Rajbhandari et al. 2020).
        Optimizer = "optimizer",
    }
}

choice! {
    /// What happens to samples that are the same or nearly the same.
    DuplicatesChoice {
        /// All are used.
        Keep = "keep",
        /// One of each group is used.
        LeaveOut = "leave-out",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_read_as_it_is_written() {
        for choice in Augmentation::ALL {
            assert_eq!(choice.name().parse(), Ok(*choice));
            let json = serde_json::to_value(choice).expect("it is a word");
            assert_eq!(json, choice.name());
        }
        let wrong = "flip".parse::<Augmentation>();
        assert_eq!(
            wrong,
            Err("write one of standard, light, no-mirror, randaugment, none".into())
        );
    }
}
