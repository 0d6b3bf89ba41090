//! `ebb bench`: seconds a step, memory, and the share of the machine's matrix-product rate, for fixed workloads.

use super::args;
use super::doctor::wanted;
use super::failure::Failure;
use super::say::out;
use serde_json::json;
use trainer::bench::{Case, Row, Workload, peak_gflops, run as measure};
use trainer::{choose, default_threads, on_threads};

/// The top-level entry point of `ebb bench`.
pub fn run(args: &args::Bench) -> Result<(), Failure> {
    let workloads = match args.workload.as_str() {
        "all" => Workload::ALL.to_vec(),
        name => vec![Workload::named(name).ok_or_else(|| {
            let names: Vec<&str> = Workload::ALL.iter().map(|w| w.name()).collect();
            Failure::usage(format!(
                "there is no workload `{name}`; choose all or one of {}",
                names.join(", ")
            ))
        })?],
    };
    let micro = args.micro.unwrap_or(args.batch);
    if args.batch == 0 || args.steps == 0 || micro == 0 {
        return Err(Failure::usage(
            "--batch, --micro and --steps need at least 1",
        ));
    }
    let device = wanted(Some(&args.device))?;
    let threads = args.threads.unwrap_or(default_threads());
    for workload in workloads {
        let checkpointed = args.checkpoint_blocks.min(workload.blocks());
        let case = Case {
            workload,
            batch: args.batch,
            micro,
            checkpointed,
            steps: args.steps,
        };
        let (row, peak) = on_threads(threads, || {
            let chosen = choose(device)?;
            let row = measure(case, &chosen.device)?;
            Ok((row, peak_gflops(&chosen.device)?))
        })?;
        show(case, &row, peak, threads, args.json);
    }
    Ok(())
}

fn show(case: Case, row: &Row, peak: f64, threads: usize, as_json: bool) {
    const MB: f64 = 1024.0 * 1024.0;
    let step = row.s_per_step;
    let (samples, tokens) = (
        case.batch as f64 / step.median,
        case.workload.tokens() as f64,
    );
    let peak_rss_mb = peak_rss_bytes() as f64 / MB;
    if as_json {
        let line = json!({
            "workload": case.workload.name(), "batch": case.batch, "micro": case.micro,
            "checkpoint_blocks": case.checkpointed, "steps": case.steps, "threads": threads,
            "params": row.parameters, "s_per_step": step, "samples_per_s": samples, "tokens_per_s": samples * tokens,
            "peak_rss_mb": peak_rss_mb, "state_mb": row.state_bytes as f64 / MB, "saved_mb": row.saved_bytes as f64 / MB,
            "matmul_peak_gflops": peak, "first_loss": row.losses.0, "last_loss": row.losses.1,
        });
        out!("{line}");
        return;
    }
    out!(
        "{:10} batch {:>3} in pieces of {:>3}: {:.3} s a step ({:.3} to {:.3}), {samples:.1} samples/s, peak {peak_rss_mb:.0} MB, state {:.0} MB, saved {:.0} MB",
        case.workload.name(),
        case.batch,
        case.micro,
        step.median,
        step.min,
        step.max,
        row.state_bytes as f64 / MB,
        row.saved_bytes as f64 / MB
    );
}

/// Highest footprint of this process: only a process of its own makes this a case's figure.
fn peak_rss_bytes() -> u64 {
    pressure::take_own_peak_bytes().unwrap_or_else(pressure::own_footprint_bytes)
}
