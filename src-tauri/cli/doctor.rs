//! `ebb doctor`: reports facts about the machine, then compares the chosen device with the CPU in
//! f64: every operation and a small model of every family, in f32 and in the half precisions.

mod page;
mod report;

use super::failure::Failure;
use super::output::out;
use super::{args, interrupt};
use crate::paths::device_check_path;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use report::{DoctorReport, KernelReport, MachineReport};
use runlog::format_bytes;
use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::time::Instant;
use trainer::{
    CheckObserver, Control, DeviceCheck, DevicePreference, Finding, SelectedDevice, select_device,
};

/// Runs `ebb doctor`. The exit code is 1 if an operation gives a wrong result. After a wrong
/// result, Ebb refuses the device, or only the failing precision on that device.
pub fn run(args: &args::Doctor) -> Result<(), Failure> {
    if let Some(path) = &args.page {
        page::expect_new(path)?;
    }
    let wanted = wanted(args.device.as_deref())?;
    let mut chosen = select_device(wanted).map_err(|error| Failure::new(error.to_string()))?;
    let control = Control::default();
    interrupt::handle(&control)?;
    let machine = MachineReport::read(&chosen)?;
    if !args.json {
        print_machine(&machine);
        out!(
            "Comparing the outputs and gradients that {} computes in f32, bf16 and f16 with those of the CPU in f64",
            chosen.kind
        );
    }
    let start = Instant::now();
    let mut display = Display::new(args.json, control);
    let (check, findings) = match &args.only {
        None => DeviceCheck::run(&mut chosen, &mut display)?,
        Some(part) => DeviceCheck::run_only(part, &mut chosen, &mut display)?,
    };
    let took = start.elapsed();
    if !chosen.device.is_cpu() && args.only.is_none() {
        check.save(&device_check_path());
        display.name("measurements");
        DeviceCheck::measure_kernels(&chosen, &mut display);
    }
    display.end();
    let report = DoctorReport::new(machine, &chosen, check, findings, took);
    if args.json {
        print_json(&report)?;
    } else {
        print_result(&report);
        print_kernels(&report.kernels);
    }
    if let Some(path) = &args.page {
        page::write(&report, path)?;
        if !args.json {
            out!("{}", path.display());
        }
    }
    outcome(&chosen, &report.findings)
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
            let style = ProgressStyle::with_template("{bar:24.cyan} {pos} of {len} {msg}");
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        let display = Display { json, control, bar };
        display.name("comparisons");
        display
    }

    /// Names what is counted from now on.
    fn name(&self, what: &'static str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what);
        }
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

fn print_machine(machine: &MachineReport) {
    out!(
        "Ebb {} on {} ({})",
        machine.version,
        machine.name(),
        machine.architecture
    );
    out!("Device: {} ({})", machine.device, machine.reason);
    if let Some(gpu) = &machine.gpu {
        out!(
            "GPU: {}, {}, at most {} of memory for Ebb",
            gpu.name,
            gpu.family,
            format_bytes(gpu.limit_bytes)
        );
    }
    out!("CPU threads: {}", machine.cpu_threads);
    out!(
        "Memory: {} of {} available, read from {}",
        format_bytes(machine.available_bytes),
        format_bytes(machine.total_bytes),
        machine.memory_source
    );
    out!(
        "Reading the memory usage costs {:.3} % of a CPU core at {:.0} readings per second",
        100.0 * machine.monitor.core_fraction,
        machine.monitor.readings_per_second
    );
    out!("MPI: {}", machine.mpi);
    out!("NCCL: {}", machine.nccl);
}

fn print_result(report: &DoctorReport) {
    for sentence in &report.fell_back {
        out!("{sentence}");
    }
    let findings = &report.findings;
    for precision in ["f32", "bf16", "f16"] {
        let findings: Vec<&Finding> = findings
            .iter()
            .filter(|finding| finding.precision == precision)
            .collect();
        out!("In {precision}: {}{}", passed(&findings), worst(&findings));
    }
    out!(
        "Checked {} operations and models at micro-batch 1, 2, 3 and 8 in {:.1} s: {}",
        report.check.operations(),
        report.seconds,
        passed(&findings.iter().collect::<Vec<_>>())
    );
}

/// Threads per group that most GPU kernels allow; no kernel allows more.
const USUAL_THREADS: usize = 1024;
/// How many of the slowest kernels are named.
const SLOWEST: usize = 5;

/// Prints how many kernels were compiled, which of them allow fewer threads per group than usual,
/// and which are the slowest.
fn print_kernels(kernels: &[KernelReport]) {
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
        out!("{all}, and each kernel allows {USUAL_THREADS} threads per group");
    } else {
        out!(
            "{all}; these kernels allow fewer than {USUAL_THREADS} threads per group: {}",
            limited.join(", ")
        );
    }
    let slowest = slowest(kernels);
    if !slowest.is_empty() {
        out!(
            "The slowest kernels (times include launch and wait for the GPU): {}",
            slowest.join(", ")
        );
    }
}

/// The slowest kernels with their times, the slowest first.
fn slowest(kernels: &[KernelReport]) -> Vec<String> {
    let timed = kernels.iter().filter_map(|k| Some((k.ms?, &k.name)));
    let mut timed: Vec<(f64, &String)> = timed.collect();
    timed.sort_by(|a, b| b.0.total_cmp(&a.0));
    let named = timed.iter().take(SLOWEST);
    named
        .map(|(ms, name)| format!("{name} {ms:.3} ms"))
        .collect()
}

fn print_json(report: &DoctorReport) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(report);
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

/// Names the operation and the model whose results differ most from f64, after a colon. Empty if
/// there are no findings.
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

/// Parses the name of a device. Without a name, Ebb chooses the device.
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
