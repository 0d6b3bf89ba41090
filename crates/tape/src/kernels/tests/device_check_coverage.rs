//! The device check launches every kernel of the sources, in every element type.

use crate::check::{CaseSpec, PASSES, case_specs, large_specs, run, wide_specs};
use crate::kernels::emulator::{self, MODULES, names};
use crate::tape::Kernels;
use candle_core::{DType, Device};

/// The cases of the device check, as `ebb doctor` runs them. The longest sequence is left out: the
/// emulator is slow, and a shorter one runs the same kernels.
fn all() -> impl Iterator<Item = CaseSpec> {
    let all = case_specs(1).into_iter().chain(large_specs(1));
    let all = all.chain(wide_specs());
    all.filter(|spec| !spec.name.contains("2,048 tokens"))
}

#[test]
fn the_device_check_launches_exactly_the_kernels_of_the_sources() {
    emulator::with(|| {
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            for pass in PASSES.iter().filter(|p| p.in_halves || dtype == DType::F32) {
                (pass.run)(&Device::Cpu, dtype).expect("passes run");
            }
            for spec in all() {
                let case = spec.build().expect("the table is sound");
                let outcome = run(&case, &Device::Cpu, dtype, Kernels::Fused);
                outcome.unwrap_or_else(|error| panic!("{}: {error}", case.name));
            }
        }
    });
    let mut expected: Vec<String> = MODULES.into_iter().flat_map(names).collect();
    expected.sort();
    let launched: Vec<String> = emulator::launched().into_iter().collect();
    let missed: Vec<_> = expected
        .iter()
        .filter(|name| !launched.contains(name))
        .collect();
    assert!(
        missed.is_empty(),
        "the device check never launches {missed:?}"
    );
    assert_eq!(launched, expected);
}
