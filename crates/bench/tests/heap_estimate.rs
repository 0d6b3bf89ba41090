//! The heap that is estimated before training against the heap that training takes, counted by the
//! program's own allocator wrapper.

use bench::{Case, Workload, estimate_workload, measure};
use candle_core::Device;
use tape::counting_allocator::{CountingAllocator, live_bytes, take_peak_bytes};
use trainer::estimate::{Target, Variants};
use trainer::{Precision, on_threads};

#[global_allocator]
static ALLOCATOR: CountingAllocator<std::alloc::System> = CountingAllocator(std::alloc::System);

/// Heaps are counted exactly. The difference is the threads' own scratch memory.
const MAX_RELATIVE_ERROR: f64 = 0.05;

/// One test for all workloads, since the count is the process's.
#[test]
fn estimated_heaps_agree_with_measured_ones() {
    for (workload, batch, micro, checkpointed) in [
        (Workload::BertMini, 16, 16, 0),
        (Workload::BertMini, 16, 4, 0),
        (Workload::BertMini, 16, 16, 4),
        (Workload::VitTiny, 4, 4, 0),
        (Workload::VitTiny, 4, 3, 12),
        (Workload::Gpt, 3, 3, 0),
        (Workload::ResNet18, 4, 4, 0),
        (Workload::ResNet18, 4, 2, 4),
    ] {
        let target = Target::new(trainer::DeviceKind::Cpu, 2, 0);
        let estimate = estimate_workload(workload, checkpointed, target, Variants::Planned);
        let estimate = estimate.expect("the dry run works");
        let case = Case {
            workload,
            batch,
            micro,
            checkpointed: checkpointed as usize,
            steps: 1,
            precision: Precision::F32,
            moments_in_file: false,
        };
        let before = live_bytes();
        take_peak_bytes();
        on_threads(2, || measure(case, &Device::Cpu)).expect("it runs");
        let measured = (take_peak_bytes() - before) as f64;
        let expected = estimate.heap_bytes(checkpointed, micro as u32, batch as u32);
        let expected = expected.expect("the variant was estimated") as f64;
        let off = expected / measured - 1.0;
        let what = format!(
            "{} {batch} in micro-batches of {micro}, {checkpointed} checkpointed blocks: estimate {:.1} MB, measured {:.1} MB, {:+.1} %",
            workload.name(),
            expected / 1e6,
            measured / 1e6,
            100.0 * off
        );
        println!("{what}");
        assert!(off.abs() <= MAX_RELATIVE_ERROR, "{what}");
    }
}
