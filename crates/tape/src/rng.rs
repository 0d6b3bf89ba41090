//! Counter-based random numbers: a value is a function of (seed, site, position) and never depends
//! on call order. The split, the device and a resume cannot change it.

/// A stream of random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rng(u64);

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64 bits with full
/// avalanche.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Rng {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Rng(mix(seed.wrapping_add(GOLDEN)))
    }

    /// The stream of a site within this one: a parameter name, a layer, a step.
    pub fn site(self, name: &str) -> Self {
        name.bytes()
            .fold(self, |stream, byte| stream.at(u64::from(byte)))
    }

    /// The stream of a position within this one.
    pub fn at(self, position: u64) -> Self {
        Rng(mix(self.0 ^ mix(position.wrapping_add(GOLDEN))))
    }

    /// The internal state, which a GPU needs to draw from this stream.
    pub(crate) fn state(self) -> u64 {
        self.0
    }

    /// Number `index` of the stream: 64 bits.
    fn bits(self, index: u64) -> u64 {
        mix(self
            .0
            .wrapping_add(index.wrapping_add(1).wrapping_mul(GOLDEN)))
    }

    /// Value `index`, uniform in `0.0..1.0`, with 53 bits.
    pub fn uniform(self, index: u64) -> f64 {
        (self.bits(index) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The two halves of number `index`, the low one first: cheap random numbers for operations
    /// such as dropout.
    pub(crate) fn halves(self, index: u64) -> [u32; 2] {
        let bits = self.bits(index);
        [bits as u32, (bits >> 32) as u32]
    }

    /// Value `index`, standard normal (Box and Muller 1958).
    pub fn normal(self, index: u64) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform(2 * index)).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform(2 * index + 1)).cos()
    }

    /// `count` normal values, clamped to two standard deviations and multiplied by `deviation`.
    pub fn truncated_normal(self, count: usize, deviation: f64) -> Vec<f64> {
        (0..count as u64)
            .map(|i| self.normal(i).clamp(-2.0, 2.0) * deviation)
            .collect()
    }
}

/// The threshold below which a `fraction` (`0.0..1.0`) of all 32-bit numbers are, within 2^-32.
pub(crate) fn share_of_u32(fraction: f64) -> u32 {
    (fraction * (1u64 << 32) as f64) as u32
}
