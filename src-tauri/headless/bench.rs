//! `ebb bench`: seconds a step, memory, and the share of the machine's matrix-product rate, for fixed workloads. Every case
//! has a process of its own: the highest footprint is a process's, and a warm allocator is no fair start.

use super::args;
use super::doctor::wanted;
use super::failure::Failure;
use super::say::{aside, out};
use super::verify_split::workload;
use serde_json::json;
use std::process::Command;
use trainer::bench::{
    Apart, Case, KinkDivergence, Row, Workload, gradients_against_f64, measure_kernels,
    peak_gflops, run as measure,
};
use trainer::{LossScale, Precision, default_threads, on_threads, select_device};

/// The top-level entry point of `ebb bench`.
pub fn run(args: &args::Bench) -> Result<(), Failure> {
    if args.kernels {
        return kernels(args);
    }
    let cases = cases(args)?;
    let threads = args.threads.unwrap_or(default_threads());
    if args.gradients {
        // One that is refused does not keep the others from being measured.
        let each = cases.into_iter().map(|case| gradients(case, args, threads));
        return each.collect::<Vec<_>>().into_iter().collect();
    }
    match cases.as_slice() {
        [case] => alone(*case, args, threads),
        cases => each_in_its_own_process(cases, args, threads),
    }
}

/// Each kernel's bytes a second, and how much of the copy's that is.
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
        let (ms, gb_per_s) = (reading.seconds * 1e3, reading.rate() / 1e9);
        if args.json {
            out!(
                "{}",
                json!({
                    "kernel": reading.name, "precision": reading.precision, "bytes": reading.bytes, "ms": ms,
                    "gb_per_s": gb_per_s, "share_of_copy": reading.rate() / copy,
                })
            );
        } else {
            let (name, share) = (reading.name, 100.0 * reading.rate() / copy);
            let precision = reading.precision;
            out!(
                "{name:24} {precision:5} {ms:8.3} ms {gb_per_s:7.0} GB/s {share:4.0} % of the copy"
            );
        }
    }
    Ok(())
}

/// How far a piece's gradients are from the CPU's in f64.
fn gradients(case: Case, args: &args::Bench, threads: usize) -> Result<(), Failure> {
    let device = wanted(Some(&args.device))?;
    let (name, precision) = (case.workload.name(), case.precision.name());
    let (kind, distance) = on_threads(threads, || {
        let chosen = select_device(device)?;
        trainer::allow_kernels(!args.composed);
        trainer::allow_tensor_cores(!args.plain_products);
        Ok((
            chosen.kind.name(),
            gradients_against_f64(case, &chosen.device)?,
        ))
    })?;
    let (plain, along) = (&distance.plain, distance.along.as_ref());
    if args.json {
        let mut line = json!({
            "workload": name, "batch": case.batch, "precision": precision, "device": kind, "loss": plain.loss,
            "gradients": plain.all, "largest": plain.largest, "largest_of": plain.name,
        });
        if let Some((apart, parting)) = along {
            line["same_branches"] = json!({
                "loss": apart.loss, "gradients": apart.all, "largest": apart.largest, "largest_of": apart.name,
                "branches": parting.compared, "other": parting.differing, "farthest": said(parting.farthest),
                "farthest_at": parting.farthest_at, "near": case.precision.near_a_kink(),
            });
        }
        out!("{line}");
    } else {
        let differ = |apart: &Apart| {
            format!(
                "gradients differ by {:.1e}, most that of {} by {:.1e}; the loss by {:.1e}",
                apart.all, apart.name, apart.largest, apart.loss
            )
        };
        let batch = case.batch;
        out!(
            "{name:10} {precision} batch {batch:>3} on {kind} against f64: {}",
            differ(plain)
        );
        if let Some((apart, parting)) = along {
            let KinkDivergence {
                compared: taken,
                differing: other,
                ..
            } = parting;
            out!("           on the same branches: {}", differ(apart));
            out!(
                "           {other} of {taken} branches were not f64's own, the farthest {:.1e} of its operation's scale from the kink",
                parting.farthest
            );
        }
    }
    match distance.unexplained(case.precision) {
        Some(parting) => Err(unexplained(&case, &parting)),
        None => Ok(()),
    }
}

/// Refuses branches that rounding does not explain: on these the same gradient would hide a fault.
fn unexplained(case: &Case, parting: &KinkDivergence) -> Failure {
    Failure::new(format!(
        "{} at batch {}: operation {} of those with kinks went another way than f64 {:.1e} of its scale from the kink, and rounding explains {:.1e}; `ebb doctor` examines single operations",
        case.workload.name(),
        case.batch,
        parting.farthest_at + 1,
        parting.farthest,
        case.precision.near_a_kink()
    ))
}

/// A number as events say it: JSON has none that is not finite.
fn said(number: f64) -> serde_json::Value {
    match number.is_finite() {
        true => number.into(),
        false => "inf".into(),
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
            "--batch, --micro and --steps need at least 1",
        ));
    }
    let offered = [
        Precision::F32,
        Precision::Bf16,
        Precision::F16(LossScale::START),
    ];
    let named = offered.into_iter().find(|p| p.name() == args.precision);
    let precision = named.ok_or_else(|| {
        Failure::usage(format!(
            "there is no precision `{}` to measure; choose f32, bf16 or f16",
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

fn alone(case: Case, args: &args::Bench, threads: usize) -> Result<(), Failure> {
    let device = wanted(Some(&args.device))?;
    let (row, kind, peaks, peak_gflops) = on_threads(threads, || {
        let chosen = select_device(device)?;
        trainer::allow_kernels(!args.composed);
        trainer::allow_tensor_cores(!args.plain_products);
        let row = measure(case, &chosen.device)?;
        // Read before the matrices that measure the machine.
        let peaks = (peak_rss_bytes(), trainer::take_peak_bytes());
        Ok((row, chosen.kind.name(), peaks, peak_gflops(&chosen.device)?))
    })?;
    let measured = Measured {
        case,
        row,
        threads,
        kind,
        peak_rss_bytes: peaks.0,
        peak_heap_bytes: peaks.1,
        peak_gflops,
    };
    if args.json {
        out!("{}", measured.line());
    } else {
        out!("{}", measured.words());
    }
    Ok(())
}

/// Runs this binary once a case; what it prints is ours. A case that fails is said and the others run.
fn each_in_its_own_process(
    cases: &[Case],
    args: &args::Bench,
    threads: usize,
) -> Result<(), Failure> {
    let ebb = std::env::current_exe()
        .map_err(|error| Failure::new(format!("this program cannot be found again: {error}")))?;
    let mut failed = Vec::new();
    for case in cases {
        let mut command = Command::new(&ebb);
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
        command.args(args.json.then_some("--json"));
        command.args(args.composed.then_some("--composed"));
        command.args(args.moments_in_file.then_some("--moments-in-file"));
        command.args(args.plain_products.then_some("--plain-products"));
        let name = format!("{} at batch {}", case.workload.name(), case.batch);
        match command.status() {
            Ok(status) if status.success() => {}
            Ok(status) => {
                aside!("{name} did not come to its end: {status}");
                failed.push(name);
            }
            Err(error) => {
                aside!("{name} could not be started: {error}");
                failed.push(name);
            }
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(format!(
            "not measured: {}; a smaller --micro or more --checkpoint-blocks needs less memory",
            failed.join(", ")
        ))),
    }
}

/// One case and its figures.
struct Measured {
    case: Case,
    row: Row,
    threads: usize,
    kind: &'static str,
    peak_rss_bytes: u64,
    peak_heap_bytes: u64,
    peak_gflops: f64,
}

const MB: f64 = 1024.0 * 1024.0;

impl Measured {
    fn samples_per_s(&self) -> f64 {
        self.case.batch as f64 / self.row.s_per_step.median
    }

    fn gflops(&self) -> f64 {
        self.row.flops / self.row.s_per_step.median / 1e9
    }

    /// The peers' keys, then Ebb's own.
    fn line(&self) -> serde_json::Value {
        let (case, row) = (self.case, &self.row);
        let mut line = json!({
            "peer": "ebb", "version": env!("CARGO_PKG_VERSION"), "workload": case.workload.name(), "batch": case.batch,
            "micro": case.micro, "threads": self.threads, "ckpt": case.checkpointed > 0, "device": self.kind,
            "params": row.parameters, "steps": case.steps, "s_per_step": row.s_per_step, "warmup_s": row.warmup_s,
            "samples_per_s": self.samples_per_s(), "state_mb": row.state_bytes as f64 / MB,
            "peak_rss_mb": self.peak_rss_bytes as f64 / MB,
            "peak_heap_mb": self.peak_heap_bytes as f64 / MB, "loss": row.losses,
            "precision": case.precision.name(), "skipped_steps": row.skipped_steps,
            "checkpoint_blocks": case.checkpointed, "moments_in_file": case.moments_in_file, "saved_mb": row.saved_bytes as f64 / MB,
            "peak_device_mb": row.peak_device_bytes as f64 / MB, "kernels": trainer::kernels_allowed(),
            "tensor_cores": trainer::tensor_cores_allowed(),
            "gflop_per_step": row.flops / 1e9, "gflops": self.gflops(), "matmul_peak_gflops": self.peak_gflops,
            "peak_fraction": self.gflops() / self.peak_gflops,
            "weights": row.fingerprint.map(|weights| format!("{weights:016x}")),
        });
        if case.workload.tokens() > 0 {
            let tokens = case.workload.tokens() as f64;
            line["tokens_per_s"] = (self.samples_per_s() * tokens).into();
        }
        line
    }

    fn words(&self) -> String {
        let (case, row) = (self.case, &self.row);
        format!(
            "{:10} {} batch {:>3} in pieces of {:>3}: {:.3} s a step ({:.3} to {:.3}), {:.1} samples/s, {:.0} GFLOP/s ({:.0} % of {:.0}), peak {:.0} MB, state {:.0} MB, saved {:.0} MB",
            case.workload.name(),
            case.precision.name(),
            case.batch,
            case.micro,
            row.s_per_step.median,
            row.s_per_step.min,
            row.s_per_step.max,
            self.samples_per_s(),
            self.gflops(),
            100.0 * self.gflops() / self.peak_gflops,
            self.peak_gflops,
            self.peak_rss_bytes as f64 / MB,
            row.state_bytes as f64 / MB,
            row.saved_bytes as f64 / MB
        )
    }
}

/// Highest footprint of this process: only a process of its own makes this a case's figure.
fn peak_rss_bytes() -> u64 {
    pressure::take_own_peak_bytes().unwrap_or_else(pressure::own_footprint_bytes)
}
