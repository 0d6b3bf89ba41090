//! Mixes a sample with a partner from the whole dataset: mixup (Zhang et al. 2018) and CutMix (Yun
//! et al. 2019). Partner and fraction depend only on (seed, epoch, sample), never on the
//! micro-batch.

use crate::rng::{self, Rng};

/// How samples are mixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mix {
    /// They are not mixed.
    #[default]
    None,
    /// Each pixel is the weighted mean of both samples.
    Mixup,
    /// A rectangle is copied from the partner.
    CutMix,
    /// Either of the two, with equal probability.
    Both,
}

/// Fraction of the samples that are mixed.
const MIXED_FRACTION: f64 = 0.5;

/// The partner of a sample, and how it is mixed in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Mixture {
    /// Index of the partner in the dataset.
    pub partner: u32,
    /// Fraction of the partner, `0.0..0.5`. Both samples of a pair can be the partner, so that half
    /// the range of Beta(1, 1) is enough.
    pub share: f64,
    /// For CutMix, the position of the rectangle, each coordinate in `0.0..1.0`.
    cut: Option<(f64, f64)>,
}

/// Decides whether and with which partner sample `index` of `len` is mixed in an epoch.
pub(crate) fn draw(mix: Mix, seed: u64, epoch: u64, index: u32, len: u32) -> Option<Mixture> {
    if mix == Mix::None || len < 2 {
        return None;
    }
    let mut rng = Rng::from_key(&[rng::hash_text("mix"), seed, epoch, u64::from(index)]);
    if rng.uniform() >= MIXED_FRACTION {
        return None;
    }
    let other = rng.below(u64::from(len) - 1) as u32;
    let share = rng.range(0.0, 0.5);
    let coin = rng.uniform() < 0.5;
    let position = (rng.uniform(), rng.uniform());
    let cuts = match mix {
        Mix::CutMix => true,
        Mix::Both => coin,
        Mix::None | Mix::Mixup => false,
    };
    Some(Mixture {
        // Never the sample itself.
        partner: other + u32::from(other >= index),
        share,
        cut: cuts.then_some(position),
    })
}

impl Mixture {
    /// Mixes three planes of `size * size` bytes with those of the partner. Returns the actual
    /// fraction of the partner.
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
    fn every_other_sample_can_be_a_partner() {
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
    fn the_fraction_is_that_of_the_pixels() {
        for cut in [None, Some((0.0, 0.0)), Some((0.99, 0.5))] {
            for share in [0.0, 0.1, 0.3, 0.4999] {
                let (mut own, partner) = (vec![0u8; 3 * 256], vec![255u8; 3 * 256]);
                let mixture = Mixture {
                    partner: 0,
                    share,
                    cut,
                };
                let returned = mixture.blend(&mut own, &partner, 16);
                let actual =
                    own.iter().map(|v| f32::from(*v)).sum::<f32>() / (255.0 * own.len() as f32);
                assert!(
                    (returned - actual).abs() < 3e-3,
                    "{cut:?} {share}: {returned} and {actual}"
                );
                assert!((f64::from(returned) - share).abs() < 0.07);
            }
        }
    }
}
