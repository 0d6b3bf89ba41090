//! How long it takes: a piece measured on this machine's CPU, or a workload's operations at the machine's measured rate.

use super::Target;
use super::rehearsal::PlanPiece;
use crate::bench::{Workload, peak_gflops};
use crate::error::Result;
use crate::plan::Plan;
use crate::train::on_threads;
use candle_core::Device;

/// Share of the machine's matrix-product rate that a whole step reaches: between the .55 and .72 measured for the workloads.
const STEP_FRACTION: f64 = 0.6;

/// Seconds that one sample of a plan takes on the CPU, measured on a piece of `samples`.
pub fn seconds_a_sample(plan: &Plan, samples: usize, checkpointed: u32) -> Result<f64> {
    let (piece, _) = PlanPiece::of(plan, plan.model, plan.image_size)?;
    on_threads(plan.threads as usize, || {
        piece.seconds_a_sample(samples, checkpointed as usize)
    })
}

/// Seconds that a step of a workload takes on the CPU, from its operations; nothing for another device.
pub fn seconds_of(
    workload: Workload,
    effective_batch: u32,
    checkpointed: u32,
    target: Target,
) -> Result<Option<f64>> {
    if target.kind != crate::DeviceKind::Cpu {
        return Ok(None);
    }
    let gflops = on_threads(target.threads, || peak_gflops(&Device::Cpu))?;
    let operations = workload.flops(effective_batch as usize, checkpointed as usize);
    Ok(Some(operations / (STEP_FRACTION * gflops * 1e9)))
}
