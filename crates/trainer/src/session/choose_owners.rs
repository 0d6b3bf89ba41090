//! Chooses which ranks of a group have the optimizer's moments, by the memory that each may use.

use crate::error::Result;
use crate::machine_sources::Machine;
use crate::memory_controller::MemoryAllowance;
use crate::optimizer::state_sizes;
use crate::plan::Plan;
use crate::run_group::{OwnerChoice, RunGroup, StateMemory};
use crate::train_state::TrainState;
use pressure::WholeStateNeed;
use tape::device::SelectedDevice;

/// Chooses for a session whose `learner` has no moments yet. All ranks call it at the same time.
///
/// # Errors
/// The group is broken.
pub fn choose_owners(
    plan: &Plan,
    group: &RunGroup,
    machine: &Machine,
    chosen: &SelectedDevice,
    learner: &TrainState,
) -> Result<OwnerChoice> {
    // Machines that make steps of their own have moments of their own.
    if group.is_alone() || plan.sync_every().is_some() {
        return Ok(OwnerChoice::default());
    }
    // While gradients are accumulated, a micro-batch has its own.
    let other_bytes = learner.state_bytes() + learner.parameters.bytes();
    let allowance = MemoryAllowance::for_plan(plan, chosen, machine);
    let moments = state_sizes(plan.optimizer, &learner.parameters);
    let measured = WholeStateNeed {
        state_bytes: other_bytes + moments.iter().sum::<u64>(),
        peak_bytes: 0,
    };
    let state = StateMemory {
        moments,
        // A plan that was checked against a cap is trained as it was checked.
        whole: plan.whole_state.unwrap_or(measured),
        machine_bytes: allowance.machine_bytes,
        process_bytes: allowance.process_bytes,
    };
    OwnerChoice::new(group, plan.sharding(), &state)
}
