//! Mixes a sample with a partner from the whole dataset: mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019). Partner and
//! shares depend on (seed, epoch, sample) alone: no piece chooses who is mixed with whom.

use crate::stream::{self, Stream};

/// How samples are mixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mix {
    /// Not at all.
    #[default]
    None,
    /// Each pixel is the mean of two, by shares.
    Mixup,
    /// A rectangle comes from the partner.
    CutMix,
    /// One or the other.
    Both,
}

/// Of the samples this share is mixed, the others stay as they are.
const MIXED: f64 = 0.5;

/// Who is mixed in, and how.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Mixture {
    /// The partner's place in the dataset.
    pub partner: u32,
    /// The partner's share, `0.0..0.5`: two samples are as likely one's partner as the other's, so half the range is enough for
    /// what Beta(1, 1) gives.
    pub share: f64,
    cut: Option<(f64, f64)>,
}

/// Whether and with whom sample `index` of `len` is mixed in an epoch.
pub(crate) fn draw(mix: Mix, seed: u64, epoch: u64, index: u32, len: u32) -> Option<Mixture> {
    if mix == Mix::None || len < 2 {
        return None;
    }
    let mut stream = Stream::keyed(&[stream::name("mix"), seed, epoch, u64::from(index)]);
    if stream.unit() >= MIXED {
        return None;
    }
    let other = stream.below(u64::from(len) - 1) as u32;
    let share = stream.between(0.0, 0.5);
    let coin = stream.unit() < 0.5;
    let place = (stream.unit(), stream.unit());
    let cuts = match mix {
        Mix::CutMix => true,
        Mix::Both => coin,
        Mix::None | Mix::Mixup => false,
    };
    Some(Mixture {
        // Never itself.
        partner: other + u32::from(other >= index),
        share,
        cut: cuts.then_some(place),
    })
}

impl Mixture {
    /// Mixes three planes of `size * size` bytes with the partner's. Gives the share of the partner that came of it.
    pub(crate) fn blend(&self, own: &mut [u8], partner: &[u8], size: u32) -> f32 {
        let Some((across, down)) = self.cut else {
            let share = (self.share * 256.0).round() as u32;
            for (own, &other) in own.iter_mut().zip(partner) {
                *own =
                    ((u32::from(*own) * (256 - share) + u32::from(other) * share + 128) >> 8) as u8;
            }
            return share as f32 / 256.0;
        };
        let size = size as usize;
        let side = (self.share.sqrt() * size as f64).round() as usize;
        let (left, top) = (
            (across * (size - side + 1) as f64) as usize,
            (down * (size - side + 1) as f64) as usize,
        );
        let rows = own.chunks_exact_mut(size).zip(partner.chunks_exact(size));
        for (row, (own, partner)) in rows.enumerate() {
            if (top..top + side).contains(&(row % size)) {
                own[left..left + side].copy_from_slice(&partner[left..left + side]);
            }
        }
        (side * side) as f32 / (size * size) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partners_come_from_the_whole_dataset_and_never_are_the_sample_itself() {
        let mut seen = [false; 20];
        let mut mixed = 0;
        for epoch in 0..1000 {
            if let Some(mixture) = draw(Mix::Both, 7, epoch, 5, 20) {
                assert_ne!(mixture.partner, 5);
                assert!((0.0..0.5).contains(&mixture.share));
                seen[mixture.partner as usize] = true;
                mixed += 1;
            }
        }
        assert_eq!(seen.iter().filter(|s| **s).count(), 19);
        assert!((440..560).contains(&mixed), "{mixed} of 1000");
        assert_eq!(draw(Mix::Both, 7, 3, 5, 20), draw(Mix::Both, 7, 3, 5, 20));
        assert_eq!(draw(Mix::None, 7, 3, 5, 20), None);
        assert_eq!(draw(Mix::Mixup, 7, 3, 0, 1), None);
    }

    #[test]
    fn the_share_is_what_the_pixels_show() {
        for cut in [None, Some((0.0, 0.0)), Some((0.99, 0.5))] {
            for share in [0.0, 0.1, 0.3, 0.4999] {
                let (mut own, partner) = (vec![0u8; 3 * 256], vec![255u8; 3 * 256]);
                let mixture = Mixture {
                    partner: 0,
                    share,
                    cut,
                };
                let told = mixture.blend(&mut own, &partner, 16);
                let shown =
                    own.iter().map(|v| f32::from(*v)).sum::<f32>() / (255.0 * own.len() as f32);
                assert!(
                    (told - shown).abs() < 3e-3,
                    "{cut:?} {share}: {told} and {shown}"
                );
                assert!((f64::from(told) - share).abs() < 0.07);
            }
        }
    }
}
