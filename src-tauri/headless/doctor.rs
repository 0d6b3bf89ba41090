//! `ebb doctor`: the machine's facts, then every operation and both models on the chosen device against the CPU in f64, and every
//! operation in the half precisions.

use super::args;
use super::failure::Failure;
use super::say::out;
use super::train::certificate_path;
use pressure::{MemorySource, Monitor};
use runlog::format_bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use trainer::doctor::{Finding, operations};
use trainer::{Certificate, Machine, Wanted, choose, default_threads};

/// How long the monitor is watched.
const MONITORED: Duration = Duration::from_secs(2);

/// The top-level entry point of `ebb doctor`. Exit code 1 when an operation fails: the device is then refused, or the precision
/// on it that it fails in.
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
    let (monitor_share, hertz) = monitor_cost(source);
    out!(
        "Reading memory costs {:.3} % of a core at {hertz:.0} readings a second",
        100.0 * monitor_share
    );
    out!(
        "Comparing {} in f32, bf16 and f16 with the CPU in f64, forward and gradient",
        chosen.kind
    );
    let begun = Instant::now();
    let (certificate, findings) = Certificate::examined(&chosen, &mut |finding| {
        if !finding.passed {
            out!("  {}", describe(finding));
        }
    })?;
    if !chosen.device.is_cpu() {
        certificate.keep(&certificate_path());
    }
    if let Some(what) = certificate.failed_kernel() {
        out!("Ebb's own kernels are left out here: {what} is wrong in them");
    }
    for precision in ["f32", "bf16", "f16"] {
        let of_one: Vec<Finding> = findings
            .iter()
            .filter(|f| f.precision == precision)
            .cloned()
            .collect();
        out!("In {precision}: {}{}", passed(&of_one), furthest(&of_one));
    }
    out!(
        "{} operations and models at micro-batch 1, 2, 3 and 8 in {:.1} s: {}",
        operations(&findings),
        begun.elapsed().as_secs_f64(),
        passed(&findings)
    );
    match findings.iter().find(|finding| !finding.passed) {
        None => Ok(()),
        Some(first) if first.precision == "f32" => Err(Failure::new(format!(
            "{} must not be used here: {} is wrong",
            chosen.kind, first.what
        ))),
        Some(first) => Err(Failure::new(format!(
            "{} on {} must not be used here: {} is wrong",
            first.precision, chosen.kind, first.what
        ))),
    }
}

/// CPU time of the monitor's thread as a share of one core, and its readings a second.
fn monitor_cost(source: Box<dyn MemorySource>) -> (f64, f64) {
    let readings = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&readings);
    let (monitor, begun) = (Monitor::start(source, Arc::default()), Instant::now());
    monitor.set_observer(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    std::thread::sleep(MONITORED);
    let seconds = begun.elapsed().as_secs_f64();
    let readings = f64::from(readings.load(Ordering::Relaxed));
    (monitor.cpu_ms() / 1000.0 / seconds, readings / seconds)
}

fn passed(findings: &[Finding]) -> String {
    let right = findings.iter().filter(|finding| finding.passed);
    let worst = right
        .clone()
        .fold(0.0f64, |worst, f| worst.max(f.difference));
    format!(
        "{} of {} checks passed, largest difference {worst:.1e}",
        right.count(),
        findings.len()
    )
}

/// What is furthest from f64, and the furthest of the models apart from it.
fn furthest(findings: &[Finding]) -> String {
    let of = |models: bool| {
        let some = findings
            .iter()
            .filter(|f| f.what.starts_with("model ") == models);
        let most = some.max_by(|a, b| a.difference.total_cmp(&b.difference))?;
        Some(format!(
            "{} {:.1e} ({})",
            most.what, most.difference, most.detail
        ))
    };
    let named: Vec<String> = [of(false), of(true)].into_iter().flatten().collect();
    match named.is_empty() {
        true => String::new(),
        false => format!(": {}", named.join(", ")),
    }
}

fn describe(finding: &Finding) -> String {
    format!(
        "{} in {} at micro-batch {}: {} differs by {:.1e}",
        finding.what, finding.precision, finding.micro_batch, finding.detail, finding.difference
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
