//! The options of token compression: which policy chooses the tokens to keep, how many, and how the
//! policy is learned.

use super::setting_errors::invalid_setting;
use crate::error::Result;
use models::DropPolicy;
use runlog::{DropPolicyChoice, PolicyTraining, RunConfig};

/// True if the gradient flows through the choice of tokens.
pub fn relaxes_choice(training: PolicyTraining) -> bool {
    training != PolicyTraining::PolicyGradient
}

/// True if the log probability of the choice has a gradient.
pub fn scores_choice(training: PolicyTraining) -> bool {
    training != PolicyTraining::Gumbel
}

fn drop_policy(choice: DropPolicyChoice) -> DropPolicy {
    match choice {
        DropPolicyChoice::Learned => DropPolicy::Learned,
        DropPolicyChoice::Random => DropPolicy::Random,
        DropPolicyChoice::EveryKth => DropPolicy::EveryKth,
        DropPolicyChoice::Frequency => DropPolicy::Frequency,
    }
}

/// The checked options of a token compression.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compression {
    /// Which policy chooses the tokens to keep.
    pub policy: DropPolicy,
    pub learning: PolicyTraining,
    /// Fraction of the tokens of every window that is kept, rounded to whole tokens; absent, the
    /// policy keeps the tokens that are worth their cost.
    pub keep_fraction: Option<f64>,
    /// Cost of a kept token, in nats.
    pub keep_cost: f64,
    /// Temperature of the choice at the first and the last step.
    pub temperature: (f64, f64),
    /// Number of steps over which the temperature falls.
    pub steps: u64,
    /// Seed of the noise.
    pub seed: u64,
}

/// Default fraction of tokens to keep.
const KEPT_FRACTION: f64 = 0.5;
/// Default cost of a kept token, in nats.
const KEPT_COST: f64 = 1.0;
/// Default temperatures.
const TEMPERATURE: (f64, f64) = (1.0, 0.1);

impl Compression {
    /// Reads the options from a config.
    ///
    /// # Errors
    /// A policy that is not learned has a cost but no fraction to keep.
    pub(super) fn from_config(config: &RunConfig, seed: u64) -> Result<Self> {
        let policy = drop_policy(config.policy.unwrap_or(DropPolicyChoice::Learned));
        let learning = config.policy_training.unwrap_or(PolicyTraining::Joint);
        // A cost alone leaves the fraction to the policy.
        let keep_fraction = match (config.keep_fraction, config.keep_cost) {
            (None, Some(cost)) if policy != DropPolicy::Learned => {
                let allowed = "only the learned policy uses --keep-cost; set --keep-fraction for other policies";
                return Err(invalid_setting("keep_cost", cost, allowed));
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

    /// The number of tokens to keep, if it is fixed. At least one is kept and, of two or more, at
    /// least one is dropped.
    pub fn kept(&self, tokens: usize) -> Option<usize> {
        self.keep_fraction.map(|fraction| {
            let kept = (tokens as f64 * fraction).round() as usize;
            kept.clamp(1.min(tokens), tokens.saturating_sub(1).max(1.min(tokens)))
        })
    }

    /// Temperature of the choice at a step. It falls by the same factor in every step.
    pub(crate) fn temperature_at(&self, step: u64) -> f64 {
        let (first, last) = self.temperature;
        let done = step.min(self.steps) as f64 / self.steps.max(1) as f64;
        first * (last / first).powf(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(config: RunConfig) -> Compression {
        let checked = Compression::from_config(&config, 7).expect("allowed");
        Compression {
            steps: 100,
            ..checked
        }
    }

    #[test]
    fn half_of_the_tokens_are_kept_unless_only_a_cost_is_given() {
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
            policy: Some(DropPolicyChoice::Random),
            ..priced
        };
        assert!(Compression::from_config(&baseline, 7).is_err());
    }

    #[test]
    fn the_temperature_falls_by_the_same_factor_every_step() {
        let usual = checked(RunConfig::default());
        let [first, middle, last, beyond] = [0, 50, 100, 900].map(|at| usual.temperature_at(at));
        assert_eq!((first, last, beyond), (1.0, 0.1, 0.1));
        assert!((middle * middle - first * last).abs() < 1e-12);
    }
}
