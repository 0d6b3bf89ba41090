//! Norms, over the rows of a transformer and the channels of a residual network.

use crate::inputs_and_timing::{constant, tensor, time};
use criterion::Criterion;
use tape::{Activation, Affine};

pub fn layer_norm(c: &mut Criterion) {
    for width in [192, 384, 768] {
        let inputs = [
            tensor(&[8, 256, width], 1),
            constant(&[width], 1.0),
            constant(&[width], 0.0),
        ];
        time(c, "layer_norm", &inputs, |tape, v| {
            tape.layer_norm(&v[0], &v[1], &v[2], 1e-5)
        });
    }
}

pub fn group_norm(c: &mut Criterion) {
    for (channels, side) in [(64, 56), (256, 14)] {
        let inputs = [
            tensor(&[8, channels, side, side], 2),
            constant(&[channels], 1.0),
            constant(&[channels], 0.0),
        ];
        for (name, activation) in [
            ("group_norm", Activation::None),
            ("group_norm and relu", Activation::Relu),
        ] {
            time(c, name, &inputs, |tape, v| {
                let affine = Affine {
                    weight: &v[1],
                    bias: &v[2],
                };
                tape.group_norm(&v[0], 32, affine, 1e-5, activation)
            });
        }
    }
}
