//! `ebb doctor`: prints facts about the machine, then compares the chosen device with the CPU in
//! f64: every operation and a small model of every family, in f32 and in the half precisions.

use super::failure::Failure;
use super::output::out;
use super::{args, interrupt};
use crate::paths::device_check_path;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pressure::{MemorySource, Monitor};
use runlog::format_bytes;
use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use trainer::{
    CheckObserver, Control, DeviceCheck, DevicePreference, Finding, Machine, SelectedDevice,
    default_threads, select_device,
};

/// How long `ebb doctor` measures the CPU time of the memory monitor.
const MONITORED: Duration = Duration::from_secs(2);

/// Runs `ebb doctor`. The exit code is 1 if an operation gives a wrong result. Ebb then refuses the
/// device, or only one precision on the device.
pub fn run(args: &args::Doctor) -> Result<(), Failure> {
    let wanted = wanted(args.device.as_deref())?;
    let mut chosen = select_device(wanted).map_err(|error| Failure::new(error.to_string()))?;
    let control = Control::default();
    interrupt::handle(&control)?;
    if !args.json {
        print_machine(&chosen)?;
        out!(
            "Comparing the outputs and gradients of {} in f32, bf16 and f16 with the CPU in f64",
            chosen.kind
        );
    }
    let start = Instant::now();
    let mut display = Display::new(args.json, control);
    let (check, findings) = DeviceCheck::run(&mut chosen, &mut display)?;
    display.end();
    if !chosen.device.is_cpu() {
        check.save(&device_check_path());
    }
    if args.json {
        print_json(&chosen, &check, &findings)?;
    } else {
        print_result(&check, &findings, start.elapsed());
        print_kernels(&chosen);
    }
    outcome(&chosen, &findings)
}

/// Shows the progress of the check, and each comparison as soon as it fails.
struct Display {
    json: bool,
    control: Control,
    bar: Option<ProgressBar>,
}

impl Display {
    fn new(json: bool, control: Control) -> Self {
        let bar = (!json && std::io::stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template("{bar:24.cyan} {pos} of {len} comparisons");
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Display { json, control, bar }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl CheckObserver for Display {
    fn progress(&mut self, done: usize, total: usize) -> ControlFlow<()> {
        if let Some(bar) = &self.bar {
            bar.set_length(total as u64);
            bar.set_position(done as u64);
        }
        if self.control.is_stopping() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn finding(&mut self, finding: &Finding) {
        if !finding.passed && !self.json {
            let print = || out!("  {}", describe(finding));
            match &self.bar {
                Some(bar) => bar.suspend(print),
                None => print(),
            }
        }
    }
}

fn print_machine(chosen: &SelectedDevice) -> Result<(), Failure> {
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
    let cost = monitor_cost(source);
    out!(
        "Reading memory costs {:.3} % of a core at {:.0} readings per second",
        100.0 * cost.core_fraction,
        cost.readings_per_second
    );
    Ok(())
}

fn print_result(check: &DeviceCheck, findings: &[Finding], took: Duration) {
    for refused in check.refused_kernels() {
        out!(
            "Ebb does not use its own kernels for {} in {} on this machine, because they get {} wrong",
            refused.group,
            refused.precision,
            refused.what
        );
    }
    for precision in ["f32", "bf16", "f16"] {
        let findings: Vec<&Finding> = findings
            .iter()
            .filter(|finding| finding.precision == precision)
            .collect();
        out!("In {precision}: {}{}", passed(&findings), worst(&findings));
    }
    out!(
        "Checked {} operations and models at micro-batch 1, 2, 3 and 8 in {:.1} s: {}",
        check.operations(),
        took.as_secs_f64(),
        passed(&findings.iter().collect::<Vec<_>>())
    );
}

/// Largest number of threads per group that a GPU kernel can have.
const USUAL_THREADS: usize = 1024;

/// Prints how many kernels were compiled, and which of them allow fewer threads per group than
/// usual.
fn print_kernels(chosen: &SelectedDevice) {
    let kernels = trainer::compiled_kernels(&chosen.device);
    if kernels.is_empty() {
        return;
    }
    let limited: Vec<String> = kernels
        .iter()
        .filter(|kernel| kernel.most_threads < USUAL_THREADS)
        .map(|kernel| format!("{} {}", kernel.name, kernel.most_threads))
        .collect();
    let all = format!("{} kernels were compiled", kernels.len());
    if limited.is_empty() {
        out!("{all}, and each allows {USUAL_THREADS} threads per group");
    } else {
        out!(
            "{all}; these allow fewer than {USUAL_THREADS} threads per group: {}",
            limited.join(", ")
        );
    }
}

fn print_json(
    chosen: &SelectedDevice,
    check: &DeviceCheck,
    findings: &[Finding],
) -> Result<(), Failure> {
    let kernels: Vec<_> = trainer::compiled_kernels(&chosen.device)
        .into_iter()
        .map(|kernel| serde_json::json!({"name": kernel.name, "most_threads": kernel.most_threads}))
        .collect();
    let report = serde_json::json!({
        "kernels": kernels,
        "device": chosen.kind.name(),
        "reason": chosen.reason,
        "check": check,
        "findings": findings,
    });
    let text = serde_json::to_string_pretty(&report);
    out!("{}", text.map_err(|error| Failure::new(error.to_string()))?);
    Ok(())
}

/// Returns the first failed comparison as an error.
fn outcome(chosen: &SelectedDevice, findings: &[Finding]) -> Result<(), Failure> {
    match findings.iter().find(|finding| !finding.passed) {
        None => Ok(()),
        Some(first) if first.precision == "f32" => Err(Failure::new(format!(
            "{} cannot be used on this machine: its result for {} is wrong",
            chosen.kind, first.what
        ))),
        Some(first) => Err(Failure::new(format!(
            "{} on {} cannot be used on this machine: its result for {} is wrong",
            first.precision, chosen.kind, first.what
        ))),
    }
}

struct MonitorCost {
    /// CPU time of the monitor's thread, as a fraction of one core.
    core_fraction: f64,
    readings_per_second: f64,
}

fn monitor_cost(source: Box<dyn MemorySource>) -> MonitorCost {
    let readings = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&readings);
    let (monitor, start) = (Monitor::start(source, Arc::default()), Instant::now());
    monitor.set_observer(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    std::thread::sleep(MONITORED);
    let seconds = start.elapsed().as_secs_f64();
    let readings = f64::from(readings.load(Ordering::Relaxed));
    MonitorCost {
        core_fraction: monitor.cpu_ms() / 1000.0 / seconds,
        readings_per_second: readings / seconds,
    }
}

fn passed(findings: &[&Finding]) -> String {
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

/// A colon, then the operation and the model that differ most from f64. Empty if there are none.
fn worst(findings: &[&Finding]) -> String {
    let (models, operations): (Vec<&Finding>, Vec<&Finding>) = findings
        .iter()
        .partition(|finding| finding.what.starts_with("model "));
    let worst = |some: Vec<&Finding>| {
        let most = some
            .into_iter()
            .max_by(|a, b| a.difference.total_cmp(&b.difference))?;
        Some(format!(
            "{} {:.1e} ({})",
            most.what, most.difference, most.detail
        ))
    };
    let named: Vec<String> = [operations, models].into_iter().filter_map(worst).collect();
    if named.is_empty() {
        String::new()
    } else {
        format!(": {}", named.join(", "))
    }
}

fn describe(finding: &Finding) -> String {
    format!(
        "{} in {} at micro-batch {}: {} differs by {:.1e}",
        finding.what, finding.precision, finding.micro_batch, finding.detail, finding.difference
    )
}

/// Parses the name of a device; `auto` if there is none.
pub fn wanted(name: Option<&str>) -> Result<DevicePreference, Failure> {
    match name {
        None | Some("auto") => Ok(DevicePreference::Auto),
        Some("metal") => Ok(DevicePreference::Metal),
        Some("cuda") => Ok(DevicePreference::Cuda),
        Some("cpu") => Ok(DevicePreference::Cpu),
        Some(other) => Err(Failure::usage(format!(
            "there is no device `{other}`; choose auto, metal, cuda or cpu"
        ))),
    }
}
