//! Augmentation of images and how they are mixed.

pub use runlog::Augmentation;

use dataset::Mix;
use runlog::MixChoice;

/// The dataset's name for a choice of mixing.
pub(super) fn mix(choice: MixChoice) -> Mix {
    match choice {
        MixChoice::None => Mix::None,
        MixChoice::Mixup => Mix::Mixup,
        MixChoice::CutMix => Mix::CutMix,
        MixChoice::Both => Mix::Both,
    }
}

/// The choice of a config for the dataset's name.
pub(super) fn mix_choice(mix: Mix) -> MixChoice {
    match mix {
        Mix::None => MixChoice::None,
        Mix::Mixup => MixChoice::Mixup,
        Mix::CutMix => MixChoice::CutMix,
        Mix::Both => MixChoice::Both,
    }
}
