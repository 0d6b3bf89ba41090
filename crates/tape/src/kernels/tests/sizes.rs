//! Sizes that no group, part or run divides, and values that are not finite.

use super::copies::bits;
use crate::cancel::Cancel;
use crate::device_sync::read;
use crate::fault_injection::{Fault, Injection, ScheduledFault};
use crate::inplace::to_f64;
use crate::kernels::row_kernels::{self, AttentionMask};
use crate::kernels::{copies, elementwise, emulator};
use crate::rng::Rng;
use crate::tape::{Kernels, Tape, Value};
use crate::{
    Activation, Affine, AttentionShape, Conv2dShape, Gate, GeluLinear, GroupedAttention,
    JoinedHeads, LowRankTerm, NoiseKey, Parameters, PoolDivisor, PoolShape, Positions, Result,
    RmsNormShape, Rotation,
};
use candle_core::{DType, Device, Tensor};

type Operation<'a> = &'a dyn Fn(&Tape, &[Value]) -> Result<Value>;

fn drawn(shape: &[usize], at: u64, dtype: DType) -> Tensor {
    let stream = Rng::new(3).at(at);
    let count = shape.iter().product::<usize>() as u64;
    let values: Vec<f32> = (0..count)
        .map(|i| (stream.uniform(i) * 3.0 - 1.5) as f32)
        .collect();
    let values = Tensor::from_vec(values, shape, &Device::Cpu).expect("as many as the shape has");
    values.to_dtype(dtype).expect("the types convert")
}

/// The output and the gradients under a fixed projection.
fn outcome(shapes: &[&[usize]], dtype: DType, run: Operation) -> Result<Vec<Vec<f64>>> {
    let parameters = Parameters::default();
    let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
    let inputs: Vec<Value> = shapes
        .iter()
        .zip(0..)
        .map(|(shape, at)| tape.variable(drawn(shape, at, dtype)))
        .collect();
    let y = run(&tape, &inputs)?;
    let seed = drawn(y.dims(), 99, y.tensor().dtype());
    let output = to_f64(y.tensor())?;
    let walked = tape.backward_from(vec![(y, seed)], &inputs)?;
    let gradients = walked.inputs.into_iter().flatten();
    let gradients: Result<Vec<_>> = gradients.map(|g| to_f64(&g)).collect();
    Ok([vec![output], gradients?].concat())
}

/// Compares kernels in f32 with the CPU's own in f64.
fn check(what: &str, shapes: &[&[usize]], run: Operation) {
    let expected = outcome(shapes, DType::F64, run).expect("shapes that fit");
    let found = emulator::with(|| outcome(shapes, DType::F32, run)).expect("shapes that fit");
    assert_eq!(found.len(), expected.len());
    for (part, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let scale = expected.iter().fold(1e-30f64, |s, v| s.max(v.abs()));
        let off = found
            .iter()
            .zip(expected)
            .map(|(a, b)| (a - b).abs() / scale);
        let worst = off.fold(0.0, f64::max);
        assert!(worst <= 1e-5, "{what}, part {part}: {worst:e}");
        assert!(found.iter().all(|v| v.is_finite()), "{what}, part {part}");
    }
}

#[test]
fn row_kernels_work_for_any_size() {
    for (rows, width) in [(1, 1), (3, 33), (130, 31), (300, 65), (9, 64), (5, 1028)] {
        check(
            "layer_norm",
            &[&[rows, width], &[width], &[width]],
            &|t, v| t.layer_norm(&v[0], &v[1], &v[2], 1e-3),
        );
        check("linear", &[&[rows, 5], &[width, 5], &[width]], &|t, v| {
            t.linear(&v[0], &v[1], Some(&v[2]))
        });
    }
}

#[test]
fn a_norm_adds_to_an_existing_gradient() {
    check("layer_norm", &[&[37, 40], &[40], &[40]], &|t, v| {
        let y = t.layer_norm(&v[0], &v[1], &v[2], 1e-5)?;
        t.add(&y, &v[0])
    });
    // By single elements, by words of four, and in registers.
    for width in [39, 1028, 128] {
        check("rms_norm", &[&[37, width], &[width]], &|t, v| {
            let y = t.rms_norm(&v[0], &v[1], rms(0.0))?;
            t.add(&y, &v[0])
        });
    }
}

fn rms(offset: f64) -> RmsNormShape {
    RmsNormShape {
        epsilon: 1e-3,
        offset,
    }
}

#[test]
fn norms_by_the_root_mean_square_work_for_any_size() {
    for (rows, width) in [
        (1, 1),
        (3, 33),
        (130, 31),
        (300, 65),
        (1, 64),
        (70, 64),
        (300, 128),
        (2, 1024),
        (5, 1028),
        (3, 4096),
    ] {
        for offset in [0.0, 1.0] {
            let what = format!("rms_norm of {rows} rows of {width}, offset {offset}");
            check(&what, &[&[rows, width], &[width]], &|t, v| {
                t.rms_norm(&v[0], &v[1], rms(offset))
            });
        }
    }
}

#[test]
fn the_weight_gradient_of_a_frozen_norm_is_not_computed() {
    let gradient = |is_trained: bool| -> Result<Vec<f64>> {
        let parameters = Parameters::default();
        let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
        let x = tape.variable(drawn(&[5, 128], 1, DType::F32));
        let weight = drawn(&[128], 2, DType::F32);
        let weight = if is_trained {
            tape.variable(weight)
        } else {
            Value::constant(weight)
        };
        let y = tape.rms_norm(&x, &weight, rms(0.0))?;
        let seed = drawn(&[5, 128], 3, DType::F32);
        let found = tape.backward_from(vec![(y, seed)], &[x])?.inputs;
        to_f64(found[0].as_ref().expect("a gradient of x"))
    };
    let sums = |all: &std::collections::BTreeSet<String>| {
        let sums = all.iter().filter(|name| name.starts_with("rms_norm_col"));
        sums.count()
    };
    let frozen = emulator::with(|| gradient(false)).expect("kernels");
    assert!(emulator::launched().contains("rms_norm_backward_2_f32"));
    assert_eq!(sums(&emulator::launched()), 0);
    let trained = emulator::with(|| gradient(true)).expect("kernels");
    assert_eq!(sums(&emulator::launched()), 1);
    assert_eq!(frozen, trained);
    // The CPU's own form.
    let (frozen, trained) = (gradient(false), gradient(true));
    assert_eq!(frozen.expect("a gradient"), trained.expect("a gradient"));
}

/// The output of a map with an adapter, and the gradients of its input and of the adapter.
fn adapted(t: &Tape, v: &[Value], frozen: &Tensor, factor: f64) -> Result<Value> {
    let frozen = Value::constant(frozen.to_dtype(v[0].tensor().dtype())?);
    let [query, key] = [0, 1].map(|i| {
        let term = LowRankTerm {
            down: &v[1 + 2 * i],
            up: &v[2 + 2 * i],
            factor,
        };
        t.add_low_rank(t.linear(&v[0], &frozen, None)?, &v[0], &term)
    });
    // Both maps add to the gradient of the same input.
    t.gated(&query?, &key?, Gate::Silu)
}

#[test]
fn adapters_of_one_input_add_to_its_gradient() {
    for (inputs, outputs, rank) in [(7, 5, 3), (16, 8, 4)] {
        let frozen = drawn(&[outputs, inputs], 9, DType::F32);
        let (down, up): (&[usize], &[usize]) = (&[rank, inputs], &[outputs, rank]);
        for factor in [1.0, 1.7] {
            let what = format!("an adapter of rank {rank} with the factor {factor}");
            check(&what, &[&[3, 4, inputs], down, up, down, up], &|t, v| {
                adapted(t, v, &frozen, factor)
            });
        }
    }
}

#[test]
fn the_term_of_an_adapter_overwrites_the_output_of_its_map() {
    let sum = |kernels| {
        let parameters = Parameters::default();
        let tape = Tape::record(&parameters, Cancel::default(), kernels);
        let shapes: [&[usize]; 4] = [&[5, 8], &[6, 8], &[2, 8], &[6, 2]];
        let [x, w, down, up] =
            std::array::from_fn(|at| tape.variable(drawn(shapes[at], at as u64, DType::F32)));
        let term = LowRankTerm {
            down: &down,
            up: &up,
            factor: 2.0,
        };
        emulator::with(|| {
            let y = tape.linear(&x, &w, None)?;
            let sum = tape.add_low_rank(y.clone(), &x, &term)?;
            Ok::<_, crate::TapeError>(to_f64(y.tensor())? == to_f64(sum.tensor())?)
        })
        .expect("shapes that fit")
    };
    assert!(sum(Kernels::Fused));
    assert!(!sum(Kernels::Composed));
}

#[test]
fn gates_work_for_any_size() {
    for count in [1, 1023, 2049, 4096] {
        for gate in [Gate::Silu, Gate::Gelu] {
            let what = format!("{gate:?} of {count}");
            check(&what, &[&[1, count], &[1, count]], &|t, v| {
                t.gated(&v[0], &v[1], gate)
            });
        }
    }
}

#[test]
fn heads_are_rotated_in_any_size() {
    // Heads of queries and of keys, width of a head, and rotated pairs.
    for (heads, key_heads, head_width, pairs) in [
        (1, 1, 2, 1),
        (3, 1, 3, 1),
        (2, 2, 7, 3),
        (4, 2, 8, 4),
        (4, 2, 16, 4),
        (2, 1, 12, 2),
        (16, 8, 128, 64),
    ] {
        let joined = JoinedHeads {
            heads,
            key_heads,
            head_width,
        };
        let what = format!("{joined:?}, {pairs} pairs");
        let (queries, keys) = (heads * head_width, key_heads * head_width);
        let shapes: [&[usize]; 3] = [&[2, 5, queries], &[2, 5, keys], &[2, 5, keys]];
        check(&what, &shapes, &|t, v| {
            let x = v[0].tensor();
            let frequencies: Vec<f64> = (0..pairs).map(|i| 0.9 / (1.0 + i as f64)).collect();
            let rotation = Rotation::new(&frequencies, 1.1, 2..7, x.dtype(), x.device())?;
            t.rotary_embedding([&v[0], &v[1], &v[2]], joined, Some(&rotation))
        });
        check(&what, &shapes, &|t, v| {
            t.rotary_embedding([&v[0], &v[1], &v[2]], joined, None)
        });
    }
}

#[test]
fn dropout_draws_the_same_numbers_as_the_cpu() {
    for width in [1, 2, 4, 5, 8, 12, 20, 24, 2056] {
        check(
            &format!("dropout, rows of {width}"),
            &[&[2, 3, width]],
            &|t, v| {
                let key = NoiseKey {
                    seed: 1,
                    step: 2,
                    site: "dropout",
                    samples: &[7, 9],
                    positions: Positions::Counted,
                };
                t.dropout(&v[0], 0.4, &key)
            },
        );
    }
}

#[test]
fn gathered_gradients_are_added_where_their_values_came_from() {
    for (rows, width, each) in [
        (1, 1, 1),
        (1, 1, 200),
        (1, 7, 500),
        (9, 130, 3),
        (4, 33, 70),
    ] {
        let what = format!("gather {each} of {width} values in each of {rows} rows");
        check(&what, &[&[rows, width]], &|t, v| {
            let indices = (0..(rows * each) as u32).map(|i| i * i % 31 % width as u32);
            t.gather(&v[0], &indices.collect::<Vec<_>>())
        });
    }
}

#[test]
fn elementwise_kernels_work_for_any_size() {
    for count in [1, 1023, 2049] {
        check("gelu", &[&[count]], &|t, v| t.gelu(&v[0]));
        check("gelu_erf", &[&[count]], &|t, v| t.gelu_erf(&v[0]));
        check("silu", &[&[count]], &|t, v| t.silu(&v[0]));
        check("relu", &[&[count]], &|t, v| t.relu(&v[0]));
    }
    check("repeated", &[&[5, 211], &[211]], &|t, v| {
        t.add_repeated(&v[0], &v[1])
    });
}

#[test]
fn attention_kernels_work_with_and_without_masks() {
    // One row more than a block, heads as wide as a block allows and wider, and a head wider than
    // its sequence is long.
    for (samples, tokens, heads, head) in [
        (1, 1, 1, 3),
        (2, 37, 2, 5),
        (3, 5, 1, 8),
        (1, 70, 1, 64),
        (2, 33, 1, 32),
        (1, 67, 1, 65),
        (2, 40, 2, 4),
    ] {
        let shape: &[usize] = &[samples, tokens, 3 * heads * head];
        for causal in [false, true] {
            let shape_of = AttentionShape { heads, causal };
            check("attention", &[shape], &|t, v| t.attention(&v[0], shape_of));
            let lengths: Vec<usize> = (0..samples).map(|n| tokens - n * 2 % tokens).collect();
            check("attention_padded", &[shape], &|t, v| {
                t.attention_padded(&v[0], shape_of, &lengths)
            });
        }
    }
}

#[test]
fn loss_kernels_work_for_any_number_of_classes() {
    for classes in [1, 33, 1000, 1100] {
        let labels: Vec<u32> = [0, classes / 2, classes - 1].map(|l| l as u32).to_vec();
        check("cross_entropy", &[&[3, classes]], &|t, v| {
            Ok(t.cross_entropy(&v[0], &labels, 0.1)?.sum)
        });
        let targets = [labels[0], crate::IGNORED, labels[2]];
        check("head", &[&[3, 7], &[classes, 7]], &|t, v| {
            Ok(t.linear_cross_entropy(&v[0], &v[1], &targets)?.sum)
        });
    }
}

#[test]
fn an_embedding_row_may_be_used_by_many_tokens() {
    let ids: Vec<u32> = (0..301)
        .map(|i| if i % 3 == 0 { 4 } else { i % 5 })
        .collect();
    check("embedding", &[&[7, 35]], &|t, v| {
        t.embedding(&v[0], &ids, &[301])
    });
    let next: Vec<u32> = ids.iter().map(|id| (id + 1) % 7).collect();
    // A tied head has left a gradient to which the rows are added.
    check("tied", &[&[7, 35]], &|t, v| {
        let x = t.embedding(&v[0], &ids, &[301])?;
        Ok(t.linear_cross_entropy(&x, &v[0], &next)?.sum)
    });
}

#[test]
fn image_kernels_work_for_any_size() {
    for activation in [Activation::None, Activation::Relu, Activation::Gelu] {
        // By single elements and by four; a group that fits the registers and one that does not.
        for images in [[3, 6, 15, 11], [3, 6, 8, 8], [1, 4, 68, 64]] {
            let shapes: [&[usize]; 3] = [&images, &[images[1]], &[images[1]]];
            check("group_norm", &shapes, &|t, v| {
                let affine = Affine {
                    weight: &v[1],
                    bias: &v[2],
                };
                t.group_norm(&v[0], 2, affine, 1e-3, activation)
            });
        }
    }
    for (kernel, stride, padding) in [(3, 1, 1), (3, 2, 1), (1, 1, 0), (1, 2, 0), (5, 3, 2)] {
        let shapes: [&[usize]; 2] = [&[2, 3, 9, 7], &[4, 3, kernel, kernel]];
        let shape = Conv2dShape {
            stride,
            padding,
            groups: 1,
        };
        check("conv2d", &shapes, &|t, v| t.conv2d(&v[0], &v[1], shape));
    }
    // With groups of two channels, and of one.
    for (groups, stride, padding) in [(3, 1, 1), (3, 2, 0), (6, 1, 2), (6, 3, 1)] {
        let shapes: [&[usize]; 2] = [&[2, 6, 9, 7], &[12, 6 / groups, 3, 3]];
        let shape = Conv2dShape {
            stride,
            padding,
            groups,
        };
        check("conv2d", &shapes, &|t, v| t.conv2d(&v[0], &v[1], shape));
    }
    for (kernel, stride, padding) in [(3, 2, 1), (2, 2, 0), (3, 1, 2)] {
        let shape = PoolShape {
            kernel,
            stride,
            padding,
        };
        check("max_pool", &[&[2, 3, 9, 7]], &|t, v| {
            t.max_pool(&v[0], shape)
        });
        for divisor in [PoolDivisor::Window, PoolDivisor::Pixels] {
            check("avg_pool", &[&[2, 3, 9, 7]], &|t, v| {
                t.avg_pool(&v[0], shape, divisor)
            });
        }
    }
}

/// For each row of the output, whether one bad value in row 1 of three rows of `width` makes it
/// bad.
fn poisoned(bad: f32, width: usize, run: Operation) -> Vec<bool> {
    let parameters = Parameters::default();
    let tape = Tape::forward_only(&parameters, Cancel::default(), Kernels::Fused);
    let mut values = vec![0.5; 3 * width];
    values[width + 1] = bad;
    let x = Tensor::from_vec(values, (3, width), &Device::Cpu).expect("three rows");
    let y = emulator::with(|| run(&tape, &[Value::constant(x)])).expect("shapes that fit");
    let y = to_f64(y.tensor()).expect("numbers");
    y.chunks(y.len() / 3)
        .map(|row| row.iter().all(|v| v.is_finite()))
        .collect()
}

#[test]
fn nan_stays_in_its_row_and_is_not_lost() {
    for bad in [f32::NAN, f32::INFINITY] {
        let w = Value::constant(Tensor::ones(40, DType::F32, &Device::Cpu).expect("small"));
        let norm: Operation = &|t, v| t.layer_norm(&v[0], &w, &w, 1e-5);
        assert_eq!(poisoned(bad, 40, norm), [true, false, true]);
        let root: Operation = &|t, v| t.rms_norm(&v[0], &w, rms(0.0));
        assert_eq!(poisoned(bad, 40, root), [true, false, true]);
        assert_eq!(
            poisoned(bad, 40, &|t, v| t.gelu(&v[0])),
            [true, false, true]
        );
        assert_eq!(
            poisoned(bad, 40, &|t, v| t.relu(&v[0])),
            [true, false, true]
        );
    }
    let attend: Operation = &|t, v| {
        let shape = AttentionShape {
            heads: 1,
            causal: true,
        };
        t.attention(&t.reshape(&v[0], &[3, 8, 9])?, shape)
    };
    assert_eq!(poisoned(f32::NAN, 72, attend), [true, false, true]);
    assert_eq!(poisoned(f32::INFINITY, 72, attend), [true, false, true]);
    let grouped: Operation = &|t, v| {
        let shape = GroupedAttention {
            window: Some(4),
            ..GroupedAttention::for_heads(1, 3)
        };
        t.grouped_attention(&t.reshape(&v[0], &[3, 8, 9])?, shape, None)
    };
    assert_eq!(poisoned(f32::NAN, 72, grouped), [true, false, true]);
    assert_eq!(poisoned(f32::INFINITY, 72, grouped), [true, false, true]);
    let loss: Operation = &|t, v| {
        Ok(Value::constant(
            t.cross_entropy(&v[0], &[0, 1, 2], 0.0)?.per_sample,
        ))
    };
    assert_eq!(poisoned(f32::NAN, 40, loss), [true, false, true]);
}

/// Whether the input of a GELU and a linear layer is the same after their backward pass.
fn unchanged_input(is_spent: bool) -> Result<bool> {
    let parameters = Parameters::default();
    let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
    let shapes: [&[usize]; 5] = [&[5, 8], &[8], &[4, 8], &[4], &[5, 4]];
    let [x, x_bias, weight, bias, residual] =
        std::array::from_fn(|at| tape.variable(drawn(shapes[at], at as u64, DType::F32)));
    let before = to_f64(x.tensor())?;
    let operands = GeluLinear {
        x: x.clone(),
        x_is_spent: is_spent,
        x_bias,
        weight,
        bias,
        residual,
    };
    emulator::with(|| {
        let y = tape.gelu_linear(&operands)?;
        let seed = drawn(&[5, 4], 9, DType::F32);
        tape.backward_from(vec![(y, seed)], &[])
    })?;
    Ok(to_f64(x.tensor())? == before)
}

#[test]
fn a_gradient_overwrites_a_value_that_nothing_else_reads() {
    assert!(unchanged_input(false).expect("shapes that fit"));
    assert!(!unchanged_input(true).expect("shapes that fit"));
}

#[test]
fn a_value_that_others_read_is_not_overwritten_through_a_shared_copy() {
    let aliased = ScheduledFault {
        at: 0,
        fault: Fault::AliasedCopy,
    };
    let injection = Injection::install(vec![aliased], 3);
    let error = unchanged_input(false).expect_err("a copy that shares memory");
    let description = Fault::AliasedCopy.description();
    assert!(error.to_string().contains(description), "{error}");
    assert_eq!(injection.happened(), [aliased]);
}

#[test]
fn a_block_of_queries_sees_the_keys_before_it() {
    // Queries 3..5 of 6 keys, as the last rows of the whole attention.
    let scores = drawn(&[2, 6, 6], 1, DType::F32);
    let softmax = |scores: &Tensor, queries| {
        let seen = AttentionMask {
            scale: 0.7,
            queries,
            keys: 6,
            heads: 1,
            causal: true,
            lengths: None,
        };
        let scores = scores.force_contiguous().expect("small");
        emulator::with(|| row_kernels::softmax(&scores, &seen)).expect("a kernel");
        scores
    };
    let whole = softmax(&scores, (6, 0));
    let part = |t: &Tensor| t.narrow(1, 3, 2).and_then(|t| t.force_contiguous());
    let some = softmax(&part(&scores).expect("rows"), (2, 3));
    let whole = part(&whole).expect("rows");
    assert_eq!(
        to_f64(&some).expect("numbers"),
        to_f64(&whole).expect("numbers")
    );
}

/// The same values at an offset that is not a multiple of four elements: the kernels that hold rows
/// in registers leave them to the others.
fn shifted(t: &Tensor) -> Tensor {
    let flat = t.flatten_all().expect("a tensor");
    let first = flat.narrow(0, 0, 1).expect("not empty");
    let both = copies::joined_by_candle(&[&first, &flat], 0).expect("one type");
    let rest = both.narrow(0, 1, t.elem_count()).expect("one more");
    rest.reshape(t.dims()).expect("as many")
}

fn held_rows() {
    for width in [100, 252, 500, 1000, 1028] {
        check("layer_norm", &[&[3, width], &[width], &[width]], &|t, v| {
            t.layer_norm(&v[0], &v[1], &v[2], 1e-3)
        });
        check("rms_norm", &[&[3, width], &[width]], &|t, v| {
            t.rms_norm(&v[0], &v[1], rms(1.0))
        });
        // The last three queries of a causal attention, so that the last word is partly hidden.
        let seen = AttentionMask {
            scale: 0.7,
            queries: (3, width - 3),
            keys: width,
            heads: 1,
            causal: true,
            lengths: None,
        };
        let p = drawn(&[2, 3, width], 1, DType::F32);
        let dp = drawn(&[2, 3, width], 2, DType::F32);
        let [others_p, others_dp] = [shifted(&p), shifted(&dp)];
        emulator::with(|| {
            for (p, dp) in [(&p, &dp), (&others_p, &others_dp)] {
                row_kernels::softmax(p, &seen)?;
                row_kernels::softmax_backward(p, dp, 0.7)?;
            }
            Ok::<_, crate::TapeError>(())
        })
        .expect("kernels");
        for (held, others) in [(&p, &others_p), (&dp, &others_dp)] {
            let apart = (held - others).and_then(|t| t.abs()?.max_all());
            let apart = read::<f32>(&apart.expect("numbers")).expect("one number")[0];
            assert!(apart <= 1e-6, "{width}");
        }
    }
}

#[test]
fn rows_in_registers_give_the_same_results() {
    held_rows();
}

/// Rounding by the kernel has the bits of candle's on the CPU, for every kind of number.
fn rounds_like_the_cpu() {
    let special = [0.0, -0.0, f32::MAX, f32::MIN_POSITIVE, 1e-40, f32::INFINITY];
    let drawn = (0..2049u32).map(|i| f32::from_bits(i.wrapping_mul(2_654_435_761)));
    let values = special.into_iter().chain(drawn.filter(|v| !v.is_nan()));
    let values: Vec<f32> = values.collect();
    for count in [values.len() / 4 * 4, values.len() / 4 * 4 - 1] {
        let x = Tensor::new(&values[..count], &Device::Cpu).expect("small");
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            let found = emulator::with(|| elementwise::rounded(&x, dtype)).expect("it runs");
            let expected = x.to_dtype(dtype).expect("the CPU converts");
            assert_eq!(bits(&found), bits(&expected), "{count} to {dtype:?}");
        }
    }
}

#[test]
fn weights_are_rounded_like_on_the_cpu() {
    rounds_like_the_cpu();
}

#[test]
fn these_tests_run_every_kernel() {
    super::hold(1, DType::F32, 1e-5);
    held_rows();
    let ids = [1, 1, 0];
    check("embedding", &[&[3, 4]], &|t, v| {
        t.embedding(&v[0], &ids, &[3])
    });
    super::multi_tensor::all();
    rounds_like_the_cpu();
    let missed: Vec<_> = [
        emulator::names(super::super::Module::Single),
        emulator::names(super::super::Module::Typed(DType::F32)),
    ]
    .concat()
    .into_iter()
    .filter(|name| !emulator::launched().contains(name))
    .collect();
    assert!(missed.is_empty(), "kernels that nothing runs: {missed:?}");
}
