//! AdamW with one byte per value and moment: the formulas of [`adamw`](super::adamw()) on values
//! that are decoded block by block and encoded again. State: 2 bytes per value and 8 bytes per
//! block of 256, against 8 bytes per value for AdamW.

use super::byte_moment::{
    BLOCK, ByteMoment, Map, RoundingNoise, decode_signed, decode_unsigned, encode_signed,
    encode_unsigned, grid,
};
use super::{AdamWStep, CHUNK, Element};
use crate::cpu::{Float, View, wide, with_float};
use crate::error::Result;
use crate::inplace::with_slice_mut;
use crate::kernels::copies::contiguous;
use crate::rng::Rng;
use candle_core::Tensor;
use rayon::prelude::*;

/// One AdamW step on a parameter with quantized moments. `noise` must depend on (seed, name, step);
/// it rounds the moments.
pub fn adamw8bit(
    parameter: &mut Tensor,
    first: &mut ByteMoment,
    second: &mut ByteMoment,
    gradient: &Tensor,
    rule: AdamWStep,
    noise: Rng,
) -> Result<()> {
    let draws = RoundingNoise::new(noise);
    if !crate::cpu::is_fused(parameter) {
        return composed(parameter, first, second, gradient, rule, &draws);
    }
    let gradient = contiguous(gradient)?;
    with_float!("adamw8bit", parameter, T => {
        let g = View::<T>::new("adamw8bit", &gradient)?;
        let (pass, table) = (Pass::<T>::new(rule), draws.table::<T>());
        first.borrow_mut(|m, m_scales| second.borrow_mut(|v, v_scales| with_slice_mut(parameter, |p| {
            let p = <T as Element>::borrowed(p)?;
            let scales = m_scales.par_chunks_mut(CHUNK / BLOCK).zip(v_scales.par_chunks_mut(CHUNK / BLOCK));
            let codes = m.par_chunks_mut(CHUNK).zip(v.par_chunks_mut(CHUNK));
            let values = p.par_chunks_mut(CHUNK).zip(g.par_chunks(CHUNK));
            values.zip(codes).zip(scales).enumerate().for_each(|(chunk, (((p, g), (m, v)), (m_scales, v_scales)))| {
                let blocks = p.chunks_mut(BLOCK).zip(g.chunks(BLOCK));
                let codes = m.chunks_mut(BLOCK).zip(v.chunks_mut(BLOCK));
                let scales = m_scales.iter_mut().zip(v_scales);
                wide(#[inline(always)] || for (at, (((p, g), (m, v)), (m_scale, v_scale))) in blocks.zip(codes).zip(scales).enumerate() {
                    let block = chunk * (CHUNK / BLOCK) + at;
                    let turns = (T::from_constant(draws.turn(Map::Signed, block)), T::from_constant(draws.turn(Map::Unsigned, block)));
                    let (m, v) = (MomentBlock { codes: m, scale: m_scale }, MomentBlock { codes: v, scale: v_scale });
                    pass.block(p, g, m, v, &table, turns);
                });
            });
            Ok(())
        })))?;
        Ok(())
    })
}

/// One block of a moment: a code per value, and the scale of all of them.
struct MomentBlock<'a> {
    codes: &'a mut [u8],
    scale: &'a mut f32,
}

/// The numbers of the step in an element type.
struct Pass<T> {
    betas: (T, T),
    rests: (T, T),
    keep: T,
    rate: T,
    root2: T,
    epsilon: T,
    factor: T,
}

impl<T: Element> Pass<T> {
    fn new(rule: AdamWStep) -> Self {
        let (correct1, correct2) = rule.corrections();
        Pass {
            betas: (T::from_constant(rule.beta1), T::from_constant(rule.beta2)),
            rests: (
                T::from_constant(1.0 - rule.beta1),
                T::from_constant(1.0 - rule.beta2),
            ),
            keep: T::from_constant(1.0 - rule.learning_rate * rule.weight_decay),
            rate: T::from_constant(rule.learning_rate / correct1),
            root2: T::from_constant(1.0 / correct2),
            epsilon: T::from_constant(rule.epsilon),
            factor: T::from_constant(rule.gradient_factor),
        }
    }

    /// One block: decodes the moments, steps with the new moments before they are rounded, and
    /// encodes them.
    #[inline(always)]
    fn block(
        &self,
        p: &mut [T],
        g: &[T],
        m: MomentBlock,
        v: MomentBlock,
        table: &[T],
        turns: (T, T),
    ) {
        let (m, m_scale) = (m.codes, m.scale);
        let (v, v_scale) = (v.codes, v.scale);
        let (mut first, mut second, mut sizes) =
            ([T::zero(); BLOCK], [T::zero(); BLOCK], [T::zero(); BLOCK]);
        let count = p.len();
        let (first, second, sizes) = (
            &mut first[..count],
            &mut second[..count],
            &mut sizes[..count],
        );
        let (decay1, decay2) = (
            self.betas.0 * T::from_f32(*m_scale),
            self.betas.1 * T::from_f32(*v_scale),
        );
        for i in 0..count {
            let g = g[i] * self.factor;
            first[i] = decay1 * decode_signed::<T>(m[i]) + self.rests.0 * g;
            second[i] = decay2 * decode_unsigned::<T>(v[i]) + self.rests.1 * g * g;
            sizes[i] = first[i].abs();
            p[i] = p[i] * self.keep
                - self.rate * first[i] / ((second[i] * self.root2).sqrt() + self.epsilon);
        }
        encode_signed(first, sizes, m, m_scale, |i| turned(table[i], turns.0));
        encode_unsigned(second, v, v_scale, |i| turned(table[i], turns.1));
    }
}

/// `a + b` modulo one.
#[inline(always)]
fn turned<T: Element>(a: T, b: T) -> T {
    let sum = a + b;
    if sum < T::one() { sum } else { sum - T::one() }
}

fn composed(
    parameter: &mut Tensor,
    first: &mut ByteMoment,
    second: &mut ByteMoment,
    gradient: &Tensor,
    rule: AdamWStep,
    draws: &RoundingNoise,
) -> Result<()> {
    let (correct1, correct2) = rule.corrections();
    let g = grid(&(gradient * rule.gradient_factor)?)?;
    let kept = (first.values(Map::Signed, g.dtype())? * rule.beta1)?;
    let m = (kept + (&g * (1.0 - rule.beta1))?)?;
    let kept = (second.values(Map::Unsigned, g.dtype())? * rule.beta2)?;
    let v = (kept + (g.sqr()? * (1.0 - rule.beta2))?)?;
    let root = ((&v / correct2)?.sqrt()? + rule.epsilon)?;
    let step = ((&m / root)? * (rule.learning_rate / correct1))?;
    let step = step
        .flatten_all()?
        .narrow(0, 0, parameter.elem_count())?
        .reshape(parameter.shape())?;
    *parameter = ((&*parameter * (1.0 - rule.learning_rate * rule.weight_decay))? - step)?;
    let blocks = g.dim(0)?;
    first.encode(Map::Signed, &m, &draws.tensor(Map::Signed, blocks, &m)?)?;
    second.encode(Map::Unsigned, &v, &draws.tensor(Map::Unsigned, blocks, &v)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_sync;
    use crate::inplace::to_f64;
    use candle_core::DType;
    use candle_core::Device;

    const COUNT: usize = 1000;

    fn normal(seed: u64, dtype: DType) -> Tensor {
        let values = Rng::new(seed).truncated_normal(COUNT, 1.0);
        let values = Tensor::from_vec(values, (10, COUNT / 10), &Device::Cpu);
        values
            .and_then(|v| v.to_dtype(dtype))
            .expect("a small tensor")
    }

    /// The first forty values scaled by 1e-9: less than half a code of their block.
    fn with_tiny_values(tensor: &Tensor) -> Tensor {
        let mut values = to_f64(tensor).expect("numbers");
        values.iter_mut().take(40).for_each(|v| *v *= 1e-9);
        let values = Tensor::from_vec(values, tensor.shape(), &Device::Cpu);
        values
            .and_then(|v| v.to_dtype(tensor.dtype()))
            .expect("a small tensor")
    }

    fn rule(step: u64) -> AdamWStep {
        AdamWStep {
            learning_rate: 0.01,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.05,
            step,
            gradient_factor: 0.5,
        }
    }

    fn moments(parameter: &Tensor) -> (ByteMoment, ByteMoment) {
        let zero = || ByteMoment::zeros(parameter).expect("a small tensor");
        (zero(), zero())
    }

    fn read(moment: &ByteMoment, map: Map) -> Vec<f64> {
        let values = moment.values(map, DType::F64).expect("a moment");
        let mut values = to_f64(&values).expect("numbers");
        values.truncate(COUNT);
        values
    }

    #[test]
    fn both_forms_take_the_same_step_and_round_alike() {
        let start = normal(1, DType::F32);
        let (mut fused, mut plain) = (start.force_contiguous().expect("memory"), start);
        let ((mut m, mut v), (mut m2, mut v2)) = (moments(&fused), moments(&plain));
        for step in 1..=5 {
            let g = with_tiny_values(&normal(10 + step, DType::F32));
            let noise = Rng::new(3).at(step);
            adamw8bit(&mut fused, &mut m, &mut v, &g, rule(step), noise).expect("shapes that fit");
            let draws = RoundingNoise::new(noise);
            composed(&mut plain, &mut m2, &mut v2, &g, rule(step), &draws)
                .expect("shapes that fit");
        }
        let (a, b) = (to_f64(&fused), to_f64(&plain));
        let apart = a.expect("numbers").into_iter().zip(b.expect("numbers"));
        let apart = apart.fold(0.0f64, |worst, (a, b)| worst.max((a - b).abs()));
        assert!(apart < 1e-3, "parameters are {apart:e} apart");
        for (a, b) in [(&m.codes, &m2.codes), (&v.codes, &v2.codes)] {
            let (a, b) = (device_sync::read::<u8>(a), device_sync::read::<u8>(b));
            let same = a.expect("codes").into_iter().zip(b.expect("codes"));
            // A draw within a rounding error of its probability may fall either way.
            let same = same.filter(|(a, b)| a == b).count();
            assert!(same >= COUNT - 5, "{same} of {COUNT} codes");
        }
    }

    /// A decoded value is one of the two neighbors of the encoded one, and right on average.
    fn check_rounding(map: Map, power: i32) {
        let values = to_f64(&with_tiny_values(&normal(2, DType::F64))).expect("numbers");
        let values: Vec<f64> = match map {
            Map::Signed => values,
            Map::Unsigned => values.iter().map(|v| v * v).collect(),
        };
        let largest = values.iter().fold(0.0f64, |l, v| l.max(v.abs()));
        let tensor = Tensor::from_slice(&values, COUNT, &Device::Cpu).expect("a vector");
        let (mut moment, _) = moments(&tensor);
        let (rounds, mut sums) = (600, vec![0.0; COUNT]);
        for round in 0..rounds {
            let draws = RoundingNoise::new(Rng::new(5).at(round));
            let uniform = draws
                .tensor(map, COUNT.div_ceil(BLOCK), &tensor)
                .expect("draws");
            moment
                .encode(map, &grid(&tensor).expect("blocks"), &uniform)
                .expect("values");
            for ((sum, read), value) in sums.iter_mut().zip(read(&moment, map)).zip(&values) {
                let place = (value.abs() / largest).powf(1.0 / f64::from(power)) * map.top();
                // The block's own scale is at most the largest value overall.
                let gap =
                    ((place + 1.0).powi(power) - (place - 1.0).max(0.0).powi(power)) * largest;
                let gap = gap / map.top().powi(power);
                assert!((read - value).abs() <= gap, "{value}: {read}, gap {gap}");
                assert!(
                    map == Map::Signed || *value == 0.0 || read > 0.0,
                    "{value} became zero"
                );
                *sum += read;
            }
        }
        let error: f64 = sums
            .iter()
            .zip(&values)
            .map(|(sum, v)| sum / rounds as f64 - v)
            .sum();
        let size: f64 = values.iter().map(|v| v.abs()).sum();
        assert!((error / size).abs() < 1e-3, "{map:?}: {error:e} of {size}");
    }

    #[test]
    fn stochastic_rounding_is_right_on_average() {
        check_rounding(Map::Signed, 2);
        check_rounding(Map::Unsigned, 4);
    }

    /// A second moment changes by a tenth of a percent per step: rounding to nearest would never
    /// move it.
    #[test]
    fn a_second_moment_follows_gradients_for_2000_steps() {
        let mut parameter = normal(1, DType::F64);
        let (mut m, mut v) = moments(&parameter);
        let mut expected = vec![0.0; COUNT];
        for step in 1..=2000u64 {
            // Half the size after 800 steps: the moment must come down too.
            let size = if step < 800 { 2.0 } else { 1.0 };
            let g = (normal(100 + step, DType::F64) * size).expect("numbers");
            let values = to_f64(&g).expect("numbers");
            for (e, g) in expected.iter_mut().zip(values) {
                *e = 0.999 * *e + 0.001 * (0.5 * g) * (0.5 * g);
            }
            let noise = Rng::new(4).at(step);
            adamw8bit(&mut parameter, &mut m, &mut v, &g, rule(step), noise).expect("a step");
        }
        let shares = read(&v, Map::Unsigned).into_iter().zip(&expected);
        let shares: Vec<f64> = shares.map(|(read, e)| read / e).collect();
        let mean = shares.iter().sum::<f64>() / COUNT as f64;
        let spread = shares.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / COUNT as f64;
        println!(
            "second moment: the stored values are on average {mean:.3} times the exact values (standard deviation {:.3})",
            spread.sqrt()
        );
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        assert!(spread.sqrt() < 0.2, "{}", spread.sqrt());
    }
}
