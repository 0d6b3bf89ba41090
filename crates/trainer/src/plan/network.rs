//! The network of a plan, whoever describes it: Ebb's own by its size, a published one by its folder.

use super::{ModelKind, Plan};
use crate::error::Result;
use crate::models::Network;
use crate::origin::Purpose;
use crate::task::Pixels;
use candle_core::Device;
use tape::Parameters;

impl Plan {
    /// The network and its parameters as training begins with them.
    ///
    /// # Errors
    /// The published weights cannot be read, or the device has no room.
    pub(crate) fn network(&self, device: &Device) -> Result<(Network, Parameters)> {
        let (side, classes) = (self.input_size as usize, self.heads().outputs());
        let dtype = self.precision.master_dtype();
        match &self.origin {
            Some(origin) => origin.build(&self.purpose(self.input_size, device)),
            None => Ok(Network::build(
                self.model, side, classes, self.seed, dtype, device,
            )?),
        }
    }

    /// The same with zeros for parameters, on the CPU, for this or another model or image size.
    pub(crate) fn network_of_zeros(
        &self,
        model: ModelKind,
        image_size: u32,
    ) -> Result<(Network, Parameters)> {
        let (classes, dtype) = (self.heads().outputs(), self.precision.master_dtype());
        match (&self.origin, model) {
            (Some(origin), ModelKind::Published(_)) => {
                origin.of_zeros(&self.purpose(image_size, &Device::Cpu))
            }
            _ => Ok(Network::of_zeros(
                model,
                image_size as usize,
                classes,
                dtype,
            )?),
        }
    }

    /// Numbers that train.
    ///
    /// # Errors
    /// The network cannot be built.
    pub fn trained_numbers(&self) -> Result<u64> {
        let (_, parameters) = self.network_of_zeros(self.model, self.input_size)?;
        Ok(parameters.count() as u64)
    }

    fn purpose<'a>(&self, side: u32, device: &'a Device) -> Purpose<'a> {
        Purpose {
            side: side as usize,
            classes: self.heads().outputs(),
            seed: self.seed,
            dtype: self.precision.master_dtype(),
            device,
        }
    }

    /// Blocks of a network that can be checkpointed.
    pub(crate) fn blocks_of(&self, model: ModelKind, image_size: u32) -> u32 {
        match (&self.origin, model) {
            (Some(origin), ModelKind::Published(_)) => origin.blocks(),
            _ => Network::blocks(model, image_size),
        }
    }

    /// How the pixels of images are normalised.
    pub(crate) fn pixels(&self) -> Pixels {
        let origin = self.origin.as_ref();
        origin.map_or_else(Pixels::default, |origin| origin.pixels())
    }
}
