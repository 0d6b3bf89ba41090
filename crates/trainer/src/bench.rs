//! `ebb bench`: fixed workloads on made-up data, one training case a call, for comparison with other trainers on the same
//! shapes. Measures whole optimizer steps: forward, backward, accumulation, clipping and update.

mod workload;
mod batch;
mod flops;
mod case;
mod gradients;
mod peak;

pub use case::{Case, Row, Spread, run};
pub use gradients::{Apart, Distance, gradients_against_f64};
pub use peak::peak_gflops;
pub use tape::KinkDivergence;
pub use tape::kernels::bandwidth::{Reading, measure as measure_kernels};
pub(crate) use workload::Model;
pub use workload::Workload;
