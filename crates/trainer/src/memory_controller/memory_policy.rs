//! The limits that a plan sets to the memory of its run.

use crate::machine_sources::Machine;
use crate::plan::Plan;
use crate::shared_device::SharedDevice;
use crate::threads::stack_bytes;
use pressure::{MemorySample, Policy};
use tape::device::SelectedDevice;

/// The policy of the memory controller.
pub(super) fn policy(plan: &Plan) -> Policy {
    let mut policy = Policy {
        memory_cap_bytes: plan.memory_cap_bytes,
        memory_cap_fraction: plan.memory_cap_fraction,
        fixed_micro_batch: plan.fixed_micro_batch,
        ..Policy::default()
    };
    policy.max_system_fraction = plan
        .max_system_fraction
        .unwrap_or(policy.max_system_fraction);
    policy.max_suspended_ms = plan.max_suspended_ms.unwrap_or(policy.max_suspended_ms);
    // Used only if memory cannot be predicted: otherwise two measured micro-batches decide.
    policy.fallback_start = plan
        .config
        .first_micro_batch
        .unwrap_or(policy.fallback_start);
    policy
}

/// The memory that a process may use if other apps use nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct MemoryAllowance {
    /// Bytes that all processes on the machine may use together; 0 if unknown, or if this process
    /// trains on a GPU with memory of its own.
    pub(crate) machine_bytes: u64,
    /// Most bytes that this process may use: the cap of the user and the limit of the GPU; 0
    /// without such a limit.
    pub(crate) process_bytes: u64,
}

impl MemoryAllowance {
    /// What a plan may use on this machine and device. Nothing is known if the memory cannot be
    /// read.
    pub(crate) fn for_plan(plan: &Plan, chosen: &SelectedDevice, machine: &Machine) -> Self {
        let device = SharedDevice::new(&chosen.device);
        let source = machine.source(&device, stack_bytes(plan.threads));
        let sample = source.and_then(|mut source| Ok(source.sample()?));
        sample.map_or_else(
            |_| MemoryAllowance::default(),
            |sample| MemoryAllowance::new(&policy(plan), chosen.kind, &sample),
        )
    }

    fn new(policy: &Policy, kind: crate::DeviceKind, sample: &MemorySample) -> Self {
        if kind == crate::DeviceKind::Cuda {
            return MemoryAllowance {
                machine_bytes: 0,
                process_bytes: sample.device_limit_bytes,
            };
        }
        let machine = MemorySample {
            total_bytes: sample.total_bytes,
            ..MemorySample::default()
        };
        let cap = policy.cap_bytes(sample.total_bytes).unwrap_or(0);
        let limits = [cap, sample.device_limit_bytes].into_iter();
        MemoryAllowance {
            machine_bytes: policy.limit_bytes(&machine),
            process_bytes: limits.filter(|bytes| *bytes > 0).min().unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceKind;

    const GB: u64 = 1 << 30;

    #[test]
    fn the_limits_of_the_machine_and_of_the_process_are_apart() {
        let machine = |device_limit_bytes| MemorySample {
            total_bytes: 100 * GB,
            device_limit_bytes,
            ..MemorySample::default()
        };
        let allowed = |policy: &Policy, kind, device_limit_bytes| {
            let allowance = MemoryAllowance::new(policy, kind, &machine(device_limit_bytes));
            (allowance.machine_bytes, allowance.process_bytes)
        };
        let policy = Policy {
            max_system_fraction: 0.5,
            ..Policy::default()
        };
        assert_eq!(allowed(&policy, DeviceKind::Cpu, 0), (50 * GB, 0));
        let metal = allowed(&policy, DeviceKind::Metal, 30 * GB);
        assert_eq!(metal, (50 * GB, 30 * GB));
        let cuda = allowed(&policy, DeviceKind::Cuda, 80 * GB);
        assert_eq!(cuda, (0, 80 * GB));
        let capped = Policy {
            memory_cap_bytes: Some(7 * GB),
            ..policy
        };
        let metal = allowed(&capped, DeviceKind::Metal, 30 * GB);
        assert_eq!(metal, (50 * GB, 7 * GB));
        let unknown = MemorySample::default();
        let nothing = MemoryAllowance::new(&Policy::default(), DeviceKind::Cpu, &unknown);
        assert_eq!(nothing, MemoryAllowance::default());
    }
}
