//! What a user should know when a session starts: about the machine in every session, and about the
//! plan in the first one.

use crate::checkpoint;
use crate::error::{Result, samples};
use crate::plan::Plan;
use crate::run_group::RunGroup;
use crate::train_state::TrainState;
use runlog::RunFolder;
use tape::device::SelectedDevice;

/// The variable by which a scheduler assigns NVIDIA GPUs to a process.
const VISIBLE_GPUS: &str = "CUDA_VISIBLE_DEVICES";

/// A warning: its code and message.
pub type Warning = (&'static str, String);

/// Warns if the processes of this machine are more than its GPUs, and this one therefore uses the
/// same GPU as another one. A scheduler that hides the GPUs of other processes shares them out by
/// itself.
pub fn shared_gpu(chosen: &SelectedDevice, group: &RunGroup) -> Option<Warning> {
    let gpus = chosen.gpu_count();
    let is_assigned = std::env::var_os(VISIBLE_GPUS).is_some();
    if gpus == 0 || is_assigned || group.number_here() < gpus {
        return None;
    }
    let message = format!(
        "{} processes share the GPUs of this machine ({gpus}). Start one process per GPU.",
        group.ranks_here()
    );
    Some(("shared_gpu", message))
}

/// Warns if the device computes slowly in the precision of the plan.
///
/// # Errors
/// The precision is not allowed on the device.
pub fn slow_precision(plan: &Plan, chosen: &SelectedDevice) -> Result<Option<Warning>> {
    let message = plan.precision.device_warning(chosen, plan.device)?;
    Ok(message.map(|message| ("slow_precision", message)))
}

/// Warns if the disk of the run has no space for two checkpoints.
pub fn short_disk(run: &RunFolder, learner: &TrainState) -> Option<Warning> {
    let message = checkpoint::disk_warning(run, learner)?;
    Some(("disk_short", message))
}

/// Warns if the model will not be evaluated.
pub fn nothing_held_out(plan: &Plan) -> Option<Warning> {
    if plan.held_out_samples > 0 {
        return None;
    }
    let missing = if plan.classes.is_empty() {
        "the error of the model cannot be measured"
    } else {
        "no accuracy can be measured"
    };
    let message = format!(
        "nothing is held out, so {missing}; add more samples, or a folder of validation data"
    );
    Some(("nothing_held_out", message))
}

/// Warns if a fixed micro-batch is larger than the effective batch.
pub fn limited_micro_batch(plan: &Plan) -> Option<Warning> {
    let most = plan.effective_batch;
    let size = plan.fixed_micro_batch.filter(|size| *size > most)?;
    let message = format!(
        "the micro-batch is {most} instead of {size}, because a step has {}",
        samples(most)
    );
    Some(("micro_batch_limited", message))
}
