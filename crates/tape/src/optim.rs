//! Optimizers, and the other passes over parameters: gradient norms and weight averages. On the CPU
//! a pass works in place; on other devices new tensors replace the old ones. Knows nothing about
//! parameter names, schedules and checkpoints.
//!
//! To add an optimizer, write its file and implement [`Optimizer`].

mod adamw;
mod adamw8bit;
mod byte_moment;
mod sgd;
mod step_rules;
mod multi_tensor;
mod weight_average;
mod gradient_health;
mod element;

pub use adamw::{AdamW, adamw};
pub use adamw8bit::{AdamW8bit, adamw8bit};
pub use byte_moment::{BLOCK, ByteMoment};
pub use gradient_health::{Health, NonFinite, global_norm, health};
pub use multi_tensor::{Member, adamw_together, sgd_together};
pub use sgd::{Sgd, sgd};
pub use step_rules::{AdamWStep, SgdStep};
pub use weight_average::average;

pub(crate) use element::Element;

use crate::error::{Result, TapeError};
use crate::rng::Rng;
use candle_core::{DType, Device, Tensor};

/// Elements per parallel task: a multiple of the block of a byte moment.
const CHUNK: usize = 64 * 1024;

/// An optimizer with its hyperparameters. The state of a parameter is a list of tensors, whose
/// names and order are those of [`Optimizer::state`]; the caller keeps, saves and restores them.
pub trait Optimizer: Send + Sync {
    /// The state tensors of `parameter`, all zero before the first step.
    fn state(&self, parameter: &Tensor) -> Vec<StateTensor>;

    /// Bytes of the state of `parameter`.
    fn state_bytes(&self, parameter: &Tensor) -> u64 {
        self.state(parameter).iter().map(StateTensor::bytes).sum()
    }

    /// Updates one parameter and its state in place.
    ///
    /// # Errors
    /// `state` is not that of this parameter, or the device fails.
    fn step(
        &self,
        parameter: &mut Tensor,
        state: &mut [Tensor],
        gradient: &Tensor,
        step: &Step,
    ) -> Result<()>;

    /// Updates many parameters in a few launches on a GPU, with the same bits as
    /// [`Optimizer::step`]. Returns false and changes nothing if there is no kernel for it. The
    /// weight decay of each member replaces that of `step`.
    fn step_all(&self, members: &[StepMember], step: &Step) -> Result<bool> {
        let _ = (members, step);
        Ok(false)
    }
}

/// One state tensor of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateTensor {
    /// Name in a checkpoint, after the name of the parameter: `first_moment`.
    pub name: &'static str,
    /// Element type.
    pub dtype: DType,
    /// Shape.
    pub dims: Vec<usize>,
}

impl StateTensor {
    /// A state tensor with the shape and type of `parameter`.
    fn like(name: &'static str, parameter: &Tensor) -> Self {
        StateTensor {
            name,
            dtype: parameter.dtype(),
            dims: parameter.dims().to_vec(),
        }
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        (self.dims.iter().product::<usize>() * self.dtype.size_in_bytes()) as u64
    }

    /// Makes the tensor, all zero. It comes from host data, so that a device allocates its exact
    /// size.
    pub fn zeros(&self, device: &Device) -> Result<Tensor> {
        let count = self.dims.iter().product();
        Ok(match self.dtype {
            DType::U8 => Tensor::from_vec(vec![0u8; count], &*self.dims, device)?,
            dtype => Tensor::from_vec(vec![0f32; count], &*self.dims, device)?.to_dtype(dtype)?,
        })
    }
}

/// The numbers of one step that all optimizers share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// Learning rate.
    pub learning_rate: f64,
    /// Weight decay of this parameter; 0 for norms and biases.
    pub weight_decay: f64,
    /// Steps done, including this one.
    pub number: u64,
    /// Factor on the gradient: one over the weight of the effective batch, times clipping.
    pub gradient_factor: f64,
    /// Random numbers of (seed, parameter name, step), for stochastic rounding.
    pub rng: Rng,
}

/// One parameter of [`Optimizer::step_all`].
#[derive(Debug, Clone, Copy)]
pub struct StepMember<'a> {
    /// The parameter; written in place.
    pub parameter: &'a Tensor,
    /// Its state; written in place.
    pub state: &'a [Tensor],
    /// Its gradient.
    pub gradient: &'a Tensor,
    /// Its weight decay.
    pub weight_decay: f64,
}

/// The error of a state list that does not belong to the parameter.
fn unexpected_state(op: &'static str, parameter: &Tensor, state: &[Tensor]) -> TapeError {
    TapeError::Shape {
        op,
        what: format!("the state of {} tensors", state.len()),
        expected: "the state of this parameter".to_owned(),
        found: parameter.shape().clone(),
    }
}
