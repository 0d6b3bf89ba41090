//! Losses, from scores and from the rows before the head.

use crate::inputs_and_timing::{tensor, time};
use criterion::Criterion;

fn labels(rows: usize, classes: usize) -> Vec<u32> {
    (0..rows).map(|row| (row * 31 % classes) as u32).collect()
}

pub fn cross_entropy(c: &mut Criterion) {
    for (rows, classes) in [(32, 101), (2048, 256)] {
        let labels = labels(rows, classes);
        time(
            c,
            "cross_entropy",
            &[tensor(&[rows, classes], 9)],
            |tape, v| Ok(tape.cross_entropy(&v[0], &labels, 0.1)?.sum),
        );
    }
}

pub fn linear_cross_entropy(c: &mut Criterion) {
    for (rows, width, vocabulary) in [(2048, 384, 256), (512, 768, 16_384)] {
        let labels = labels(rows, vocabulary);
        let operands = [tensor(&[rows, width], 10), tensor(&[vocabulary, width], 11)];
        time(c, "linear_cross_entropy", &operands, |tape, v| {
            Ok(tape.linear_cross_entropy(&v[0], &v[1], &labels)?.sum)
        });
    }
}
