//! Whether the GPU of a Mac can be used, decided from facts that `metal.rs` collects. Pure, so that
//! other systems test it.

/// The oldest macOS whose GPU is used: candle puts every buffer into a residency set, a class that
/// exists since then.
pub(super) const OLDEST_MACOS: u32 = 15;

/// Whose processor this is, and whether it translates the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CpuKind {
    AppleSilicon,
    Intel,
    /// Apple silicon, but the program was built for Intel.
    Rosetta,
}

/// A GPU that Metal lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gpu {
    pub name: String,
    /// It has what the GPU of an M1 has (`MTLGPUFamilyApple7`).
    pub is_apple7: bool,
}

/// What decides whether the GPU can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MacFacts {
    /// Major and minor version of macOS.
    pub macos: (u32, u32),
    pub processor: CpuKind,
    /// The program runs in a session over SSH.
    pub is_remote: bool,
    /// The system's default GPU. Only asked for if everything before it holds.
    pub gpu: Option<Gpu>,
}

/// The name of the GPU that can be used, or why none can. The reason continues "CPU, 8 threads: ".
pub(super) fn usable_gpu(facts: &MacFacts) -> Result<String, String> {
    let (major, minor) = facts.macos;
    if major < OLDEST_MACOS {
        return Err(format!(
            "Ebb uses the GPU only on macOS {OLDEST_MACOS} or later, but this Mac runs {major}.{minor}"
        ));
    }
    match facts.processor {
        CpuKind::AppleSilicon => {}
        CpuKind::Intel => {
            return Err(
                "Ebb uses only the GPU of Apple silicon, but this is an Intel Mac".to_owned(),
            );
        }
        CpuKind::Rosetta => {
            return Err(
                "this build of Ebb is for Intel and runs under Rosetta; use the build for Apple silicon"
                    .to_owned(),
            );
        }
    }
    match &facts.gpu {
        Some(gpu) if gpu.is_apple7 => Ok(gpu.name.clone()),
        Some(gpu) if gpu.name.contains("Paravirtual") => Err(format!(
            "the GPU of a virtual Mac ({}) lacks features that Ebb's kernels need",
            gpu.name
        )),
        Some(gpu) => Err(format!(
            "the GPU ({}) lacks features that Ebb's kernels need",
            gpu.name
        )),
        None if facts.is_remote => Err(
            "no GPU was found in this session over SSH; log in at the Mac's screen, then try again"
                .to_owned(),
        ),
        None => Err("no GPU was found; a virtual Mac may have none".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DeviceKind, default_threads, first_usable, predicted, unavailable};
    use super::*;
    use crate::error::TapeError;

    fn m1() -> MacFacts {
        MacFacts {
            macos: (15, 1),
            processor: CpuKind::AppleSilicon,
            is_remote: false,
            gpu: Some(Gpu {
                name: "Apple M1".to_owned(),
                is_apple7: true,
            }),
        }
    }

    #[test]
    fn apple_silicon_with_macos_15_is_used() {
        assert_eq!(usable_gpu(&m1()), Ok("Apple M1".to_owned()));
        let over_ssh = MacFacts {
            is_remote: true,
            ..m1()
        };
        assert_eq!(usable_gpu(&over_ssh), Ok("Apple M1".to_owned()));
    }

    fn with_gpu(name: &str) -> MacFacts {
        MacFacts {
            gpu: Some(Gpu {
                name: name.to_owned(),
                is_apple7: false,
            }),
            ..m1()
        }
    }

    /// The reason is given, and beside the name of the CPU, which trains instead; only a user who
    /// asked for Metal gets an error.
    fn check(facts: &MacFacts, reason: &str) {
        let message = usable_gpu(facts).expect_err("it cannot be used");
        assert!(message.contains(reason), "{message}");
        let metal = || TapeError::Device(message.clone());
        let chosen = first_usable(Err(metal()), || {
            Err(TapeError::Device("no CUDA".to_owned()))
        });
        assert_eq!(
            (chosen.kind, &chosen.reason),
            (DeviceKind::Cpu, &message),
            "the terminal prints both"
        );
        if !cfg!(feature = "cuda") {
            let shown = format!("CPU, {} threads: {message}", default_threads());
            assert_eq!(predicted(Err(metal())), shown, "the window shows this");
        }
        let refused = unavailable(DeviceKind::Metal, &metal()).to_string();
        let next = format!("metal cannot be used: {message}; choose --device cpu or auto");
        assert_eq!(refused, next);
    }

    #[test]
    fn an_old_system_and_an_intel_processor_are_given_as_the_reason() {
        let macos_14 = MacFacts {
            macos: (14, 5),
            gpu: None,
            ..m1()
        };
        check(&macos_14, "macOS 15 or later, but this Mac runs 14.5");
        let intel = MacFacts {
            processor: CpuKind::Intel,
            ..with_gpu("AMD Radeon Pro 5500M")
        };
        check(&intel, "an Intel Mac");
        let rosetta = MacFacts {
            processor: CpuKind::Rosetta,
            ..m1()
        };
        check(&rosetta, "the build for Apple silicon");
    }

    #[test]
    fn a_missing_or_older_gpu_is_given_as_the_reason() {
        let paravirtual = with_gpu("Apple Paravirtual device");
        check(&paravirtual, "virtual Mac (Apple Paravirtual device)");
        check(&with_gpu("Apple A12Z"), "the GPU (Apple A12Z) lacks");
        let without = MacFacts { gpu: None, ..m1() };
        check(&without, "no GPU was found; a virtual Mac");
        let over_ssh = MacFacts {
            is_remote: true,
            ..without
        };
        check(&over_ssh, "session over SSH; log in");
    }
}
