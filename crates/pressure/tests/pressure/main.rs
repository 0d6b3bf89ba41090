//! The controller's decisions, situation by situation and in general; the pressure level, the
//! memory model, and the readings of this process. One topic per file, all in one program.

mod simulated_machine;

mod first_size;
mod batch_remainder_and_fixed_size;
mod cache_release;
mod prefetch;
mod recovery_steps;
mod end_of_run;
mod micro_batch_shrink;
mod micro_batch_growth;
mod pause_and_suspend;
mod cancelled_micro_batch;
mod fallback;
mod decision_reasons;
mod controller_properties;
mod recovery_properties;
mod pressure_level;
mod memory_model;
mod footprint;
mod monitor_cost;
