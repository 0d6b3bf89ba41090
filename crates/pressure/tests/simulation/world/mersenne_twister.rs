//! Seeded random numbers: the Mersenne Twister and the draws of Python's, so that another
//! implementation sees the same noise.

const LEN: usize = 624;
const SHIFT: usize = 397;

/// Matsumoto and Nishimura's generator, seeded by an array of one word.
pub struct Random {
    words: [u32; LEN],
    next: usize,
    spare: Option<f64>,
}

impl Random {
    pub fn new(seed: u32) -> Self {
        let mut words = [0u32; LEN];
        words[0] = 19_650_218;
        for i in 1..LEN {
            words[i] = mixed(words[i - 1])
                .wrapping_mul(1_812_433_253)
                .wrapping_add(i as u32);
        }
        let mut i = 1;
        for _ in 0..LEN {
            words[i] = (words[i] ^ mixed(words[i - 1]).wrapping_mul(1_664_525)).wrapping_add(seed);
            i = step(&mut words, i);
        }
        for _ in 0..LEN - 1 {
            words[i] =
                (words[i] ^ mixed(words[i - 1]).wrapping_mul(1_566_083_941)).wrapping_sub(i as u32);
            i = step(&mut words, i);
        }
        words[0] = 0x8000_0000;
        Self {
            words,
            next: LEN,
            spare: None,
        }
    }

    fn word(&mut self) -> u32 {
        if self.next == LEN {
            for i in 0..LEN {
                let y = (self.words[i] & 0x8000_0000) | (self.words[(i + 1) % LEN] & 0x7fff_ffff);
                let twist = if y & 1 == 1 { 0x9908_b0df } else { 0 };
                self.words[i] = self.words[(i + SHIFT) % LEN] ^ (y >> 1) ^ twist;
            }
            self.next = 0;
        }
        let mut y = self.words[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    /// `0.0..1.0` with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        let (high, low) = (f64::from(self.word() >> 5), f64::from(self.word() >> 6));
        (high * 67_108_864.0 + low) / 9_007_199_254_740_992.0
    }

    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Box and Muller: two at a time.
    pub fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let turn = self.unit() * std::f64::consts::TAU;
        let length = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        self.spare = Some(turn.sin() * length);
        turn.cos() * length
    }
}

fn mixed(word: u32) -> u32 {
    word ^ (word >> 30)
}

/// The next index of the seeding, which passes the last word on to the first.
fn step(words: &mut [u32; LEN], i: usize) -> usize {
    if i + 1 < LEN {
        return i + 1;
    }
    words[0] = words[LEN - 1];
    1
}
