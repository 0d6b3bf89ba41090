//! Estimates the memory of a workload, and the time of its steps from its operations.

use crate::model::{ForwardOptions, Model};
use crate::peak_gflops::peak_gflops;
use crate::workload::Workload;
use candle_core::{DType, Device};
use tape::{Cancel, Kernels, Parameters, Tape};
use trainer::estimate::{MemoryEstimate, NetworkFacts, Target, Variants};
use trainer::internals::{DryRun, MicroBatchResult};
use trainer::{OptimizerKind, Result, on_threads};

/// Fraction of the machine's matrix-product rate that a whole step reaches. The workloads reach
/// 0.55 to 0.72.
const STEP_FRACTION: f64 = 0.6;

/// A workload's network with zeros for weights, in f32.
struct WorkloadDryRun {
    workload: Workload,
    model: Model,
    parameters: Parameters,
}

impl DryRun for WorkloadDryRun {
    fn run(
        &self,
        samples: usize,
        checkpointed: usize,
        kernels: Kernels,
    ) -> Result<MicroBatchResult> {
        let batch = self.workload.zeros(samples);
        let options = ForwardOptions {
            checkpointed,
            loss_factor: 1.0,
        };
        let tape = Tape::record(&self.parameters, Cancel::default(), kernels);
        let micro_batch =
            (self.model).gradients_on(tape, &self.parameters, &batch, &Device::Cpu, options)?;
        Ok(micro_batch.sums)
    }
}

/// Estimates the memory of a workload in f32 with AdamW.
///
/// # Errors
/// The dry run fails.
pub fn estimate_workload(
    workload: Workload,
    checkpointed: u32,
    target: Target,
    variants: Variants,
) -> Result<MemoryEstimate> {
    let (model, parameters) = workload.build_zeros(DType::F32)?;
    let network = NetworkFacts {
        name: workload.name(),
        resolution: workload.resolution() as u32,
        masters: &parameters,
        optimizer: OptimizerKind::AdamW,
        precision: "f32",
        batch_sample_bytes: workload.sample_bytes(),
        blocks: workload.blocks() as u32,
        attention: workload.attention(),
    };
    let dry_run = WorkloadDryRun {
        workload,
        model,
        parameters: parameters.clone(),
    };
    MemoryEstimate::for_network(&network, &dry_run, checkpointed, target, variants)
}

/// Seconds per step of a workload on the CPU, from its operations and this machine's measured rate.
/// `None` for another device.
///
/// # Errors
/// The rate cannot be measured because memory or threads are missing.
pub fn seconds_per_step(
    workload: Workload,
    effective_batch: u32,
    checkpointed: u32,
    target: Target,
) -> Result<Option<f64>> {
    if target.kind != tape::device::DeviceKind::Cpu {
        return Ok(None);
    }
    let gflops = on_threads(target.threads, || peak_gflops(&Device::Cpu))?;
    let operations = workload.flops(effective_batch as usize, checkpointed as usize);
    Ok(Some(operations / (STEP_FRACTION * gflops * 1e9)))
}
