//! The controller's decisions, situation by situation.

mod simulated_machine;

mod start;
mod batch_remainder_and_fixed_size;
mod caches;
mod prefetch;
mod recovery;
mod end_of_run;
mod shrink;
mod grow;
mod pause_and_suspend;
mod cancel;
mod fallback;
mod reasons;
