//! The networks that can be checked: a run with the weights of its newest checkpoint, a folder with
//! a new network, and a workload.

use super::fits_in_memory::check_memory;
use super::splits_to_try::SplitSelection;
use super::{Comparison, ElementType, SplitCheck, compare};
use crate::model::ForwardOptions;
use crate::workload::Workload;
use candle_core::DType;
use dataset::ImageInspection;
use runlog::RunFolder;
use std::ops::Range;
use tape::device::{DevicePreference, default_threads, with_autorelease_pool};
use tape::{Parameters, Rng};
use trainer::internals::{BatchGradients, MicroBatchResult, checked_device};
use trainer::{BatchSettings, Machine, Result, on_threads};

/// What to check and how.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SplitCheckOptions {
    /// A workload has 16 samples unless its size is given.
    pub batch: BatchSettings,
    /// Compared with the unsplit batch.
    pub splits: SplitSelection,
}

/// Samples of a workload's effective batch by default.
const WORKLOAD_BATCH: u32 = 16;
/// Seed of the random splits.
const SEED: u64 = 5;

impl SplitCheck {
    /// Checks a run: its newest good weights on the first effective batch of its current epoch.
    ///
    /// # Errors
    /// Those of [`BatchGradients::with_run`]; the unsplit gradient does not fit into memory; the
    /// splits do not make up the batch.
    pub fn for_run(
        run: &RunFolder,
        question: &SplitCheckOptions,
        machine: &Machine,
    ) -> Result<Self> {
        BatchGradients::with_run(run, &question.batch, machine, |batch| {
            question.check(batch, machine)
        })
    }

    /// Checks a folder of images: a new network on the first effective batch.
    pub fn for_folder(
        inspection: &ImageInspection,
        question: &SplitCheckOptions,
        machine: &Machine,
    ) -> Result<Self> {
        BatchGradients::with_folder(inspection, &question.batch, machine, |batch| {
            question.check(batch, machine)
        })
    }

    /// Checks a workload with its first `checkpointed` blocks checkpointed.
    pub fn for_workload(
        workload: Workload,
        checkpointed: usize,
        question: &SplitCheckOptions,
        machine: &Machine,
    ) -> Result<Self> {
        on_threads(default_threads(), || {
            let (wanted, dtype) = match question.batch.element_type {
                ElementType::Single => (question.batch.device, DType::F32),
                ElementType::Double => (DevicePreference::Cpu, DType::F64),
            };
            let chosen = checked_device(wanted, machine.device_check_path.as_deref())?;
            let (model, parameters) = workload.build(dtype, &chosen.device)?;
            let samples = question.batch.effective_batch.unwrap_or(WORKLOAD_BATCH) as usize;
            let batch = workload.batch(samples);
            let options = ForwardOptions {
                checkpointed,
                loss_factor: 1.0,
            };
            let gradients = |range: Range<usize>| {
                let part = batch.slice(range);
                with_autorelease_pool(|| {
                    let micro_batch =
                        model.gradients(&parameters, &part, &chosen.device, options)?;
                    Ok(micro_batch.sums)
                })
            };
            Ok(SplitCheck {
                subject: workload.name().to_owned(),
                device: chosen.kind.name(),
                precision: question.batch.element_type,
                comparison: question.compare(&parameters, samples, machine, gradients)?,
                notes: Vec::new(),
            })
        })
    }
}

impl SplitCheckOptions {
    fn check(&self, batch: &BatchGradients, machine: &Machine) -> Result<SplitCheck> {
        let gradients = |range: Range<usize>| batch.gradients(range);
        let comparison = self.compare(batch.parameters(), batch.samples(), machine, gradients)?;
        Ok(SplitCheck {
            subject: batch.subject.clone(),
            device: batch.device,
            precision: batch.element_type,
            comparison,
            notes: batch.notes.clone(),
        })
    }

    fn compare(
        &self,
        parameters: &Parameters,
        samples: usize,
        machine: &Machine,
        mut gradients: impl FnMut(Range<usize>) -> Result<MicroBatchResult>,
    ) -> Result<Comparison> {
        let splits = self.splits.for_batch(samples, Rng::new(SEED))?;
        check_memory(machine, parameters, samples, &mut gradients)?;
        compare(parameters, samples, splits, gradients)
    }
}
