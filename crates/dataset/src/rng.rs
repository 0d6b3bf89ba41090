//! Counter-based random numbers: value n mixes a key and n (SplitMix64), so it depends on neither
//! threads nor order. The key is made of the numbers that identify a use: seed, epoch, sample.

/// The odd constant of SplitMix64: 2^64 divided by the golden ratio.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A rng keyed by numbers.
#[derive(Debug, Clone)]
pub(crate) struct Rng {
    key: u64,
    counter: u64,
}

impl Rng {
    /// The rng of this place; the order of the numbers matters.
    pub(crate) fn from_key(key: &[u64]) -> Self {
        let key = key.iter().fold(0, |key: u64, n| {
            mix(key.wrapping_add(STEP) ^ mix(n.wrapping_add(STEP)))
        });
        Self { key, counter: 0 }
    }

    /// The next 64 bits.
    pub(crate) fn next_u64(&mut self) -> u64 {
        self.counter += 1;
        mix(self.key.wrapping_add(self.counter.wrapping_mul(STEP)))
    }

    /// A uniform number in `0.0..1.0`.
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A uniform number in `low..high`.
    pub(crate) fn range(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// A uniform integer in `0..n`, for `n` above 0. Its bias is below n / 2^64.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Puts items into a random order (Fisher-Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// Hashes a text by FNV-1a and mixes the result. Stable over versions, so that splits never change.
pub(crate) fn hash_text(text: &str) -> u64 {
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    mix(text.bytes().fold(0xCBF2_9CE4_8422_2325, fnv))
}

/// A hash of two numbers; their order matters.
pub(crate) fn combine(a: u64, b: u64) -> u64 {
    mix(mix(a.wrapping_add(STEP)) ^ b.wrapping_mul(STEP))
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_key_are_the_same_in_every_version() {
        // Recorded once; saved runs depend on it.
        let mut rng = Rng::from_key(&[7, 0, 3]);
        let got = [rng.next_u64(), rng.next_u64()];
        assert_eq!(got, [0x8E0A_B8AC_DB1A_110D, 0x1962_A440_6C80_E735]);
        assert_eq!(hash_text("butterfly/image_0001.jpg"), 0x0120_B298_57B7_D37A);
    }

    #[test]
    fn similar_keys_have_unrelated_numbers() {
        let first = |key: &[u64]| Rng::from_key(key).next_u64();
        let all = [
            first(&[1, 2]),
            first(&[2, 1]),
            first(&[1, 3]),
            first(&[1, 2, 0]),
            first(&[1]),
        ];
        for (i, a) in all.iter().enumerate() {
            for b in &all[i + 1..] {
                assert!((a ^ b).count_ones() > 12, "{a:x} and {b:x} look alike");
            }
        }
    }

    #[test]
    fn integers_below_n_are_uniform() {
        let mut rng = Rng::from_key(&[5]);
        let mut counts = [0u32; 7];
        for _ in 0..70_000 {
            counts[rng.below(7) as usize] += 1;
        }
        assert!(
            counts.iter().all(|c| c.abs_diff(10_000) < 500),
            "{counts:?}"
        );
    }
}
