//! Reverse-mode automatic differentiation over candle tensors. A [`Tape`] records one closure per
//! operation and frees activations while the backward pass runs. Values that need no gradient
//! record nothing.
//!
//! The gradient of a linear layer `y = x Wᵀ + b`:
//!
//! ```
//! use candle_core::{DType, Device, Tensor};
//! use tape::{Cancel, Kernels, Parameters, Tape, Value};
//!
//! # fn main() -> tape::Result<()> {
//! let mut parameters = Parameters::default();
//! let values = vec![1.0, 2.0, 3.0, 4.0];
//! let weight = parameters.add("weight".to_owned(), values, &[2, 2], DType::F64, &Device::Cpu)?;
//! let bias = parameters.add_zeros("bias".to_owned(), &[2], DType::F64, &Device::Cpu)?;
//!
//! let tape = Tape::record(&parameters, Cancel::default(), Kernels::Fused);
//! let x = Value::constant(Tensor::new(&[[10.0, 20.0]], &Device::Cpu)?);
//! let y = tape.linear(&x, &tape.parameter(weight), Some(&tape.parameter(bias)))?;
//! assert_eq!(y.tensor().to_vec2::<f64>()?, [[50.0, 110.0]]);
//!
//! let sum = tape.total(&y)?.sum;
//! let gradients = tape.backward(vec![(sum, 1.0)])?;
//! let [Some(weight), Some(bias)] = &gradients[..] else {
//!     panic!("both parameters have a gradient");
//! };
//! assert_eq!(weight.to_vec2::<f64>()?, [[10.0, 20.0], [10.0, 20.0]]);
//! assert_eq!(bias.to_vec1::<f64>()?, [1.0, 1.0]);
//! # Ok(())
//! # }
//! ```
//!
//! Parameters are plain tensors; candle's own autograd (`Var`, `backward`) is never used.

// The tape: named parameters, recorded values, and the backward pass.
mod error;
mod cancel;
mod parameters;
mod quantized;
mod tape;
mod gradients;
mod saved_tensors;
mod saved_input;
mod sample_noise;
mod activation_checkpointing;
mod deferred_block_output;

// Operations, one per file, and the check of their gradients.
mod ops;
pub mod check;
mod kink_log;

// Optimizer steps.
pub mod optim;

// Devices, and the code that runs on them.
pub mod device;
mod device_sync;
mod unshared_copy;
#[cfg(target_os = "macos")]
mod objective_c;
#[cfg(not(target_os = "macos"))]
#[path = "without_objective_c.rs"]
mod objective_c;
#[cfg(target_os = "macos")]
mod metal_allocated;
#[cfg(not(target_os = "macos"))]
#[path = "without_metal_allocated.rs"]
mod metal_allocated;
mod metal_peak_memory;
mod command_buffer_budget;
mod cpu;
mod launch_grid;
pub mod kernels;
pub mod inplace;
mod convert_dtype;
mod rng;
#[doc(hidden)]
pub mod fault_injection;

// Memory: measured, and recorded without computing.
pub mod counting_allocator;
mod dry_run;

pub use cancel::Cancel;
pub use convert_dtype::{is_half, widened};
pub use deferred_block_output::DeferredOutput;
pub use dry_run::{HeapBlock, HeapEvent, dry_run};
pub use error::{DeviceFault, Result, TapeError};
pub use gradients::Gradients;
pub use kink_log::{KinkDivergence, KinkLog, KinkUse};
pub use ops::{
    Activation, Affine, AttentionShape, Choice, ClassRule, ClassTargets, Conv2dShape, Gate,
    GeluLinear, GroupedAttention, IGNORED, JoinedHeads, KeepRule, Loss, LowRankTerm, NoiseKey,
    OutputWeights, PoolDivisor, PoolShape, Positions, Quota, RegressionTargets, RmsNormShape,
    Rotation, faster_convolutions, keep_probabilities,
};
pub use parameters::{Frozen, Parameter, ParameterId, Parameters};
pub use quantized::{Bits, Quantized};
pub use rng::Rng;
pub use sample_noise::SampleNoise;
pub use tape::{Kernels, Tape, Value};
