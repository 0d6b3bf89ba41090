//! The cumulative normal distribution, by the complementary error function: in f32 a polynomial
//! times an exponential, which the compiler can vectorize, with a small relative error in both
//! tails; in f64 the tensor library's own.

use crate::cpu::exponential::Exponential;

/// `(1 + erf(x / sqrt 2)) / 2`, element by element inside loops.
pub(crate) trait NormalShare {
    /// Cumulative standard normal distribution.
    fn normal_share(self) -> Self;
}

impl NormalShare for f64 {
    #[inline(always)]
    fn normal_share(self) -> f64 {
        0.5 * candle_core::cpu::erf::erfc_f64(-self * std::f64::consts::FRAC_1_SQRT_2)
    }
}

/// `erfc(x) e^(x²) / t` as a polynomial of `t = 1 / (1 + 0.38 x)`, lowest power first: interpolated
/// at the Chebyshev nodes of `x` in 0..10, relative error 2.5e-8.
const SCALED: [f32; 9] = [
    0.214_416_38,
    0.213_827_2,
    0.204_558_15,
    0.136_137_5,
    0.235_820_38,
    -0.169_674_98,
    0.370_877_4,
    -0.265_592_3,
    0.059_630_264,
];

impl NormalShare for f32 {
    #[inline(always)]
    fn normal_share(self) -> f32 {
        let x = self.abs() * std::f32::consts::FRAC_1_SQRT_2;
        let t = 1.0 / (1.0 + 0.38 * x);
        let p = SCALED.iter().rev().fold(0.0, |p, &c| p * t + c);
        let tail = 0.5 * t * p * (-0.5 * self * self).exponential();
        if self > 0.0 { 1.0 - tail } else { tail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_f32_share_is_right_in_both_tails() {
        for i in -600..=600 {
            let x = i as f32 * 0.02;
            let (found, expected) = (f64::from(x.normal_share()), f64::from(x).normal_share());
            let error = (found - expected).abs();
            // The error of the exponent grows with its size.
            let relative = 1e-7 * f64::from(4.0 + x * x);
            assert!(
                error <= relative * expected && error <= 2e-7,
                "the share of the normal distribution below {x} is {found} instead of {expected}"
            );
        }
        assert!(f32::NAN.normal_share().is_nan());
    }

    #[test]
    fn the_f64_share_is_symmetric_and_known_at_one() {
        assert!((1f64.normal_share() - 0.841_344_746_068_542_9).abs() < 1e-15);
        assert!((1f64.normal_share() + (-1f64).normal_share() - 1.0).abs() < 1e-15);
    }
}
