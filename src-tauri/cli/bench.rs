//! `ebb bench`: measures seconds per step, memory, and the fraction of the machine's matrix-product
//! rate, for fixed workloads. Each case has its own process, because a peak footprint belongs to a
//! process, and because a warm allocator would favor later cases.

use super::args::{self, Convolutions};
use super::doctor::wanted;
use super::failure::Failure;
use super::output::{out, status};
use super::verify_split::workload;
use crate::paths::device_check_path;
use bench::{
    Case, GradientComparison, KinkDivergence, Measurement, RelativeDifference, Workload,
    gradients_against_f64, kink_tolerance, measure, measure_kernels, peak_gflops,
};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use trainer::{
    AllowedKernels, DeviceCheck, Precision, SelectedDevice, TrainError, default_threads,
    on_threads, select_device,
};

/// Runs `ebb bench`.
pub fn run(args: &args::Bench) -> Result<(), Failure> {
    if args.kernels {
        return kernels(args);
    }
    let cases = cases(args)?;
    let threads = args.threads.unwrap_or(default_threads());
    if args.gradients {
        // All are compared, even after one that is wrong.
        let each = cases.into_iter().map(|case| gradients(case, args, threads));
        return each.collect::<Vec<_>>().into_iter().collect();
    }
    match cases.as_slice() {
        [case] => measure_case(*case, args, threads),
        cases => measure_in_own_processes(cases, args, threads),
    }
}

/// Prints the bandwidth of each kernel, also as a fraction of a plain copy's bandwidth.
fn kernels(args: &args::Bench) -> Result<(), Failure> {
    let device = wanted(Some(&args.device))?;
    let readings = on_threads(default_threads(), || {
        Ok(measure_kernels(&select_device(device)?.device)?)
    })?;
    let mut copy = f64::NAN;
    for reading in readings {
        if reading.name == "copy" {
            copy = reading.rate();
        }
        let (name, precision) = (reading.name, reading.precision);
        let (ms, gb_per_s) = (reading.seconds * 1e3, reading.rate() / 1e9);
        if args.json {
            out!(
                "{}",
                json!({
                    "kernel": name, "precision": precision, "bytes": reading.bytes, "ms": ms,
                    "gb_per_s": gb_per_s, "share_of_copy": reading.rate() / copy,
                })
            );
        } else {
            let percent = 100.0 * reading.rate() / copy;
            out!(
                "{name:24} {precision:5} {ms:8.3} ms {gb_per_s:7.0} GB/s {percent:4.0} % of a plain copy"
            );
        }
    }
    Ok(())
}

fn allowed_kernels(args: &args::Bench) -> AllowedKernels {
    AllowedKernels {
        own: !args.composed,
        tensor_cores: !args.plain_products,
        direct_convolutions: match args.convolutions {
            Convolutions::Measured => None,
            Convolutions::Columns => Some(false),
            Convolutions::Direct => Some(true),
        },
    }
}

/// Allows the kernels that the arguments ask for. Convolutions run without columns if that was
/// faster in the saved check of the device or, without a check, if it is faster now.
fn choose_kernels(
    case: Case,
    args: &args::Bench,
    chosen: &SelectedDevice,
) -> Result<(), TrainError> {
    let allowed = allowed_kernels(args);
    allowed.apply();
    let is_measured = allowed.own && allowed.direct_convolutions.is_none();
    if is_measured && case.workload.is_convolutional() {
        DeviceCheck::choose_convolutions(chosen, case.precision.dtype(), &device_check_path())?;
    }
    Ok(())
}

/// Compares the gradients of one micro-batch with the gradients of the CPU in f64.
fn gradients(case: Case, args: &args::Bench, threads: usize) -> Result<(), Failure> {
    let device = wanted(Some(&args.device))?;
    let (kind, comparison) = on_threads(threads, || {
        let chosen = select_device(device)?;
        choose_kernels(case, args, &chosen)?;
        Ok((
            chosen.kind.name(),
            gradients_against_f64(case, &chosen.device)?,
        ))
    })?;
    if args.json {
        out!("{}", gradients_as_json(case, kind, &comparison));
    } else {
        print_gradients(case, kind, &comparison);
    }
    match comparison.unexplained(case.precision) {
        Some(parting) => Err(unexplained(&case, &parting)),
        None => Ok(()),
    }
}

fn gradients_as_json(case: Case, kind: &str, comparison: &GradientComparison) -> Value {
    let plain = &comparison.plain;
    let mut line = json!({
        "workload": case.workload.name(), "batch": case.batch, "precision": case.precision.name(), "device": kind,
        "loss": plain.loss, "gradients": plain.all, "largest": plain.largest, "largest_of": plain.name,
    });
    if let Some((difference, parting)) = &comparison.same_kinks {
        line["same_branches"] = json!({
            "loss": difference.loss, "gradients": difference.all, "largest": difference.largest,
            "largest_of": difference.name, "branches": parting.compared, "other": parting.differing,
            "farthest": finite(parting.farthest), "farthest_at": parting.farthest_at,
            "near": kink_tolerance(case.precision),
        });
    }
    line
}

fn print_gradients(case: Case, kind: &str, comparison: &GradientComparison) {
    let describe = |difference: &RelativeDifference| {
        format!(
            "the gradients differ by {:.1e}; the gradient of {} differs most, by {:.1e}; the loss differs by {:.1e}",
            difference.all, difference.name, difference.largest, difference.loss
        )
    };
    let (name, precision) = (case.workload.name(), case.precision.name());
    out!(
        "{name:10} {precision} batch {:>3} on {kind} against f64: {}",
        case.batch,
        describe(&comparison.plain)
    );
    if let Some((difference, parting)) = &comparison.same_kinks {
        let KinkDivergence {
            compared: taken,
            differing: other,
            ..
        } = parting;
        out!(
            "           if ReLU and max pooling make the same choices in f64 as in {precision}: {}",
            describe(difference)
        );
        out!(
            "           ReLU or max pooling chose differently in f64 than in {precision} for {other} of {taken} values; the farthest of these values is {:.1e} from the point where the choice changes, as a fraction of the root mean square of the operation's output",
            parting.farthest
        );
    }
}

/// The error for a value that is on the other side of a kink of ReLU or max pooling than in f64,
/// and farther from the kink than rounding explains. A comparison that uses the branches of f64
/// would hide this fault.
fn unexplained(case: &Case, parting: &KinkDivergence) -> Failure {
    Failure::new(format!(
        "{} at batch {}: operation {} (counting ReLU and max pooling in forward order) chose differently than in f64. A value is {:.1e} away from the point where the choice changes, but rounding moves a value by at most {:.1e} (both numbers are fractions of the root mean square of the operation's output). Run `ebb doctor` to check each operation",
        case.workload.name(),
        case.batch,
        parting.farthest_at + 1,
        parting.farthest,
        kink_tolerance(case.precision)
    ))
}

/// A number as the event log writes it: "inf" if it is not finite, because JSON has no infinity.
fn finite(number: f64) -> Value {
    if number.is_finite() {
        number.into()
    } else {
        "inf".into()
    }
}

fn cases(args: &args::Bench) -> Result<Vec<Case>, Failure> {
    let workloads = match args.workload.as_slice() {
        [all] if all == "all" => Workload::ALL.to_vec(),
        names => names
            .iter()
            .map(|name| workload(name))
            .collect::<Result<_, _>>()?,
    };
    if args.batch.contains(&0) || args.steps == 0 || args.micro == Some(0) {
        return Err(Failure::usage(
            "--batch, --micro and --steps must be at least 1",
        ));
    }
    let mut offered = Precision::ALL.into_iter().filter(|p| *p != Precision::F64);
    let named = offered.find(|p| p.name() == args.precision);
    let precision = named.ok_or_else(|| {
        Failure::usage(format!(
            "`{}` is not a precision that can be measured; choose f32, bf16 or f16",
            args.precision
        ))
    })?;
    let case = |workload: Workload, batch| Case {
        workload,
        batch,
        micro: args.micro.unwrap_or(batch).min(batch),
        checkpointed: args.checkpoint_blocks.min(workload.blocks()),
        steps: args.steps,
        precision,
        moments_in_file: args.moments_in_file,
    };
    let batches = |workload| args.batch.iter().map(move |&batch| case(workload, batch));
    Ok(workloads.into_iter().flat_map(batches).collect())
}

/// Measures a case in this process.
fn measure_case(case: Case, args: &args::Bench, threads: usize) -> Result<(), Failure> {
    let device = wanted(Some(&args.device))?;
    let result = on_threads(threads, || {
        let chosen = select_device(device)?;
        choose_kernels(case, args, &chosen)?;
        let measurement = measure(case, &chosen.device)?;
        // Read before the matrix products that measure the machine.
        let (peak_rss_bytes, peak_heap_bytes) = (peak_rss_bytes(), trainer::take_peak_bytes());
        Ok(CaseResult {
            case,
            measurement,
            threads,
            kind: chosen.kind.name(),
            peak_rss_bytes,
            peak_heap_bytes,
            peak_gflops: peak_gflops(&chosen.device)?,
        })
    })?;
    if args.json {
        out!("{}", result.as_json());
    } else {
        out!("{}", result.as_text());
    }
    Ok(())
}

/// Runs this program once per case and passes its output on. If a case fails, the others still run.
fn measure_in_own_processes(
    cases: &[Case],
    args: &args::Bench,
    threads: usize,
) -> Result<(), Failure> {
    let ebb = std::env::current_exe()
        .map_err(|error| Failure::new(format!("ebb cannot find its own program file: {error}")))?;
    let mut failed = Vec::new();
    for case in cases {
        let name = format!("{} at batch {}", case.workload.name(), case.batch);
        match command(&ebb, case, args, threads).status() {
            Ok(status) if status.success() => {}
            Ok(status) => {
                status!("{name} failed: {status}");
                failed.push(name);
            }
            Err(error) => {
                status!("{name} could not be started: {error}");
                failed.push(name);
            }
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "these workloads were not measured: {}; to need less memory, use a smaller --micro or more --checkpoint-blocks",
        failed.join(", ")
    )))
}

/// The command that measures one case.
fn command(ebb: &Path, case: &Case, args: &args::Bench, threads: usize) -> Command {
    let mut command = Command::new(ebb);
    command.args(["bench", "--workload", case.workload.name()]);
    for (key, value) in [
        ("--batch", case.batch),
        ("--micro", case.micro),
        ("--checkpoint-blocks", case.checkpointed),
        ("--steps", case.steps),
        ("--threads", threads),
    ] {
        command.arg(key).arg(value.to_string());
    }
    command.args(["--device", &args.device]);
    command.args(["--precision", &args.precision]);
    command.args(["--convolutions", args.convolutions.name()]);
    command.args(args.json.then_some("--json"));
    command.args(args.composed.then_some("--composed"));
    command.args(args.moments_in_file.then_some("--moments-in-file"));
    command.args(args.plain_products.then_some("--plain-products"));
    command
}

/// A workload at one batch size, and its measurements.
struct CaseResult {
    case: Case,
    measurement: Measurement,
    threads: usize,
    kind: &'static str,
    peak_rss_bytes: u64,
    peak_heap_bytes: u64,
    peak_gflops: f64,
}

const MB: f64 = 1024.0 * 1024.0;

impl CaseResult {
    fn samples_per_s(&self) -> f64 {
        self.case.batch as f64 / self.measurement.s_per_step.median
    }

    fn gflops(&self) -> f64 {
        self.measurement.flops / self.measurement.s_per_step.median / 1e9
    }

    /// The result as JSON. The keys that benchmarks of other trainers also print come first.
    fn as_json(&self) -> Value {
        let (case, measured) = (self.case, &self.measurement);
        let kernels = AllowedKernels::current();
        let mut line = json!({
            "peer": "ebb", "version": env!("CARGO_PKG_VERSION"), "workload": case.workload.name(), "batch": case.batch,
            "micro": case.micro, "threads": self.threads, "ckpt": case.checkpointed > 0, "device": self.kind,
            "params": measured.parameters, "steps": case.steps, "s_per_step": measured.s_per_step,
            "warmup_s": measured.warmup_s, "samples_per_s": self.samples_per_s(),
            "state_mb": measured.state_bytes as f64 / MB, "peak_rss_mb": self.peak_rss_bytes as f64 / MB,
            "peak_heap_mb": self.peak_heap_bytes as f64 / MB, "loss": measured.losses,
            "precision": case.precision.name(), "skipped_steps": measured.skipped_steps,
            "checkpoint_blocks": case.checkpointed, "moments_in_file": case.moments_in_file,
            "saved_mb": measured.saved_bytes as f64 / MB,
            "peak_device_mb": measured.peak_device_bytes as f64 / MB, "kernels": kernels.own,
            "tensor_cores": kernels.tensor_cores, "direct_convolutions": kernels.direct_convolutions, "gflop_per_step": measured.flops / 1e9,
            "gflops": self.gflops(), "matmul_peak_gflops": self.peak_gflops,
            "peak_fraction": self.gflops() / self.peak_gflops,
            "weights": measured.fingerprint.map(|weights| format!("{weights:016x}")),
        });
        if case.workload.tokens() > 0 {
            let tokens = case.workload.tokens() as f64;
            line["tokens_per_s"] = (self.samples_per_s() * tokens).into();
        }
        line
    }

    fn as_text(&self) -> String {
        let (case, measured) = (self.case, &self.measurement);
        format!(
            "{:10} {} batch {:>3} in micro-batches of {:>3}: {:.3} s per step ({:.3} to {:.3}), {:.1} samples/s, {:.0} GFLOP/s ({:.0} % of {:.0}), peak {:.0} MB, state {:.0} MB, saved {:.0} MB",
            case.workload.name(),
            case.precision.name(),
            case.batch,
            case.micro,
            measured.s_per_step.median,
            measured.s_per_step.min,
            measured.s_per_step.max,
            self.samples_per_s(),
            self.gflops(),
            100.0 * self.gflops() / self.peak_gflops,
            self.peak_gflops,
            self.peak_rss_bytes as f64 / MB,
            measured.state_bytes as f64 / MB,
            measured.saved_bytes as f64 / MB
        )
    }
}

/// Highest memory footprint of this process, in bytes. The figure belongs to a single case only if
/// that case has its own process.
fn peak_rss_bytes() -> u64 {
    pressure::take_own_peak_bytes().unwrap_or_else(pressure::own_footprint_bytes)
}
