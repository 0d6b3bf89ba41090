//! The network of a plan: trained from scratch as its row in the catalog says, or pretrained as its
//! folder says.

use super::Plan;
use crate::error::Result;
use candle_core::{DType, Device};
use models::pretrained::BuildOptions;
use models::{ModelId, Network, PixelNormalization};
use tape::Parameters;

impl Plan {
    /// The network and its initial parameters.
    ///
    /// # Errors
    /// The pretrained weights cannot be read, or the device has no memory.
    pub(crate) fn network(&self, device: &Device) -> Result<(Network, Parameters)> {
        self.network_with_half(device, None)
    }

    /// The network to train. Frozen matrices and kernels are in the half type of a plan in half
    /// precision, unless the weights are averaged in f32.
    ///
    /// # Errors
    /// As [`Plan::network`].
    pub(crate) fn network_to_train(&self, device: &Device) -> Result<(Network, Parameters)> {
        self.network_with_half(device, self.half_of_frozen())
    }

    fn half_of_frozen(&self) -> Option<DType> {
        let rounds = self.precision.is_half() && self.ema_decay.is_none();
        rounds.then(|| self.precision.dtype())
    }

    fn network_with_half(
        &self,
        device: &Device,
        half: Option<DType>,
    ) -> Result<(Network, Parameters)> {
        let options = self.build_options(self.input_size, device);
        if let Some(pretrained) = &self.pretrained {
            return Ok(pretrained.build_with_half(&options, half)?);
        }
        let network = Network::build(
            self.model,
            options.input_size,
            options.outputs,
            options.seed,
            options.dtype,
            options.device,
        );
        Ok(network?)
    }

    /// The network to train with zeros for parameters, on the CPU, for this or another model or
    /// input size.
    pub(crate) fn network_of_zeros(
        &self,
        model: ModelId,
        input_size: u32,
    ) -> Result<(Network, Parameters)> {
        let options = self.build_options(input_size, &Device::Cpu);
        match (&self.pretrained, model) {
            (Some(pretrained), ModelId::Pretrained(_)) => {
                Ok(pretrained.with_zeros(&options, self.half_of_frozen())?)
            }
            _ => Ok(Network::with_zeros(
                model,
                options.input_size,
                options.outputs,
                options.dtype,
            )?),
        }
    }

    /// Number of trained parameters.
    ///
    /// # Errors
    /// The network cannot be built.
    pub fn trained_parameters(&self) -> Result<u64> {
        let (_, parameters) = self.network_of_zeros(self.model, self.input_size)?;
        Ok(parameters.count() as u64)
    }

    fn build_options<'a>(&self, input_size: u32, device: &'a Device) -> BuildOptions<'a> {
        BuildOptions {
            input_size: input_size as usize,
            outputs: self.heads().outputs(),
            seed: self.seed,
            dtype: self.precision.master_dtype(),
            device,
        }
    }

    /// Number of blocks of a network that can be checkpointed.
    pub(crate) fn blocks_of(&self, model: ModelId) -> u32 {
        match (&self.pretrained, model) {
            (Some(pretrained), ModelId::Pretrained(_)) => pretrained.blocks(),
            _ => model.blocks(),
        }
    }

    /// How the pixels of images are normalized.
    pub(crate) fn pixels(&self) -> PixelNormalization {
        let pretrained = self.pretrained.as_ref();
        pretrained.map_or_else(PixelNormalization::default, |pretrained| {
            pretrained.normalization()
        })
    }
}
