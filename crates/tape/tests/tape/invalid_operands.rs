//! Operands and settings out of range are refused before anything is computed, and the message
//! names the operation, the given value and the allowed one.

// A panic in a helper fails the test that called it.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use tape::{
    Cancel, Choice, ClassRule, ClassTargets, IGNORED, Kernels, NoiseKey, Parameters, PoolDivisor,
    PoolShape, Positions, RegressionTargets, Result, Tape, Value,
};

fn zeros(shape: &[usize]) -> Value {
    Value::constant(Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap())
}

const KEY: NoiseKey = NoiseKey {
    seed: 1,
    step: 2,
    site: "here",
    samples: &[4, 5],
    positions: Positions::Counted,
};

fn pool(t: &Tape, x: &[usize], kernel: usize, padding: usize) -> Result<Value> {
    let shape = PoolShape {
        kernel,
        stride: 2,
        padding,
    };
    t.avg_pool(&zeros(x), shape, PoolDivisor::Window)
}

fn classes(t: &Tape, targets: ClassTargets, rule: &ClassRule) -> Result<Value> {
    Ok(t.class_cross_entropy(&zeros(&[2, 3]), targets, rule)?.sum)
}

fn shares(t: &Tape, shares: &[f32]) -> Result<Value> {
    classes(
        t,
        ClassTargets::Probabilities(shares),
        &ClassRule::default(),
    )
}

fn weighted(t: &Tape, smoothing: f64, weights: &[f64]) -> Result<Value> {
    let class_weights = Some(weights);
    let rule = ClassRule {
        smoothing,
        class_weights,
    };
    classes(t, ClassTargets::Labels(&[0, 1]), &rule)
}

fn squared(t: &Tape, x: &[usize], values: &[f32]) -> Result<Value> {
    Ok(t.squared_error(&zeros(x), RegressionTargets::all(values))?
        .sum)
}

type Refused = (fn(&Tape) -> Result<Value>, &'static [&'static str]);

/// The attempt, and the words that its message must contain.
const SHAPES: &[Refused] = &[
    (
        |t| t.matmul(&zeros(&[2, 3, 5]), &zeros(&[2, 4, 7])),
        &["matmul", "b has", "[2, 4, 7]", "[2, 5, any]", "[2, 3, 5]"],
    ),
    (
        |t| t.matmul(&zeros(&[2, 3, 5]), &zeros(&[3, 5, 7])),
        &["matmul", "b has", "[3, 5, 7]", "[2, 5, any]"],
    ),
    (
        |t| t.matmul(&zeros(&[5]), &zeros(&[5, 7])),
        &["matmul", "a has", "[5]", "two axes"],
    ),
    (
        |t| t.mul(&zeros(&[2, 3]), &zeros(&[3])),
        &["mul", "the second operand", "[3]", "[2, 3]"],
    ),
    (
        |t| t.broadcast_add(&zeros(&[2, 3, 4]), &zeros(&[3])),
        &["broadcast_add", "the repeated operand", "[3]", "[2, 3, 4]"],
    ),
    (
        |t| t.broadcast_mul(&zeros(&[3]), &zeros(&[2, 3])),
        &["broadcast_mul", "the repeated operand", "[2, 3]", "[3]"],
    ),
    (
        |t| t.permute(&zeros(&[2, 3]), &[0, 0]),
        &["permute", "[2, 3]", "[0, 0]"],
    ),
    (
        |t| t.permute(&zeros(&[2, 3]), &[0, 1, 2]),
        &["permute", "[2, 3]", "[0, 1, 2]"],
    ),
    (
        |t| t.concat_along(&[&zeros(&[2, 3]), &zeros(&[3, 3])], 1),
        &["concat_along", "a later part", "[3, 3]", "[2, 3]"],
    ),
    (
        |t| t.concat_along(&[&zeros(&[2, 3])], 2),
        &["concat_along", "the first part", "[2, 3]", "axis 2"],
    ),
    (
        |t| t.concat_along(&[], 0),
        &["concat_along", "parts is 0", "at least one"],
    ),
    (
        |t| t.gather(&zeros(&[4, 3]), &[0, 1, 2]),
        &["gather", "[4, 3]", "3 indices"],
    ),
    (
        |t| t.narrow(&zeros(&[4, 3]), 1, 2..4),
        &["narrow", "[4, 3]", "axis 1", "2..4"],
    ),
    (
        |t| t.narrow(&zeros(&[4, 3]), 1, 2..2),
        &["narrow", "[4, 3]", "must not be empty"],
    ),
    (
        |t| pool(t, &[4, 3], 2, 0),
        &["avg_pool", "[4, 3]", "4 axes"],
    ),
    (
        |t| pool(t, &[1, 1, 2, 5], 3, 0),
        &["avg_pool", "[1, 1, 2, 5]", "kernel: 3"],
    ),
    (
        |t| pool(t, &[1, 1, 5, 5], 2, 2),
        &["avg_pool", "[1, 1, 5, 5]", "padding: 2"],
    ),
    (
        |t| t.dropout(&zeros(&[3, 4]), 0.5, &KEY),
        &["dropout", "[3, 4]", "the samples in the noise key"],
    ),
    (
        |t| {
            let positions = Positions::Given(&[0, 1, 2]);
            t.dropout(&zeros(&[2, 4, 5]), 0.5, &NoiseKey { positions, ..KEY })
        },
        &["dropout", "[2, 4, 5]", "tokens for 3 positions"],
    ),
    (
        |t| t.gumbel_softmax(&zeros(&[2]), 1.0, Choice::Soft, &KEY),
        &["gumbel_softmax", "[2]", "[samples, classes]"],
    ),
    (
        |t| classes(t, ClassTargets::Labels(&[0]), &ClassRule::default()),
        &["cross_entropy", "[2, 3]", "1 rows"],
    ),
    (
        |t| shares(t, &[0.0; 5]),
        &["cross_entropy", "[2, 3]", "5 probabilities"],
    ),
    (
        |t| squared(t, &[2, 3], &[0.0; 5]),
        &["squared_error", "[2, 3]", "5 targets"],
    ),
];

/// Rows or axes without entries.
const EMPTY: &[Refused] = &[
    (
        |t| t.matmul(&zeros(&[0, 3, 5]), &zeros(&[0, 5, 7])),
        &["matmul", "[0, 3, 5]"],
    ),
    (
        |t| t.mul(&zeros(&[0, 3]), &zeros(&[0, 3])),
        &["mul", "[0, 3]"],
    ),
    (|t| t.softmax(&zeros(&[0, 3])), &["softmax", "[0, 3]"]),
    (
        |t| t.log_softmax(&zeros(&[3, 0])),
        &["log_softmax", "[3, 0]"],
    ),
    (
        |t| t.select_rows(&zeros(&[0, 3]), &[]),
        &["select_rows", "[0, 3]"],
    ),
    (|t| t.gather(&zeros(&[0, 3]), &[]), &["gather", "[0, 3]"]),
    (
        |t| t.dropout(&zeros(&[0, 3]), 0.5, &KEY),
        &["dropout", "[0, 3]"],
    ),
    (
        |t| t.drop_path(&zeros(&[0, 3]), 0.5, &KEY),
        &["drop_path", "[0, 3]"],
    ),
    (
        |t| t.gumbel_softmax(&zeros(&[0, 3]), 1.0, Choice::Hard, &KEY),
        &["gumbel_softmax", "[0, 3]"],
    ),
    (
        |t| pool(t, &[0, 3, 4, 4], 2, 0),
        &["avg_pool", "[0, 3, 4, 4]"],
    ),
    (
        |t| Ok(t.cross_entropy(&zeros(&[0, 3]), &[], 0.0)?.sum),
        &["cross_entropy", "[0, 3]"],
    ),
    (|t| squared(t, &[0, 3], &[]), &["squared_error", "[0, 3]"]),
    (|t| Ok(t.total(&zeros(&[0, 3]))?.sum), &["total", "[0, 3]"]),
];

/// Labels, indices, shares and settings out of range.
const NUMBERS: &[Refused] = &[
    (
        |t| t.select_rows(&zeros(&[4, 3]), &[0, 4]),
        &["select_rows: index 4, entry 1 of the list, is outside the range 0..4"],
    ),
    (
        |t| t.gather(&zeros(&[2, 3]), &[2, 3]),
        &["gather: index 3, entry 1 of the list, is outside the range 0..3"],
    ),
    (
        |t| {
            classes(
                t,
                ClassTargets::Labels(&[IGNORED, 3]),
                &ClassRule::default(),
            )
        },
        &["label 3 of sample 1 is outside the range 0..3"],
    ),
    (
        |t| shares(t, &[0.5, 0.5, 0.0, 1.5, -0.5, 0.0]),
        &["cross_entropy", "class 1 in row 1", "-0.5"],
    ),
    (
        |t| shares(t, &[0.5, 0.5, f32::NAN, 1.0, 0.0, 0.0]),
        &["cross_entropy", "class 2 in row 0", "NaN"],
    ),
    (
        |t| shares(t, &[0.5, 0.5, 0.0, 0.5, 0.0, 0.0]),
        &["cross_entropy", "sum of the probabilities of row 1", "0.5"],
    ),
    (
        |t| weighted(t, 0.0, &[1.0, 1.0]),
        &["cross_entropy", "class weights for 3 classes is 2"],
    ),
    (
        |t| weighted(t, 0.0, &[1.0, -1.0, 1.0]),
        &["cross_entropy", "the weight of class 1 is -1"],
    ),
    (
        |t| weighted(t, 1.0, &[1.0, 1.0, 1.0]),
        &["cross_entropy", "the smoothing is 1"],
    ),
    (
        |t| squared(t, &[2, 3], &[0.0, 0.0, 0.0, 0.0, f32::NAN, 0.0]),
        &["squared_error", "target 1 of sample 1 is NaN"],
    ),
    (
        |t| {
            let targets = RegressionTargets::all(&[0.5, 1.5]);
            Ok(t.binary_cross_entropy(&zeros(&[2, 1]), targets)?.sum)
        },
        &[
            "binary_cross_entropy",
            "target 0 of sample 1 is 1.5",
            "0 to 1",
        ],
    ),
    (
        |t| {
            let targets = RegressionTargets {
                values: &[0.5, 0.5],
                present: Some(&[true]),
            };
            Ok(t.huber(&zeros(&[2, 1]), targets, 1.0)?.sum)
        },
        &["huber", "the mask of 2 targets is 1"],
    ),
    (
        |t| {
            Ok(
                t.huber(&zeros(&[1, 1]), RegressionTargets::all(&[0.5]), 0.0)?
                    .sum,
            )
        },
        &["huber", "delta is 0"],
    ),
    (
        |t| t.dropout(&zeros(&[2, 3]), 1.0, &KEY),
        &["dropout", "the fraction is 1"],
    ),
    (
        |t| t.drop_path(&zeros(&[2, 3]), f64::NAN, &KEY),
        &["drop_path", "the fraction is NaN"],
    ),
    (
        |t| t.gumbel_softmax(&zeros(&[2, 3]), 0.0, Choice::Soft, &KEY),
        &["gumbel_softmax", "the temperature is 0"],
    ),
    (|t| t.cast(&zeros(&[2, 3]), DType::U8), &["cast", "U8"]),
];

fn check_refused(table: &[Refused]) {
    let parameters = Parameters::default();
    for kernels in [Kernels::Fused, Kernels::Composed] {
        let tape = Tape::record(&parameters, Cancel::default(), kernels);
        for (refused, words) in table {
            let message = match refused(&tape) {
                Ok(y) => panic!("{words:?} gave {:?}", y.dims()),
                Err(error) => error.to_string(),
            };
            for word in *words {
                assert!(message.contains(word), "{message}: no {word}");
            }
        }
    }
}

#[test]
fn mismatched_shapes_are_refused_with_both() {
    check_refused(SHAPES);
}

#[test]
fn empty_axes_are_refused() {
    check_refused(EMPTY);
}

#[test]
fn values_out_of_range_are_refused_with_their_place() {
    check_refused(NUMBERS);
}
