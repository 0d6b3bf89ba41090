//! Optimizer steps, and the other passes over parameters: gradient norms and weight averages. On
//! the CPU a pass works in place; on other devices new tensors replace the old ones. Knows nothing
//! about parameter names, schedules and checkpoints.
//!
//! To add an optimizer, write its step here and implement the trainer's `Optimizer` trait with it.

mod adamw;
mod adamw8bit;
mod byte_moment;
mod sgd;
mod step_rules;
mod multi_tensor;
mod weight_average;
mod gradient_health;
mod element;

pub use adamw::adamw;
pub use adamw8bit::adamw8bit;
pub use byte_moment::{BLOCK, ByteMoment};
pub use gradient_health::{Health, NonFinite, global_norm, health};
pub use multi_tensor::{Member, adamw_together, sgd_together};
pub use sgd::sgd;
pub use step_rules::{AdamWStep, SgdStep};
pub use weight_average::average;

pub(crate) use element::Element;

/// Elements per parallel task: a multiple of the block of a byte moment.
const CHUNK: usize = 64 * 1024;
