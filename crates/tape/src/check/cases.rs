//! The table of cases: every operation with small odd sizes, for any micro-batch.

mod convolutions;
mod residual;
mod elementwise;
mod indexing_and_pooling;
mod random;
mod language;
mod losses;
mod large;
mod wide;

pub use large::{large_cases, large_specs};
pub use wide::wide_specs;

use crate::error::Result;
use crate::ops::{Activation, AttentionShape, Conv2dShape, IGNORED, OutputWeights, PoolShape};
use crate::quantized::{Bits, Quantized};
use crate::rng::Rng;
use crate::tape::{Tape, Value};
use candle_core::{DType, Device, Tensor};

/// One operation with its inputs, all of which get gradients.
pub struct Case {
    /// For example `conv2d stride 2`.
    pub name: &'static str,
    /// Inputs in f64 on the CPU.
    pub inputs: Vec<Tensor>,
    /// The operation.
    pub run: fn(&Tape, &[Value]) -> Result<Value>,
}

/// Smooth values in about -1.5..1.5, the same on every machine.
fn values(name: &str, index: usize, shape: &[usize]) -> Result<Tensor> {
    let stream = Rng::new(7).site(name).at(index as u64);
    let count = shape.iter().product::<usize>() as u64;
    let values: Vec<f64> = (0..count).map(|i| stream.uniform(i) * 3.0 - 1.5).collect();
    Ok(Tensor::from_vec(values, shape, &Device::Cpu)?)
}

type Row = (
    &'static str,
    Vec<Vec<usize>>,
    fn(&Tape, &[Value]) -> Result<Value>,
);

/// Two heads that see all tokens.
const ALL_TOKENS: AttentionShape = AttentionShape {
    heads: 2,
    causal: false,
};

/// Two heads with a causal mask.
const TOKENS_BEFORE: AttentionShape = AttentionShape {
    heads: 2,
    causal: true,
};

const fn conv(stride: usize, padding: usize, groups: usize) -> Conv2dShape {
    Conv2dShape {
        stride,
        padding,
        groups,
    }
}

fn labels(rows: usize, classes: usize) -> Vec<u32> {
    (0..rows).map(|row| (row * 5 % classes) as u32).collect()
}

fn lengths(samples: usize, tokens: usize) -> Vec<usize> {
    (0..samples).map(|n| tokens - n * 2 % tokens).collect()
}

/// A frozen, quantized layer applied to `v[0]`, with the bias `v[1]`.
fn quantized(tape: &Tape, v: &[Value], bits: Bits) -> Result<Value> {
    let [inputs, outputs] = [0, 1].map(|i| v[i].dims().last().copied().unwrap_or(0));
    let weight = values("frozen", 0, &[outputs, inputs])?.to_dtype(DType::F32)?;
    let weight = Quantized::from_weight(&weight.to_device(v[0].tensor().device())?, bits)?;
    tape.quantized_linear(&v[0], &weight, Some(&v[1]))
}

/// The loss of `x` [n, 70] with frozen, quantized output weights [9, 70].
fn quantized_output(tape: &Tape, x: &Value) -> Result<Value> {
    let weight = values("frozen", 0, &[9, 70])?.to_dtype(DType::F32)?;
    let weight = weight.to_device(x.tensor().device())?;
    let weight = Quantized::from_weight(&weight, Bits::Eight)?;
    let targets = labels(x.dims()[0], 9);
    let weight = OutputWeights::Quantized(&weight);
    Ok(tape.linear_cross_entropy(x, weight, &targets)?.sum)
}

/// Rows of a frozen, quantized table, added to `x` [2, 3, 70].
fn quantized_rows(tape: &Tape, x: &Value, bits: Bits) -> Result<Value> {
    let weight = values("frozen", 0, &[5, 70])?.to_dtype(DType::F32)?;
    let weight = weight.to_device(x.tensor().device())?;
    let weight = Quantized::from_weight(&weight, bits)?;
    let rows = tape.quantized_embedding(&weight, &[4, 0, 4, 2, 2, 4], &[2, 3])?;
    tape.add(x, &tape.cast(&rows, x.tensor().dtype())?)
}

/// The cases for a micro-batch of `n` samples.
pub fn cases(n: usize) -> Result<Vec<Case>> {
    made(case_specs(n))
}

/// As [`cases`], without the inputs.
// tidy: table
pub fn case_specs(n: usize) -> Vec<CaseSpec> {
    let mut table: Vec<Row> = vec![
        (
            "linear",
            vec![vec![n, 5, 7], vec![6, 7], vec![6]],
            |t, v| t.linear(&v[0], &v[1], Some(&v[2])),
        ),
        (
            "linear without bias",
            vec![vec![n, 7], vec![3, 7]],
            |t, v| t.linear(&v[0], &v[1], None),
        ),
        (
            "layer_norm",
            vec![vec![n, 3, 19], vec![19], vec![19]],
            |t, v| t.layer_norm(&v[0], &v[1], &v[2], 1e-5),
        ),
        (
            "group_norm",
            vec![vec![n, 6, 5, 3], vec![6], vec![6]],
            |t, v| t.group_norm(&v[0], 3, (&v[1], &v[2]), 1e-5, Activation::None),
        ),
        (
            "group_norm and relu",
            vec![vec![n, 6, 5, 3], vec![6], vec![6]],
            |t, v| t.group_norm(&v[0], 3, (&v[1], &v[2]), 1e-5, Activation::Relu),
        ),
        (
            "group_norm and gelu",
            vec![vec![n, 6, 5, 3], vec![6], vec![6]],
            |t, v| t.group_norm(&v[0], 3, (&v[1], &v[2]), 1e-5, Activation::Gelu),
        ),
        (
            "linear after layer_norm and gelu",
            vec![vec![n, 3, 9], vec![9], vec![9], vec![5, 9], vec![4, 5]],
            |t, v| {
                let y = t.linear(&t.layer_norm(&v[0], &v[1], &v[2], 1e-5)?, &v[3], None)?;
                t.linear(&t.gelu(&y)?, &v[4], None)
            },
        ),
        (
            "conv2d after group_norm",
            vec![vec![n, 4, 5, 3], vec![4], vec![4], vec![3, 4, 3, 3]],
            |t, v| {
                let y = t.group_norm(&v[0], 2, (&v[1], &v[2]), 1e-5, Activation::Relu)?;
                t.conv2d(&y, &v[3], conv(1, 1, 1))
            },
        ),
        ("relu", vec![vec![n, 4, 9]], |t, v| t.relu(&v[0])),
        ("gelu", vec![vec![n, 4, 9]], |t, v| t.gelu(&v[0])),
        ("add", vec![vec![n, 11], vec![n, 11]], |t, v| {
            t.add(&v[0], &v[1])
        }),
        ("add of a value and itself", vec![vec![n, 11]], |t, v| {
            t.add(&v[0], &v[0])
        }),
        ("add_repeated", vec![vec![n, 4, 5], vec![4, 5]], |t, v| {
            t.add_repeated(&v[0], &v[1])
        }),
        ("scale", vec![vec![n, 11]], |t, v| t.scale(&v[0], -1.7)),
        (
            "concat",
            vec![vec![n, 4], vec![3, 4], vec![1, 4]],
            |t, v| t.concat(&[&v[0], &v[1], &v[2]]),
        ),
        ("prepend_token", vec![vec![5], vec![n, 3, 5]], |t, v| {
            t.prepend_token(&v[0], &v[1])
        }),
        ("first_token", vec![vec![n, 3, 5]], |t, v| {
            t.first_token(&v[0])
        }),
        ("reshape", vec![vec![n, 6, 4]], |t, v| {
            let n = v[0].dims()[0];
            t.reshape(&v[0], &[n * 2, 12])
        }),
        ("mean_pool", vec![vec![n, 3, 4, 5]], |t, v| {
            t.mean_pool(&v[0])
        }),
        (
            "conv2d 3x3",
            vec![vec![n, 3, 7, 6], vec![4, 3, 3, 3]],
            |t, v| t.conv2d(&v[0], &v[1], conv(1, 1, 1)),
        ),
        (
            "conv2d 3x3 stride 2",
            vec![vec![n, 2, 8, 7], vec![5, 2, 3, 3]],
            |t, v| t.conv2d(&v[0], &v[1], conv(2, 1, 1)),
        ),
        (
            "conv2d 1x1",
            vec![vec![n, 3, 4, 5], vec![6, 3, 1, 1]],
            |t, v| t.conv2d(&v[0], &v[1], conv(1, 0, 1)),
        ),
        (
            "conv2d 1x1 stride 2",
            vec![vec![n, 3, 5, 6], vec![6, 3, 1, 1]],
            |t, v| t.conv2d(&v[0], &v[1], conv(2, 0, 1)),
        ),
        (
            "conv2d 7x7 stride 2",
            vec![vec![n, 2, 9, 9], vec![3, 2, 7, 7]],
            |t, v| t.conv2d(&v[0], &v[1], conv(2, 3, 1)),
        ),
        (
            "conv2d in groups",
            vec![vec![n, 4, 6, 5], vec![6, 2, 3, 3]],
            |t, v| t.conv2d(&v[0], &v[1], conv(2, 1, 2)),
        ),
        (
            "conv2d depthwise",
            vec![vec![n, 3, 5, 6], vec![3, 1, 3, 3]],
            |t, v| t.conv2d(&v[0], &v[1], conv(1, 1, 3)),
        ),
        (
            "conv2d depthwise 7x7",
            vec![vec![n, 3, 9, 8], vec![3, 1, 7, 7]],
            |t, v| t.conv2d(&v[0], &v[1], conv(1, 3, 3)),
        ),
        (
            "conv2d depthwise, kernel larger than the image",
            vec![vec![n, 3, 2, 3], vec![3, 1, 7, 7]],
            |t, v| t.conv2d(&v[0], &v[1], conv(1, 3, 3)),
        ),
        (
            "conv2d in patches that leave pixels over",
            vec![vec![n, 3, 9, 6], vec![5, 3, 4, 4]],
            |t, v| t.conv2d(&v[0], &v[1], conv(4, 0, 1)),
        ),
        ("attention", vec![vec![n, 5, 36]], |t, v| {
            t.attention(&v[0], ALL_TOKENS)
        }),
        ("attention causal", vec![vec![n, 5, 36]], |t, v| {
            t.attention(&v[0], TOKENS_BEFORE)
        }),
        ("attention in blocks", vec![vec![n, 9, 12]], |t, v| {
            t.attention(&v[0], ALL_TOKENS)
        }),
        (
            "attention in blocks, causal",
            vec![vec![n, 9, 12]],
            |t, v| t.attention(&v[0], TOKENS_BEFORE),
        ),
        ("attention padded", vec![vec![n, 5, 36]], |t, v| {
            t.attention_padded(&v[0], ALL_TOKENS, &lengths(v[0].dims()[0], 5))
        }),
        (
            "attention padded in blocks",
            vec![vec![n, 9, 12]],
            |t, v| t.attention_padded(&v[0], TOKENS_BEFORE, &lengths(v[0].dims()[0], 9)),
        ),
        ("cross_entropy", vec![vec![n, 6]], |t, v| {
            Ok(t.cross_entropy(&v[0], &labels(v[0].dims()[0], 6), 0.0)?.sum)
        }),
        (
            "cross_entropy with label smoothing",
            vec![vec![n, 6]],
            |t, v| Ok(t.cross_entropy(&v[0], &labels(v[0].dims()[0], 6), 0.1)?.sum),
        ),
        ("embedding", vec![vec![6, 5]], |t, v| {
            t.embedding(&v[0], &[4, 0, 4, 2, 2, 4], &[2, 3])
        }),
        // The rows' gradient is added to that of the head.
        ("embedding with a tied head", vec![vec![6, 5]], |t, v| {
            let ids = [4, 0, 4, 2, 2, 4];
            let x = t.embedding(&v[0], &ids, &[6])?;
            Ok(t.linear_cross_entropy(&t.gelu(&x)?, &v[0], &labels(6, 6))?
                .sum)
        }),
        (
            "linear_cross_entropy",
            vec![vec![n, 7], vec![9, 7]],
            |t, v| {
                let mut targets = labels(v[0].dims()[0], 9);
                if targets.len() > 2 {
                    targets[1] = IGNORED;
                }
                Ok(t.linear_cross_entropy(&v[0], &v[1], &targets)?.sum)
            },
        ),
        ("max_pool 3x3 stride 2", vec![vec![n, 2, 7, 6]], |t, v| {
            t.max_pool(
                &v[0],
                PoolShape {
                    kernel: 3,
                    stride: 2,
                    padding: 1,
                },
            )
        }),
        (
            "quantized_linear 8 bits",
            vec![vec![n, 3, 70], vec![5]],
            |t, v| quantized(t, v, Bits::Eight),
        ),
        (
            "quantized_linear 4 bits",
            vec![vec![n, 3, 70], vec![5]],
            |t, v| quantized(t, v, Bits::Four),
        ),
        (
            "quantized_linear NF4",
            vec![vec![n, 3, 70], vec![5]],
            |t, v| quantized(t, v, Bits::Nf4),
        ),
        (
            "linear_cross_entropy of 8 bits",
            vec![vec![n, 70]],
            |t, v| quantized_output(t, &v[0]),
        ),
        ("quantized_embedding", vec![vec![2, 3, 70]], |t, v| {
            quantized_rows(t, &v[0], Bits::Four)
        }),
        ("quantized_embedding NF4", vec![vec![2, 3, 70]], |t, v| {
            quantized_rows(t, &v[0], Bits::Nf4)
        }),
        ("mean_tokens padded", vec![vec![n, 4, 5]], |t, v| {
            t.mean_tokens_padded(&v[0], &lengths(v[0].dims()[0], 4))
        }),
        ("mean_tokens", vec![vec![n, 4, 5]], |t, v| {
            t.mean_tokens(&v[0])
        }),
        (
            "checkpoint of nine samples",
            vec![vec![n * 9, 5], vec![4, 5]],
            |t, v| {
                let w = v[1].clone();
                let y = t.checkpoint_samples(&v[0], |t, x, _| t.gelu(x))?;
                t.linear(&y, &w, None)
            },
        ),
        ("checkpoint", vec![vec![n, 11]], |t, v| {
            t.checkpoint(&v[0], |t, x| {
                let y = t.gelu(x)?;
                t.add(&y, x)
            })
        }),
    ];
    table.extend(convolutions::rows(n));
    table.extend(residual::rows(n));
    table.extend(elementwise::rows(n));
    table.extend(indexing_and_pooling::rows(n));
    table.extend(random::rows(n));
    table.extend(losses::rows(n));
    table.extend(language::rows(n));
    specs(table)
}

/// A case whose inputs are not made yet.
pub struct CaseSpec {
    /// For example `conv2d stride 2`.
    pub name: &'static str,
    shapes: Vec<Vec<usize>>,
    run: fn(&Tape, &[Value]) -> Result<Value>,
}

impl CaseSpec {
    /// Makes the inputs.
    ///
    /// # Errors
    /// A shape of the table is wrong.
    pub fn build(&self) -> Result<Case> {
        let shapes = self.shapes.iter().enumerate();
        let inputs = shapes.map(|(i, shape)| values(self.name, i, shape));
        Ok(Case {
            name: self.name,
            inputs: inputs.collect::<Result<_>>()?,
            run: self.run,
        })
    }
}

fn specs(table: Vec<Row>) -> Vec<CaseSpec> {
    let spec = |(name, shapes, run)| CaseSpec { name, shapes, run };
    table.into_iter().map(spec).collect()
}

/// Makes the inputs of each case.
fn made(table: Vec<CaseSpec>) -> Result<Vec<Case>> {
    table.iter().map(CaseSpec::build).collect()
}
