//! `ebb doctor`: the machine's facts, then every operation and both models on the chosen device against the CPU in f64.

use super::args;
use super::failure::Failure;
use super::say::out;
use super::train::certificate_path;
use runlog::format_bytes;
use std::time::Instant;
use trainer::doctor::{Finding, examine, operations};
use trainer::{Certificate, Machine, Wanted, choose, default_threads};

/// The top-level entry point of `ebb doctor`. Exit code 1 when an operation fails: the device is then refused.
pub fn run(args: &args::Doctor) -> Result<(), Failure> {
    let wanted = wanted(args.device.as_deref())?;
    let chosen = choose(wanted).map_err(|error| Failure::new(error.to_string()))?;
    let mut source = Machine::default().open()?;
    let sample = source.sample()?;
    out!(
        "Ebb {} on {} {}",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH
    );
    out!("Device: {} ({})", chosen.kind, chosen.reason);
    out!("CPU threads: {}", default_threads());
    out!(
        "Memory: {} of {} available, read from {}",
        format_bytes(sample.available_bytes),
        format_bytes(sample.total_bytes),
        source.describe()
    );
    out!(
        "Comparing {} in f32 with the CPU in f64, forward and gradient",
        chosen.kind
    );
    let begun = Instant::now();
    let findings = examine(&chosen, &mut |finding| {
        if !finding.passed {
            out!("  {}", describe(finding));
        }
    })?;
    if !chosen.device.is_cpu() {
        Certificate::of(&chosen, &findings).keep(&certificate_path());
    }
    let failed: Vec<&Finding> = findings.iter().filter(|finding| !finding.passed).collect();
    let worst = findings
        .iter()
        .filter(|f| f.passed)
        .fold(0.0f64, |worst, f| worst.max(f.difference));
    out!(
        "{} operations and models at micro-batch 1, 2, 3 and 8 in {:.1} s: {} of {} checks passed, largest difference {worst:.1e}",
        operations(&findings),
        begun.elapsed().as_secs_f64(),
        findings.len() - failed.len(),
        findings.len()
    );
    match failed.first() {
        None => Ok(()),
        Some(first) => Err(Failure::new(format!(
            "{} must not be used here: {} is wrong",
            chosen.kind, first.what
        ))),
    }
}

fn describe(finding: &Finding) -> String {
    format!(
        "{} at micro-batch {}: {} differs by {:.1e}",
        finding.what, finding.micro_batch, finding.detail, finding.difference
    )
}

/// The device that a user names.
pub fn wanted(name: Option<&str>) -> Result<Wanted, Failure> {
    match name {
        None | Some("auto") => Ok(Wanted::Auto),
        Some("metal") => Ok(Wanted::Metal),
        Some("cuda") => Ok(Wanted::Cuda),
        Some("cpu") => Ok(Wanted::Cpu),
        Some(other) => Err(Failure::usage(format!(
            "there is no device `{other}`; choose auto, metal, cuda or cpu"
        ))),
    }
}
