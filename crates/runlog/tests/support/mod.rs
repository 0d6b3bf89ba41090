//! Helpers shared by the tests.
// Each test file uses only a part of this.
#![allow(dead_code)]

pub mod demo;

/// Seeded random numbers, the same on every machine.
pub struct Noise(pub u64);

impl Noise {
    /// The next number, `0.0..1.0`.
    pub fn unit(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Approximately normal with variance 1: the sum of twelve uniform numbers. It avoids
    /// transcendental functions, which differ between platforms.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}
