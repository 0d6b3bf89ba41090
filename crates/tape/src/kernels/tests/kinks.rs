//! At a kink, forward and backward take the same side: the gradient passes exactly where the value
//! passed.

use crate::cancel::Cancel;
use crate::error::Result;
use crate::inplace::to_f64;
use crate::kernels::emulator;
use crate::rng::Rng;
use crate::tape::{Kernels, Tape, Value};
use crate::{Activation, Affine, Parameters};
use candle_core::{DType, Device, Tensor};

/// Channels with one group each, and as many values at a kink.
const CHANNELS: usize = 512;

/// A group norm with ReLU on one sample. The first pixel of each channel is as near to the kink as
/// f32 allows. Returns the first pixels of the output, and the gradients of `x` and of the shifts
/// if each first pixel's gradient is `seed`.
fn at_kinks(pixels: usize, kernels: Kernels, seed: f32) -> Result<[Vec<f64>; 3]> {
    let (stream, count) = (Rng::new(8), CHANNELS * pixels);
    let x: Vec<f32> = (0..count as u64).map(|i| stream.normal(i) as f32).collect();
    let w: Vec<f32> = (0..CHANNELS as u64)
        .map(|i| stream.at(1).normal(i) as f32)
        .collect();
    let b = x.chunks(pixels).zip(&w).map(|(x, &w)| {
        let each = || x.iter().map(|&v| f64::from(v));
        let mean = each().sum::<f64>() / pixels as f64;
        let variance = each().map(|v| (v - mean).powi(2)).sum::<f64>() / pixels as f64;
        (-(f64::from(x[0]) - mean) / variance.sqrt() * f64::from(w)) as f32
    });
    let b: Vec<f32> = b.collect();
    let parameters = Parameters::default();
    let tape = Tape::record(&parameters, Cancel::default(), kernels);
    let image = [1, CHANNELS, 1, pixels];
    let variable = |values: Vec<f32>, shape: &[usize]| -> Result<Value> {
        Ok(tape.variable(Tensor::from_vec(values, shape, &Device::Cpu)?))
    };
    let (x, w, b) = (
        variable(x, &image)?,
        variable(w, &[CHANNELS])?,
        variable(b, &[CHANNELS])?,
    );
    let affine = Affine {
        weight: &w,
        bias: &b,
    };
    let y = tape.group_norm(&x, CHANNELS, affine, 0.0, Activation::Relu)?;
    let first = |values: Vec<f64>| values.into_iter().step_by(pixels).collect::<Vec<_>>();
    let output = first(to_f64(y.tensor())?);
    let mut seeds = vec![0.0; count];
    seeds.iter_mut().step_by(pixels).for_each(|s| *s = seed);
    let seeds = Tensor::from_vec(seeds, &image, &Device::Cpu)?.to_dtype(DType::F32)?;
    let walked = tape.backward_from(vec![(y, seeds)], &[x, b])?.inputs;
    let read = |of: &Option<Tensor>| to_f64(of.as_ref().expect("a gradient"));
    Ok([output, read(&walked[0])?, read(&walked[1])?])
}

/// Runs `check` for every form, with words of four elements and with single elements.
fn each_form(seed: f32, check: impl Fn(&str, [Vec<f64>; 3])) {
    for pixels in [4, 5] {
        let found = emulator::with(|| at_kinks(pixels, Kernels::Fused, seed));
        check("kernels", found.expect("shapes that fit"));
        for kernels in [Kernels::Fused, Kernels::Composed] {
            let found = at_kinks(pixels, kernels, seed).expect("shapes that fit");
            check(&format!("{kernels:?}"), found);
        }
    }
}

#[test]
fn a_gradient_passes_where_its_value_passed() {
    each_form(1.0, |form, [output, _, shifts]| {
        let passed = output.iter().filter(|&&y| y > 0.0).count();
        assert!(
            passed > 50 && passed < CHANNELS - 50,
            "{form}: {passed} are no kinks"
        );
        let parted = output
            .iter()
            .zip(&shifts)
            .filter(|&(&y, &db)| (y > 0.0) != (db == 1.0));
        assert_eq!(parted.count(), 0, "{form}");
    });
}

#[test]
fn a_closed_relu_blocks_an_infinite_gradient() {
    each_form(f32::INFINITY, |form, [output, inputs, shifts]| {
        let pixels = inputs.len() / CHANNELS;
        for (channel, dx) in inputs.chunks(pixels).enumerate() {
            if output[channel] == 0.0 {
                assert_eq!(shifts[channel], 0.0, "{form}, channel {channel}");
                assert!(
                    dx.iter().all(|&d| d == 0.0),
                    "{form}, channel {channel}: {dx:?}"
                );
            }
        }
    });
}
