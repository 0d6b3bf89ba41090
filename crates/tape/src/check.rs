//! Checks of operations: their gradients against finite differences in f64, and one device or form
//! against another. The tests and `ebb doctor` run the same table of cases.

mod cases;
mod compare;
mod optimizer_and_softmax;

pub use cases::{Case, CaseSpec, case_specs, cases, large_cases, large_specs, wide_specs};
pub use compare::{Outcome, finite_difference_error, run};
pub use optimizer_and_softmax::{PASSES, Pass};
