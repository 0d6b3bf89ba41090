//! Measures the memory of a fixed micro-batch before the first step.

use crate::error::Result;
use crate::pending_samples::SampleQueue;
use crate::session::Session;
use crate::task::Task;
use pressure::{Outcome, Phase};
use tape::device::with_autorelease_pool;

/// Measures the peak of a fixed micro-batch before the first step, unless that is known. A fixed
/// micro-batch is never made smaller, and on the CPU a failed allocation would end the process. One
/// sample and then two are computed; their gradients are dropped.
pub(super) fn probe_memory<T: Task>(
    session: &mut Session<'_, T>,
    pending: &mut SampleQueue<T::Sample>,
) -> Result<()> {
    session.set_sample_costs(Phase::Train, pending.remaining());
    for size in [1, 2] {
        if pending.remaining() < 2 || !session.controller.needs_probe() {
            return Ok(());
        }
        session.fetch_samples(pending, 2)?;
        let samples = pending.micro_batch(size);
        if samples.is_empty() {
            return Ok(());
        }
        session.controller.begin_probe()?;
        session.controller.begin(samples.len())?;
        let cancel = session.control.cancel();
        match with_autorelease_pool(|| session.learner.gradients(cancel, samples)) {
            Ok(_) => session.controller.record(Outcome::Ok),
            Err(error) if error.is_cancelled() => {
                session.controller.discard();
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
