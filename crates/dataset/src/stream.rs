//! A counter-based stream of random numbers: value n is a mix (SplitMix64) of a key and n, so it depends on neither
//! threads nor order. The key is made of numbers that name the place: seed, epoch, sample.

/// The odd constant of SplitMix64: 2^64 divided by the golden ratio.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A stream keyed by numbers.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    key: u64,
    counter: u64,
}

impl Stream {
    /// The stream of this place; the order of the numbers matters.
    pub(crate) fn keyed(place: &[u64]) -> Self {
        let key = place.iter().fold(0, |key: u64, n| {
            mix(key.wrapping_add(STEP) ^ mix(n.wrapping_add(STEP)))
        });
        Self { key, counter: 0 }
    }

    /// The next 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.counter += 1;
        mix(self.key.wrapping_add(self.counter.wrapping_mul(STEP)))
    }

    /// Uniform in `0.0..1.0`.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in `low..high`.
    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Uniform in `0..n`, for `n` above 0. The bias is below n / 2^64.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }
}

/// A number that names a text: FNV-1a, then mixed. Stable over versions, for splits must stay what they were.
pub(crate) fn name(text: &str) -> u64 {
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    mix(text.bytes().fold(0xCBF2_9CE4_8422_2325, fnv))
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
    fn the_stream_of_a_place_never_changes_over_versions() {
        // Recorded once; runs that were saved depend on it.
        let mut stream = Stream::keyed(&[7, 0, 3]);
        let got = [stream.bits(), stream.bits()];
        assert_eq!(got, [0x8E0A_B8AC_DB1A_110D, 0x1962_A440_6C80_E735]);
        assert_eq!(name("butterfly/image_0001.jpg"), 0x0120_B298_57B7_D37A);
    }

    #[test]
    fn neighbouring_places_have_unrelated_streams() {
        let first = |place: &[u64]| Stream::keyed(place).bits();
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
    fn numbers_below_n_are_even() {
        let mut stream = Stream::keyed(&[5]);
        let mut counts = [0u32; 7];
        for _ in 0..70_000 {
            counts[stream.below(7) as usize] += 1;
        }
        assert!(
            counts.iter().all(|c| c.abs_diff(10_000) < 500),
            "{counts:?}"
        );
    }
}
