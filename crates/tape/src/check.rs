//! Checks of operations: their gradients against finite differences in f64, and one device or form
//! against another. The tests and `ebb doctor` run the same table of cases.

mod cases;
mod compare;

pub use cases::{Case, cases, large_cases};
pub use compare::{Outcome, finite_difference_error, run};
