//! The most samples that anybody could have done, against which the controller is measured.

use super::{BATCH, DEVICE, LINE, RAM, TICK, truth::Truth};

/// Samples done by somebody who knows the future and pays nothing for a change.
pub fn oracle(truth: &Truth, others: &[f64]) -> f64 {
    let (mut done, mut i) = (0.0, 0);
    while i < others.len() {
        let best = (1..=BATCH as u32).map(f64::from).filter_map(|m| {
            let until = (i + (truth.seconds(m) / TICK) as usize + 1).min(others.len() - 1);
            let most = others[i..=until].iter().copied().fold(0.0, f64::max);
            (truth.need(m) <= (LINE * RAM - most).min(DEVICE)).then(|| (truth.seconds(m) / m, m))
        });
        match best.reduce(|a, b| if b.0 < a.0 { b } else { a }) {
            None => i += 1,
            Some((_, m)) => {
                done += m;
                i += (truth.seconds(m) / TICK).ceil().max(1.0) as usize;
            }
        }
    }
    done
}
