//! Linear layers and convolutions.

use crate::inputs_and_timing::{constant, tensor, time};
use criterion::Criterion;
use tape::Conv2dShape;

pub fn linear(c: &mut Criterion) {
    for (rows, inputs, outputs) in [(2048, 384, 1536), (2048, 1536, 384), (1576, 192, 768)] {
        let operands = [
            tensor(&[rows, inputs], 5),
            tensor(&[outputs, inputs], 6),
            constant(&[outputs], 0.0),
        ];
        time(c, "linear", &operands, |tape, v| {
            tape.linear(&v[0], &v[1], Some(&v[2]))
        });
    }
}

pub fn conv2d(c: &mut Criterion) {
    for (inputs, outputs, side, kernel, stride) in [
        (3, 64, 224, 7, 2),
        (64, 64, 56, 3, 1),
        (128, 256, 28, 3, 2),
        (512, 512, 7, 3, 1),
    ] {
        let operands = [
            tensor(&[4, inputs, side, side], 7),
            tensor(&[outputs, inputs, kernel, kernel], 8),
        ];
        let shape = Conv2dShape {
            stride,
            padding: kernel / 2,
            groups: 1,
        };
        time(c, "conv2d", &operands, |tape, v| {
            tape.conv2d(&v[0], &v[1], shape)
        });
    }
}
