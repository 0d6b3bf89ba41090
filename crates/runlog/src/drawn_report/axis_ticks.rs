//! Axes with round ticks from 0.

/// An axis from 0 to its last round tick.
pub(super) struct Scale {
    pub step: f64,
    pub top: f64,
}

impl Scale {
    /// At most `max_steps` steps of 1, 2 or 5 times a power of ten that reach `max`.
    pub fn decimal(max: f64, max_steps: f64) -> Scale {
        let max = if max > 0.0 { max } else { 1.0 };
        let power = 10f64.powf((max / max_steps).log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        Scale::first_fit(&steps, max, max_steps)
    }

    /// At most `max_steps` steps of a power of two that reach `max`, for memory and batch sizes.
    pub fn binary(max: f64, max_steps: f64) -> Scale {
        let max = if max > 0.0 { max } else { 1.0 };
        let step = 2f64.powf((max / max_steps).log2().floor());
        Scale::first_fit(&[step, 2.0 * step], max, max_steps)
    }

    /// Steps of round seconds, minutes or hours, in milliseconds. The axis ends at `ms`.
    pub fn time(ms: f64, max_steps: f64) -> Scale {
        let (second, minute, hour) = (1e3, 60e3, 3600e3);
        let mut steps: Vec<f64> = [1.0, 2.0, 5.0, 10.0, 15.0, 30.0].map(|n| n * second).into();
        steps.extend([1.0, 2.0, 5.0, 10.0, 15.0, 30.0].map(|n| n * minute));
        steps.extend([1.0, 2.0, 6.0, 12.0, 24.0, 48.0, 168.0].map(|n| n * hour));
        Scale {
            top: ms,
            ..Scale::first_fit(&steps, ms, max_steps)
        }
    }

    fn first_fit(steps: &[f64], max: f64, max_steps: f64) -> Scale {
        // A rounding error must not add a step.
        let count = |step: f64| (max / step - 1e-9).ceil();
        let fits = steps.iter().copied().find(|step| count(*step) <= max_steps);
        let step = fits.unwrap_or(max / max_steps);
        Scale {
            step,
            top: step * count(step),
        }
    }

    /// All ticks from 0 to the top.
    pub fn ticks(&self) -> impl Iterator<Item = f64> {
        let count = (self.top / self.step + 1e-9).floor() as u32;
        let step = self.step;
        (0..=count).map(move |i| f64::from(i) * step)
    }

    /// Formats a tick with as few digits as all ticks need.
    pub fn label(&self, tick: f64) -> String {
        let digits = (0..6).find(|digits| {
            let shifted = self.step * 10f64.powi(*digits);
            (shifted - shifted.round()).abs() < 1e-6
        });
        format!("{tick:.*}", digits.unwrap_or(6) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &Scale) -> Vec<String> {
        scale.ticks().map(|tick| scale.label(tick)).collect()
    }

    #[test]
    fn ticks_are_round_and_begin_at_0() {
        assert_eq!(labels(&Scale::decimal(3.4, 4.0)), ["0", "1", "2", "3", "4"]);
        assert_eq!(
            labels(&Scale::decimal(0.07, 4.0)),
            ["0.00", "0.02", "0.04", "0.06", "0.08"]
        );
        assert_eq!(labels(&Scale::binary(21.6, 4.0)), ["0", "8", "16", "24"]);
        assert_eq!(
            labels(&Scale::binary(1.9, 4.0)),
            ["0.0", "0.5", "1.0", "1.5", "2.0"]
        );
        assert_eq!(labels(&Scale::binary(16.0, 2.0)), ["0", "8", "16"]);
        assert_eq!(labels(&Scale::binary(1.0, 2.0)), ["0.0", "0.5", "1.0"]);
    }

    #[test]
    fn time_ticks_are_round_on_a_clock() {
        let check = |ms: f64, step_ms: f64| assert_eq!(Scale::time(ms, 10.0).step, step_ms, "{ms}");
        check(1_000.0, 1_000.0);
        check(20_000.0, 2_000.0);
        check(582_000.0, 60_000.0);
        check(3_600_000.0, 600_000.0);
        check(9.0 * 3_600_000.0, 3_600_000.0);
    }

    #[test]
    fn an_axis_without_values_still_has_ticks() {
        assert_eq!(labels(&Scale::decimal(0.0, 4.0)).len(), 3);
        assert_eq!(Scale::binary(f64::NAN, 4.0).top, 1.0);
    }
}
