//! What the tests share.
// Each test file uses its own part of this.
#![allow(dead_code)]

pub mod demo;

/// A seeded stream of numbers, the same on every machine.
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

    /// Roughly normal, variance 1: twelve of them, less their mean. No transcendental function, so no platform differs.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}
