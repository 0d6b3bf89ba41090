//! Estimates the memory of a workload, and the time of its steps from its operations.

use crate::model::{ForwardOptions, Model};
use crate::peak_gflops::peak_gflops;
use crate::workload::Workload;
use candle_core::{DType, Device};
use std::time::Instant;
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
        reads_texts: workload.tokens() > 0,
    };
    let dry_run = WorkloadDryRun {
        workload,
        model,
        parameters: parameters.clone(),
    };
    MemoryEstimate::for_network(&network, &dry_run, checkpointed, target, variants)
}

/// Size and speed of a workload on this machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorkloadSpeed {
    /// Number of its parameters.
    pub parameters: u64,
    /// Time of a sample, forward and backward, in a micro-batch on the CPU.
    pub seconds_per_sample: f64,
}

/// Measures a micro-batch of `samples` on the CPU, in f32.
///
/// # Errors
/// Memory or threads are missing.
pub fn measure_workload(
    workload: Workload,
    samples: usize,
    threads: usize,
) -> Result<WorkloadSpeed> {
    let samples = samples.max(1);
    on_threads(threads, || {
        let (model, parameters) = workload.build_zeros(DType::F32)?;
        let count = parameters
            .iter()
            .map(|parameter| parameter.tensor.elem_count());
        let count = count.sum::<usize>() as u64;
        let dry_run = WorkloadDryRun {
            workload,
            model,
            parameters,
        };
        // The first one warms caches and the allocator.
        dry_run.run(samples, 0, Kernels::Fused)?;
        let start = Instant::now();
        dry_run.run(samples, 0, Kernels::Fused)?;
        Ok(WorkloadSpeed {
            parameters: count,
            seconds_per_sample: start.elapsed().as_secs_f64() / samples as f64,
        })
    })
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
