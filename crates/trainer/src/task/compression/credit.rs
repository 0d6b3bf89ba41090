//! What each decision of a policy earned: numbers of one sequence in, numbers out. Knows no tensor.
//!
//! A dropped token costs its loss `l`; a kept one costs the price `c`. The learnt baseline says beforehand what dropping costs, `v`.
//! With `p` the chance of being kept, the policy expected to pay `(1 - p) v + p c`. What a decision earned above that, and half of
//! what its neighbours' losses came to below what was expected of them (a quarter of those one further, and so on), is its advantage.

/// What happened to one sequence, one number a token.
#[derive(Debug, Clone, Copy)]
pub struct Happened<'a> {
    /// Which tokens were kept.
    pub kept: &'a [bool],
    /// Loss of each dropped token, in nats.
    pub losses: &'a [f64],
    /// Chance of each of being kept.
    pub chances: &'a [f64],
    /// What dropping each was expected to cost, in nats.
    pub expected: &'a [f64],
    /// Price of a kept token, in nats; where a fixed number is kept its price is what the choice stands at: see [`price`].
    pub cost: f64,
}

/// How far a loss is put down to the neighbours of its token: by this factor for each place between them.
const NEIGHBOURS: f64 = 0.5;

/// What one token more would save where a fixed number is kept: the expected costs, each as far as its choice is open.
pub fn price(chances: &[f64], expected: &[f64]) -> f64 {
    let open = |p: &f64| p * (1.0 - p);
    let all: f64 = chances.iter().map(open).sum();
    let weighed: f64 = chances.iter().zip(expected).map(|(p, v)| open(p) * v).sum();
    if all > 1e-9 { weighed / all } else { 0.0 }
}

impl Happened<'_> {
    /// The advantage of each decision, in nats.
    pub fn advantages(&self) -> Vec<f64> {
        let places = 0..self.kept.len();
        let below: Vec<f64> = places
            .clone()
            .map(|i| match self.kept[i] {
                true => 0.0,
                false => self.expected[i] - self.losses[i],
            })
            .collect();
        let (mut before, mut after) = (vec![0.0; below.len()], vec![0.0; below.len()]);
        for i in 1..below.len() {
            before[i] = NEIGHBOURS * (before[i - 1] + below[i - 1]);
        }
        for i in (1..below.len()).rev() {
            after[i - 1] = NEIGHBOURS * (after[i] + below[i]);
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

    /// Gradient of the policy's loss by the log odds of each token: the advantages times the gradient of the log chance of what was
    /// done, downhill. Where a fixed number is kept the decisions count as if each was free:
    /// that they add up ties them by one part in that number.
    pub fn score(&self) -> Vec<f64> {
        let advantages = self.advantages();
        let places = advantages.iter().zip(self.kept).zip(self.chances);
        places
            .map(|((advantage, kept), p)| -advantage * (f64::from(*kept) - p))
            .collect()
    }

    /// Gradient by the log odds `z` of minus the entropy, `z p (1 - p)`: weighed by a temperature in nats it draws each `z` to what
    /// keeping the token saves divided by the temperature (Haarnoja et al. 2018), so that nothing is decided before it is learnt.
    pub fn sharpness(&self) -> Vec<f64> {
        let odds = |p: &f64| (p.max(1e-12) / (1.0 - p).max(1e-12)).ln();
        self.chances
            .iter()
            .map(|p| odds(p) * p * (1.0 - p))
            .collect()
    }

    /// Gradient of the loss by each choice itself: keeping pays the price and saves the loss, as it was or as it is expected.
    pub fn direct(&self) -> Vec<f64> {
        let places = 0..self.kept.len();
        let cost = |i: usize| match self.kept[i] {
            true => self.expected[i],
            false => self.losses[i],
        };
        places.map(|i| self.cost - cost(i)).collect()
    }

    /// Entropy of the choices, in nats, summed.
    pub fn entropy(&self) -> f64 {
        let part = |p: f64| if p > 0.0 { -p * p.ln() } else { 0.0 };
        self.chances.iter().map(|p| part(*p) + part(1.0 - p)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HAPPENED: Happened = Happened {
        kept: &[true, false, true, false],
        losses: &[0.0, 3.0, 0.0, 0.25],
        chances: &[0.5, 0.5, 0.5, 0.5],
        expected: &[1.0, 1.0, 1.0, 1.0],
        cost: 1.0,
    };

    #[test]
    fn a_dropped_token_that_was_dear_pays_and_its_neighbours_with_it() {
        let advantages = HAPPENED.advantages();
        // Own: 1 - 3, and a neighbour two places off that came 0.75 cheaper.
        assert!((advantages[1] - (-2.0 + 0.25 * 0.75)).abs() < 1e-12);
        assert!((advantages[3] - (0.75 - 0.25 * 2.0)).abs() < 1e-12);
        assert!((advantages[2] - (0.5 * -2.0 + 0.5 * 0.75)).abs() < 1e-12);
        // Downhill is up for the log odds of what should have been kept.
        let score = HAPPENED.score();
        assert!(score[1] < 0.0 && score[3] > 0.0, "{score:?}");
    }

    #[test]
    fn the_price_is_what_open_choices_are_expected_to_cost() {
        assert_eq!(price(&[0.5, 0.5], &[1.0, 3.0]), 2.0);
        // A decided choice has no say.
        assert_eq!(price(&[0.5, 1.0], &[1.0, 9.0]), 1.0);
        assert_eq!(price(&[0.0, 1.0], &[1.0, 9.0]), 0.0);
    }

    #[test]
    fn entropy_draws_the_chances_together() {
        let decided = Happened {
            kept: &[true],
            losses: &[0.0],
            chances: &[0.9],
            expected: &[1.0],
            cost: 1.0,
        };
        assert!(decided.sharpness()[0] > 0.0 && HAPPENED.sharpness()[0] == 0.0);
        assert!((HAPPENED.entropy() - 4.0 * std::f64::consts::LN_2).abs() < 1e-12);
    }
}
