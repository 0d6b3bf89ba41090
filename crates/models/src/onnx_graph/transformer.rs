//! Transformers as graphs: the shared blocks, and text encoders.

use super::{Attribute, Features, Graph, Name};
use crate::error::Result;
use crate::text_backbone::SequenceShape;
use crate::text_encoder::{Pooling, TextEncoderStyle};
use crate::transformer::{BlockShape, Gelu, NormPlacement, ResidualScale};
use tape::device::{contiguous, joined};

/// Subtracted from the attention scores of padding, so that softmax makes them zero.
const MASKED: f64 = 1e9;

/// Inputs of a text encoder, both [batch, tokens].
pub struct TextInput {
    /// Token ids.
    pub ids: Name,
    /// Ones for tokens, then zeros for padding.
    pub mask: Name,
}

/// Features [batch, width] of texts.
pub fn text_features(
    g: &mut Graph,
    input: TextInput,
    shape: &SequenceShape,
    style: &TextEncoderStyle,
) -> Result<Features> {
    let embedding = g.parameter("embedding.weight")?;
    let x = g.node(
        "Gather",
        &[&embedding, &input.ids],
        vec![Attribute::int("axis", 0)],
    );
    let sizes = g.node("Shape", &[&input.ids], Vec::new());
    let end = g.ints(&[2]);
    let tokens = g.slice(&sizes, 0, 1, &end);
    let positions = g.parameter("positions")?;
    let positions = g.slice(&positions, 0, 0, &tokens);
    let mut x = g.add(&x, &positions);
    if style.token_types > 0 {
        // All tokens have type 0.
        let first = contiguous(&g.value("kinds")?.narrow(0, 0, 1)?)?;
        let first = g.tensor("kinds.first", &first)?;
        x = g.add(&x, &first);
    }
    let block = &style.block;
    if block.norms == NormPlacement::After {
        x = g.layer_norm(&x, "norm", block.epsilon)?;
    }
    // 1 is the format's code for f32.
    let mask = g.node("Cast", &[&input.mask], vec![Attribute::int("to", 1)]);
    let masked = {
        let less = g.number(-1.0);
        let shifted = g.add(&mask, &less);
        let scaled = g.scaled(&shifted, MASKED);
        let axes = g.ints(&[1, 2]);
        g.node("Unsqueeze", &[&scaled, &axes], Vec::new())
    };
    for number in 0..shape.depth {
        x = self::block(g, &x, number, block, Some(&masked))?;
    }
    if block.norms == NormPlacement::Before {
        x = g.layer_norm(&x, "norm", block.epsilon)?;
    }
    let text = match style.pooling {
        Pooling::Mean => masked_mean(g, &x, &mask),
        Pooling::First => g.at(&x, 1, 0),
        Pooling::Pooler => {
            let first = g.at(&x, 1, 0);
            let mapped = g.linear(&first, "pooler")?;
            g.node("Tanh", &[&mapped], Vec::new())
        }
    };
    Ok(Features::One("head", text))
}

/// The mean of the tokens that `mask` [batch, tokens] marks with 1.
fn masked_mean(g: &mut Graph, x: &str, mask: &str) -> Name {
    let (last, second) = (g.ints(&[2]), g.ints(&[1]));
    let each = g.node("Unsqueeze", &[mask, &last], Vec::new());
    let tokens = g.mul(x, &each);
    let settings = || vec![Attribute::int("keepdims", 0)];
    let sum = g.node("ReduceSum", &[&tokens, &second], settings());
    let count = g.node("ReduceSum", &[&each, &second], settings());
    g.node("Div", &[&sum, &count], Vec::new())
}

/// One block over [batch, tokens, width]; `masked` is added to the attention scores.
pub(crate) fn block(
    g: &mut Graph,
    x: &str,
    number: usize,
    shape: &BlockShape,
    masked: Option<&str>,
) -> Result<Name> {
    let name = |part: &str| format!("blocks.{number}.{part}");
    let before = |g: &mut Graph, x: &str, norm: &str| match shape.norms {
        NormPlacement::Before => g.layer_norm(x, &name(norm), shape.epsilon),
        NormPlacement::After => Ok(x.to_owned()),
    };
    let after = |g: &mut Graph, x: Name, norm: &str| match shape.norms {
        NormPlacement::Before => Ok(x),
        NormPlacement::After => g.layer_norm(&x, &name(norm), shape.epsilon),
    };
    let scaled = |g: &mut Graph, y: Name, scale: &str| -> Result<Name> {
        match shape.scale {
            ResidualScale::None => Ok(y),
            ResidualScale::PerChannel => {
                let scale = g.parameter(&name(scale))?;
                Ok(g.mul(&y, &scale))
            }
        }
    };
    let y = before(g, x, "norm1")?;
    let y = attention(g, &y, number, shape, masked)?;
    let y = g.linear(&y, &name("projection"))?;
    let y = scaled(g, y, "scale1")?;
    let x = g.add(x, &y);
    let x = after(g, x, "norm1")?;
    let y = before(g, &x, "norm2")?;
    let y = g.linear(&y, &name("up"))?;
    let y = match shape.gelu {
        Gelu::Tanh => g.gelu(&y),
        Gelu::Erf => g.gelu_erf(&y),
    };
    let y = g.linear(&y, &name("down"))?;
    let y = scaled(g, y, "scale2")?;
    let x = g.add(&x, &y);
    after(g, x, "norm2")
}

fn attention(
    g: &mut Graph,
    x: &str,
    number: usize,
    shape: &BlockShape,
    masked: Option<&str>,
) -> Result<Name> {
    let (heads, width) = (shape.heads as i64, shape.width as i64);
    let name = |part: &str| format!("blocks.{number}.{part}");
    let query = g.value(&name("query.bias"))?;
    let value = g.value(&name("value.bias"))?;
    let bias = joined(&[&query, &query.zeros_like()?, &value], 0)?;
    let bias = g.tensor(&name("qkv.bias"), &bias)?;
    let qkv = g.map(x, &name("qkv.weight"))?;
    let qkv = g.add(&qkv, &bias);
    let parts = g.reshape(&qkv, &[0, 0, 3, heads, width / heads]);
    let parts = g.transpose(&parts, &[2, 0, 3, 1, 4]);
    let [query, key, value] = [0, 1, 2].map(|part| g.at(&parts, 0, part));
    let transposed = g.transpose(&key, &[0, 1, 3, 2]);
    let scores = g.matmul(&query, &transposed);
    let mut scores = g.scaled(&scores, (shape.heads as f64 / shape.width as f64).sqrt());
    if let Some(masked) = masked {
        scores = g.add(&scores, masked);
    }
    let probabilities = g.node("Softmax", &[&scores], vec![Attribute::int("axis", -1)]);
    let y = g.matmul(&probabilities, &value);
    let y = g.transpose(&y, &[0, 2, 1, 3]);
    Ok(g.reshape(&y, &[0, 0, width]))
}
