//! What is forecast before training against what training takes from the heap, counted by the same allocator wrapper that the
//! program has.

use tape::memory::{Counting, live_bytes, take_peak_bytes};
use trainer::bench::{Case, Workload, run};
use trainer::forecast::{Forecast, Forms, Target};

#[global_allocator]
static ALLOCATOR: Counting<std::alloc::System> = Counting(std::alloc::System);

#[test]
fn debug_peaks() {
    let target = Target::of("cpu", 2, 0);
    let f = Forecast::of_workload(Workload::ResNet18, 0, target, Forms::Planned).expect("ok");
    for (batch, micro) in [(2, 2), (8, 8)] {
        let before = live_bytes();
        take_peak_bytes();
        trainer::on_threads(2, || {
            run(
                Case {
                    workload: Workload::ResNet18,
                    batch,
                    micro,
                    checkpointed: 0,
                    steps: 1,
                },
                &candle_core::Device::Cpu,
            )
        })
        .expect("runs");
        let real = take_peak_bytes() - before;
        eprintln!(
            "{batch} {micro}: real {} forecast {}",
            real >> 20,
            f.peak_bytes(0, micro as u32, batch as u32)
                .unwrap()
                .saturating_sub(f.standing.base_bytes)
                >> 20
        );
    }
}
