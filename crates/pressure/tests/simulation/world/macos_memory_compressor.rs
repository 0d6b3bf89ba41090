//! The compressor of macOS: under pressure it shrinks other apps' memory, which slows them down,
//! and it gives memory back only slowly. Amounts are GB.

use super::{TICK, first_touch};
use pressure::Level;

/// Demand above which the system compresses, and below which apps get their memory back, as
/// fractions of the memory.
const BEGINS: f64 = 0.92;
const ENDS: f64 = 0.85;
/// What is left of a compressed GB.
const LEFT: f64 = 0.4;
/// Compression is this much slower than touching new memory, and apps return even more slowly.
const COMPRESSES: f64 = 1.0 / 4.0;
const RETURNS: f64 = 1.0 / 24.0;
/// At most this fraction of other apps' memory can be compressed.
const COMPRESSIBLE: f64 = 0.7;

/// Memory of other apps that is compressed.
#[derive(Default)]
pub struct Compressor {
    compressed: f64,
}

impl Compressor {
    /// One tick on a machine with `ram`, while other apps want `others` and the trainer holds
    /// `wired`.
    pub fn update(&mut self, ram: f64, others: f64, wired: f64) {
        let used = others + wired - self.saved();
        let speed = first_touch(ram) * TICK;
        if used > BEGINS * ram {
            let wanted = (used - BEGINS * ram) / (1.0 - LEFT);
            self.compressed += wanted.min(COMPRESSES * speed);
        } else if used < ENDS * ram {
            self.compressed -= RETURNS * speed;
        }
        self.compressed = self.compressed.clamp(0.0, COMPRESSIBLE * others);
    }

    /// Memory that compression has freed.
    pub fn saved(&self) -> f64 {
        (1.0 - LEFT) * self.compressed
    }

    /// Fraction of the memory that is not wired which the compressor holds.
    pub fn fraction(&self, ram: f64, wired: f64) -> f64 {
        (LEFT * self.compressed / (ram - wired).max(0.01 * ram)).clamp(0.0, 1.0)
    }

    /// The level that the kernel derives from that fraction.
    pub fn level(fraction: f64) -> Level {
        match fraction {
            f if f > 0.657 => Level::Critical,
            f if f > 0.5 => Level::Warning,
            _ => Level::Normal,
        }
    }
}
