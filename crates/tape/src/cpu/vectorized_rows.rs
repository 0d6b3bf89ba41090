//! Sums over a row in sixteen lanes: an order that the compiler can vectorize and that depends on
//! the length only.

use crate::cpu::Float;

const LANES: usize = 16;

/// `sum f(x[i])`.
#[inline(always)]
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
#[inline(always)]
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

/// `sum f(x[i], y[i], z[i])`.
#[inline(always)]
pub(crate) fn sum3<T: Float>(x: &[T], y: &[T], z: &[T], f: impl Fn(T, T, T) -> T) -> T {
    let mut lanes = [T::zero(); LANES];
    let whole = x.len() / LANES * LANES;
    for ((x, y), z) in x
        .chunks_exact(LANES)
        .zip(y.chunks_exact(LANES))
        .zip(z.chunks_exact(LANES))
    {
        for i in 0..LANES {
            lanes[i] += f(x[i], y[i], z[i]);
        }
    }
    let rest = x[whole..].iter().zip(&y[whole..]).zip(&z[whole..]);
    fold(lanes) + rest.fold(T::zero(), |sum, ((&x, &y), &z)| sum + f(x, y, z))
}

/// The largest value; minus infinity if there is none or all are NaN.
#[inline(always)]
pub(crate) fn max<T: Float>(x: &[T]) -> T {
    let mut lanes = [T::neg_infinity(); LANES];
    let chunks = x.chunks_exact(LANES);
    let rest = filled(chunks.remainder(), T::neg_infinity());
    for chunk in chunks.chain([rest.as_slice()]) {
        lanes
            .iter_mut()
            .zip(chunk)
            .for_each(|(lane, &v)| *lane = if v > *lane { v } else { *lane });
    }
    let higher = |a: T, &b: &T| if b > a { b } else { a };
    lanes.iter().fold(T::neg_infinity(), higher)
}

/// The remainder of a row, padded to whole lanes: one vector operation is faster than single ones.
#[inline(always)]
fn filled<T: Float>(rest: &[T], with: T) -> [T; LANES] {
    let mut lanes = [with; LANES];
    lanes[..rest.len()].copy_from_slice(rest);
    lanes
}

/// `x[i] = f(x[i])`.
#[inline(always)]
pub(crate) fn map<T: Float>(x: &mut [T], f: impl Fn(T) -> T) {
    x.iter_mut().for_each(|v| *v = f(*v));
}

/// `x[i] = f(x[i])`; returns the sum of the new values.
#[inline(always)]
pub(crate) fn map_sum<T: Float>(x: &mut [T], f: impl Fn(T) -> T) -> T {
    let mut lanes = [T::zero(); LANES];
    let mut chunks = x.chunks_exact_mut(LANES);
    for chunk in &mut chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, v)| {
            *v = f(*v);
            *lane += *v;
        });
    }
    let rest = chunks.into_remainder();
    let mut last = filled(rest, T::zero());
    map(&mut last, f);
    rest.copy_from_slice(&last[..rest.len()]);
    last[rest.len()..].fill(T::zero());
    lanes
        .iter_mut()
        .zip(&last)
        .for_each(|(lane, &v)| *lane += v);
    fold(lanes)
}

/// `(x[i], y[i]) = f(x[i], y[i])` for two rows of equal length.
#[inline(always)]
pub(crate) fn map_pairs<T: Float>(x: &mut [T], y: &mut [T], f: impl Fn(T, T) -> (T, T)) {
    let each = |x: &mut [T], y: &mut [T]| {
        let pairs = x.iter_mut().zip(y);
        pairs.for_each(|(x, y)| (*x, *y) = f(*x, *y));
    };
    let (mut xs, mut ys) = (x.chunks_exact_mut(LANES), y.chunks_exact_mut(LANES));
    for (x, y) in (&mut xs).zip(&mut ys) {
        each(x, y);
    }
    let (x, y) = (xs.into_remainder(), ys.into_remainder());
    let (mut last_x, mut last_y) = (filled(x, T::zero()), filled(y, T::zero()));
    each(&mut last_x, &mut last_y);
    x.copy_from_slice(&last_x[..x.len()]);
    y.copy_from_slice(&last_y[..y.len()]);
}

/// Mean and `1 / sqrt(variance + epsilon)`, in two passes for accuracy.
#[inline(always)]
pub(crate) fn moments<T: Float>(x: &[T], epsilon: f64) -> (T, T) {
    let count = T::from_constant(x.len() as f64);
    let mean = sum(x, |v| v) / count;
    let variance = sum(x, |v| (v - mean) * (v - mean)) / count;
    (
        mean,
        T::one() / (variance + T::from_constant(epsilon)).sqrt(),
    )
}

#[inline(always)]
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
