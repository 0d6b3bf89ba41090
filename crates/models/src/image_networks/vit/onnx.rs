//! A vision transformer as a graph.

use super::{VitPooling, VitShape, VitStyle, VitTokens};
use crate::error::Result;
use crate::onnx_graph::transformer::block;
use crate::onnx_graph::{Attribute, Features, Graph, Name};

/// Features [batch, features] of images [batch, 3, side, side].
pub(super) fn features(
    g: &mut Graph,
    images: &str,
    shape: &VitShape,
    style: &VitStyle,
) -> Result<Features> {
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
        VitTokens::ClassAndDistillation => {
            let distillation = token(g, "teacher_token", &patches, width)?;
            g.concat(&[&class, &distillation, &patches], 1)
        }
    };
    let positions = g.parameter("positions")?;
    let mut x = g.add(&x, &positions);
    for number in 0..shape.depth {
        x = block(g, &x, number, &style.block, None)?;
    }
    let x = g.layer_norm(&x, "norm", style.block.epsilon)?;
    let class = g.at(&x, 1, 0);
    match style.pooling {
        VitPooling::Class => Ok(Features::One("head", class)),
        VitPooling::ClassAndDistillation => Ok(Features::Two([
            ("head", class),
            ("teacher_head", g.at(&x, 1, 1)),
        ])),
        VitPooling::ClassAndMean => {
            let before = match style.tokens {
                VitTokens::Class => 1,
                VitTokens::ClassAndDistillation => 2,
            };
            let end = g.ints(&[i64::MAX]);
            let patches = g.slice(&x, 1, before, &end);
            let settings = vec![Attribute::ints("axes", &[1]), Attribute::int("keepdims", 0)];
            let mean = g.node("ReduceMean", &[&patches], settings);
            Ok(Features::One("head", g.concat(&[&class, &mean], 1)))
        }
    }
}

/// A learned token, repeated for each image: [batch, 1, width].
fn token(g: &mut Graph, name: &str, patches: &str, width: usize) -> Result<Name> {
    let token = g.reshaped(name, &[1, 1, width])?;
    let shape = g.node("Shape", &[patches], Vec::new());
    let one = g.ints(&[1]);
    let batch = g.slice(&shape, 0, 0, &one);
    let rest = g.ints(&[1, width as i64]);
    let shape = g.concat(&[&batch, &rest], 0);
    Ok(g.node("Expand", &[&token, &shape], Vec::new()))
}
