//! Selects a time range of a series and decimates it to the pixels it is drawn on: of each pixel
//! column the minimum and the maximum of each value are kept.

use crate::time_series::{Columns, Series};

/// A decimated series: times, then one column per value. A value without any number stays NaN.
pub(crate) struct Decimated<const N: usize> {
    pub at_ms: Vec<f64>,
    pub columns: [Vec<f64>; N],
}

/// What two points of a pixel column show of a value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rule {
    /// Its minimum and its maximum, in the order in which they occur.
    Extremes,
    /// Its newest value.
    Last,
    /// Its minimum.
    Lowest,
    /// Its value at the moment in which the sum of these columns is highest.
    AtHighest(&'static [usize]),
}

impl<const N: usize> Decimated<N> {
    fn with_capacity(points: usize) -> Self {
        Decimated {
            at_ms: Vec::with_capacity(points),
            columns: std::array::from_fn(|_| Vec::with_capacity(points)),
        }
    }

    /// Adds later points.
    pub fn append(&mut self, later: Self) {
        self.at_ms.extend(later.at_ms);
        for (out, column) in self.columns.iter_mut().zip(later.columns) {
            out.extend(column);
        }
    }

    fn copy(&mut self, series: &Columns<N>, at: usize) {
        self.at_ms.push(series.at_ms[at]);
        for (out, column) in self.columns.iter_mut().zip(series.values) {
            out.push(f64::from(column[at]));
        }
    }

    /// Adds two points for a pixel column: its first and last time, and two values of each column.
    fn summarize(&mut self, series: &Columns<N>, rules: &[Rule; N], from: usize, to: usize) {
        self.at_ms
            .extend([series.at_ms[from], series.at_ms[to - 1]]);
        for (index, rule) in rules.iter().enumerate() {
            let values = &series.values[index][from..to];
            let [low, high] = extremes(values);
            self.columns[index].extend(match rule {
                Rule::Extremes => [low, high],
                Rule::Last => [f64::from(values[values.len() - 1]); 2],
                Rule::Lowest => [low.min(high); 2],
                Rule::AtHighest(summed) => {
                    [f64::from(values[highest(series, summed, from, to)]); 2]
                }
            });
        }
    }
}

/// Offset from `from` of the point with the highest sum of these columns.
fn highest<const N: usize>(series: &Columns<N>, summed: &[usize], from: usize, to: usize) -> usize {
    let sum = |at: usize| {
        summed
            .iter()
            .map(|column| series.values[*column][at])
            .sum::<f32>()
    };
    let best = (from..to).max_by(|a, b| sum(*a).total_cmp(&sum(*b)));
    best.map_or(0, |at| at - from)
}

/// Minimum and maximum in the order in which they occur; NaN twice if there is no number.
fn extremes(values: &[f32]) -> [f64; 2] {
    let (mut min, mut max) = (f32::INFINITY, f32::NEG_INFINITY);
    for value in values {
        // f32::min ignores NaN.
        min = min.min(*value);
        max = max.max(*value);
    }
    if min > max {
        return [f64::NAN; 2];
    }
    let first = values.iter().find(|v| **v == min || **v == max);
    if first == Some(&min) {
        [min.into(), max.into()]
    } else {
        [max.into(), min.into()]
    }
}

/// Milliseconds per pixel column. Two columns are reserved: one for the neighbors outside the
/// range, one for the column that the edges of the range split.
pub(crate) fn column_ms(from_ms: f64, to_ms: f64, columns: u32) -> f64 {
    (to_ms - from_ms) / f64::from(columns.max(4) - 2)
}

/// The range `from_ms..=to_ms` of a line, at most two points per pixel column, which have its
/// extremes. The nearest point
/// outside each end is included, so that the line is drawn up to the edge. Columns are aligned to
/// multiples of their width on the run's clock, so that a range that follows the run does not
/// flicker.
pub(crate) fn line<const N: usize>(
    series: &Series<N>,
    from_ms: f64,
    to_ms: f64,
    columns: u32,
) -> Decimated<N> {
    summary(&series.all(), &[Rule::Extremes; N], from_ms, to_ms, columns)
}

/// As [`line`], with a rule for each value.
pub(crate) fn summary<const N: usize>(
    series: &Columns<N>,
    rules: &[Rule; N],
    from_ms: f64,
    to_ms: f64,
    columns: u32,
) -> Decimated<N> {
    let at_ms = series.at_ms;
    let first = at_ms.partition_point(|at| *at < from_ms);
    let end = at_ms.partition_point(|at| *at <= to_ms);
    let mut out = Decimated::with_capacity(2 * columns as usize);
    if first > 0 {
        out.copy(series, first - 1);
    }
    if end - first + 2 <= 2 * columns as usize {
        (first..end).for_each(|at| out.copy(series, at));
    } else {
        let width = column_ms(from_ms, to_ms, columns);
        let mut from = first;
        while from < end {
            let border = ((at_ms[from] / width).floor() + 1.0) * width;
            // At least one point, however the border was rounded.
            let to = from + at_ms[from..end].partition_point(|at| *at < border).max(1);
            if to - from == 1 {
                out.copy(series, from);
            } else {
                out.summarize(series, rules, from, to);
            }
            from = to;
        }
    }
    if end < at_ms.len() {
        out.copy(series, end);
    }
    out
}

/// The range `from_ms..=to_ms` of a step function. It begins with the value at `from_ms` and ends
/// with the value at `to_ms`. All changes are kept while they fit; then the extremes of each pixel
/// column.
pub(crate) fn steps(series: &Series<1>, from_ms: f64, to_ms: f64, columns: u32) -> Decimated<1> {
    let at_ms = series.at_ms();
    let first = at_ms.partition_point(|at| *at < from_ms);
    let end = at_ms.partition_point(|at| *at <= to_ms);
    let mut out = line(series, from_ms, to_ms, columns);
    if first > 0
        && let Some(at) = out.at_ms.first_mut()
    {
        *at = from_ms;
    }
    if end < at_ms.len() {
        out.at_ms.pop();
        out.columns[0].pop();
    }
    if end > 0 && out.at_ms.last().is_some_and(|at| *at < to_ms) {
        out.at_ms.push(to_ms);
        out.columns[0].push(f64::from(series.column(0)[end - 1]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    /// Seeded random numbers, `0.0..1.0`.
    fn noise(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed;
        move || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    fn random(seed: u64, points: usize) -> Series<2> {
        let (mut next, mut series, mut at) = (noise(seed), Series::default(), 0.0);
        for _ in 0..points {
            at += (next() * 40.0).floor() * (next() * 4.0).floor();
            let second = if next() < 0.1 { f64::NAN } else { next() * 9.0 };
            series.push(at, [next() - 0.5, second]);
        }
        series
    }

    /// Minimum and maximum of each pixel column.
    fn ranges(
        at_ms: &[f64],
        values: impl Iterator<Item = f64>,
        from: f64,
        to: f64,
        width: f64,
    ) -> Vec<(i64, f64, f64)> {
        let mut out: Vec<(i64, f64, f64)> = Vec::new();
        for (at, value) in at_ms.iter().zip(values) {
            if *at < from || *at > to || value.is_nan() {
                continue;
            }
            let column = (at / width).floor() as i64;
            match out.last_mut().filter(|last| last.0 == column) {
                Some(last) => (last.1, last.2) = (last.1.min(value), last.2.max(value)),
                None => out.push((column, value, value)),
            }
        }
        out
    }

    #[test]
    fn decimation_keeps_each_columns_range_within_the_limit() {
        let mut next = noise(11);
        for seed in 0..200 {
            let points = (next() * next() * 6000.0) as usize;
            let series = random(seed, points);
            let last = series.at_ms().last().copied().unwrap_or(0.0);
            let from = (next() * last).floor();
            let to = from + 1.0 + ((last - from) * next()).floor();
            let columns = 4 + (next() * 900.0) as u32;
            let decimated = line(&series, from, to, columns);
            assert!(
                decimated.at_ms.len() <= 2 * columns as usize,
                "{seed}: {} of {columns}",
                decimated.at_ms.len()
            );
            assert!(decimated.at_ms.is_sorted());
            let width = column_ms(from, to, columns);
            for value in 0..2 {
                let all = series.column(value).iter().map(|v| f64::from(*v));
                let kept = decimated.columns[value].iter().copied();
                let (all, kept) = (
                    ranges(series.at_ms(), all, from, to, width),
                    ranges(&decimated.at_ms, kept, from, to, width),
                );
                assert_eq!(all, kept, "seed {seed}");
            }
        }
    }

    #[test]
    fn a_pixel_column_has_its_lowest_line_and_its_highest_stack() {
        let mut series = Series::<4>::default();
        for i in 0..10_000 {
            let i = f64::from(i);
            // The stack is 4 high once per hundred points, else 2.
            let top = if i % 100.0 == 37.0 { 3.0 } else { 1.0 };
            series.push(i, [1.0, top, 20.0 + i % 7.0, i]);
        }
        const STACK: &[usize] = &[0, 1];
        let rules = [
            Rule::AtHighest(STACK),
            Rule::AtHighest(STACK),
            Rule::Lowest,
            Rule::Last,
        ];
        let drawn = summary(&series.all(), &rules, 0.0, 9999.0, 50);
        let inside = 2..drawn.at_ms.len() - 2;
        for i in inside {
            let stack = drawn.columns[0][i] + drawn.columns[1][i];
            assert_eq!((stack, drawn.columns[2][i]), (4.0, 20.0), "{i}");
        }
        assert!(drawn.columns[3].is_sorted());
    }

    #[test]
    fn a_range_that_fits_is_copied_with_its_neighbours() {
        let mut series = Series::<1>::default();
        (0..100).for_each(|i| series.push(f64::from(i) * 10.0, [f64::from(i)]));
        let decimated = line(&series, 201.0, 299.0, 50);
        assert_eq!(
            decimated.at_ms,
            [
                200.0, 210.0, 220.0, 230.0, 240.0, 250.0, 260.0, 270.0, 280.0, 290.0, 300.0
            ]
        );
        assert_eq!(decimated.columns[0][1], 21.0);
    }

    #[test]
    fn a_step_function_has_its_values_at_both_edges() {
        let mut series = Series::<1>::default();
        for (at, size) in [(0.0, 1.0), (100.0, 2.0), (400.0, 16.0), (900.0, 8.0)] {
            series.push(at, [size]);
        }
        let check = |from: f64, to: f64, at: &[f64], sizes: &[f64]| {
            let decimated = steps(&series, from, to, 100);
            assert_eq!(
                (decimated.at_ms.as_slice(), decimated.columns[0].as_slice()),
                (at, sizes)
            );
        };
        check(
            0.0,
            500.0,
            &[0.0, 100.0, 400.0, 500.0],
            &[1.0, 2.0, 16.0, 16.0],
        );
        check(200.0, 300.0, &[200.0, 300.0], &[2.0, 2.0]);
        check(
            200.0,
            2000.0,
            &[200.0, 400.0, 900.0, 2000.0],
            &[2.0, 16.0, 8.0, 8.0],
        );
        check(1000.0, 2000.0, &[1000.0, 2000.0], &[8.0, 8.0]);
    }

    #[test]
    fn a_step_function_keeps_the_point_limit() {
        let mut series = Series::<1>::default();
        (0..5000).for_each(|i| series.push(f64::from(i), [f64::from(i % 7)]));
        for (from, to) in [(0.0, 4999.0), (10.0, 4000.0), (4000.0, 9000.0)] {
            let decimated = steps(&series, from, to, 300);
            assert!(decimated.at_ms.len() <= 600, "{}", decimated.at_ms.len());
            assert!(decimated.at_ms.is_sorted());
        }
    }

    #[test]
    fn an_empty_series_stays_empty() {
        assert!(
            line(&Series::<1>::default(), 0.0, 1000.0, 100)
                .at_ms
                .is_empty()
        );
        assert!(
            steps(&Series::<1>::default(), 0.0, 1000.0, 100)
                .at_ms
                .is_empty()
        );
    }

    #[test]
    fn a_million_points_are_decimated_without_a_pass_per_pixel_column() {
        let mut series = Series::<5>::default();
        let mut next = noise(3);
        (0..1_000_000).for_each(|i| series.push(f64::from(i), std::array::from_fn(|_| next())));
        let seconds = |run: &mut dyn FnMut()| {
            let begin = Instant::now();
            run();
            begin.elapsed().as_secs_f64()
        };
        // Both are timed in turn and the fastest of many tries counts, because other processes
        // share the cores.
        let (mut pass, mut decimated) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..20 {
            pass = pass.min(seconds(&mut || {
                let largest = series
                    .columns()
                    .into_iter()
                    .flatten()
                    .fold(0.0_f32, |a, b| a.max(*b));
                assert!(std::hint::black_box(largest).is_finite());
            }));
            decimated = decimated.min(seconds(&mut || {
                assert!(line(&series, 0.0, 1e6, 1600).at_ms.len() <= 3200);
            }));
        }
        println!("1,000,000 points of 5 values: {decimated:.4} s, one pass {pass:.4} s");
        // One pass per pixel column would take 1,600 passes. A quiet machine takes 8, a machine
        // whose cores other processes use up to 15. An unoptimized build is no measure of the
        // speed.
        assert!(
            decimated < 100.0 * pass || cfg!(debug_assertions),
            "{decimated} s, one pass {pass} s"
        );
    }
}
