//! The advantage of each decision of a policy, for one sequence.
//!
//! A dropped token costs its loss `l`; a kept one costs the price `c`. The learned baseline
//! predicts the cost of dropping, `v`. With `p` the probability of keeping, the expected cost is
//! `(1 - p) v + p c`. The advantage of a decision is the expected cost minus the actual one.
//! Neighboring tokens add to it: the amount by which a neighbor's loss is below its expected loss
//! is added with the factor 1/2 for the nearest neighbors, 1/4 for the next ones, and so on.

/// The outcome for one sequence, one value per token.
#[derive(Debug, Clone, Copy)]
pub struct Outcome<'a> {
    /// Which tokens were kept.
    pub kept: &'a [bool],
    /// Loss of each dropped token, in nats.
    pub losses: &'a [f64],
    /// Probability of keeping each token.
    pub chances: &'a [f64],
    /// Expected cost of dropping each token, in nats.
    pub expected: &'a [f64],
    /// Price of a kept token, in nats. If a fixed number of tokens is kept, it follows from the
    /// choice: see [`price`].
    pub cost: f64,
}

/// A loss is attributed to neighbors with this factor per position between them.
const NEIGHBOR_DECAY: f64 = 0.5;

/// The value of keeping one more token if a fixed number is kept: the expected costs weighted by
/// how open each choice is.
pub fn price(chances: &[f64], expected: &[f64]) -> f64 {
    let open = |p: &f64| p * (1.0 - p);
    let all: f64 = chances.iter().map(open).sum();
    let weighted: f64 = chances.iter().zip(expected).map(|(p, v)| open(p) * v).sum();
    if all > 1e-9 { weighted / all } else { 0.0 }
}

impl Outcome<'_> {
    /// The advantage of each decision, in nats.
    pub fn advantages(&self) -> Vec<f64> {
        let places = 0..self.kept.len();
        let below: Vec<f64> = places
            .clone()
            .map(|i| {
                if self.kept[i] {
                    0.0
                } else {
                    self.expected[i] - self.losses[i]
                }
            })
            .collect();
        let (mut before, mut after) = (vec![0.0; below.len()], vec![0.0; below.len()]);
        for i in 1..below.len() {
            before[i] = NEIGHBOR_DECAY * (before[i - 1] + below[i - 1]);
        }
        for i in (1..below.len()).rev() {
            after[i - 1] = NEIGHBOR_DECAY * (after[i] + below[i]);
        }
        let own = |i: usize| {
            let paid = if self.kept[i] {
                self.cost
            } else {
                self.losses[i]
            };
            let p = self.chances[i];
            (1.0 - p) * self.expected[i] + p * self.cost - paid
        };
        places.map(|i| own(i) + before[i] + after[i]).collect()
    }

    /// Gradient of the policy's loss with respect to the logit of each token: minus the advantage
    /// times the gradient of the log probability of the decision (Williams 1992). If a fixed number
    /// is kept, decisions are treated as independent, which is off by one part in that number.
    pub fn score(&self) -> Vec<f64> {
        let advantages = self.advantages();
        let places = advantages.iter().zip(self.kept).zip(self.chances);
        places
            .map(|((advantage, kept), p)| -advantage * (f64::from(*kept) - p))
            .collect()
    }

    /// Gradient of minus the entropy with respect to the logit `z`, `z p (1 - p)`. Weighted by a
    /// temperature in nats, it draws each `z` towards what keeping the token saves divided by the
    /// temperature (Haarnoja et al. 2018), which keeps choices open until they are learned.
    pub fn entropy_slope(&self) -> Vec<f64> {
        let odds = |p: &f64| (p.max(1e-12) / (1.0 - p).max(1e-12)).ln();
        self.chances
            .iter()
            .map(|p| odds(p) * p * (1.0 - p))
            .collect()
    }

    /// Gradient of the loss with respect to each choice: keeping a token costs the price and saves
    /// its actual or expected loss.
    pub fn direct(&self) -> Vec<f64> {
        let places = 0..self.kept.len();
        let loss = |i: usize| {
            if self.kept[i] {
                self.expected[i]
            } else {
                self.losses[i]
            }
        };
        places.map(|i| self.cost - loss(i)).collect()
    }

    /// Summed entropy of the choices, in nats.
    pub fn entropy(&self) -> f64 {
        let part = |p: f64| if p > 0.0 { -p * p.ln() } else { 0.0 };
        self.chances.iter().map(|p| part(*p) + part(1.0 - p)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTCOME: Outcome = Outcome {
        kept: &[true, false, true, false],
        losses: &[0.0, 3.0, 0.0, 0.25],
        chances: &[0.5, 0.5, 0.5, 0.5],
        expected: &[1.0, 1.0, 1.0, 1.0],
        cost: 1.0,
    };

    #[test]
    fn an_expensive_drop_lowers_its_own_and_its_neighbors_advantage() {
        let advantages = OUTCOME.advantages();
        // Its own 1 - 3, and a neighbor at distance two that cost 0.75 less than expected.
        assert!((advantages[1] - (-2.0 + 0.25 * 0.75)).abs() < 1e-12);
        assert!((advantages[3] - (0.75 - 0.25 * 2.0)).abs() < 1e-12);
        assert!((advantages[2] - (0.5 * -2.0 + 0.5 * 0.75)).abs() < 1e-12);
        // A negative slope raises the logit of a token that should have been kept.
        let score = OUTCOME.score();
        assert!(score[1] < 0.0 && score[3] > 0.0, "{score:?}");
    }

    #[test]
    fn the_price_is_the_expected_cost_of_open_choices() {
        assert_eq!(price(&[0.5, 0.5], &[1.0, 3.0]), 2.0);
        // A decided choice does not count.
        assert_eq!(price(&[0.5, 1.0], &[1.0, 9.0]), 1.0);
        assert_eq!(price(&[0.0, 1.0], &[1.0, 9.0]), 0.0);
    }

    #[test]
    fn entropy_draws_probabilities_to_one_half() {
        let decided = Outcome {
            kept: &[true],
            losses: &[0.0],
            chances: &[0.9],
            expected: &[1.0],
            cost: 1.0,
        };
        assert!(decided.entropy_slope()[0] > 0.0 && OUTCOME.entropy_slope()[0] == 0.0);
        assert!((OUTCOME.entropy() - 4.0 * std::f64::consts::LN_2).abs() < 1e-12);
    }
}
