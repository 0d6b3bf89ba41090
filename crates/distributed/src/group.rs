//! The interface of a group: processes that train one run together.

use crate::error::{GroupError, Member, Result};
use std::ops::Range;

/// Values to sum over all ranks.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// 32-bit values.
    Single(Vec<f32>),
    /// 64-bit values.
    Double(Vec<f64>),
}

impl Values {
    /// Number of values.
    pub fn len(&self) -> usize {
        match self {
            Values::Single(values) => values.len(),
            Values::Double(values) => values.len(),
        }
    }

    /// True if there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A sum whose values were exchanged in bf16.
#[derive(Debug, Clone, PartialEq)]
pub struct RoundedSum {
    /// The sum: values of bf16, the same bits on all ranks.
    pub sum: Vec<f32>,
    /// What rounding has taken away at this rank. The errors of all ranks together are the
    /// difference between the exact sum and `sum`, so a rank that adds its errors to its next
    /// values loses nothing in the long run.
    pub error: Vec<f32>,
}

/// How the samples of the last claim ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Their gradients are in the rank's sum.
    Confirmed,
    /// Nothing was added. Another claim may get them.
    GivenBack,
    /// The rank gives back all samples of this step, also those that it has confirmed, and drops
    /// its sum unless the answer is [`Claim::Complete`]. It may report this without a claim.
    Retracted,
}

/// What a rank asks of the coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimRequest {
    /// Largest number of samples, usually the micro-batch that the rank's memory allows; 0 only
    /// reports `ended`.
    pub at_most: u32,
    /// How the last claim ended; `None` if it brought no samples.
    pub ended: Option<Ended>,
    /// Asks all ranks to stop at the last complete step.
    pub stop: bool,
}

/// The answer to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// Process these samples, given as positions in the effective batch.
    Samples {
        /// The samples; never empty.
        samples: Range<u32>,
        /// What the next claims of this rank probably bring, so that it can be loaded in advance.
        next: Range<u32>,
    },
    /// Other ranks still process the remaining samples. Ask again soon: they may give some back.
    Wait,
    /// All samples are confirmed. Every rank gets this answer, and now exchanges its sums.
    Complete,
    /// The group stops. The sums of this step are dropped.
    Stop,
}

/// Samples that one rank processed as one micro-batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// The rank.
    pub rank: usize,
    /// Positions in the effective batch.
    pub samples: Range<u32>,
}

/// Processes that train one run together. Rank 0 keeps the run folder and coordinates.
///
/// All ranks call [`gather`](Group::gather), [`broadcast`](Group::broadcast),
/// [`barrier`](Group::barrier), [`begin_step`](Group::begin_step), [`sum`](Group::sum) and
/// [`sum_rounded`](Group::sum_rounded) in the same order. Only [`claim`](Group::claim) may be
/// called any number of times between two of them. Each call blocks until its result is there,
/// without using the processor, and fails as soon as another rank ends or is silent for too
/// long.
pub trait Group: Send {
    /// Number of this rank, `0..size`.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// A rank and its machine. The member has the number with which the rank joined the group, also
    /// if it has another one since ranks were left out.
    fn member(&self, rank: usize) -> Member;

    /// What every rank passes, in the order of ranks, on all ranks. For small amounts.
    ///
    /// # Errors
    /// The group is broken.
    fn gather(&mut self, mine: Vec<u8>) -> Result<Vec<Vec<u8>>>;

    /// What rank 0 passes, on all ranks. The bytes of other ranks are ignored.
    ///
    /// # Errors
    /// The group is broken.
    fn broadcast(&mut self, bytes: Vec<u8>) -> Result<Vec<u8>> {
        let mine = if self.rank() == 0 { bytes } else { Vec::new() };
        Ok(self.gather(mine)?.swap_remove(0))
    }

    /// Waits until all ranks have called it.
    ///
    /// # Errors
    /// The group is broken.
    fn barrier(&mut self) -> Result<()> {
        self.gather(Vec::new()).map(|_| ())
    }

    /// Starts a step with an effective batch of `samples`. Does not wait for other ranks.
    fn begin_step(&mut self, samples: u32);

    /// Reports how the last claim of the step ended, and asks for more samples.
    ///
    /// # Errors
    /// The group is broken, or the ranks disagree about the number of samples.
    fn claim(&mut self, request: ClaimRequest) -> Result<Claim>;

    /// The sum of `values` over all ranks. All ranks pass the same number and type of values, and
    /// get the same bits.
    ///
    /// # Errors
    /// The group is broken.
    fn sum(&mut self, values: Values) -> Result<Values>;

    /// The sum of `values` over all ranks, exchanged in bf16 and added in f32, in the order of
    /// ranks. It needs half of the bytes of [`sum`](Group::sum). All ranks pass the same number of
    /// values.
    ///
    /// # Errors
    /// The group is broken.
    fn sum_rounded(&mut self, values: Vec<f32>) -> Result<RoundedSum> {
        let error = vec![0.0; values.len()];
        match self.sum(Values::Single(values))? {
            Values::Single(sum) => Ok(RoundedSum { sum, error }),
            Values::Double(_) => Err(disagreement(
                "the type of a sum differs from the type of its values",
            )),
        }
    }

    /// Makes the next steps repeat recorded ones: each rank claims what it processed then, in the
    /// same order, however much it asks for. On the same group, the sums then have the same bits.
    /// Rank 0 calls it before all ranks begin the first of these steps.
    fn replay(&mut self, _ledgers: Vec<Vec<Share>>) {}

    /// Which rank processed which samples of the last complete step, in the order of confirmation.
    /// Empty on all ranks but 0.
    fn ledger(&self) -> Vec<Share>;

    /// Makes waiting calls check whether all ranks are still alive, within a second, as soon as
    /// `check` returns true. A launcher that ends a group because a rank has died interrupts the
    /// other ranks first, and leaves them only a second or two.
    fn check_when(&mut self, _check: Box<dyn Fn() -> bool + Send>) {}

    /// Fails if the group is already known to be broken. Returns at once: it asks no other rank.
    ///
    /// # Errors
    /// The group is broken.
    fn check_failure(&mut self) -> Result<()> {
        Ok(())
    }

    /// Asks all ranks for a sign of life. `Err` names the first rank that does not answer within a
    /// moment.
    ///
    /// # Errors
    /// The group is broken.
    fn check_alive(&mut self) -> Result<()> {
        Ok(())
    }

    /// Continues without ranks that have ended, after a call failed with [`GroupError::Lost`]. All
    /// ranks that are left call it. They keep their order, and their numbers close up. The step
    /// that was under way begins anew.
    ///
    /// # Errors
    /// The connection cannot continue without a rank, rank 0 has ended, or another rank leaves. If
    /// another rank has ended meanwhile, the call can be repeated.
    fn rejoin(&mut self) -> Result<()> {
        Err(disagreement("this group cannot continue without a rank"))
    }

    /// Reports to all ranks that this one ends the run with an error; their calls then fail. Only
    /// [`leave`](Group::leave) may follow.
    fn fail(&mut self, _message: &str) {}

    /// Waits until all ranks leave, and disconnects. In a broken group it returns once the ranks
    /// that are left have had time to save. No other call may follow.
    ///
    /// # Errors
    /// A rank was lost before it left.
    fn leave(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The error for messages that do not fit together.
pub(crate) fn disagreement(what: impl Into<String>) -> GroupError {
    GroupError::Disagreement(what.into())
}
