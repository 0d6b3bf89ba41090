//! The weight file of a Core ML package, version 2 of the format of `MILBlob` in coremltools: a
//! header, then each weight after a description of it. Everything starts at a multiple of 64 bytes.
//! All integers are little-endian.

use std::io::{self, Write};

/// Everything starts at a multiple of this many bytes.
const ALIGNMENT: usize = 64;
/// Version of the format.
const VERSION: u32 = 2;
/// Begins the description of a weight.
const SENTINEL: u32 = 0xDEAD_BEEF;
/// Code of 32-bit floats.
const FLOAT32: u32 = 2;

/// Weights to write, in order.
#[derive(Debug, Default)]
pub struct WeightFile {
    /// 32-bit floats.
    weights: Vec<Vec<u8>>,
    /// Size of the weights and their descriptions in bytes, with padding.
    bytes: usize,
}

impl WeightFile {
    /// Adds a weight of 32-bit floats and returns the offset of its description.
    pub fn push(&mut self, weight: Vec<u8>) -> u64 {
        let offset = ALIGNMENT + self.bytes;
        self.bytes += ALIGNMENT + weight.len().next_multiple_of(ALIGNMENT);
        self.weights.push(weight);
        offset as u64
    }

    /// Writes the file.
    ///
    /// # Errors
    /// `file` cannot be written.
    pub fn write(&self, file: &mut impl Write) -> io::Result<()> {
        let mut header = [0; ALIGNMENT];
        header[..4].copy_from_slice(&(self.weights.len() as u32).to_le_bytes());
        header[4..8].copy_from_slice(&VERSION.to_le_bytes());
        file.write_all(&header)?;
        let mut offset = ALIGNMENT;
        for weight in &self.weights {
            offset += ALIGNMENT;
            let mut description = [0; ALIGNMENT];
            description[..4].copy_from_slice(&SENTINEL.to_le_bytes());
            description[4..8].copy_from_slice(&FLOAT32.to_le_bytes());
            description[8..16].copy_from_slice(&(weight.len() as u64).to_le_bytes());
            description[16..24].copy_from_slice(&(offset as u64).to_le_bytes());
            file.write_all(&description)?;
            file.write_all(weight)?;
            let padded = weight.len().next_multiple_of(ALIGNMENT);
            file.write_all(&[0; ALIGNMENT][..padded - weight.len()])?;
            offset += padded;
        }
        Ok(())
    }
}
