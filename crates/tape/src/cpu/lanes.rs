//! Sums over a row in sixteen lanes: an order that the compiler can vectorise and that the length alone fixes.

use crate::cpu::Float;

const LANES: usize = 16;

/// `sum f(x[i])`.
#[inline]
pub(crate) fn sum<T: Float>(x: &[T], f: impl Fn(T) -> T) -> T {
    let mut lanes = [T::zero(); LANES];
    let chunks = x.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        lanes
            .iter_mut()
            .zip(chunk)
            .for_each(|(lane, &v)| *lane += f(v));
    }
    fold(lanes) + rest.iter().fold(T::zero(), |sum, &v| sum + f(v))
}

/// `sum f(x[i], y[i])`.
#[inline]
pub(crate) fn sum2<T: Float>(x: &[T], y: &[T], f: impl Fn(T, T) -> T) -> T {
    let mut lanes = [T::zero(); LANES];
    let (xs, ys) = (x.chunks_exact(LANES), y.chunks_exact(LANES));
    let rest = xs
        .remainder()
        .iter()
        .zip(ys.remainder())
        .fold(T::zero(), |sum, (&x, &y)| sum + f(x, y));
    for (x, y) in xs.zip(ys) {
        lanes
            .iter_mut()
            .zip(x.iter().zip(y))
            .for_each(|(lane, (&x, &y))| *lane += f(x, y));
    }
    fold(lanes) + rest
}

/// Mean and `1 / sqrt(variance + epsilon)`, two passes for accuracy.
#[inline]
pub(crate) fn moments<T: Float>(x: &[T], epsilon: f64) -> (T, T) {
    let count = T::of(x.len() as f64);
    let mean = sum(x, |v| v) / count;
    let variance = sum(x, |v| (v - mean) * (v - mean)) / count;
    (mean, T::one() / (variance + T::of(epsilon)).sqrt())
}

fn fold<T: Float>(lanes: [T; LANES]) -> T {
    let mut width = LANES / 2;
    let mut lanes = lanes;
    while width > 0 {
        for i in 0..width {
            let other = lanes[i + width];
            lanes[i] += other;
        }
        width /= 2;
    }
    lanes[0]
}
