//! Why there is too little memory, in words. Decides nothing.

use crate::budget::Budget;
use crate::forecast_other_apps::History;
use crate::memory_sample::{Component, Level, MemorySample};
use crate::policy::Policy;
use crate::pressure_level::Reading;
use format::format_bytes;

/// What is known when memory is short.
pub(crate) struct Shortage<'a> {
    pub(crate) history: &'a History,
    pub(crate) sample: &'a MemorySample,
    pub(crate) pressure: Reading,
    pub(crate) budget: &'a Budget,
    /// What does not fit, if that is known.
    pub(crate) needed: Option<Need>,
}

/// The footprint that a micro-batch of a size needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    pub(crate) size: u32,
    pub(crate) bytes: u64,
}

impl Shortage<'_> {
    /// Why there is too little memory, and the component behind it.
    pub(crate) fn explain(&self, policy: &Policy) -> (Component, String) {
        let sample = self.sample;
        match (self.pressure.cause, self.budget.cause) {
            (Component::System, _) => {
                let reason = "the system reports memory pressure";
                (Component::System, reason.into())
            }
            (Component::Kernel, _) if self.pressure.level() >= Level::Warning => {
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
                let cap = policy.cap_bytes(sample.total_bytes);
                let cap = format_bytes(cap.unwrap_or(self.budget.bytes));
                (Component::Headroom, format!("the memory cap is {cap}"))
            }
            _ => (Component::Headroom, self.explain_headroom()),
        }
    }

    /// Other apps are the reason if they took what is missing. Otherwise a micro-batch needs more
    /// than was known.
    fn explain_headroom(&self) -> String {
        let budget_bytes = self.budget.bytes;
        let missing = self
            .needed
            .map(|needed| needed.bytes.saturating_sub(budget_bytes));
        let missing = missing.filter(|bytes| *bytes > 0);
        let growth = self.history.describe_growth(missing.unwrap_or(0));
        growth.unwrap_or_else(|| match (self.needed, missing) {
            (Some(Need { size, .. }), Some(missing)) => {
                let missing = format_bytes(missing);
                format!("a micro-batch of {size} needs {missing} more than Ebb may use now")
            }
            _ => format!("only {} is free", format_bytes(self.sample.available_bytes)),
        })
    }
}
