//! What a token compression is asked to do: who chooses the tokens that are kept, how many, and how the choice is learnt.

use super::{chosen, setting};
use crate::error::Result;
use models::DropPolicy;
use runlog::RunConfig;

/// What the policy learns by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learning {
    /// The gradient of the loss through the choice, straight through a relaxation (Jang et al. 2016).
    Gumbel,
    /// What was earned above a learnt baseline, times the gradient of the log chance (Williams 1992).
    PolicyGradient,
    /// Both.
    Joint,
}

impl Learning {
    /// All of them.
    pub const ALL: [Learning; 3] = [Learning::Gumbel, Learning::PolicyGradient, Learning::Joint];

    /// The name in configs and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Learning::Gumbel => "gumbel",
            Learning::PolicyGradient => "policy-gradient",
            Learning::Joint => "joint",
        }
    }

    /// The gradient goes through the choice.
    pub fn relaxes(self) -> bool {
        self != Learning::PolicyGradient
    }

    /// The log chance has a gradient.
    pub fn scores(self) -> bool {
        self != Learning::Gumbel
    }
}

/// A checked token compression.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compression {
    /// Who chooses.
    pub policy: DropPolicy,
    /// What the policy learns by.
    pub learning: Learning,
    /// Share of the tokens of every window that is kept, exactly but for rounding to whole tokens; absent, the policy keeps what is
    /// worth its cost.
    pub keep_fraction: Option<f64>,
    /// What a kept token costs, in nats.
    pub keep_cost: f64,
    /// Temperature of the choice at the first and at the last step.
    pub temperature: (f64, f64),
    /// Steps over which it falls.
    pub steps: u64,
    /// Seed of the noise.
    pub seed: u64,
}

/// Usual share that is kept.
const KEPT_FRACTION: f64 = 0.5;
/// Usual cost of a kept token, in nats.
const KEPT_COST: f64 = 1.0;
/// Usual temperatures.
const TEMPERATURE: (f64, f64) = (1.0, 0.1);

impl Compression {
    /// What a config asks for.
    ///
    /// # Errors
    /// A baseline is asked to keep a share that nothing says.
    pub(super) fn check(config: &RunConfig, seed: u64) -> Result<Self> {
        let policy = config.policy.as_deref().unwrap_or("learned");
        let policy = chosen("policy", policy, &DropPolicy::ALL.map(|p| (p.name(), p)))?;
        let learning = config.policy_learning.as_deref().unwrap_or("joint");
        let learning = chosen(
            "policy_learning",
            learning,
            &Learning::ALL.map(|l| (l.name(), l)),
        )?;
        // A cost alone leaves the share to the policy.
        let keep_fraction = match (config.keep_fraction, config.keep_cost) {
            (None, Some(cost)) if policy != DropPolicy::Learned => {
                let allowed = "only a learned policy weighs a cost; write --keep-fraction too";
                return Err(setting("keep_cost", cost, allowed));
            }
            (None, Some(_)) => None,
            (fraction, _) => Some(fraction.unwrap_or(KEPT_FRACTION)),
        };
        let (first, last) = TEMPERATURE;
        Ok(Compression {
            policy,
            learning,
            keep_fraction,
            keep_cost: config.keep_cost.unwrap_or(KEPT_COST),
            temperature: (
                config.temperature.unwrap_or(first),
                config.final_temperature.unwrap_or(last),
            ),
            steps: 0,
            seed,
        })
    }

    /// Tokens kept of so many, where that is fixed: the nearest whole number, and at least one is kept and one dropped where there
    /// are two.
    pub fn kept(&self, tokens: usize) -> Option<usize> {
        self.keep_fraction.map(|fraction| {
            let kept = (tokens as f64 * fraction).round() as usize;
            kept.clamp(1.min(tokens), tokens.saturating_sub(1).max(1.min(tokens)))
        })
    }

    /// Temperature of the choice at a step: it falls by the same factor each step.
    pub fn temperature_at(&self, step: u64) -> f64 {
        let (first, last) = self.temperature;
        let done = step.min(self.steps) as f64 / self.steps.max(1) as f64;
        first * (last / first).powf(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(config: RunConfig) -> Compression {
        let checked = Compression::check(&config, 7).expect("allowed");
        Compression {
            steps: 100,
            ..checked
        }
    }

    #[test]
    fn half_of_the_tokens_are_kept_unless_a_cost_alone_is_given() {
        let usual = checked(RunConfig::default());
        assert_eq!(
            [128, 7, 2, 1, 0].map(|tokens| usual.kept(tokens)),
            [Some(64), Some(4), Some(1), Some(1), Some(0)]
        );
        let priced = RunConfig {
            keep_cost: Some(0.5),
            ..RunConfig::default()
        };
        assert_eq!(checked(priced.clone()).kept(128), None);
        let baseline = RunConfig {
            policy: Some("random".to_owned()),
            ..priced
        };
        assert!(Compression::check(&baseline, 7).is_err());
    }

    #[test]
    fn the_temperature_falls_by_one_factor_each_step() {
        let usual = checked(RunConfig::default());
        let [first, middle, last, beyond] = [0, 50, 100, 900].map(|at| usual.temperature_at(at));
        assert_eq!((first, last, beyond), (1.0, 0.1, 0.1));
        assert!((middle * middle - first * last).abs() < 1e-12);
    }
}
