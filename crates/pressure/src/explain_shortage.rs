//! Why there is less memory than before, in words. Decides nothing.

use crate::budget::Budget;
use crate::forecast_other_apps::History;
use crate::memory_sample::{Component, Level, MemorySample};
use crate::policy::Policy;
use crate::pressure_level::Reading;
use format::format_bytes;

/// Why there is less memory than before, and the component behind it.
pub(crate) fn explain_shortage(
    policy: &Policy,
    history: &History,
    sample: &MemorySample,
    pressure: Reading,
    budget: &Budget,
) -> (Component, String) {
    match (pressure.cause, budget.cause) {
        (Component::System, _) => {
            let reason = "the system reports memory pressure";
            (Component::System, reason.into())
        }
        (Component::Kernel, _) if pressure.level() >= Level::Warning => {
            let reason = match sample.stall_fraction {
                Some(stall) if stall > 0.0 => {
                    let percent = 100.0 * stall;
                    format!("apps waited for memory during {percent:.0} % of the last second")
                }
                _ => "the system is compressing other apps' memory".into(),
            };
            (Component::Kernel, reason)
        }
        (_, Some(Component::Device)) => {
            let limit = policy.device_fraction * sample.device_limit_bytes as f64;
            let limit = format_bytes(limit as u64);
            (
                Component::Device,
                format!("the GPU works well only up to {limit} of memory"),
            )
        }
        (_, None) => {
            let cap = policy.cap_bytes(sample.total_bytes).unwrap_or(budget.bytes);
            let cap = format_bytes(cap);
            (Component::Headroom, format!("the memory cap is {cap}"))
        }
        _ => {
            let free = || format!("{} are free", format_bytes(sample.available_bytes));
            let reason = history.describe_growth().unwrap_or_else(free);
            (Component::Headroom, reason)
        }
    }
}
