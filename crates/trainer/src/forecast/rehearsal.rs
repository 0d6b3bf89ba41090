//! Rehearses pieces of a few sizes on parameters of zeros: what a piece takes from the heap is measured on the training's own
//! operations, without the training's time. Runs on the CPU whatever the device will be.

use super::heap::Heap;
use crate::bench::{Model, Workload};
use crate::error::Result;
use crate::models::Network;
use crate::plan::{Compression, ModelKind, Plan};
use crate::precision::Precision;
use crate::task::{Heads, Pixels, Sample, Sequence, Text, TrainedPiece, Work};
use crate::train::on_threads;
use candle_core::{DType, Device};
use dataset::Window;
use std::time::{Duration, Instant};
use tape::{Cancel, Kernels, Parameters, dry_run};

/// Rehearsed however long they take: what makes a line.
const FIRST: [u32; 2] = [1, 2];
/// Sizes rehearsed after those, as far as there is time. A convolution sums its gradient in parts, one for each sample up to
/// eight, and then no more: a line through fewer would go on as if they did.
const SIZES: [u32; 2] = [8, 16];
/// The same with checkpointed blocks, which are worked eight samples at a time: one part is not cut and joined, so the line is
/// drawn through two and three.
const SIZES_IN_PARTS: [u32; 3] = [8, 16, 24];
/// A network that can be rehearsed, whatever it is fed with.
pub(super) trait Piece: Sync {
    /// Works one piece of `samples` with `checkpointed` blocks. What it gives is still held when a recording ends.
    fn work(&self, samples: usize, checkpointed: usize, kernels: Kernels) -> Result<TrainedPiece>;
}

impl Heap {
    /// With what a piece takes, rehearsed for so many threads within `patience` where that can be.
    pub fn rehearsed(
        mut self,
        piece: &dyn Piece,
        checkpointed: u32,
        (threads, kernels): (usize, Kernels),
        patience: Duration,
    ) -> Result<Self> {
        on_threads(1, move || {
            let begun = Instant::now();
            let mut rehearse_one = |samples: u32| -> Result<Duration> {
                let at = Instant::now();
                let work = || piece.work(samples as usize, checkpointed as usize, kernels);
                let (given, events) = dry_run(threads, work);
                given?;
                self.add(samples, &events);
                Ok(at.elapsed())
            };
            let mut last = (Duration::ZERO, 1);
            for samples in FIRST {
                last = (rehearse_one(samples)?, samples);
            }
            let sizes: &[u32] = match checkpointed {
                0 => &SIZES,
                _ => &SIZES_IN_PARTS,
            };
            for &samples in sizes {
                let expected = last.0 * samples / last.1;
                if begun.elapsed() + expected > patience {
                    break;
                }
                last = (rehearse_one(samples)?, samples);
            }
            Ok(self)
        })
    }
}

/// The network of a run.
pub(super) struct PlanPiece {
    network: Network,
    parameters: Parameters,
    image_size: usize,
    pixels: Pixels,
    heads: Heads,
    label_smoothing: f64,
    precision: Precision,
    compression: Option<Compression>,
}

impl PlanPiece {
    /// The network of a plan with another model or image size.
    pub fn of(plan: &Plan, model: ModelKind, image_size: u32) -> Result<(Self, Parameters)> {
        let (network, mut masters) = plan.network_of_zeros(model, image_size)?;
        if plan.precision.is_half() && plan.ema_decay.is_none() {
            masters.round_frozen(plan.precision.dtype())?;
        }
        let parameters = match plan.precision.is_half() {
            true => masters.rounded(plan.precision.dtype())?,
            false => masters.clone(),
        };
        let piece = PlanPiece {
            network,
            parameters,
            image_size: image_size as usize,
            pixels: plan.pixels(),
            heads: plan.heads(),
            label_smoothing: plan.label_smoothing,
            precision: plan.precision,
            compression: plan.compression,
        };
        Ok((piece, masters))
    }

    /// A sample of nothing but zeros, as long as they may be.
    fn sample(&self, index: usize) -> Sample {
        let (index, zeros) = (index as u32, || vec![0; self.image_size]);
        match self.network {
            Network::ResNet(_) | Network::Vit(_) => Sample::Photograph(dataset::Sample {
                index,
                label: 0,
                pixels: vec![0; 3 * self.image_size * self.image_size],
                targets: vec![Some(0.0); self.heads.numbers],
                factors: Vec::new(),
                partner: None,
            }),
            Network::TextEncoder(_) => Sample::Text(Text {
                index,
                label: 0,
                ids: zeros(),
            }),
            Network::Gpt(_) => Sample::Window(Window {
                inputs: zeros(),
                targets: zeros(),
                documents: zeros(),
                positions: zeros(),
            }),
            Network::Compressor(_) => Sample::Sequence(Sequence {
                index,
                step: 0,
                ids: zeros(),
                shares: [].into(),
            }),
        }
    }

    /// Seconds that one sample of a piece of `samples` takes, measured on what is no rehearsal.
    pub fn seconds_a_sample(&self, samples: usize, checkpointed: usize) -> Result<f64> {
        let samples: Vec<Sample> = (0..samples.max(1)).map(|i| self.sample(i)).collect();
        let task = self.at_work(checkpointed, Kernels::Fused);
        // The first one warms caches and the allocator.
        task.gradients(&samples)?;
        let begun = Instant::now();
        task.gradients(&samples)?;
        Ok(begun.elapsed().as_secs_f64() / samples.len() as f64)
    }

    fn at_work(&self, checkpointed: usize, kernels: Kernels) -> Work<'_> {
        Work {
            network: &self.network,
            parameters: &self.parameters,
            image_size: self.image_size,
            pixels: self.pixels,
            heads: self.heads,
            label_smoothing: self.label_smoothing,
            class_weights: None,
            compression: self.compression.as_ref(),
            checkpointed,
            dtype: self.precision.dtype(),
            loss_factor: 1.0,
            limit_bytes: None,
            device: &Device::Cpu,
            cancel: Cancel::default(),
            kernels,
        }
    }
}

impl Piece for PlanPiece {
    fn work(&self, samples: usize, checkpointed: usize, kernels: Kernels) -> Result<TrainedPiece> {
        let samples: Vec<Sample> = (0..samples).map(|i| self.sample(i)).collect();
        self.at_work(checkpointed, kernels).gradients(&samples)
    }
}

/// A workload of the bench, in f32.
pub(super) struct WorkloadPiece {
    workload: Workload,
    model: Model,
    parameters: Parameters,
}

impl WorkloadPiece {
    /// The network of a workload.
    pub fn of(workload: Workload) -> Result<(Self, Parameters)> {
        let (model, parameters) = workload.of_zeros(DType::F32)?;
        let piece = WorkloadPiece {
            workload,
            model,
            parameters: parameters.clone(),
        };
        Ok((piece, parameters))
    }
}

impl Piece for WorkloadPiece {
    fn work(&self, samples: usize, checkpointed: usize, kernels: Kernels) -> Result<TrainedPiece> {
        let (part, device) = (self.workload.blank(samples), Device::Cpu);
        let how = (checkpointed, 1.0);
        let (piece, _) = (self.model).piece_by(kernels, &self.parameters, &part, &device, how)?;
        Ok(piece)
    }
}
