//! How quantized weights are stored: in 8 bits, in 4 bits, or in the 4 bits of NF4.

use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// How frozen weights are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum Quantize {
    /// 8 bits per value.
    Eight,
    /// 4 bits per value, evenly spaced.
    Four,
    /// 4 bits per value, at quantiles of the normal distribution (NF4).
    Nf4,
}

/// The name of NF4 in a config.
const NF4: &str = "nf4";
/// What is allowed.
const ALLOWED: &str = "write 8, nf4 or 4";

/// A value as a config has it: a number, which version 0.1.0 wrote too, or a name.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Bits(u32),
    Name(String),
}

impl TryFrom<Written> for Quantize {
    type Error = String;

    fn try_from(written: Written) -> Result<Quantize, String> {
        match written {
            Written::Bits(8) => Ok(Quantize::Eight),
            Written::Bits(4) => Ok(Quantize::Four),
            Written::Name(name) if name == NF4 => Ok(Quantize::Nf4),
            Written::Bits(_) | Written::Name(_) => Err(ALLOWED.to_owned()),
        }
    }
}

impl From<Quantize> for Written {
    fn from(quantize: Quantize) -> Written {
        match quantize {
            Quantize::Eight => Written::Bits(8),
            Quantize::Four => Written::Bits(4),
            Quantize::Nf4 => Written::Name(NF4.to_owned()),
        }
    }
}

impl FromStr for Quantize {
    type Err = String;

    fn from_str(text: &str) -> Result<Quantize, String> {
        match text {
            "8" => Ok(Quantize::Eight),
            "4" => Ok(Quantize::Four),
            NF4 => Ok(Quantize::Nf4),
            _ => Err(ALLOWED.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_8_4_and_nf4_are_accepted() {
        for (written, text) in [(json!(4), "4"), (json!(8), "8"), (json!("nf4"), "nf4")] {
            let read: Quantize = serde_json::from_value(written.clone()).expect("it is accepted");
            assert_eq!(serde_json::to_value(read).ok(), Some(written));
            assert_eq!(text.parse(), Ok(read));
        }
        for wrong in [
            json!(0),
            json!(5),
            json!(7),
            json!(16),
            json!("fp4"),
            json!("4"),
        ] {
            assert!(serde_json::from_value::<Quantize>(wrong).is_err());
        }
        assert!(
            ["", "6", "NF4 ", "int4"]
                .into_iter()
                .all(|text| text.parse::<Quantize>().is_err())
        );
    }
}
