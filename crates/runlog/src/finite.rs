//! Floats in JSON: non-finite numbers are the strings "nan", "inf" and "-inf", since JSON has no number for them.

use serde::{Deserialize, Deserializer, Serializer};

/// Writes a number, or its name when it is not finite.
pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    match *value {
        v if v.is_finite() => serializer.serialize_f64(v),
        v if v.is_nan() => serializer.serialize_str("nan"),
        v if v > 0.0 => serializer.serialize_str("inf"),
        _ => serializer.serialize_str("-inf"),
    }
}

/// Reads a number or one of the three names.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Number(f64),
        Name(String),
    }
    match Written::deserialize(deserializer)? {
        Written::Number(v) => Ok(v),
        Written::Name(name) => match name.as_str() {
            "nan" => Ok(f64::NAN),
            "inf" => Ok(f64::INFINITY),
            "-inf" => Ok(f64::NEG_INFINITY),
            other => Err(serde::de::Error::custom(format!(
                "`{other}` is not a number"
            ))),
        },
    }
}
