//! Operands that do not fit are refused before anything is computed, and the message names the
//! operation, the operand and both shapes.

// A panic in a helper fails the test that called it.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use tape::{
    Activation, Affine, AttentionShape, Cancel, Conv2dShape, Gate, GroupedAttention, JoinedHeads,
    Kernels, LowRankTerm, Parameters, Result, RmsNormShape, Rotation, Tape, Value,
};

fn zeros(shape: &[usize]) -> Value {
    Value::constant(Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap())
}

fn conv(tape: &Tape, x: &[usize], weight: &[usize], stride: usize) -> Result<Value> {
    let shape = Conv2dShape {
        stride,
        padding: 1,
        groups: 1,
    };
    tape.conv2d(&zeros(x), &zeros(weight), shape)
}

fn heads(tape: &Tape, qkv: &[usize], heads: usize) -> Result<Value> {
    let causal = false;
    tape.attention(&zeros(qkv), AttentionShape { heads, causal })
}

/// Two heads of queries and one of keys, rotated at `positions` positions.
fn joined(tape: &Tape, key: &[usize], positions: usize) -> Result<Value> {
    let rotation = Rotation::new(&[1.0, 0.5], 1.0, 0..positions, DType::F32, &Device::Cpu)?;
    let heads = JoinedHeads {
        heads: 2,
        key_heads: 1,
        head_width: 4,
    };
    let parts = [&zeros(&[2, 3, 8]), &zeros(key), &zeros(&[2, 3, 4])];
    tape.rotary_embedding(parts, heads, Some(&rotation))
}

fn grouped(tape: &Tape, key_heads: usize) -> Result<Value> {
    let shape = GroupedAttention {
        key_heads,
        ..GroupedAttention::for_heads(4, 8)
    };
    tape.grouped_attention(&zeros(&[2, 3, 16]), shape, None)
}

/// A low-rank term of `x` [2, 7] with these matrices, added to zeros of the shape `sum`.
fn low_rank(tape: &Tape, sum: &[usize], matrices: [&[usize]; 2]) -> Result<Value> {
    let [down, up] = matrices.map(zeros);
    let term = LowRankTerm {
        down: &down,
        up: &up,
        factor: 2.0,
    };
    tape.add_low_rank(zeros(sum), &zeros(&[2, 7]), &term)
}

type Refused = fn(&Tape) -> Result<Value>;

/// The attempt, and the words that its message must contain: operation, given shape, needed shape.
const TABLE: [(Refused, &[&str]); 32] = [
    (
        |t| t.linear(&zeros(&[2, 7]), &zeros(&[6, 5]), None),
        &["linear", "weight", "[6, 5]", "[6, 7]"],
    ),
    (
        |t| t.linear(&zeros(&[2, 7]), &zeros(&[6, 7]), Some(&zeros(&[5]))),
        &["linear", "bias", "[5]", "[6]"],
    ),
    (
        |t| {
            let shape = RmsNormShape {
                epsilon: 1e-5,
                offset: 0.0,
            };
            t.rms_norm(&zeros(&[2, 7]), &zeros(&[5]), shape)
        },
        &["rms_norm", "weight", "[5]", "[7]"],
    ),
    (
        |t| low_rank(t, &[2, 6], [&[3, 5], &[6, 3]]),
        &["add_low_rank", "the first matrix", "[3, 5]", "[3, 7]"],
    ),
    (
        |t| low_rank(t, &[2, 6], [&[3, 7], &[6, 2]]),
        &["add_low_rank", "the second matrix", "[6, 2]", "[6, 3]"],
    ),
    (
        |t| t.gated(&zeros(&[2, 7]), &zeros(&[2, 5]), Gate::Silu),
        &["gated", "up", "[2, 5]", "[2, 7]"],
    ),
    (
        |t| joined(t, &[2, 3, 8], 3),
        &["rotary_embedding", "key", "[2, 3, 8]", "[2, 3, 4]"],
    ),
    (
        |t| joined(t, &[2, 3, 4], 5),
        &[
            "rotary_embedding",
            "query",
            "[2, 3, 8]",
            "5 tokens",
            "4 values",
        ],
    ),
    (
        |t| grouped(t, 3),
        &["grouped_attention", "qkv", "(4)", "key heads (3)"],
    ),
    (
        |t| grouped(t, 1),
        &["grouped_attention", "qkv", "[2, 3, 16]", "[2, 3, 12]"],
    ),
    (
        |t| t.layer_norm(&zeros(&[2, 7]), &zeros(&[5]), &zeros(&[7]), 1e-5),
        &["layer_norm", "weight", "[5]", "[7]"],
    ),
    (
        |t| t.layer_norm(&zeros(&[2, 7]), &zeros(&[7]), &zeros(&[8]), 1e-5),
        &["layer_norm", "bias", "[8]", "[7]"],
    ),
    (
        |t| {
            t.group_norm(
                &zeros(&[2, 6, 3, 3]),
                4,
                Affine {
                    weight: &zeros(&[6]),
                    bias: &zeros(&[6]),
                },
                1e-5,
                Activation::None,
            )
        },
        &["group_norm", "[2, 6, 3, 3]", "multiple of 4"],
    ),
    (
        |t| {
            t.group_norm(
                &zeros(&[2, 6, 3, 3]),
                3,
                Affine {
                    weight: &zeros(&[5]),
                    bias: &zeros(&[6]),
                },
                1e-5,
                Activation::None,
            )
        },
        &["group_norm", "weight", "[5]", "[6]"],
    ),
    (
        |t| {
            t.group_norm(
                &zeros(&[2, 6]),
                3,
                Affine {
                    weight: &zeros(&[6]),
                    bias: &zeros(&[6]),
                },
                1e-5,
                Activation::None,
            )
        },
        &["group_norm", "[2, 6]", "4 axes"],
    ),
    (
        |t| conv(t, &[2, 3, 8, 8], &[5, 4, 3, 3], 1),
        &["conv2d", "weight", "[5, 4, 3, 3]", "[5, 3, 3, 3]"],
    ),
    (
        |t| conv(t, &[3, 8, 8], &[5, 3, 3, 3], 1),
        &["conv2d", "x", "[3, 8, 8]", "4 axes"],
    ),
    (
        |t| conv(t, &[2, 3, 8, 8], &[5, 3], 1),
        &["conv2d", "weight", "[5, 3]", "4 axes"],
    ),
    (
        |t| conv(t, &[2, 3, 4, 8], &[5, 3, 7, 7], 1),
        &["conv2d", "[2, 3, 4, 8]", "5 x 5"],
    ),
    (
        |t| conv(t, &[2, 3, 8, 8], &[5, 3, 3, 3], 0),
        &["conv2d", "stride of at least 1"],
    ),
    (
        |t| heads(t, &[2, 5, 12], 3),
        &["attention", "[2, 5, 12]", "multiple of 3"],
    ),
    (
        |t| heads(t, &[2, 5, 13], 2),
        &["attention", "[2, 5, 13]", "[2, 5, 12]"],
    ),
    (
        |t| heads(t, &[2, 12], 2),
        &["attention", "[2, 12]", "3 axes"],
    ),
    (
        |t| t.add(&zeros(&[2, 3]), &zeros(&[3, 2])),
        &["add", "[3, 2]", "[2, 3]"],
    ),
    (
        |t| t.add_repeated(&zeros(&[2, 3, 4]), &zeros(&[4])),
        &["add_repeated", "[4]", "[3, 4]"],
    ),
    (
        |t| t.prepend_token(&zeros(&[5]), &zeros(&[2, 3, 4])),
        &["prepend_token", "token", "[5]", "[4]"],
    ),
    (
        |t| t.prepend_token(&zeros(&[4]), &zeros(&[3, 4])),
        &["prepend_token", "[3, 4]", "3 axes"],
    ),
    (
        |t| t.first_token(&zeros(&[3, 4])),
        &["first_token", "[3, 4]", "3 axes"],
    ),
    (
        |t| t.mean_pool(&zeros(&[3, 4])),
        &["mean_pool", "[3, 4]", "4 axes"],
    ),
    (
        |t| t.concat(&[&zeros(&[2, 4]), &zeros(&[2, 5])]),
        &["concat", "[2, 5]", "[2, 4]"],
    ),
    (
        |t| t.reshape(&zeros(&[2, 6]), &[5, 2]),
        &["reshape", "[2, 6]", "[5, 2]"],
    ),
    (
        |t| Ok(t.cross_entropy(&zeros(&[3, 4]), &[0, 1], 0.0)?.sum),
        &["cross_entropy", "[3, 4]", "2 rows"],
    ),
];

#[test]
fn invalid_shapes_are_refused_by_name() {
    let parameters = Parameters::default();
    for kernels in [Kernels::Fused, Kernels::Composed] {
        let tape = Tape::record(&parameters, Cancel::default(), kernels);
        for (refused, words) in TABLE {
            let message = match refused(&tape) {
                Ok(y) => panic!("{words:?} gave {:?}", y.dims()),
                Err(error) => error.to_string(),
            };
            for word in words {
                assert!(message.contains(word), "{message}: no {word}");
            }
        }
    }
}

#[test]
fn an_invalid_label_is_refused_with_its_sample() {
    let parameters = Parameters::default();
    let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
    let message = tape
        .cross_entropy(&zeros(&[3, 4]), &[0, 3, 4], 0.0)
        .err()
        .map(|error| error.to_string());
    assert_eq!(
        message.as_deref(),
        Some("label 4 of sample 2 is outside the range 0..4")
    );
    assert!(tape.cross_entropy(&zeros(&[3, 4]), &[0, 3, 2], 0.0).is_ok());
}

#[test]
fn a_parameter_keeps_its_shape() {
    let mut parameters = Parameters::default();
    parameters
        .add("w".into(), vec![1.0; 6], &[2, 3], DType::F32, &Device::Cpu)
        .unwrap();
    let wrong = Tensor::zeros((3, 2), DType::F32, &Device::Cpu).unwrap();
    let message = parameters.set(0, wrong).unwrap_err().to_string();
    assert!(
        message.contains('w') && message.contains("[2, 3]") && message.contains("[3, 2]"),
        "{message}"
    );
}
