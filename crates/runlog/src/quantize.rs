//! The bits of each quantized weight: 8 or 4.

use serde::{Deserialize, Serialize};

/// How frozen weights are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub enum Quantize {
    /// 8 bits per value.
    Eight,
    /// 4 bits per value.
    Four,
}

impl Quantize {
    /// Bits per value.
    pub fn bits(self) -> u32 {
        match self {
            Quantize::Eight => 8,
            Quantize::Four => 4,
        }
    }
}

impl TryFrom<u32> for Quantize {
    type Error = String;

    fn try_from(bits: u32) -> Result<Quantize, String> {
        match bits {
            8 => Ok(Quantize::Eight),
            4 => Ok(Quantize::Four),
            _ => Err("write 8 or 4".to_owned()),
        }
    }
}

impl From<Quantize> for u32 {
    fn from(quantize: Quantize) -> u32 {
        quantize.bits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_8_and_4_bits_are_accepted() {
        for bits in [4, 8] {
            let read: Quantize = serde_json::from_value(bits.into()).expect("it is accepted");
            assert_eq!(serde_json::to_value(read).ok(), Some(bits.into()));
        }
        assert!(
            [0, 5, 6, 7, 16]
                .into_iter()
                .all(|bits| Quantize::try_from(bits).is_err())
        );
    }
}
