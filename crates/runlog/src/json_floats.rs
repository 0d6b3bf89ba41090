//! Floats in JSON. JSON has no non-finite numbers; they are written as the strings "nan", "inf" and
//! "-inf".

use serde::{Deserialize, Deserializer, Serializer};
use std::collections::BTreeMap;

/// Serializes a number, or its name if it is not finite.
pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    match *value {
        v if v.is_finite() => serializer.serialize_f64(v),
        v if v.is_nan() => serializer.serialize_str("nan"),
        v if v > 0.0 => serializer.serialize_str("inf"),
        _ => serializer.serialize_str("-inf"),
    }
}

/// Deserializes a number or one of the three names.
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

/// Deserializes a number or null. JSON writers replace numbers that are not finite by null; it is
/// read as NaN.
pub fn or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Option::deserialize(deserializer).map(|value| value.unwrap_or(f64::NAN))
}

/// Deserializes a map of numbers; each may be null as in [`or_null`].
pub fn map_or_null<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, f64>, D::Error> {
    let values: BTreeMap<String, Option<f64>> = BTreeMap::deserialize(deserializer)?;
    let number = |(name, value): (String, Option<f64>)| (name, value.unwrap_or(f64::NAN));
    Ok(values.into_iter().map(number).collect())
}
