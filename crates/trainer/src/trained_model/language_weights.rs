//! The weights of a language model: the best checkpoint of a run, or a folder of published weights.

use super::{KernelOutputs, TrainedModel};
use crate::device_check::checked_device;
use crate::error::{Result, TrainError};
use crate::task::LanguageTask;
use crate::task_conversion::network_task;
use candle_core::{DType, Device};
use dataset::Task;
use models::pretrained::BuildOptions;
use models::{Gpt, Network, Pretrained};
use std::path::Path;
use tape::counting_allocator::release;
use tape::device::{DevicePreference, with_autorelease_pool};
use tape::{Bits, Cancel, Kernels, Parameters};

/// The weights of a language model.
pub(super) enum LanguageWeights {
    Run(Box<TrainedModel>),
    Folder(Box<FolderWeights>),
}

/// The weights of a folder. The kernel outputs are dropped last, after the tensors.
pub(super) struct FolderWeights {
    network: Gpt,
    parameters: Parameters,
    kernel_outputs: KernelOutputs,
}

/// What a forward pass of a language model needs.
pub(super) struct ForwardParts<'m> {
    pub network: &'m Gpt,
    pub parameters: &'m Parameters,
    pub kernels: Kernels,
    pub cancel: Cancel,
}

/// Opens a folder with a language model, whose matrices are quantized to `bits`, if given. The
/// model is for `purpose`: "chat".
///
/// # Errors
/// The folder cannot be opened or holds another model.
pub(super) fn open_folder(folder: &Path, bits: Option<Bits>, purpose: &str) -> Result<Pretrained> {
    let pretrained = Pretrained::open_frozen(folder, bits)?;
    let task = network_task(pretrained.family().task());
    if task == Task::LanguageModel {
        return Ok(pretrained);
    }
    Err(TrainError::NotTrainable {
        message: format!(
            "the model in {} is for {} and cannot {purpose}; choose a language model",
            folder.display(),
            task.label()
        ),
    })
}

impl FolderWeights {
    /// Loads the weights of a folder. Also returns the device and why it was chosen.
    ///
    /// # Errors
    /// The weights cannot be read, or the device has no memory.
    pub fn load(
        pretrained: &Pretrained,
        device: DevicePreference,
        device_check_path: Option<&Path>,
    ) -> Result<(Self, String)> {
        let chosen = checked_device(device, device_check_path)?;
        let built = pretrained.build(&BuildOptions {
            input_size: 0,
            outputs: 0,
            seed: 0,
            dtype: DType::F32,
            device: &chosen.device,
        })?;
        let (Network::Gpt(network), parameters) = built else {
            return Err(TrainError::NotTrainable {
                message: format!("{} holds no language model", pretrained.path().display()),
            });
        };
        let device = format!("{}: {}", chosen.kind, chosen.reason);
        let weights = FolderWeights {
            network,
            parameters,
            kernel_outputs: KernelOutputs(chosen.device),
        };
        Ok((weights, device))
    }
}

impl LanguageWeights {
    /// What a forward pass needs.
    ///
    /// # Errors
    /// The run is no language model.
    pub fn parts(&self) -> Result<ForwardParts<'_>> {
        Ok(match self {
            LanguageWeights::Run(model) => {
                let context = model.context();
                ForwardParts {
                    network: LanguageTask::network(&context)?,
                    parameters: context.parameters,
                    kernels: context.kernels,
                    cancel: context.cancel,
                }
            }
            LanguageWeights::Folder(weights) => ForwardParts {
                network: &weights.network,
                parameters: &weights.parameters,
                kernels: Kernels::Fused,
                cancel: Cancel::default(),
            },
        })
    }

    /// Their size in bytes.
    pub fn bytes(&self) -> u64 {
        let parts = self.parts();
        parts.map_or(0, |parts| {
            parts.parameters.bytes() + parts.parameters.frozen_bytes()
        })
    }

    /// The device that holds them.
    pub fn device(&self) -> &Device {
        match self {
            LanguageWeights::Run(model) => &model.kernel_outputs.0,
            LanguageWeights::Folder(weights) => &weights.kernel_outputs.0,
        }
    }

    /// Frees the memory that the device holds and no tensor uses.
    pub fn free_unused_memory(&self) {
        // An error belongs to a request that was cancelled; any other request has reported its own.
        let _ = with_autorelease_pool(|| release(self.device(), || {}));
    }
}

#[cfg(test)]
impl FolderWeights {
    /// The parameters, for tests that change them.
    pub fn parameters_mut(&mut self) -> &mut Parameters {
        &mut self.parameters
    }
}
