//! Several machines that train together: `--on HOSTS`, and `ebb cluster`.

mod launcher;
mod probe;
pub mod supervised;
pub mod supervisor;

use super::args;
use super::failure::Failure;
use super::hosts::{Host, Hosts};
use super::output::out;
use launcher::Launcher;
use probe::{Answer, Probed, probe};
use runlog::{counted, format_bytes};
use serde_json::json;
use supervisor::run_together;
use trainer::RunGroup;

/// Runs `ebb cluster`.
pub fn run(args: &args::Cluster) -> Result<(), Failure> {
    if args.probe {
        let answer = serde_json::to_string(&Answer::here())
            .map_err(|error| Failure::new(format!("the answer cannot be written: {error}")))?;
        out!("{answer}");
        return Ok(());
    }
    let Some(hosts) = &args.hosts else {
        return Err(Failure::usage(
            "name the machines, such as localhost,air.local",
        ));
    };
    let probed = probe(&hosts.0);
    if args.json {
        let machines: Vec<_> = probed.iter().map(as_json).collect();
        out!("{}", json!({ "machines": machines }));
    } else {
        probed.iter().for_each(print);
    }
    let missing = probed
        .iter()
        .filter(|probed| probed.answer.is_err())
        .count();
    if missing > 0 {
        let of = probed.len();
        return Err(Failure::new(format!(
            "{missing} of {of} machines cannot take part"
        )));
    }
    measure(args, hosts)
}

/// Predicts how long the machines take for a step of a small language model.
fn measure(args: &args::Cluster, hosts: &Hosts) -> Result<(), Failure> {
    let hosts = args::OnHosts {
        on: Some(hosts.clone()),
        gpus: None,
        over: args.over.clone(),
        folder_here: None,
    };
    let mut line = vec!["plan", "--workload", "gpt", "--effective-batch", "64"];
    if args.json {
        line.push("--json");
    }
    let line = line.into_iter().map(Into::into).collect();
    run_together(&hosts, line, None)
}

/// The machines that share each step, this one once for each process; `None` if the run trains in
/// this process.
///
/// # Errors
/// This machine has fewer GPUs than the user asks for.
pub fn machines(hosts: &args::OnHosts) -> Result<Option<Hosts>, Failure> {
    let Some(wanted) = hosts.gpus else {
        return Ok(hosts.on.clone());
    };
    let found = RunGroup::nvidia_gpus();
    if found < wanted as usize {
        return Err(Failure::usage(format!(
            "--gpus {wanted}: this machine has {} that this build of Ebb can use",
            match found {
                0 => "no NVIDIA GPU".to_owned(),
                found => counted(found as u64, "NVIDIA GPU", "NVIDIA GPUs"),
            }
        )));
    }
    let here = Host {
        name: "localhost".to_owned(),
        folder: None,
    };
    Ok((wanted > 1).then(|| Hosts(vec![here; wanted as usize])))
}

/// The launcher and the library of MPI on this machine, as a sentence.
pub fn describe_mpi() -> String {
    let library = RunGroup::find_library();
    match (Launcher::find(), library) {
        (Ok(launcher), Ok(library)) => format!("{launcher}, {library}"),
        (Err(reason), Ok(library)) => format!("{library}, but {reason}"),
        (Ok(launcher), Err(reason)) => format!("{launcher}, but {reason}"),
        (Err(_), Err(_)) => "none; only a training on several machines needs it".to_owned(),
    }
}

/// The NCCL library of this machine, as a sentence.
pub fn describe_nccl() -> String {
    match RunGroup::find_nccl() {
        Ok(library) => library,
        Err(reason) if RunGroup::nvidia_gpus() > 1 => reason,
        Err(_) => "none; only a training on several NVIDIA GPUs of a machine needs it".to_owned(),
    }
}

fn print(probed: &Probed) {
    let name = &probed.host.name;
    match &probed.answer {
        Ok(answer) => out!(
            "{name}: {} cores, {}, {}",
            answer.cores,
            format_bytes(answer.total_bytes),
            answer.library.as_deref().unwrap_or("no MPI library")
        ),
        Err(reason) => out!("{name}: {reason}"),
    }
}

fn as_json(probed: &Probed) -> serde_json::Value {
    json!({
        "host": probed.host.name,
        "is_here": probed.is_here,
        "answer": probed.answer.as_ref().ok(),
        "problem": probed.answer.as_ref().err(),
    })
}
