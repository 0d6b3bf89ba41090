//! Rotary embeddings in a decoder's `config.json`: in the newer form, where `rope_parameters` has
//! everything, and in the older one with `rope_theta` and `rope_scaling`.

use crate::error::Result;
use crate::hub_format::json_config::JsonConfig;
use crate::rope::{Rope, RopeScaling};
use serde_json::Value;

/// Keys of a rotary embedding that are read.
// tidy: table
#[rustfmt::skip]
const KEYS: &[&str] = &[
    "attention_factor", "beta_fast", "beta_slow", "factor", "high_freq_factor", "long_factor",
    "low_freq_factor", "mscale", "mscale_all_dim", "original_max_position_embeddings",
    "partial_rotary_factor", "rope_theta", "rope_type", "short_factor", "truncate", "type",
];

/// Reads the rotary embeddings of a config.
pub(super) struct RopeConfig<'a> {
    pub config: &'a JsonConfig,
    /// Whether `partial_rotary_factor` is supported.
    pub is_partial: bool,
    pub head_width: usize,
}

/// One rotary embedding of a config.
struct Parameters<'a> {
    config: &'a JsonConfig,
    values: &'a Value,
}

impl RopeConfig<'_> {
    /// The embedding of all layers.
    pub fn single(&self, default_theta: f64) -> Result<Rope> {
        let values = self.config.get("rope_parameters");
        let values = values.or_else(|| self.config.get("rope_scaling"));
        self.rope(values, "rope_theta", default_theta)
    }

    /// The embedding of the layers of type `layers`, whose `theta` has the key `theta_key` in the
    /// older form. `rope_scaling` is for layers with full attention.
    pub fn layered(&self, layers: &str, theta_key: &str, default_theta: f64) -> Result<Rope> {
        let newer = self.config.get("rope_parameters");
        let values = newer.and_then(|both| both.get(layers)).or_else(|| {
            let older = self.config.get("rope_scaling");
            older.filter(|_| layers == "full_attention")
        });
        self.rope(values, theta_key, default_theta)
    }

    fn rope(&self, values: Option<&Value>, theta_key: &str, default_theta: f64) -> Result<Rope> {
        let none = Value::Null;
        let parameters = Parameters {
            config: self.config,
            values: values.unwrap_or(&none),
        };
        parameters.refuse_unknown_keys()?;
        let theta = self.config.positive_or(theta_key, default_theta)?;
        let theta = parameters.positive("rope_theta")?.unwrap_or(theta);
        let part = self.config.positive_or("partial_rotary_factor", 1.0)?;
        let part = parameters
            .positive("partial_rotary_factor")?
            .unwrap_or(part);
        let rotated = (self.head_width as f64 * part) as usize;
        let fits = (1..=self.head_width).contains(&rotated) && rotated.is_multiple_of(2);
        if !fits || (part != 1.0 && !self.is_partial) || theta <= 1.0 {
            return Err(self.config.refuse(format!(
                "partial_rotary_factor = {part} or rope_theta = {theta} is not supported"
            )));
        }
        let scaling = parameters.scaling(rotated)?;
        Ok(Rope::new(rotated, theta, &scaling))
    }
}

impl Parameters<'_> {
    fn refuse_unknown_keys(&self) -> Result<()> {
        let keys = self.values.as_object().into_iter().flatten();
        let mut unknown =
            keys.filter(|(key, value)| !KEYS.contains(&key.as_str()) && !value.is_null());
        match unknown.next() {
            None => Ok(()),
            Some((key, value)) => Err(self.config.refuse(format!(
                "the rotary embedding has {key} = {value}, which Ebb does not know"
            ))),
        }
    }

    fn positive(&self, key: &str) -> Result<Option<f64>> {
        let Some(value) = self.values.get(key).filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        let number = value.as_f64().filter(|n| n.is_finite() && *n > 0.0);
        match number {
            Some(number) => Ok(Some(number)),
            None => Err(self
                .config
                .refuse(format!("{key} = {value} is not a number above 0"))),
        }
    }

    fn required(&self, key: &str) -> Result<f64> {
        let found = self.positive(key)?;
        found.ok_or_else(|| {
            self.config
                .refuse(format!("the rotary embedding has no {key}"))
        })
    }

    /// Tokens of the texts that the model was trained with before it was stretched.
    fn original(&self) -> Result<f64> {
        let key = "original_max_position_embeddings";
        if let Some(found) = self.positive(key)? {
            return Ok(found);
        }
        let most = self.config.count_or("max_position_embeddings", 2048)?;
        Ok(self.config.count_or(key, most)? as f64)
    }

    /// The factor, or how much longer texts are than before.
    fn factor(&self, original: f64) -> Result<f64> {
        if let Some(found) = self.positive("factor")? {
            return Ok(found);
        }
        Ok(self.config.count_or("max_position_embeddings", 2048)? as f64 / original)
    }

    fn scaling(&self, rotated: usize) -> Result<RopeScaling> {
        let text = |key: &str| self.values.get(key).and_then(Value::as_str);
        let kind = text("rope_type")
            .or_else(|| text("type"))
            .unwrap_or("default");
        match kind {
            "default" => Ok(RopeScaling::None),
            "linear" => Ok(RopeScaling::Linear(self.required("factor")?)),
            "llama3" => Ok(RopeScaling::Llama3 {
                factor: self.required("factor")?,
                low: self.required("low_freq_factor")?,
                high: self.required("high_freq_factor")?,
                original: self.original()?,
            }),
            // Early folders of Phi-3 call it so.
            "yarn" if self.values.get("short_factor").is_some() => self.long(rotated / 2),
            "yarn" => self.yarn(),
            "longrope" | "su" => self.long(rotated / 2),
            other => Err(self.config.refuse(format!(
                "rope_type is {other:?}, but Ebb supports only default, linear, llama3, yarn and longrope"
            ))),
        }
    }

    fn yarn(&self) -> Result<RopeScaling> {
        let original = self.original()?;
        let factor = self.factor(original)?;
        let scale = |share: f64| {
            if factor <= 1.0 {
                1.0
            } else {
                0.1 * share * factor.ln() + 1.0
            }
        };
        let shares = (self.positive("mscale")?, self.positive("mscale_all_dim")?);
        let attention = match (self.positive("attention_factor")?, shares) {
            (Some(given), _) => given,
            (None, (Some(share), Some(all))) => scale(share) / scale(all),
            (None, _) => scale(1.0),
        };
        Ok(RopeScaling::Yarn {
            factor,
            beta: (
                self.positive("beta_fast")?.unwrap_or(32.0),
                self.positive("beta_slow")?.unwrap_or(1.0),
            ),
            original,
            attention,
            truncate: self
                .values
                .get("truncate")
                .and_then(Value::as_bool)
                .unwrap_or(true),
        })
    }

    fn long(&self, pairs: usize) -> Result<RopeScaling> {
        let original = self.original()?;
        let factor = self.factor(original)?;
        let attention = match self.positive("attention_factor")? {
            Some(given) => given,
            None if factor <= 1.0 => 1.0,
            None => (1.0 + factor.ln() / original.ln()).sqrt(),
        };
        Ok(RopeScaling::Long {
            short: self.factors("short_factor", pairs)?,
            long: self.factors("long_factor", pairs)?,
            original: original as usize,
            attention,
        })
    }

    fn factors(&self, key: &str, pairs: usize) -> Result<Vec<f64>> {
        let list = self.values.get(key).and_then(Value::as_array);
        let numbers = list.map(|list| {
            let numbers = list
                .iter()
                .map(|n| n.as_f64().filter(|n| n.is_finite() && *n > 0.0));
            numbers.collect::<Option<Vec<f64>>>()
        });
        match numbers.flatten() {
            Some(numbers) if numbers.len() == pairs => Ok(numbers),
            _ => Err(self
                .config
                .refuse(format!("{key} is not a list of {pairs} numbers above 0"))),
        }
    }
}
