//! What a rank exchanges with the others: gradients and updated parameters in each step, and the
//! optimizer's moments before a checkpoint. Remembers what the next exchange needs.

use super::RunGroup;
use super::all_reduce_sums::{
    Contribution, Exchanged, Gradients, Layout, exchange, spread_parameters,
};
use super::device_link::DeviceLink;
use super::owner_choice::OwnerChoice;
use super::owners::Owners;
use super::rounding_errors::RoundingErrors;
use crate::error::{Result, TrainError};
use crate::optimizer::OptimizerState;
use candle_core::Device;
use runlog::{CheckpointReason, format_count, format_percent};
use std::path::Path;
use std::time::Instant;
use tape::Parameters;

/// The exchanges of one rank. Alone, it exchanges nothing.
#[derive(Debug, Default)]
pub(crate) struct StepExchange {
    /// Element types and sizes of the parameters, for a rank that has freed them.
    layout: Layout,
    /// The rounding errors of this rank, if gradients are exchanged in bf16.
    rounding_errors: Option<RoundingErrors>,
    /// If the machines exchange weights only every few steps.
    rounds: Option<Rounds>,
    owner_choice: OwnerChoice,
    /// The connection of this rank's device with those of the others.
    link: DeviceLink,
    /// A checkpoint could not be written because other ranks have moments, or steps of their own.
    /// It is written after the running step, or the next synchronization.
    owed_checkpoint: Option<CheckpointReason>,
}

/// The machines make this many steps of their own, and then exchange weights.
#[derive(Debug, Clone, Copy)]
struct Rounds {
    steps: u64,
    /// Values per parameter that they then exchange.
    values: f64,
}

impl Rounds {
    /// What this means, as the end of a sentence.
    fn describe(self) -> String {
        let steps = format_count(self.steps);
        let saved = 1.0 - self.values / self.steps as f64;
        if saved > 0.0 {
            let saved = format_percent(saved);
            format!(
                "; machines synchronize only every {steps} steps, which reduces network traffic by {saved}, but changes the training"
            )
        } else {
            format!(
                "; machines synchronize only every {steps} steps, which does not reduce network traffic, but changes the training"
            )
        }
    }
}

impl StepExchange {
    /// The exchanges of ranks that have the moments as `owner_choice` says.
    pub(crate) fn new(owner_choice: OwnerChoice) -> Self {
        StepExchange {
            owner_choice,
            ..StepExchange::default()
        }
    }

    /// Prepares to exchange gradients of these parameters, rounded to bf16 if `in_bf16`.
    pub(crate) fn prepare(&mut self, parameters: &Parameters, in_bf16: bool) {
        self.layout = Layout::new(parameters);
        self.rounding_errors = in_bf16.then(RoundingErrors::default);
    }

    /// Connects the devices of all ranks, if they can be connected and the ranks exchange exact
    /// gradients in each step. All ranks call it after [`StepExchange::prepare`], and again after
    /// ranks were left out or have returned. One that has freed its weights passes `has_weights`
    /// as false.
    ///
    /// # Errors
    /// The group is broken.
    pub(crate) fn connect(
        &mut self,
        group: &RunGroup,
        device: &Device,
        has_weights: bool,
    ) -> Result<()> {
        if self.rounds.is_some() || self.rounding_errors.is_some() {
            return Ok(());
        }
        self.link.connect(group, device, has_weights)
    }

    /// Drops the connection of the devices at the end of a run. All ranks call it.
    pub(crate) fn close(&mut self, group: &RunGroup) {
        self.link.close(group);
    }

    /// Whether the devices were connected or disconnected since the last call.
    pub(crate) fn take_link_change(&mut self) -> bool {
        self.link.take_change()
    }

    /// Lets the machines make `steps` steps of their own before they exchange weights, and with
    /// them this many `values` per parameter.
    pub(crate) fn synchronize_every(&mut self, steps: u64, values: f64) {
        self.rounds = Some(Rounds { steps, values });
    }

    /// Steps after which the machines exchange weights; 0 if they exchange gradients in each step.
    pub(super) fn sync_every(&self) -> u64 {
        self.rounds.map_or(0, |rounds| rounds.steps)
    }

    /// Which rank has the moments of which parameter; `None` if every rank has all.
    pub(crate) fn owners(&self) -> Option<&Owners> {
        self.owner_choice.owners()
    }

    /// Whether the group can continue without a rank: no other rank than 0 has moments, or steps of
    /// its own, that are nowhere else.
    pub(crate) fn can_lose_ranks(&self) -> bool {
        self.rounds.is_none() && !self.owners().is_some_and(Owners::are_divided)
    }

    /// Whether this rank updates all parameters itself, although others may not.
    pub(crate) fn is_complete_at(&self, group: &RunGroup) -> bool {
        group.keeps_run() && self.can_lose_ranks()
    }

    /// Which ranks have the moments, and in which data type gradients are exchanged, as the end of
    /// a sentence. Leaves out what the user did not change.
    pub(crate) fn describe(&self) -> String {
        let mut described = self.owner_choice.describe().to_owned() + self.link.describe();
        if self.rounding_errors.is_some() {
            described += "; gradients are exchanged in bf16";
        }
        if let Some(rounds) = self.rounds {
            described += &rounds.describe();
        }
        described
    }

    /// Adds up the sums of all ranks at the end of a step. A rank that has freed its parameters
    /// takes part, and gets no gradients.
    ///
    /// # Errors
    /// The group is broken, the device failed, or the ranks have different weights.
    pub(crate) fn add_up(
        &mut self,
        group: &RunGroup,
        parameters: &Parameters,
        mine: Contribution,
    ) -> Result<Exchanged> {
        let gradients = match (&self.rounds, self.rounding_errors.as_mut()) {
            (Some(_), _) => Gradients::Own,
            (None, Some(errors)) => Gradients::Rounded(errors),
            (None, None) => Gradients::Exact(&mut self.link),
        };
        exchange(group, parameters, &self.layout, gradients, mine)
    }

    /// Drops what rounding has taken away from the gradients of earlier steps.
    pub(crate) fn drop_rounding_errors(&mut self) {
        if let Some(errors) = &mut self.rounding_errors {
            errors.clear();
        }
    }

    /// Replaces the parameters that other ranks have updated, and returns the milliseconds that
    /// this took. Does nothing if every rank updates all parameters.
    ///
    /// # Errors
    /// The group is broken, or the device failed.
    pub(crate) fn spread(&mut self, group: &RunGroup, parameters: &mut Parameters) -> Result<f64> {
        let Some(owners) = self.owner_choice.owners() else {
            return Ok(0.0);
        };
        let began = Instant::now();
        if self.link.is_connected() {
            self.link.spread(group, owners, parameters)?;
        } else {
            spread_parameters(group, owners, parameters)?;
        }
        Ok(began.elapsed().as_secs_f64() * 1000.0)
    }

    /// If the ranks have the moments in parts, gathers all of them at rank 0, which asks for it
    /// with `is_needed`, in a file in `folder`. All ranks call it at the same step. If the disk has
    /// no space for the moments, rank 0 gets the reason, and nothing is gathered.
    ///
    /// # Errors
    /// The group is broken, or the device failed.
    pub(crate) fn gather_moments(
        &self,
        group: &RunGroup,
        optimizer: &mut OptimizerState,
        parameters: &Parameters,
        is_needed: bool,
        folder: &Path,
    ) -> Result<Option<TrainError>> {
        if self.owners().is_none() {
            return Ok(None);
        }
        let (mut space, mut no_space) = (None, None);
        if group.keeps_run() && is_needed && !optimizer.is_complete() {
            match optimizer.reserve(parameters, folder) {
                Ok(reserved) => space = Some(reserved),
                Err(error) => no_space = Some(error),
            }
        }
        let begins = group.broadcast(vec![u8::from(space.is_some())])?;
        if begins == [1] {
            optimizer.gather(parameters, space, &mut |values| group.sum(values))?;
        }
        Ok(no_space)
    }

    /// Remembers a checkpoint that cannot be written before all moments are gathered or the
    /// machines have synchronized, if the user or the power asked for it. Others come again by
    /// themselves.
    pub(crate) fn owe_checkpoint(&mut self, reason: CheckpointReason) {
        let is_asked = matches!(
            reason,
            CheckpointReason::Requested | CheckpointReason::Power
        );
        if is_asked {
            self.owed_checkpoint = Some(reason);
        }
    }

    /// Whether a checkpoint has to be written after the running step.
    pub(crate) fn owes_checkpoint(&self) -> bool {
        self.owed_checkpoint.is_some()
    }

    /// The owed checkpoint, once, as soon as everything that it needs is there.
    pub(crate) fn take_owed_checkpoint(&mut self, is_complete: bool) -> Option<CheckpointReason> {
        self.owed_checkpoint.take_if(|_| is_complete)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizer::OptimizerKind;
    use crate::run_group::StateMemory;
    use candle_core::{DType, Device, Tensor};
    use distributed::{ThreadOptions, ThreadRank, thread_ranks};
    use pressure::WholeStateNeed;
    use runlog::ShardingChoice;
    use tape::device::read;

    fn parameters() -> Result<Parameters> {
        let mut parameters = Parameters::default();
        for name in ["first", "second"] {
            let values = vec![0.5; 4];
            parameters.add(name.to_owned(), values, &[4], DType::F32, &Device::Cpu)?;
        }
        Ok(parameters)
    }

    fn optimizer(owned: &[bool]) -> Result<OptimizerState> {
        let parameters = parameters()?;
        let mut state = OptimizerState::without_state(OptimizerKind::AdamW, 0.0, &parameters);
        state.begin(&parameters, Some(owned))?;
        Ok(state)
    }

    #[test]
    fn an_owed_checkpoint_waits_for_all_moments() -> Result<()> {
        let (part, whole) = (optimizer(&[true, false])?, optimizer(&[true, true])?);
        let mut exchange = StepExchange::default();
        for reason in [CheckpointReason::Periodic, CheckpointReason::Best] {
            exchange.owe_checkpoint(reason);
            assert!(!exchange.owes_checkpoint(), "it comes again by itself");
        }
        for reason in [CheckpointReason::Requested, CheckpointReason::Power] {
            exchange.owe_checkpoint(reason);
            assert_eq!(exchange.take_owed_checkpoint(part.is_complete()), None);
            assert!(exchange.owes_checkpoint());
            assert_eq!(
                exchange.take_owed_checkpoint(whole.is_complete()),
                Some(reason)
            );
            assert_eq!(
                exchange.take_owed_checkpoint(whole.is_complete()),
                None,
                "once"
            );
        }
        Ok(())
    }

    #[test]
    fn the_description_names_what_differs_from_an_exact_group() {
        let mut exchange = StepExchange::default();
        assert_eq!(exchange.describe(), "");
        exchange.prepare(&Parameters::default(), true);
        assert_eq!(exchange.describe(), "; gradients are exchanged in bf16");
        assert!(exchange.can_lose_ranks());
        let mut rare = StepExchange::default();
        rare.synchronize_every(100, 3.0);
        assert!(!rare.can_lose_ranks(), "its own steps would be lost");
        assert_eq!(
            rare.describe(),
            "; machines synchronize only every 100 steps, which reduces network traffic by 97.0 %, but changes the training"
        );
        rare.synchronize_every(2, 3.0);
        assert!(
            rare.describe()
                .contains("which does not reduce network traffic")
        );
        let in_parts = each_of_two(ShardingChoice::Optimizer, [0, 0]);
        assert_eq!(
            in_parts[0].1,
            "; each machine has a part of the optimizer state; gradients are exchanged in bf16"
        );
    }

    /// Lets two ranks with these memory limits change the parameters that they own, and exchange
    /// them. Returns the values of the first parameter, and the description.
    fn each_of_two(sharding: ShardingChoice, limits: [u64; 2]) -> Vec<(Vec<f32>, String)> {
        let ranks = thread_ranks(2, ThreadOptions::default()).into_iter();
        std::thread::scope(|scope| {
            let start = |(rank, limit_bytes): (ThreadRank, u64)| {
                scope.spawn(move || {
                    let group = RunGroup::new(rank.join().expect("all ranks join"));
                    let exchanged = spread_once(&group, sharding, limit_bytes);
                    group.leave().expect("all ranks leave");
                    exchanged.expect("no rank is lost")
                })
            };
            let threads: Vec<_> = ranks.zip(limits).map(start).collect();
            let exchanged = threads.into_iter().map(|thread| thread.join());
            exchanged.collect::<std::thread::Result<_>>()
        })
        .expect("no rank panics")
    }

    fn spread_once(
        group: &RunGroup,
        sharding: ShardingChoice,
        process_bytes: u64,
    ) -> Result<(Vec<f32>, String)> {
        let mut parameters = parameters()?;
        let state = StateMemory {
            moments: vec![32, 32],
            whole: WholeStateNeed {
                state_bytes: 164,
                peak_bytes: 0,
            },
            machine_bytes: 0,
            process_bytes,
        };
        let mut exchange = StepExchange::new(OwnerChoice::new(group, sharding, &state)?);
        exchange.prepare(&parameters, true);
        // The update of rank 1 is another one, so its own values show who has updated.
        let updated = Tensor::new(&[1.0 + group.rank() as f32; 4], &Device::Cpu)?;
        parameters.set(0, updated)?;
        exchange.spread(group, &mut parameters)?;
        let owned = exchange.owners().map_or(vec![true; 2], Owners::mine);
        let mut state = optimizer(&owned)?;
        let folder = std::env::temp_dir();
        let needed = group.keeps_run();
        exchange.gather_moments(group, &mut state, &parameters, needed, &folder)?;
        assert_eq!(state.is_complete(), needed || exchange.owners().is_none());
        Ok((read(&parameters.at(0).tensor)?, exchange.describe()))
    }

    #[test]
    fn a_rank_gets_the_parameters_that_another_one_owns() {
        let values = |limits| -> Vec<Vec<f32>> {
            let exchanged = each_of_two(ShardingChoice::Auto, limits);
            exchanged.into_iter().map(|(values, _)| values).collect()
        };
        // Every rank updates all parameters itself.
        assert_eq!(values([1000, 1000]), [vec![1.0; 4], vec![2.0; 4]]);
        // Rank 0 has all moments, or its part of them.
        assert_eq!(values([1000, 150]), [vec![1.0; 4], vec![1.0; 4]]);
        assert_eq!(values([150, 150]), [vec![1.0; 4], vec![1.0; 4]]);
    }
}
