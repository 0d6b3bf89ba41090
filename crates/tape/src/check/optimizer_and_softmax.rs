//! What a run computes beside the operations of a tape: sums of gradients, their norm, and
//! optimizer steps, over many parameters. And kernels of attention that are chosen by the number of
//! tokens, at every size.

use super::compare::Outcome;
use crate::convert_dtype::{convert, widened};
use crate::error::Result;
use crate::inplace::{add_assign_all, to_f64};
use crate::kernels::row_kernels::{AttentionMask, softmax, softmax_backward};
use crate::kernels::{KernelGroup, elementwise, rounds, run_on};
use crate::optim::{
    AdamWStep, ByteMoment, LionStep, Member, SgdStep, adamw, adamw_together, adamw8bit, average,
    average_together, global_norm, lion, sgd, sgd_together,
};
use crate::rng::Rng;
use candle_core::{DType, Device, Tensor};

/// A computation that is no operation of a tape.
#[derive(Clone, Copy)]
pub struct Pass {
    /// For example `adamw`.
    pub name: &'static str,
    /// Whether it also runs in half precisions.
    pub in_halves: bool,
    /// Runs it in an element type. The results count as gradients.
    pub run: fn(&Device, DType) -> Result<Outcome>,
}

/// More tensors than a launch takes, longer than a group, and with a single value.
const SIZES: [usize; 9] = [1, 4096, 4097, 7, 20_003, 9000, 33, 2, 5];
/// Steps of an optimizer.
const STEPS: u64 = 2;

/// All passes.
pub const PASSES: [Pass; 9] = [
    Pass {
        name: "adamw",
        in_halves: false,
        run: run_adamw,
    },
    Pass {
        name: "adamw8bit",
        in_halves: false,
        run: run_adamw8bit,
    },
    Pass {
        name: "sgd",
        in_halves: false,
        run: run_sgd,
    },
    Pass {
        name: "lion",
        in_halves: false,
        run: run_lion,
    },
    Pass {
        name: "sum of gradients",
        in_halves: false,
        run: run_sums,
    },
    Pass {
        name: "norm of gradients",
        in_halves: false,
        run: run_norm,
    },
    Pass {
        name: "average of weights",
        in_halves: false,
        run: run_average,
    },
    Pass {
        name: "rounding of weights",
        in_halves: true,
        run: run_rounding,
    },
    Pass {
        name: "softmax of attention weights",
        in_halves: true,
        run: run_softmax,
    },
];

/// Tensors of [`SIZES`] with values in 0.1..1.1, the same on every machine.
fn drawn(at: u64, device: &Device, dtype: DType) -> Result<Vec<Tensor>> {
    let stream = Rng::new(13).at(at);
    let tensor = |(i, &size): (usize, &usize)| {
        let own = stream.at(i as u64);
        let values = (0..size as u64).map(|j| own.uniform(j) + 0.1).collect();
        crate::convert_dtype::host_tensor(values, &[size], dtype, device)
    };
    SIZES.iter().enumerate().map(tensor).collect()
}

/// Tensors of [`SIZES`] with values of 0.5..1.5 and both signs. The sign of an element does not
/// depend on `at`, so that sums of such values stay away from 0.
fn signed(at: u64, device: &Device, dtype: DType) -> Result<Vec<Tensor>> {
    let stream = Rng::new(17).at(at);
    let tensor = |(i, &size): (usize, &usize)| {
        let own = stream.at(i as u64);
        let value = |j: u64| {
            let sign = if j.is_multiple_of(3) { -1.0 } else { 1.0 };
            sign * (own.uniform(j) + 0.5)
        };
        let values = (0..size as u64).map(value).collect();
        crate::convert_dtype::host_tensor(values, &[size], dtype, device)
    };
    SIZES.iter().enumerate().map(tensor).collect()
}

fn outcome(results: [&[Tensor]; 3]) -> Result<Outcome> {
    let all = results.into_iter().flatten();
    Ok(Outcome {
        output: Vec::new(),
        gradients: all.map(to_f64).collect::<Result<_>>()?,
    })
}

fn decay(i: usize) -> f64 {
    [0.0, 0.1][i % 2]
}

/// The tensors of a step, from parameters, moments and gradients.
fn members<'a>(state: &'a [Vec<Tensor>; 3], g: &'a [Tensor]) -> Vec<Member<'a>> {
    let [p, m, v] = state;
    let member = |i: usize| Member {
        parameter: &p[i],
        first: &m[i],
        second: &v[i],
        gradient: &g[i],
        weight_decay: decay(i),
    };
    (0..SIZES.len()).map(member).collect()
}

fn state(device: &Device, dtype: DType) -> Result<[Vec<Tensor>; 3]> {
    Ok([
        drawn(1, device, dtype)?,
        drawn(2, device, dtype)?,
        drawn(3, device, dtype)?,
    ])
}

fn run_adamw(device: &Device, dtype: DType) -> Result<Outcome> {
    let mut state = state(device, dtype)?;
    for step in 1..=STEPS {
        let rule = AdamWStep {
            learning_rate: 1e-2,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.0,
            step,
            gradient_factor: 0.25,
        };
        let g = drawn(10 + step, device, dtype)?;
        if adamw_together(&members(&state, &g), rule)? {
            continue;
        }
        let [p, m, v] = &mut state;
        for i in 0..SIZES.len() {
            let rule = AdamWStep {
                weight_decay: decay(i),
                ..rule
            };
            adamw(&mut p[i], &mut m[i], &mut v[i], &g[i], rule)?;
        }
    }
    let [p, m, v] = &state;
    outcome([p, m, v])
}

/// The parameters after two steps: the first one encodes the moments, the second one decodes them.
/// A draw within a rounding error of its probability may choose another code on the device, so
/// codes are not compared. The gradients of a block are within a factor of three, so that a
/// neighboring code of both moments moves a parameter by 3 % of the learning rate at most. With
/// this learning rate that is less than the tolerance, and a wrong moment is far more.
fn run_adamw8bit(device: &Device, dtype: DType) -> Result<Outcome> {
    let mut parameters = drawn(1, device, dtype)?;
    let zeros = |parameters: &[Tensor]| {
        let moments = parameters.iter().map(ByteMoment::zeros);
        moments.collect::<Result<Vec<_>>>()
    };
    let (mut first, mut second) = (zeros(&parameters)?, zeros(&parameters)?);
    for step in 1..=STEPS {
        let g = signed(10 + step, device, dtype)?;
        for i in 0..SIZES.len() {
            let rule = AdamWStep {
                learning_rate: 2e-3,
                beta1: 0.9,
                beta2: 0.999,
                epsilon: 1e-8,
                weight_decay: decay(i),
                step,
                gradient_factor: 0.25,
            };
            let noise = Rng::new(19).at(i as u64).at(step);
            let moments = (&mut first[i], &mut second[i]);
            adamw8bit(&mut parameters[i], moments.0, moments.1, &g[i], rule, noise)?;
        }
    }
    outcome([&parameters, &[], &[]])
}

/// From a momentum that is not zero.
fn run_lion(device: &Device, dtype: DType) -> Result<Outcome> {
    let (mut parameters, mut momenta) = (drawn(1, device, dtype)?, signed(2, device, dtype)?);
    for step in 1..=STEPS {
        let g = signed(10 + step, device, dtype)?;
        for i in 0..SIZES.len() {
            let rule = LionStep {
                learning_rate: 1e-2,
                beta1: 0.9,
                beta2: 0.99,
                weight_decay: decay(i),
                gradient_factor: 0.25,
            };
            lion(&mut parameters[i], &mut momenta[i], &g[i], rule)?;
        }
    }
    outcome([&parameters, &momenta, &[]])
}

fn run_sgd(device: &Device, dtype: DType) -> Result<Outcome> {
    let mut state = state(device, dtype)?;
    for step in 1..=STEPS {
        let rule = SgdStep {
            learning_rate: 1e-2,
            momentum: 0.9,
            weight_decay: 0.0,
            gradient_factor: 0.25,
        };
        let g = drawn(10 + step, device, dtype)?;
        if sgd_together(&members(&state, &g), rule)? {
            continue;
        }
        let [p, m, _] = &mut state;
        for i in 0..SIZES.len() {
            let rule = SgdStep {
                weight_decay: decay(i),
                ..rule
            };
            sgd(&mut p[i], &mut m[i], &g[i], rule)?;
        }
    }
    let [p, m, _] = &state;
    outcome([p, m, &[]])
}

fn run_sums(device: &Device, dtype: DType) -> Result<Outcome> {
    let mut sums = drawn(1, device, dtype)?;
    for step in 1..=STEPS {
        add_assign_all(&mut sums, &drawn(10 + step, device, dtype)?)?;
    }
    outcome([&sums, &[], &[]])
}

fn run_norm(device: &Device, dtype: DType) -> Result<Outcome> {
    let gradients = drawn(1, device, dtype)?;
    Ok(Outcome {
        output: vec![global_norm(&gradients)?],
        gradients: Vec::new(),
    })
}

fn run_average(device: &Device, dtype: DType) -> Result<Outcome> {
    let (mut averages, weights) = (drawn(1, device, dtype)?, drawn(2, device, dtype)?);
    let pairs: Vec<_> = averages.iter().zip(&weights).collect();
    if !average_together(&pairs, 0.9)? {
        for (own, weight) in averages.iter_mut().zip(&weights) {
            average(own, weight, 0.9)?;
        }
    }
    outcome([&averages, &[], &[]])
}

/// Widths of rows that are held in two, four and eight words, and one that is not.
const WIDTHS: [usize; 4] = [252, 500, 1000, 1031];

/// Softmax of rows and its gradient, by the kernels if they run here.
fn run_rounding(device: &Device, dtype: DType) -> Result<Outcome> {
    let exact = if dtype == DType::F64 {
        dtype
    } else {
        DType::F32
    };
    let rounded = |x: &Tensor| {
        if rounds(x, dtype) {
            elementwise::rounded(x, dtype)
        } else {
            convert(x, dtype)
        }
    };
    let all = signed(1, device, exact)?;
    let all = all.iter().map(rounded).collect::<Result<Vec<_>>>()?;
    outcome([&all, &[], &[]])
}

fn run_softmax(device: &Device, dtype: DType) -> Result<Outcome> {
    let (rows, scale) = (3, 0.5);
    let mut gradients = Vec::new();
    for width in WIDTHS {
        // Eighths are exact in every element type.
        let eighths = |factor: usize| {
            let values = (0..rows * width)
                .map(|i| (i * factor % 23) as f64 / 8.0)
                .collect();
            crate::convert_dtype::host_tensor(values, &[1, rows, width], dtype, device)
        };
        let (mut p, mut dp) = (eighths(37)?, eighths(11)?);
        if run_on(KernelGroup::Attention, &p) {
            let mask = AttentionMask {
                scale,
                queries: (rows, 0),
                keys: width,
                heads: 1,
                causal: false,
                lengths: None,
            };
            softmax(&p, &mask)?;
            softmax_backward(&p, &dp, scale)?;
        } else {
            (p, dp) = (widened(&p)?, widened(&dp)?);
            let e = (&p * scale)?.exp()?;
            p = e.broadcast_div(&e.sum_keepdim(2)?)?;
            let mean = (&p * &dp)?.sum_keepdim(2)?;
            dp = ((&p * dp.broadcast_sub(&mean)?)? * scale)?;
        }
        gradients.extend([to_f64(&p)?, to_f64(&dp)?]);
    }
    Ok(Outcome {
        output: Vec::new(),
        gradients,
    })
}
