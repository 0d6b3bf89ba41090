//! Measures and proves for developers: fixed workloads on made-up data (`ebb bench`), their
//! gradients against f64, the check that no split changes the training (`ebb verify-split`), and
//! the cost of the memory controller (`ebb sweep-batch --controller`).
//!
//! Training never depends on this crate.

mod synthetic_batch;
mod controller_cost;
mod estimate;
mod flops;
mod gradient_comparison;
mod step_benchmark;
mod model;
mod peak_gflops;
pub mod split_equivalence;
mod workload;

pub use controller_cost::{AfterStep, StepTimes, compare_controller, total_steps};
pub use estimate::{estimate_workload, seconds_per_step};
pub use gradient_comparison::{
    GradientComparison, RelativeDifference, gradients_against_f64, kink_tolerance,
};
pub use peak_gflops::peak_gflops;
pub use step_benchmark::{Case, Measurement, measure};
pub use tape::KinkDivergence;
pub use tape::kernels::bandwidth::{Reading, measure as measure_kernels};
pub use workload::Workload;
