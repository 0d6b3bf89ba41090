//! The time of a command buffer is divided by everything that was launched, so each operation that
//! candle computes on Metal is counted.

use crate::check::{CaseSpec, case_specs, run, wide_specs};
use crate::command_buffer_budget;
use crate::kernels::emulator;
use crate::tape::Kernels;
use candle_core::{DType, Device};

/// What Ebb launches for a case, and the operations that it leaves to candle.
fn counts(spec: &CaseSpec) -> (u64, u64) {
    let case = spec.build().expect("the table is sound");
    command_buffer_budget::begin();
    let outcome = emulator::with(|| run(&case, &Device::Cpu, DType::F32, Kernels::Fused));
    outcome.unwrap_or_else(|error| panic!("{}: {error}", case.name));
    command_buffer_budget::counted()
}

#[test]
fn every_operation_without_a_kernel_is_counted_as_composed() {
    // Ebb has no kernels for these on a GPU.
    const COMPOSED: [&str; 4] = ["matmul", "softmax", "gumbel_softmax", "drop_path"];
    let (small, wide) = (case_specs(2), wide_specs());
    let all = small.into_iter().chain(wide);
    let composed = all.filter(|spec| COMPOSED.iter().any(|name| spec.name.starts_with(name)));
    let mut found = 0;
    for spec in composed {
        let (_, composed) = counts(&spec);
        assert!(composed > 0, "{} is not counted", spec.name);
        found += 1;
    }
    assert!(found >= COMPOSED.len(), "only {found} cases");
}
