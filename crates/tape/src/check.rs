//! Proof of operations: gradients against finite differences in f64, and one device or form against another. The tests
//! and the doctor run the same table of cases.

mod cases;
mod compare;

pub use cases::{Case, cases, large_cases};
pub use compare::{Outcome, finite_difference_error, run};
