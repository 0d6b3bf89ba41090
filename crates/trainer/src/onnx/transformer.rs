//! Transformers as graphs: the blocks that images and texts share, what goes in before them and what is read behind them.

use super::graph::{Graph, Name};
use super::message::Attribute;
use crate::error::Result;
use crate::models::{
    BlockShape, Branches, Gelu, Norms, Pooling, SequenceShape, TextEncoderStyle, VitReads,
    VitShape, VitStyle, VitTokens,
};
use candle_core::Tensor;

/// Added to the scores of padding, so that softmax leaves nothing of them.
const UNSEEN: f64 = 1e9;

/// What the classes of an image are told from, [batch, features].
pub fn of_image(g: &mut Graph, images: &str, shape: &VitShape, style: &VitStyle) -> Result<Scored> {
    let (patch, width) = (shape.patch, shape.width);
    let weight = g.reshaped("patch.weight", &[width, 3, patch, patch])?;
    let bias = g.parameter("patch.bias")?;
    let settings = vec![
        Attribute::ints("kernel_shape", &[patch as i64; 2]),
        Attribute::ints("strides", &[patch as i64; 2]),
    ];
    let x = g.node("Conv", &[images, &weight, &bias], settings);
    let x = g.reshape(&x, &[0, width as i64, -1]);
    let patches = g.transpose(&x, &[0, 2, 1]);
    let class = token(g, "class_token", &patches, width)?;
    let x = match style.tokens {
        VitTokens::Class => g.concat(&[&class, &patches], 1),
        VitTokens::ClassAndTeacher => {
            let teacher = token(g, "teacher_token", &patches, width)?;
            g.concat(&[&class, &teacher, &patches], 1)
        }
    };
    let positions = g.parameter("positions")?;
    let mut x = g.add(&x, &positions);
    for block in 0..shape.depth {
        x = self::block(g, &x, block, &style.block, None)?;
    }
    let x = g.layer_norm(&x, "norm", style.block.epsilon)?;
    let class = g.at(&x, 1, 0);
    match style.reads {
        VitReads::Class => Ok(Scored::By("head", class)),
        VitReads::ClassAndTeacher => Ok(Scored::ByTwo([
            ("head", class),
            ("teacher_head", g.at(&x, 1, 1)),
        ])),
        VitReads::ClassAndMean => {
            let before = match style.tokens {
                VitTokens::Class => 1,
                VitTokens::ClassAndTeacher => 2,
            };
            let end = g.ints(&[i64::MAX]);
            let patches = g.cut(&x, 1, before, &end);
            let settings = vec![Attribute::ints("axes", &[1]), Attribute::int("keepdims", 0)];
            let mean = g.node("ReduceMean", &[&patches], settings);
            Ok(Scored::By("head", g.concat(&[&class, &mean], 1)))
        }
    }
}

/// What is still to be mapped to scores, and by which map.
pub enum Scored {
    /// One map.
    By(&'static str, Name),
    /// Two, whose scores are averaged.
    ByTwo([(&'static str, Name); 2]),
}

/// A learnt token once for each image: [batch, 1, width].
fn token(g: &mut Graph, name: &str, patches: &str, width: usize) -> Result<Name> {
    let token = g.reshaped(name, &[1, 1, width])?;
    let shape = g.node("Shape", &[patches], Vec::new());
    let one = g.ints(&[1]);
    let batch = g.cut(&shape, 0, 0, &one);
    let rest = g.ints(&[1, width as i64]);
    let shape = g.concat(&[&batch, &rest], 0);
    Ok(g.node("Expand", &[&token, &shape], Vec::new()))
}

/// What the classes of a text are told from, [batch, width], of `ids` and a `mask` of ones before zeros, both [batch, tokens].
pub fn of_text(
    g: &mut Graph,
    [ids, mask]: [&str; 2],
    shape: &SequenceShape,
    style: &TextEncoderStyle,
) -> Result<Scored> {
    let embedding = g.parameter("embedding.weight")?;
    let x = g.node(
        "Gather",
        &[&embedding, ids],
        vec![Attribute::int("axis", 0)],
    );
    let sizes = g.node("Shape", &[ids], Vec::new());
    let end = g.ints(&[2]);
    let tokens = g.cut(&sizes, 0, 1, &end);
    let positions = g.parameter("positions")?;
    let positions = g.cut(&positions, 0, 0, &tokens);
    let mut x = g.add(&x, &positions);
    if style.kinds > 0 {
        // Every token belongs to the first part of a text.
        let first = g.value("kinds")?.narrow(0, 0, 1)?.contiguous()?;
        let first = g.tensor("kinds.first", &first)?;
        x = g.add(&x, &first);
    }
    let block = &style.block;
    if block.norms == Norms::After {
        x = g.layer_norm(&x, "norm", block.epsilon)?;
    }
    // FLOAT of the format.
    let seen = g.node("Cast", &[mask], vec![Attribute::int("to", 1)]);
    let unseen = {
        let less = g.number(-1.0);
        let shifted = g.add(&seen, &less);
        let scaled = g.scaled(&shifted, UNSEEN);
        let axes = g.ints(&[1, 2]);
        g.node("Unsqueeze", &[&scaled, &axes], Vec::new())
    };
    for number in 0..shape.depth {
        x = self::block(g, &x, number, block, Some(&unseen))?;
    }
    if block.norms == Norms::Before {
        x = g.layer_norm(&x, "norm", block.epsilon)?;
    }
    let text = match style.pooling {
        Pooling::Mean => mean_of_seen(g, &x, &seen),
        Pooling::First => g.at(&x, 1, 0),
        Pooling::FirstMapped => {
            let first = g.at(&x, 1, 0);
            let mapped = g.linear(&first, "pooler")?;
            g.node("Tanh", &[&mapped], Vec::new())
        }
    };
    Ok(Scored::By("head", text))
}

fn mean_of_seen(g: &mut Graph, x: &str, seen: &str) -> Name {
    let (last, second) = (g.ints(&[2]), g.ints(&[1]));
    let each = g.node("Unsqueeze", &[seen, &last], Vec::new());
    let kept = g.mul(x, &each);
    let gone = || vec![Attribute::int("keepdims", 0)];
    let sum = g.node("ReduceSum", &[&kept, &second], gone());
    let count = g.node("ReduceSum", &[&each, &second], gone());
    g.node("Div", &[&sum, &count], Vec::new())
}

/// One block over [batch, tokens, width]; `unseen` is added to the scores of tokens.
fn block(
    g: &mut Graph,
    x: &str,
    number: usize,
    shape: &BlockShape,
    unseen: Option<&str>,
) -> Result<Name> {
    let name = |part: &str| format!("blocks.{number}.{part}");
    let before = |g: &mut Graph, x: &str, norm: &str| match shape.norms {
        Norms::Before => g.layer_norm(x, &name(norm), shape.epsilon),
        Norms::After => Ok(x.to_owned()),
    };
    let after = |g: &mut Graph, x: Name, norm: &str| match shape.norms {
        Norms::Before => Ok(x),
        Norms::After => g.layer_norm(&x, &name(norm), shape.epsilon),
    };
    let scaled = |g: &mut Graph, y: Name, scale: &str| match shape.branches {
        Branches::Plain => Ok(y),
        Branches::Scaled => {
            let scale = g.parameter(&name(scale))?;
            crate::error::Result::Ok(g.mul(&y, &scale))
        }
    };
    let y = before(g, x, "norm1")?;
    let y = attention(g, &y, number, shape, unseen)?;
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
    unseen: Option<&str>,
) -> Result<Name> {
    let (heads, width) = (shape.heads as i64, shape.width as i64);
    let name = |part: &str| format!("blocks.{number}.{part}");
    let query = g.value(&name("query.bias"))?;
    let value = g.value(&name("value.bias"))?;
    let bias = Tensor::cat(&[&query, &query.zeros_like()?, &value], 0)?;
    let bias = g.tensor(&name("qkv.bias"), &bias)?;
    let qkv = g.map(x, &name("qkv.weight"))?;
    let qkv = g.add(&qkv, &bias);
    let parts = g.reshape(&qkv, &[0, 0, 3, heads, width / heads]);
    let parts = g.transpose(&parts, &[2, 0, 3, 1, 4]);
    let [query, key, value] = [0, 1, 2].map(|part| g.at(&parts, 0, part));
    let turned = g.transpose(&key, &[0, 1, 3, 2]);
    let scores = g.matmul(&query, &turned);
    let mut scores = g.scaled(&scores, (shape.heads as f64 / shape.width as f64).sqrt());
    if let Some(unseen) = unseen {
        scores = g.add(&scores, unseen);
    }
    let shares = g.node("Softmax", &[&scores], vec![Attribute::int("axis", -1)]);
    let y = g.matmul(&shares, &value);
    let y = g.transpose(&y, &[0, 2, 1, 3]);
    Ok(g.reshape(&y, &[0, 0, width]))
}
