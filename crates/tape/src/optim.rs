//! Optimizer steps, and the other passes over parameters: gradient norms and weight averages. On
//! the CPU a pass works in place; on other devices new tensors replace the old ones.
//!
//! An optimizer is added in the trainer (`trainer/src/optimizer`). One state tensor per parameter
//! needs no code here: see [`update_elements`].

mod adamw;
mod adamw8bit;
mod byte_moment;
mod sgd;
mod update_elements;
mod step_rules;
mod multi_tensor;
mod weight_average;
mod gradient_norm;
mod element_type;

pub use adamw::adamw;
pub use adamw8bit::adamw8bit;
pub use byte_moment::{BLOCK, ByteMoment};
pub use gradient_norm::{Health, NonFinite, global_norm, health};
pub use multi_tensor::{Member, adamw_together, sgd_together};
pub use sgd::sgd;
pub use step_rules::{AdamWStep, SgdStep};
pub use update_elements::{StepElement, update_elements};
pub use weight_average::{average, average_together};

pub(crate) use element_type::Element;

/// Elements per parallel task: a multiple of the block of a byte moment.
const CHUNK: usize = 64 * 1024;
