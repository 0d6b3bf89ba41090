//! Differentiate: a reverse-mode tape over candle's tensors, with hand-written backward passes. Activations are freed
//! during backward, first gradients are moved and not added, what needs no gradient records nothing.
//!
//! Refuses to know models, data, optimizers and pressure. Parameters are plain tensors; candle's own autograd is never
//! involved (no `Var`, no `backward`).

mod branches;
pub mod check;
mod checkpoint;
/// Kernels and accessors of the CPU.
mod cpu;
pub mod device;
mod ending;
mod error;
mod gradients;
mod half;
pub mod inplace;
mod kept;
pub mod memory;
/// Kernels of a GPU.
pub mod kernels;
/// Operations, one a file.
mod ops;
mod parameters;
mod quantised;
mod rehearsal;
mod saved;
mod stream;
mod tape;
pub mod update;
mod watch;

pub use branches::{Branches, Parting};
pub use ending::Ending;
pub use error::{Result, TapeError};
pub use gradients::Gradients;
pub use half::{is_half, widened};
pub use ops::{
    Activation, AttentionShape, Choice, ClassRule, ClassTargets, Conv2dShape, GeluLinear, IGNORED,
    KeepRule, Loss, NoiseKey, NumberTargets, PoolDivisor, PoolShape, Positions, Quota, chances,
};
pub use parameters::{Frozen, Parameter, ParameterId, Parameters};
pub use quantised::{Bits, Quantised};
pub use rehearsal::{HeapBlock, HeapEvent, rehearse};
pub use saved::Keeping;
pub use stream::Stream;
pub use tape::{Cancel, Kernels, Tape, Value};
