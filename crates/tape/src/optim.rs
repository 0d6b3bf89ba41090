//! Optimizer steps, and the other passes over parameters: gradient norms and weight averages. On
//! the CPU a pass works in place; on other devices new tensors replace the old ones.
//!
//! The step of an optimizer is a function here, with a pass in
//! `check/optimizer_and_softmax.rs` that compares the device with the CPU; its state and its
//! settings are in the trainer (`trainer/src/optimizer`).

mod adamw;
mod adamw8bit;
mod byte_moment;
mod sgd;
mod lion;
mod update_elements;
mod step_hyperparameters;
mod multi_tensor;
mod weight_average;
mod gradient_norm;
mod element_trait;

pub use adamw::adamw;
pub use adamw8bit::adamw8bit;
pub use byte_moment::{BLOCK, ByteMoment};
pub use gradient_norm::{Health, NonFinite, global_norm, health};
pub use lion::lion;
pub use multi_tensor::{Member, adamw_together, sgd_together};
pub use sgd::sgd;
pub use step_hyperparameters::{AdamWStep, LionStep, SgdStep};
pub use weight_average::{average, average_together};

pub(crate) use element_trait::Element;

/// Elements per parallel task: a multiple of the block of a byte moment.
const CHUNK: usize = 64 * 1024;
