//! How the devices of a planned group share a run: all compute a part of each step, and they may
//! have the optimizer state in parts.

use super::Plan;
use super::planned_machine::PlannedMachine;
use crate::cli::failure::Failure;
use pressure::WholeStateNeed;
use runlog::{RunConfig, ShardingChoice, format_bytes, format_count};
use trainer::estimate::Target;

/// The devices that share a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sharing {
    /// Number of devices.
    pub devices: u32,
    /// Whether each device has a part of the optimizer state instead of all of it.
    pub divides_optimizer: bool,
}

impl Sharing {
    /// How the devices share a run, and what `estimate` returns for that. `estimate` also returns
    /// what a device needs that has the whole optimizer state, if it is asked for that. With
    /// `--sharding auto`, the devices divide the state if a group of them would do so at its start.
    pub fn choose<R>(
        args: &Plan,
        config: &RunConfig,
        machine: &PlannedMachine,
        mut estimate: impl FnMut(Sharing) -> Result<(R, WholeStateNeed), Failure>,
    ) -> Result<(R, Sharing), Failure> {
        let sharding = match config.steps_per_sync() {
            // Devices that make steps of their own have moments of their own.
            Some(_) => Some(ShardingChoice::None),
            None => config.sharding,
        };
        let (first, second) = Sharing::choices(args.devices.unwrap_or(1), sharding);
        let (estimated, need) = estimate(first)?;
        let shortage = need.shortage(machine.most_bytes());
        match second.filter(|_| shortage.is_some()) {
            Some(second) => Ok((estimate(second)?.0, second)),
            None => Ok((estimated, first)),
        }
    }

    /// The ways in which these devices may share a run.
    fn choices(devices: u32, sharding: Option<ShardingChoice>) -> (Sharing, Option<Sharing>) {
        let sharing = |divides_optimizer| Sharing {
            devices,
            divides_optimizer,
        };
        match sharding.unwrap_or(ShardingChoice::Auto) {
            _ if devices < 2 => (sharing(false), None),
            ShardingChoice::None => (sharing(false), None),
            ShardingChoice::Optimizer => (sharing(true), None),
            ShardingChoice::Auto => (sharing(false), Some(sharing(true))),
        }
    }

    /// Number of devices that have the moments in parts; 1 if each has all of them.
    pub fn moments_divided_by(self) -> usize {
        if self.divides_optimizer {
            self.devices as usize
        } else {
            1
        }
    }

    /// Samples of a step that each device computes if all are as fast, rounded up.
    pub fn samples_per_device(self, effective_batch: u32) -> u32 {
        effective_batch.div_ceil(self.devices.max(1)).max(1)
    }

    /// Whether the devices exchange weights only every few steps.
    pub fn has_outer_steps(self, config: &RunConfig) -> bool {
        self.devices > 1 && config.steps_per_sync().is_some()
    }

    /// `target` as one of these devices.
    pub fn shared_target(self, target: Target, config: &RunConfig) -> Target {
        target
            .with_moments_divided_by(self.moments_divided_by())
            .with_outer_steps(self.has_outer_steps(config))
    }

    /// What each device computes of a step of `effective_batch` samples, and what it holds, as a
    /// sentence without a full stop; `None` for a single device. `moments_bytes` are those of one
    /// device.
    pub fn describe(self, effective_batch: u32, moments_bytes: u64) -> Option<String> {
        if self.devices < 2 {
            return None;
        }
        let computes = format!(
            "Each of the {} devices computes {} of the {} samples of a step, and holds the whole model",
            format_count(self.devices.into()),
            format_count(self.samples_per_device(effective_batch).into()),
            format_count(effective_batch.into())
        );
        let moments = format_bytes(moments_bytes);
        Some(if self.divides_optimizer {
            format!(
                "{computes} and at most {moments} of the optimizer state, which they divide among themselves"
            )
        } else {
            format!("{computes} and the whole optimizer state ({moments})")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_optimizer_state_is_divided_if_asked_for_or_if_it_is_too_large() {
        let divided = |devices, sharding| {
            let (first, second) = Sharing::choices(devices, sharding);
            let second = second.map(Sharing::moments_divided_by);
            (first.moments_divided_by(), second)
        };
        for sharding in [None, Some(ShardingChoice::Auto)] {
            assert_eq!(divided(3, sharding), (1, Some(3)));
        }
        assert_eq!(divided(3, Some(ShardingChoice::None)), (1, None));
        assert_eq!(divided(3, Some(ShardingChoice::Optimizer)), (3, None));
        assert_eq!(divided(1, Some(ShardingChoice::Optimizer)), (1, None));
    }

    #[test]
    fn what_each_device_holds_is_described() {
        let described = |devices, divides_optimizer| {
            let sharing = Sharing {
                devices,
                divides_optimizer,
            };
            sharing.describe(33, 0)
        };
        assert_eq!(described(1, false), None);
        let parts = described(2, true).expect("there are two devices");
        assert!(parts.starts_with("Each of the 2 devices computes 17 of the 33 samples of a step"));
        assert!(parts.contains("divide"), "{parts}");
        let whole = described(2, false).expect("there are two devices");
        assert!(whole.contains("the whole optimizer state"), "{whole}");
    }
}
