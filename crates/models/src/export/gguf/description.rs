//! The architecture of a language model under the keys that llama.cpp reads, and what llama.cpp
//! computes in the same way as Ebb.

use super::{GgufWeights, refuse};
use crate::decoder::{DecoderBiases, DecoderNorms, DecoderShape};
use crate::error::Result;
use crate::hub_format::HubDecoder;
use crate::rope::{Rope, RopeScaling};
use candle_core::quantized::gguf_file::Value;
use tape::Gate;

/// A family of models in llama.cpp.
#[derive(Debug, Clone, Copy)]
struct Family {
    model_type: &'static str,
    /// Its name in llama.cpp.
    architecture: &'static str,
    /// Whether it rotates neighboring values of a head, instead of values half a head apart.
    rotates_neighbors: bool,
    /// The biases that it reads.
    biases: DecoderBiases,
    windows: GgufWindows,
    /// Whether it needs output weights even if they are the embeddings.
    needs_output: bool,
}

/// The sliding windows of a family in llama.cpp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GgufWindows {
    /// It has none. Within the window, this makes no difference, so the context becomes shorter.
    None,
    /// As [`GgufWindows::None`], but the file must name the window.
    NamedOnly,
    /// All layers but each `n`-th have one.
    AllButEach(usize),
}

const NO_BIASES: DecoderBiases = DecoderBiases {
    queries: false,
    projection: false,
    feed_forward: false,
};

const LLAMA: Family = Family {
    model_type: "llama",
    architecture: "llama",
    rotates_neighbors: true,
    biases: DecoderBiases {
        queries: true,
        projection: true,
        feed_forward: true,
    },
    windows: GgufWindows::None,
    needs_output: false,
};

const PLAIN: Family = Family {
    rotates_neighbors: false,
    biases: NO_BIASES,
    ..LLAMA
};

// tidy: table
#[rustfmt::skip]
const FAMILIES: [Family; 9] = [
    LLAMA,
    Family { model_type: "mistral", ..LLAMA },
    Family { model_type: "qwen2", architecture: "qwen2", biases: DecoderBiases { queries: true, ..NO_BIASES }, ..PLAIN },
    Family { model_type: "qwen3", architecture: "qwen3", ..PLAIN },
    Family { model_type: "gemma2", architecture: "gemma2", windows: GgufWindows::AllButEach(2), ..PLAIN },
    Family { model_type: "gemma3_text", architecture: "gemma3", windows: GgufWindows::AllButEach(6), ..PLAIN },
    Family { model_type: "phi3", architecture: "phi3", windows: GgufWindows::NamedOnly, needs_output: true, ..PLAIN },
    Family { model_type: "smollm3", architecture: "smollm3", rotates_neighbors: true, ..PLAIN },
    Family { model_type: "olmo2", architecture: "olmo2", needs_output: true, ..PLAIN },
];

/// llama.cpp gives every fourth layer of a SmolLM3 no positions.
const SMOLLM3_INTERVAL: usize = 4;
/// llama.cpp rotates the layers of a Gemma 3 that have a window by angles of this base.
const GEMMA3_LOCAL_THETA: f64 = 1e4;
/// Numbers of layers of the Gemma 2 and 3 with 27 billion parameters, whose attention llama.cpp
/// scales by the width of the model divided by the heads.
const LARGE_GEMMA_LAYERS: [usize; 2] = [46, 62];

/// The description of a network that llama.cpp computes in the same way.
#[derive(Debug)]
pub(crate) struct Description<'a> {
    family: Family,
    shape: &'a DecoderShape,
    /// Most tokens per sequence.
    context: usize,
    window: Option<usize>,
}

impl<'a> Description<'a> {
    /// Describes a network.
    ///
    /// # Errors
    /// llama.cpp would compute another network.
    pub fn new(decoder: &'a HubDecoder) -> Result<Self> {
        let shape = &decoder.shape;
        let found = FAMILIES
            .iter()
            .find(|family| family.model_type == decoder.family.name);
        let Some(&family) = found else {
            return Err(refuse(&format!("its type is {}", decoder.family.name)));
        };
        let window = shape.layers.iter().filter_map(|layer| layer.window).min();
        let context = match (family.windows, window) {
            (GgufWindows::None | GgufWindows::NamedOnly, Some(window)) => shape.tokens.min(window),
            _ => shape.tokens,
        };
        let description = Description {
            family,
            shape,
            context,
            window,
        };
        description.check_layers()?;
        description.check_attention()?;
        description.check_ropes()?;
        Ok(description)
    }

    /// Most tokens per sequence.
    pub fn context(&self) -> usize {
        self.context
    }

    /// The shape of the network.
    pub fn shape(&self) -> &DecoderShape {
        self.shape
    }

    /// Whether the rows of query and key maps change their order, because llama.cpp rotates other
    /// pairs of values.
    pub fn rotates_neighbors(&self) -> bool {
        self.family.rotates_neighbors
    }

    /// Whether the embeddings are also written as output weights.
    pub fn repeats_embeddings(&self) -> bool {
        self.family.needs_output && self.shape.has_tied_embeddings
    }

    fn check_layers(&self) -> Result<()> {
        let (shape, biases) = (self.shape, self.family.biases);
        let has = shape.biases;
        if (has.queries && !biases.queries)
            || (has.projection && !biases.projection)
            || (has.feed_forward && !biases.feed_forward)
        {
            return Err(refuse("the linear layers have biases"));
        }
        let is_gemma = shape.norms == DecoderNorms::Both;
        if (shape.gate == Gate::Gelu) != is_gemma {
            return Err(refuse("the feed-forward layers have an unusual activation"));
        }
        let mut layers = shape.layers.iter().enumerate();
        let is_expected = |(index, layer): (usize, &crate::decoder::DecoderLayer)| {
            let has_window = match self.family.windows {
                GgufWindows::AllButEach(n) => index % n < n - 1,
                GgufWindows::None | GgufWindows::NamedOnly => layer.window.is_some(),
            };
            let has_positions = self.family.model_type != "smollm3"
                || !(index + 1).is_multiple_of(SMOLLM3_INTERVAL);
            layer.window.is_some() == has_window && layer.rope.is_some() == has_positions
        };
        if layers.all(is_expected) {
            return Ok(());
        }
        Err(refuse(
            "the sliding windows or positions are not in the same layers as in the published models",
        ))
    }

    fn check_attention(&self) -> Result<()> {
        let shape = self.shape;
        let is_large = self.is_large_gemma();
        let scaled = if is_large {
            shape.width / shape.heads
        } else {
            shape.head_width
        };
        if (shape.attention_scale * (scaled as f64).sqrt() - 1.0).abs() > 1e-6 {
            return Err(refuse("the attention has an unusual scale"));
        }
        let caps = (shape.attention_cap.is_some(), shape.score_cap.is_some());
        if caps != (self.is_gemma2(), self.is_gemma2()) {
            return Err(refuse(
                "the attention scores or the output scores have an unusual cap",
            ));
        }
        Ok(())
    }

    fn is_gemma2(&self) -> bool {
        self.family.architecture == "gemma2"
    }

    fn is_large_gemma(&self) -> bool {
        self.shape.norms == DecoderNorms::Both
            && LARGE_GEMMA_LAYERS.contains(&self.shape.layers.len())
    }

    fn check_ropes(&self) -> Result<()> {
        let rope = &self.shape.ropes[0];
        let is_llama = self.family.architecture == "llama";
        match &rope.scaling {
            RopeScaling::None | RopeScaling::Linear(_) => {}
            RopeScaling::Llama3 { .. } if is_llama => {}
            RopeScaling::Long { .. } if self.family.architecture == "phi3" => {}
            RopeScaling::Yarn {
                factor,
                beta,
                attention,
                truncate: true,
                ..
            } if *beta == (32.0, 1.0) && (attention - 0.1 * factor.ln() - 1.0).abs() < 1e-6 => {}
            _ => return Err(refuse("the positions are scaled in an unusual way")),
        }
        if let Some(local) = self.shape.ropes.get(1)
            && (local.theta != GEMMA3_LOCAL_THETA || local.scaling != RopeScaling::None)
        {
            return Err(refuse(
                "the positions of its sliding-window layers are scaled in an unusual way",
            ));
        }
        Ok(())
    }

    /// Divisors of the frequencies of the rotary embedding, each under the name of its tensor.
    pub fn frequency_divisors(&self) -> Vec<(&'static str, Vec<f32>)> {
        let rope = &self.shape.ropes[0];
        let narrow = |values: &[f64]| values.iter().map(|value| *value as f32).collect();
        match &rope.scaling {
            RopeScaling::Llama3 { .. } => {
                let plain = Rope::new(rope.rotated, rope.theta, &RopeScaling::None);
                let pairs = plain.frequencies().iter().zip(rope.frequencies());
                let divisors: Vec<f64> = pairs.map(|(plain, scaled)| plain / scaled).collect();
                vec![("rope_freqs.weight", narrow(&divisors))]
            }
            RopeScaling::Long { short, long, .. } => vec![
                ("rope_factors_short.weight", narrow(short)),
                ("rope_factors_long.weight", narrow(long)),
            ],
            _ => Vec::new(),
        }
    }

    /// The keys of the file that describe the network. `name` is shown to people.
    pub fn metadata(&self, name: &str, weights: GgufWeights) -> Vec<(String, Value)> {
        let (shape, architecture) = (self.shape, self.family.architecture);
        let text = |text: &str| Value::String(text.to_owned());
        let count = |count: usize| Value::U32(u32::try_from(count).unwrap_or(u32::MAX));
        let number = |number: f64| Value::F32(number as f32);
        let file_type = match weights {
            GgufWeights::F32 => 0,
            GgufWeights::F16 => 1,
            GgufWeights::Q8_0 => 7,
            GgufWeights::Q4KM => 15,
        };
        let mut all = vec![
            ("general.architecture".to_owned(), text(architecture)),
            ("general.name".to_owned(), text(name)),
            ("general.file_type".to_owned(), Value::U32(file_type)),
            ("general.quantization_version".to_owned(), Value::U32(2)),
        ];
        let mut add = |key: &str, value: Value| all.push((format!("{architecture}.{key}"), value));
        add("context_length", count(self.context));
        add("embedding_length", count(shape.width));
        add("block_count", count(shape.layers.len()));
        add("feed_forward_length", count(shape.hidden));
        add("vocab_size", count(shape.vocabulary));
        add("attention.head_count", count(shape.heads));
        add("attention.head_count_kv", count(shape.key_heads));
        add("attention.key_length", count(shape.head_width));
        add("attention.value_length", count(shape.head_width));
        add(
            "attention.layer_norm_rms_epsilon",
            number(shape.norm.epsilon),
        );
        match (self.family.windows, self.window) {
            (GgufWindows::None, _) | (GgufWindows::AllButEach(_), None) => {}
            (_, window) => add("attention.sliding_window", count(window.unwrap_or(0))),
        }
        if let (Some(attention), Some(score)) = (shape.attention_cap, shape.score_cap) {
            add("attn_logit_softcapping", number(attention));
            add("final_logit_softcapping", number(score));
        }
        for (key, value) in rope_metadata(&shape.ropes[0]) {
            add(key, value);
        }
        all
    }
}

/// The keys of a rotary embedding.
fn rope_metadata(rope: &Rope) -> Vec<(&'static str, Value)> {
    let number = |number: f64| Value::F32(number as f32);
    let count = |count: f64| Value::U32(count as u32);
    let mut all = vec![
        ("rope.dimension_count", count(rope.rotated as f64)),
        ("rope.freq_base", number(rope.theta)),
    ];
    let kind = |kind: &str| ("rope.scaling.type", Value::String(kind.to_owned()));
    match &rope.scaling {
        // The divisors of the frequencies say the rest.
        RopeScaling::None | RopeScaling::Llama3 { .. } => {}
        RopeScaling::Linear(factor) => {
            all.push(kind("linear"));
            all.push(("rope.scaling.factor", number(*factor)));
        }
        RopeScaling::Yarn {
            factor, original, ..
        } => {
            all.push(kind("yarn"));
            all.push(("rope.scaling.factor", number(*factor)));
            all.push(("rope.scaling.original_context_length", count(*original)));
        }
        RopeScaling::Long {
            original,
            attention,
            ..
        } => {
            all.push((
                "rope.scaling.original_context_length",
                count(*original as f64),
            ));
            all.push(("rope.scaling.attn_factor", number(*attention)));
        }
    }
    all
}
