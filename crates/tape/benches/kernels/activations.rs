//! Activations, element by element.

use crate::inputs_and_timing::{tensor, time};
use criterion::Criterion;

pub fn gelu(c: &mut Criterion) {
    time(c, "gelu", &[tensor(&[2048, 1536], 3)], |tape, v| {
        tape.gelu(&v[0])
    });
}
