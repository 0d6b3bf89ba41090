//! Random numbers belong to the sample, the site, the step and the coordinates: order, splits and
//! padding do not change them, and they have the right frequency.

// A panic in a helper fails the test that called it.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use tape::inplace::to_f64;
use tape::{
    Cancel, Choice, Kernels, NoiseKey, ParameterId, Parameters, Positions, Result, Rng,
    SampleNoise, Tape, Value,
};

const FORMS: [Kernels; 2] = [Kernels::Fused, Kernels::Composed];
const TOKENS: usize = 5;
const WIDTH: usize = 7;

type Operation = fn(&Tape, &Value, &NoiseKey) -> Result<Value>;

const OPERATIONS: [(&str, Operation); 4] = [
    ("dropout", |t, x, key| t.dropout(x, 0.4, key)),
    ("drop_path", |t, x, key| t.drop_path(x, 0.5, key)),
    ("gumbel_softmax", |t, x, key| {
        t.gumbel_softmax(x, 0.7, Choice::Soft, key)
    }),
    ("gumbel_softmax straight through", |t, x, key| {
        t.gumbel_softmax(x, 0.7, Choice::Hard, key)
    }),
];

fn key<'a>(samples: &'a [u64], positions: Positions<'a>) -> NoiseKey<'a> {
    NoiseKey {
        seed: 9,
        step: 4,
        site: "blocks.1",
        samples,
        positions,
    }
}

/// A stand-in for the model's output for one token of a sample, which does not depend on its
/// place.
fn token(sample: u64, position: u64) -> Vec<f64> {
    let stream = Rng::new(1).at(sample).at(position);
    (0..WIDTH as u64).map(|i| stream.uniform(i) + 0.5).collect()
}

fn micro_batch(samples: &[u64]) -> Vec<f64> {
    let tokens = samples
        .iter()
        .flat_map(|&sample| (0..TOKENS as u64).map(move |position| (sample, position)));
    tokens
        .flat_map(|(sample, position)| token(sample, position))
        .collect()
}

/// The output and input gradient of an operation on rows [samples, tokens, width], under one fixed
/// projection by place in a row.
fn run(
    operation: Operation,
    kernels: Kernels,
    values: Vec<f64>,
    tokens: usize,
    key: &NoiseKey,
) -> (Vec<f64>, Vec<f64>) {
    let mut parameters = Parameters::default();
    let shape = [key.samples.len(), tokens, WIDTH];
    let id: ParameterId = parameters
        .add("x".into(), values, &shape, DType::F64, &Device::Cpu)
        .unwrap();
    let tape = Tape::record(&parameters, Cancel::default(), kernels);
    let y = operation(&tape, &tape.parameter(id), key).unwrap();
    let output = to_f64(y.tensor()).unwrap();
    let weights: Vec<f64> = (0..WIDTH).map(|i| 1.0 + (i * i) as f64).collect();
    let weights = Tensor::from_vec(weights, WIDTH, &Device::Cpu).unwrap();
    let y = tape.broadcast_mul(&y, &Value::constant(weights)).unwrap();
    let root = tape.total(&y).unwrap().sum;
    let gradient = tape.backward(vec![(root, 1.0)]).unwrap().remove(0).unwrap();
    (output, to_f64(&gradient).unwrap())
}

#[test]
fn order_and_split_do_not_change_random_numbers() {
    let each = TOKENS * WIDTH;
    for (name, operation) in OPERATIONS {
        for kernels in FORMS {
            let all = [31, 2, 77, 5, 1 << 40];
            let whole = run(
                operation,
                kernels,
                micro_batch(&all),
                TOKENS,
                &key(&all, Positions::Counted),
            );
            for part in [
                &[77][..],
                &[5, 31],
                &[1 << 40, 77, 2],
                &[5, 1 << 40, 31, 2, 77],
            ] {
                let key = key(part, Positions::Counted);
                let (output, gradient) = run(operation, kernels, micro_batch(part), TOKENS, &key);
                for (i, sample) in part.iter().enumerate() {
                    let at = all.iter().position(|other| other == sample).unwrap();
                    let (here, there) = (i * each..(i + 1) * each, at * each..(at + 1) * each);
                    assert_eq!(
                        output[here.clone()],
                        whole.0[there.clone()],
                        "{name} {kernels:?}"
                    );
                    assert_eq!(gradient[here], whole.1[there], "{name} {kernels:?}");
                }
            }
        }
    }
}

#[test]
fn padding_does_not_change_random_numbers() {
    let samples = [8, 3];
    for (name, operation) in OPERATIONS {
        for kernels in FORMS {
            let plain = key(&samples, Positions::Counted);
            let (plain, _) = run(operation, kernels, micro_batch(&samples), TOKENS, &plain);
            // The second sample's tokens are two places later: padded at the front, the first one
            // at the end.
            let places = |begin: u64| (0..7).map(move |i: u64| i.wrapping_sub(begin));
            let positions: Vec<u64> = places(0).chain(places(2)).collect();
            let rows = positions.iter().enumerate();
            let values = rows.flat_map(|(i, &position)| token(samples[i / 7], position));
            let padded = key(&samples, Positions::Given(&positions));
            let (padded, _) = run(operation, kernels, values.collect(), 7, &padded);
            let each = TOKENS * WIDTH;
            assert_eq!(padded[..each], plain[..each], "{name} {kernels:?}");
            let second = 9 * WIDTH..9 * WIDTH + each;
            assert_eq!(padded[second], plain[each..], "{name} {kernels:?}");
        }
    }
}

#[test]
fn seed_step_site_and_sample_each_change_random_numbers() {
    for (name, operation) in OPERATIONS {
        let samples: Vec<u64> = (0..64).collect();
        let first = key(&samples, Positions::Counted);
        let others: Vec<u64> = (64..128).collect();
        let values = |key: &NoiseKey| {
            let ones = vec![1.0; 64 * TOKENS * WIDTH];
            run(operation, Kernels::Fused, ones, TOKENS, key).0
        };
        let expected = values(&first);
        for other in [
            NoiseKey { seed: 10, ..first },
            NoiseKey { step: 5, ..first },
            NoiseKey {
                site: "blocks.2",
                ..first
            },
            NoiseKey {
                samples: &others,
                ..first
            },
        ] {
            assert_ne!(values(&other), expected, "{name}");
        }
        assert_eq!(values(&first), expected, "{name}");
    }
}

/// Runs an operation in f32 on ones [samples, 1, width], or on given logits for every sample.
fn many(operation: Operation, samples: u64, row: &[f32]) -> Vec<f64> {
    let samples: Vec<u64> = (0..samples).collect();
    let parameters = Parameters::default();
    let tape = Tape::forward_only(&parameters, Cancel::default(), Kernels::Fused);
    let shape = (samples.len(), 1, row.len());
    let x = Tensor::from_vec(row.repeat(samples.len()), shape, &Device::Cpu).unwrap();
    let y = operation(
        &tape,
        &Value::constant(x),
        &key(&samples, Positions::Counted),
    )
    .unwrap();
    to_f64(y.tensor()).unwrap()
}

/// Checks the frequency of `count` draws with probability `expected`, within five standard
/// deviations.
fn check_share(hits: usize, count: usize, expected: f64, what: &str) {
    let share = hits as f64 / count as f64;
    let deviation = (expected * (1.0 - expected) / count as f64).sqrt();
    assert!(
        (share - expected).abs() < 5.0 * deviation,
        "{what}: {share} instead of {expected}"
    );
}

#[test]
fn dropout_drops_its_fraction_and_keeps_the_mean() {
    let values = many(|t, x, key| t.dropout(x, 0.3, key), 2_000, &[1.0; 50]);
    let zeros = values.iter().filter(|v| **v == 0.0).count();
    check_share(zeros, values.len(), 0.3, "dropped");
    let remaining = values.iter().find(|v| **v != 0.0).unwrap();
    assert!((remaining - 1.0 / 0.7).abs() < 1e-6);
    for column in 0..50 {
        let column: Vec<_> = values.iter().skip(column).step_by(50).collect();
        let zeros = column.iter().filter(|v| ***v == 0.0).count();
        check_share(zeros, column.len(), 0.3, "dropped in a column");
    }
}

#[test]
fn drop_path_drops_whole_samples_by_its_fraction() {
    let values = many(|t, x, key| t.drop_path(x, 0.2, key), 20_000, &[1.0; 3]);
    let mut dropped = 0;
    for sample in values.chunks(3) {
        assert!(sample.iter().all(|v| *v == sample[0]), "{sample:?}");
        dropped += usize::from(sample[0] == 0.0);
    }
    check_share(dropped, 20_000, 0.2, "left out");
}

#[test]
fn a_hard_choice_has_softmax_frequencies_at_any_temperature() {
    let shares: [f64; 4] = [0.5, 0.3, 0.15, 0.05];
    let logits = shares.map(|share| share.ln() as f32);
    let operations: [Operation; 2] = [
        |t, x, key| t.gumbel_softmax(x, 0.1, Choice::Hard, key),
        |t, x, key| t.gumbel_softmax(x, 5.0, Choice::Hard, key),
    ];
    for operation in operations {
        let values = many(operation, 40_000, &logits);
        for (class, share) in shares.into_iter().enumerate() {
            let column = values.iter().skip(class).step_by(4);
            let chosen = column.filter(|v| **v == 1.0).count();
            check_share(chosen, 40_000, share, "chosen");
        }
        assert!(values.chunks(4).all(|row| row.iter().sum::<f64>() == 1.0));
    }
}

#[test]
fn a_hard_choice_passes_the_soft_gradient_back() {
    let samples = [4, 5, 6];
    let key = key(&samples, Positions::Counted);
    for kernels in FORMS {
        let soft = run(
            OPERATIONS[2].1,
            kernels,
            micro_batch(&samples),
            TOKENS,
            &key,
        );
        let hard = run(
            OPERATIONS[3].1,
            kernels,
            micro_batch(&samples),
            TOKENS,
            &key,
        );
        assert_eq!(hard.1, soft.1, "{kernels:?}");
        for (hard, soft) in hard.0.chunks(WIDTH).zip(soft.0.chunks(WIDTH)) {
            let largest = soft.iter().fold(0.0, |a: f64, &b| a.max(b));
            let expected = soft.iter().map(|&p| f64::from(u8::from(p == largest)));
            assert!(hard.iter().copied().eq(expected), "{hard:?} of {soft:?}");
        }
    }
}

#[test]
fn both_forms_draw_the_same_random_numbers() {
    let samples = [4, 5, 6];
    let key = key(&samples, Positions::Counted);
    for (name, operation) in OPERATIONS {
        let [fused, composed] =
            FORMS.map(|form| run(operation, form, micro_batch(&samples), TOKENS, &key));
        let near = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(
            near(&fused.0, &composed.0) && near(&fused.1, &composed.1),
            "{name}"
        );
    }
}

#[test]
fn a_checkpointed_block_draws_the_same_random_numbers_again() {
    let samples = [4, 5, 6];
    let plain: Operation = |t, x, key| t.silu(&t.dropout(x, 0.4, key)?);
    let again: Operation = |t, x, _| {
        t.checkpoint(x, |t, x| {
            t.silu(&t.dropout(x, 0.4, &key(&[4, 5, 6], Positions::Counted))?)
        })
    };
    let key = key(&samples, Positions::Counted);
    let expected = run(plain, Kernels::Fused, micro_batch(&samples), TOKENS, &key);
    let found = run(again, Kernels::Fused, micro_batch(&samples), TOKENS, &key);
    assert_eq!(found, expected);
}

/// The gradient of a value by which the output of a block with dropout depends on its input.
fn gradient_of_samples(samples: &[u64], is_checkpointed: bool) -> Vec<f64> {
    let mut parameters = Parameters::default();
    let shape = [samples.len(), TOKENS, WIDTH];
    let id = parameters
        .add(
            "x".into(),
            micro_batch(samples),
            &shape,
            DType::F64,
            &Device::Cpu,
        )
        .unwrap();
    let noise = SampleNoise {
        seed: 3,
        step: 11,
        samples: samples.into(),
    };
    let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
    let tape = tape.with_sample_noise(noise);
    let block = |t: &Tape, x: &Value| t.silu(&t.sample_dropout(x, 0.4, "blocks.2")?);
    let x = tape.parameter(id);
    let y = if is_checkpointed {
        tape.checkpoint_samples(&x, move |t, x, _| block(t, x))
    } else {
        block(&tape, &x)
    };
    let root = tape.total(&y.unwrap()).unwrap().sum;
    let gradients = tape.backward(vec![(root, 1.0)]).unwrap();
    to_f64(gradients[0].as_ref().unwrap()).unwrap()
}

#[test]
fn a_tape_with_noise_drops_the_same_values_in_every_split_and_in_checkpoints() {
    // More samples than a checkpointed block processes at once.
    let samples: Vec<u64> = (0..19).map(|i| 7 * i + 2).collect();
    let whole = gradient_of_samples(&samples, false);
    assert!(whole.contains(&0.0) && whole.iter().any(|g| *g != 0.0));
    assert_eq!(gradient_of_samples(&samples, true), whole);
    for size in [1, 5, 18] {
        let parts = samples.chunks(size);
        let parts: Vec<f64> = parts
            .flat_map(|part| gradient_of_samples(part, true))
            .collect();
        assert_eq!(parts, whole, "micro-batches of {size}");
    }
}

#[test]
fn a_tape_without_noise_drops_nothing() {
    let values = many(
        |t, x, _| t.sample_dropout(x, 0.5, "blocks.2"),
        10,
        &[1.5, 2.5],
    );
    assert_eq!(values, [1.5, 2.5].repeat(10));
}

#[test]
fn a_fraction_of_zero_changes_nothing() {
    let values = many(|t, x, key| t.dropout(x, 0.0, key), 10, &[1.5, 2.5]);
    assert_eq!(values, [1.5, 2.5].repeat(10));
    let values = many(|t, x, key| t.drop_path(x, 0.0, key), 10, &[1.5, 2.5]);
    assert_eq!(values, [1.5, 2.5].repeat(10));
}
