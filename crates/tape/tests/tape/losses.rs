//! Losses are weighted sums: their values, their divisors and the effect of missing targets,
//! against formulas written out here.

// A panic in a helper fails the test that called it.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use tape::inplace::to_f64;
use tape::{
    Cancel, ClassRule, ClassTargets, IGNORED, Kernels, Loss, Parameters, RegressionTargets, Result,
    Rng, Tape, Value,
};

const FORMS: [Kernels; 2] = [Kernels::Fused, Kernels::Composed];
const CLASSES: usize = 5;
const WEIGHTS: [f64; CLASSES] = [0.5, 2.0, 1.0, 0.0, 3.0];

fn numbers(name: &str, count: usize) -> Vec<f64> {
    let stream = Rng::new(13).site(name);
    (0..count as u64)
        .map(|i| stream.uniform(i) * 4.0 - 2.0)
        .collect()
}

type NumberLoss = fn(&Tape, &Value, RegressionTargets) -> Result<Loss>;

/// The sum, the loss per sample, and the gradient of the sum, for outputs [samples, width].
struct Found {
    sum: f64,
    per_sample: Vec<f64>,
    gradient: Vec<f64>,
}

fn run(
    kernels: Kernels,
    dtype: DType,
    outputs: &[f64],
    samples: usize,
    loss: impl Fn(&Tape, &Value) -> Result<Loss>,
) -> Found {
    let mut parameters = Parameters::default();
    let shape = [samples, outputs.len() / samples];
    let values = outputs.to_vec();
    let id = parameters
        .add("x".into(), values, &shape, dtype, &Device::Cpu)
        .unwrap();
    let tape = Tape::record(&parameters, Cancel::default(), kernels);
    let Loss { sum, per_sample } = loss(&tape, &tape.parameter(id)).unwrap();
    let total = to_f64(sum.tensor()).unwrap()[0];
    let gradient = tape.backward(vec![(sum, 1.0)]).unwrap().remove(0).unwrap();
    Found {
        sum: total,
        per_sample: to_f64(&per_sample).unwrap(),
        gradient: to_f64(&gradient).unwrap(),
    }
}

fn near(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= 1e-12 * expected.abs().max(1.0)
}

/// `-log softmax` of a row.
fn surprise(row: &[f64]) -> Vec<f64> {
    let total: f64 = row.iter().map(|z| z.exp()).sum();
    row.iter().map(|z| total.ln() - z).collect()
}

#[test]
fn cross_entropy_is_the_weighted_negative_log_probability() {
    let logits = numbers("logits", 4 * CLASSES);
    let labels = [4, IGNORED, 1, 3];
    let rule = ClassRule {
        smoothing: 0.2,
        class_weights: Some(&WEIGHTS),
    };
    let targets = ClassTargets::Labels(&labels);
    for kernels in FORMS {
        let found = run(kernels, DType::F64, &logits, 4, |t, x| {
            t.class_cross_entropy(x, targets, &rule)
        });
        for (row, &label) in labels.iter().enumerate() {
            let surprise = surprise(&logits[row * CLASSES..][..CLASSES]);
            let smooth: f64 = surprise.iter().zip(WEIGHTS).map(|(s, w)| s * w).sum();
            let expected = match label {
                IGNORED => 0.0,
                k => {
                    let own = WEIGHTS[k as usize] * surprise[k as usize];
                    0.8 * own + 0.2 / CLASSES as f64 * smooth
                }
            };
            assert!(
                near(found.per_sample[row], expected),
                "row {row} {kernels:?}"
            );
        }
        assert!(near(found.sum, found.per_sample.iter().sum()));
        assert_eq!(
            found.gradient[CLASSES..2 * CLASSES],
            [0.0; CLASSES],
            "{kernels:?}"
        );
    }
    assert_eq!(targets.weight(&rule, CLASSES).unwrap(), 3.0 + 2.0 + 0.0);
}

#[test]
fn one_hot_probabilities_equal_labels() {
    let logits = numbers("logits", 3 * CLASSES);
    let labels = [2, IGNORED, 0];
    let mut shares = [0.0; 3 * CLASSES];
    shares[2] = 1.0;
    shares[2 * CLASSES] = 1.0;
    for class_weights in [None, Some(&WEIGHTS[..])] {
        let rule = ClassRule {
            smoothing: 0.1,
            class_weights,
        };
        let [one, other] = [
            ClassTargets::Labels(&labels),
            ClassTargets::Probabilities(&shares),
        ];
        for kernels in FORMS {
            let [one, other] = [one, other].map(|targets| {
                run(kernels, DType::F64, &logits, 3, |t, x| {
                    t.class_cross_entropy(x, targets, &rule)
                })
            });
            assert!(near(one.sum, other.sum), "{kernels:?}");
            let pairs = one.gradient.iter().zip(&other.gradient);
            assert!(pairs.into_iter().all(|(a, b)| near(*a, *b)), "{kernels:?}");
        }
        assert_eq!(
            one.weight(&rule, CLASSES).unwrap(),
            other.weight(&rule, CLASSES).unwrap()
        );
    }
}

#[test]
fn mixed_samples_cost_the_mix_of_their_labels() {
    let logits = numbers("logits", CLASSES);
    let shares = [0.75, 0.0, 0.0, 0.25, 0.0];
    let cost = |targets: ClassTargets| {
        run(Kernels::Fused, DType::F64, &logits, 1, |t, x| {
            t.class_cross_entropy(x, targets, &ClassRule::default())
        })
        .sum
    };
    let [a, b] = [[0], [3]].map(|label| cost(ClassTargets::Labels(&label)));
    let mixed = ClassTargets::Probabilities(&shares);
    assert!(near(cost(mixed), 0.75 * a + 0.25 * b));
    assert_eq!(mixed.weight(&ClassRule::default(), CLASSES).unwrap(), 1.0);
}

#[test]
fn weights_count_present_targets_only() {
    let plain = ClassRule::default();
    let labels = ClassTargets::Labels(&[0, IGNORED, 4, IGNORED]);
    assert_eq!(labels.weight(&plain, CLASSES).unwrap(), 2.0);
    let rule = ClassRule {
        smoothing: 0.5,
        class_weights: Some(&WEIGHTS),
    };
    assert_eq!(labels.weight(&rule, CLASSES).unwrap(), 0.5 + 3.0);
    let nothing = ClassTargets::Labels(&[IGNORED; 3]);
    assert_eq!(nothing.weight(&plain, CLASSES).unwrap(), 0.0);
    let (values, present) = ([1.0, 2.0, 3.0], [true, false, true]);
    assert_eq!(RegressionTargets::all(&values).weight(), 3.0);
    let targets = RegressionTargets {
        values: &values,
        present: Some(&present),
    };
    assert_eq!(targets.weight(), 2.0);
}

/// The sums and weights of micro-batches add up to those of the whole, and each sample's gradient
/// is its own.
#[test]
fn a_split_does_not_change_a_loss_or_its_weight() {
    let (rows, logits) = (7, numbers("logits", 7 * CLASSES));
    let labels: Vec<u32> = vec![1, 4, IGNORED, 0, 3, IGNORED, 2];
    let values: Vec<f32> = (0..rows * CLASSES).map(|i| (i % 3) as f32 / 2.0).collect();
    let present: Vec<bool> = (0..rows * CLASSES).map(|i| i % 4 != 1).collect();
    let rule = ClassRule {
        smoothing: 0.1,
        class_weights: Some(&WEIGHTS),
    };
    let splits: [&[usize]; 4] = [&[0, 7], &[0, 3, 7], &[0, 1, 2, 6, 7], &[0, 2, 5, 6, 7]];
    for kernels in FORMS {
        for kind in 0..4 {
            let totals = splits.map(|ends| {
                let (mut sum, mut weight, mut gradients) = (0.0, 0.0, Vec::new());
                for ends in ends.windows(2) {
                    let (a, b) = (ends[0], ends[1]);
                    let outputs = a * CLASSES..b * CLASSES;
                    let classes = ClassTargets::Labels(&labels[a..b]);
                    let targets = RegressionTargets {
                        values: &values[outputs.clone()],
                        present: Some(&present[outputs.clone()]),
                    };
                    let found = run(
                        kernels,
                        DType::F64,
                        &logits[outputs],
                        b - a,
                        |t, x| match kind {
                            0 => t.class_cross_entropy(x, classes, &rule),
                            1 => t.binary_cross_entropy(x, targets),
                            2 => t.squared_error(x, targets),
                            _ => t.huber(x, targets, 0.5),
                        },
                    );
                    sum += found.sum;
                    gradients.extend(found.gradient);
                    weight += match kind {
                        0 => classes.weight(&rule, CLASSES).unwrap(),
                        _ => targets.weight(),
                    };
                }
                (sum, weight, gradients)
            });
            for (sum, weight, gradients) in &totals[1..] {
                assert!(near(*sum, totals[0].0), "loss {kind} {kernels:?}");
                assert!(near(*weight, totals[0].1), "loss {kind} {kernels:?}");
                assert_eq!(gradients, &totals[0].2, "loss {kind} {kernels:?}");
            }
        }
    }
}

#[test]
fn a_missing_target_is_never_read() {
    let outputs = [0.5, f64::INFINITY, -1.0, f64::NAN];
    let values = [1.0, f32::NAN, 0.25, f32::INFINITY];
    let targets = RegressionTargets {
        values: &values,
        present: Some(&[true, false, true, false]),
    };
    for kernels in FORMS {
        let losses: [NumberLoss; 3] = [
            |t, x, targets| t.binary_cross_entropy(x, targets),
            |t, x, targets| t.squared_error(x, targets),
            |t, x, targets| t.huber(x, targets, 1.0),
        ];
        for loss in losses {
            let found = run(kernels, DType::F64, &outputs, 2, |t, x| loss(t, x, targets));
            assert!(found.sum.is_finite() && found.sum > 0.0, "{kernels:?}");
            assert_eq!((found.gradient[1], found.gradient[3]), (0.0, 0.0));
            assert!(found.gradient[0] != 0.0 && found.gradient[2] != 0.0);
        }
    }
}

#[test]
fn regression_losses_follow_their_formulas() {
    let (outputs, values) = ([0.25, -1.0, 3.0, -2.0], [0.5, 0.0, 1.0, 0.0]);
    let targets = RegressionTargets::all(&values);
    for kernels in FORMS {
        let square = run(kernels, DType::F64, &outputs, 4, |t, x| {
            t.squared_error(x, targets)
        });
        assert_eq!(square.per_sample, [0.0625, 1.0, 4.0, 4.0]);
        assert_eq!(square.gradient, [-0.5, -2.0, 4.0, -4.0]);
        let huber = run(kernels, DType::F64, &outputs, 4, |t, x| {
            t.huber(x, targets, 1.0)
        });
        assert_eq!(huber.per_sample, [0.03125, 0.5, 1.5, 1.5]);
        assert_eq!(huber.gradient, [-0.25, -1.0, 1.0, -1.0]);
        let binary = run(kernels, DType::F64, &outputs, 4, |t, x| {
            t.binary_cross_entropy(x, targets)
        });
        for (i, (z, t)) in outputs.into_iter().zip(values).enumerate() {
            let p = 1.0 / (1.0 + (-z).exp());
            let t = f64::from(t);
            let expected = -t * p.ln() - (1.0 - t) * (1.0 - p).ln();
            assert!(near(binary.per_sample[i], expected), "{z}");
            assert!(near(binary.gradient[i], p - t), "{z}");
        }
    }
}

#[test]
fn large_outputs_do_not_overflow() {
    for kernels in FORMS {
        let values = [1.0, 0.0, 0.0, 1.0];
        let found = run(
            kernels,
            DType::F32,
            &[500.0, -500.0, 500.0, -500.0],
            2,
            |t, x| t.binary_cross_entropy(x, RegressionTargets::all(&values)),
        );
        assert!(found.per_sample[0] < 1e-37 && found.per_sample[1] == 1000.0);
        let logits: Vec<f64> = [1.0, 2.0, 3.0].map(|z| z + 30_000.0).to_vec();
        let found = run(kernels, DType::F32, &logits, 1, |t, x| {
            t.cross_entropy(x, &[0], 0.1)
        });
        let surprise = surprise(&[1.0, 2.0, 3.0]);
        let expected = 0.9 * surprise[0] + 0.1 / 3.0 * surprise.iter().sum::<f64>();
        assert!((found.sum - expected).abs() < 1e-6, "{}", found.sum);
    }
}

#[test]
fn a_term_scaled_by_its_weight_scales_its_gradient() {
    let outputs = numbers("outputs", 6);
    let values = [0.5; 6];
    let mut parameters = Parameters::default();
    let id = parameters
        .add("x".into(), outputs, &[2, 3], DType::F64, &Device::Cpu)
        .unwrap();
    let gradient = |factor: f64| {
        let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
        let x = tape.parameter(id);
        let first = tape
            .squared_error(&x, RegressionTargets::all(&values))
            .unwrap();
        let second = tape.total(&x).unwrap();
        let roots = vec![(first.sum, factor), (second.sum, 2.0)];
        let gradient: Tensor = tape.backward(roots).unwrap().remove(0).unwrap();
        to_f64(&gradient).unwrap()
    };
    for (one, half) in gradient(1.0).into_iter().zip(gradient(0.5)) {
        assert!(near(2.0 * (half - 2.0), one - 2.0));
    }
}
