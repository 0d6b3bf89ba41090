//! Sense memory pressure and decide the micro-batch. Pure except for [`source`] and [`Monitor`]:
//! time and readings are values.
//!
//! The training loop reads a sample, asks before every micro-batch, and reports the result:
//!
//! ```
//! use pressure::{
//!     Action, ControllerState, DecisionInput, MemoryModel, MemorySample, MicroBatchKind,
//!     MicroBatchRecord, Outcome, Policy, SampleCost, decide, observe,
//! };
//!
//! let policy = Policy::default();
//! let (mut state, mut model) = (ControllerState::default(), MemoryModel::default());
//! let kind = MicroBatchKind::default();
//! let mut sizes = Vec::new();
//! for i in 0..4 {
//!     // A machine of 16 GB with 8 GB available; Ebb uses 2 GB.
//!     let sample = MemorySample {
//!         at_ms: 500 * i,
//!         total_bytes: 16 << 30,
//!         available_bytes: 8 << 30,
//!         own_bytes: 2 << 30,
//!         ..MemorySample::default()
//!     };
//!     let remaining = &[SampleCost(1); 32];
//!     let ask = DecisionInput { sample, remaining, kind, spare_bytes: 0 };
//!     let (next, decision) = decide(&policy, state, &ask, &model);
//!     assert_eq!(decision.action, Action::Run);
//!     sizes.push(decision.micro_batch);
//!     // The micro-batch ran: 2 GB of state and 0.25 GB per sample.
//!     let record = MicroBatchRecord {
//!         at_ms: 500 * i + 100,
//!         kind,
//!         micro_batch: decision.micro_batch,
//!         cost: u64::from(decision.micro_batch),
//!         peak_bytes: (2 << 30) + u64::from(decision.micro_batch) * (256 << 20),
//!         ms: 50.0,
//!         outcome: Outcome::Ok,
//!     };
//!     (state, model) = observe(&policy, next, model, &record);
//! }
//! // One sample, then two, to measure what each needs; then as many as are useful and fit.
//! assert_eq!(sizes, [1, 2, 8, 8]);
//! ```

// Values.
mod error;
mod memory_sample;
mod policy;
mod decision;
mod describe_decision;

// What is known: pressure, other apps, budget, the need and speed of micro-batches.
mod pressure_level;
mod forecast_other_apps;
mod budget;
mod memory_model;
mod speed_comparison;
mod micro_batch_sizes;
mod explain_shortage;

// The rules, in the order in which `controller` applies them.
mod decision_context;
mod end_run_rules;
mod recovery_steps;
mod pause_and_suspend;
mod cache_release_rules;
mod micro_batch_growth;
mod prefetch_rules;
mod micro_batch_shrink;
mod fallback_rules;
mod checkpoint_before_suspend;

// The controller.
mod controller_state;
mod outcome_to_decision;
mod controller;
mod persisted_state;
mod jsonl_controller;

// Advice without a run.
mod recovery_options;
mod suggest_config;
mod optimizer_state_room;
mod parameter_count;
mod stress_test_limits;

// Reading the machine.
pub mod source;
mod thread_cpu_time;
mod pressure_notification;
mod monitor;

// Power beside memory.
mod power;
mod before_sleep;
mod power_policy;

pub use before_sleep::{BeforeSleep, ScriptedSleep, SleepWatch, open_sleep_watch};
pub use budget::Budget;
pub use controller::{
    budget_bytes, decide, observe, observe_delay, observe_separate_device, record_sample,
    should_cancel,
};
pub use controller_state::ControllerState;
pub use decision::{
    Action, Change, Decision, DecisionInput, MicroBatchKind, MicroBatchRecord, Moments, Outcome,
    Phase, Prefetch, SampleCost,
};
pub use describe_decision::{describe_decision, describe_evaluation_decision, describe_resize};
pub use error::PressureError;
pub use jsonl_controller::JsonlController;
pub use memory_model::{Allocator, MemoryModel};
pub use memory_sample::{Component, Level, MemorySample, Thermal};
pub use monitor::Monitor;
pub use optimizer_state_room::{StateShortage, WholeStateNeed};
pub use parameter_count::{DeviceShare, ParameterCount, TransformerShape};
pub use persisted_state::PersistedState;
pub use policy::Policy;
pub use power::{PowerSource, PowerState, ScriptedPower, open_power_source};
pub use power_policy::{PowerPolicy, PowerPolicyChange, PowerPolicyMode};
pub use pressure_level::{LevelTracker, Reading, pressure};
pub use recovery_options::{
    LighterTuning, RecoveryOption, RecoveryStep, Shortage, cheapest_setting,
    options_needing_consent, settings_that_help, suggest_recovery,
};
pub use recovery_steps::RecoveryReserve;
pub use source::{DeviceReadings, MemorySource, own_footprint_bytes, take_own_peak_bytes};
pub use stress_test_limits::{stress_test_bytes, stress_test_is_full, stress_test_is_over};
pub use suggest_config::{
    BatchConfig, DeviceLimits, DoesNotFit, ModelNeed, ModelVariant, Peak, Processes,
    SuggestedConfig, sensible_sizes, suggest_config,
};
