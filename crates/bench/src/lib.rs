//! Measures and proves for developers: fixed workloads on made-up data (`ebb bench`), their
//! gradients against f64, the check that no split changes the training (`ebb verify-split`), and
//! the cost of the memory controller (`ebb sweep-batch --controller`).
//!
//! Training never depends on this crate.
//!
//! ```
//! use bench::{Case, Workload, measure};
//! use candle_core::Device;
//! use trainer::{Precision, on_threads};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Two samples per step, one at a time.
//! let case = Case {
//!     workload: Workload::from_name("bert_mini").expect("it is a workload"),
//!     batch: 2,
//!     micro: 1,
//!     checkpointed: 0,
//!     steps: 1,
//!     precision: Precision::F32,
//!     moments_in_file: false,
//! };
//! let measured = on_threads(2, || measure(case, &Device::Cpu))?;
//! assert!(measured.s_per_step.median > 0.0);
//! assert!(measured.losses.iter().all(|loss| loss.is_finite()));
//! assert!(measured.saved_bytes > 0, "the backward pass needs the activations");
//! # Ok(())
//! # }
//! ```

mod synthetic_batch;
mod controller_cost;
mod estimate;
mod count_flops;
mod compare_gradients_with_f64;
mod step_benchmark;
mod model;
mod peak_gflops;
pub mod split_equivalence;
mod workload;

pub use compare_gradients_with_f64::{
    GradientComparison, RelativeDifference, gradients_against_f64, kink_tolerance,
};
pub use controller_cost::{AfterStep, StepTimes, compare_controller, total_steps};
pub use estimate::{WorkloadSpeed, estimate_workload, measure_workload, seconds_per_step};
pub use peak_gflops::peak_gflops;
pub use step_benchmark::{Case, Measurement, measure};
pub use tape::KinkDivergence;
pub use tape::kernels::bandwidth::{Reading, measure as measure_kernels};
pub use workload::Workload;
