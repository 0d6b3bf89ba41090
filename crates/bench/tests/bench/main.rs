//! Checks of training that `ebb` offers to its users, on every small model. One topic per file.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

#[path = "../small_models/mod.rs"]
mod small_models;

mod split_equivalence;
mod split_equivalence_of_token_compression;
