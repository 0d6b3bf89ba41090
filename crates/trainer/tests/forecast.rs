//! What is forecast before training against what training takes from the heap, counted by the same allocator wrapper that the
//! program has.

use candle_core::Device;
use tape::memory::{Counting, live_bytes, take_peak_bytes};
use trainer::bench::{Case, Workload, run};
use trainer::forecast::{Forecast, Forms, Target};
use trainer::{Precision, on_threads};

#[global_allocator]
static ALLOCATOR: Counting<std::alloc::System> = Counting(std::alloc::System);

/// Heaps are counted, not sampled: what is left is the threads' own scratch.
const BAR: f64 = 0.05;

/// Whole steps of each workload, in one test: the count is the process's.
#[test]
fn heaps_are_as_forecast() {
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
        let target = Target::of(trainer::DeviceKind::Cpu, 2, 0);
        let forecast = Forecast::of_workload(workload, checkpointed, target, Forms::Planned);
        let forecast = forecast.expect("it is rehearsed");
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
        on_threads(2, || run(case, &Device::Cpu)).expect("it runs");
        let measured = (take_peak_bytes() - before) as f64;
        let expected = forecast.heap_bytes(checkpointed, micro as u32, batch as u32);
        let expected = expected.expect("the form was forecast") as f64;
        let off = expected / measured - 1.0;
        let what = format!(
            "{} {batch} in pieces of {micro}, {checkpointed} blocks twice: forecast {:.1} MB, measured {:.1} MB, {:+.1} %",
            workload.name(),
            expected / 1e6,
            measured / 1e6,
            100.0 * off
        );
        println!("{what}");
        assert!(off.abs() <= BAR, "{what}");
    }
}
