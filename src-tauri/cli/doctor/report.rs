//! What `ebb doctor` finds out: the same report is printed as text or JSON, and written as a page.

use super::super::cluster::{describe_mpi, describe_nccl};
use super::super::failure::Failure;
use crate::machine_info;
use pressure::{MemorySource, Monitor};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use trainer::{DeviceCheck, Finding, Machine, SelectedDevice, default_threads};

/// How long `ebb doctor` measures the CPU time of the memory monitor.
const MONITORED: Duration = Duration::from_secs(2);

/// Facts about the machine, known before the check.
#[derive(Serialize)]
pub struct MachineReport {
    /// Ebb's version.
    pub version: &'static str,
    /// The maker's name of the machine, such as `Mac16,5`. Empty if it is unknown, as are chip and
    /// system.
    pub model: String,
    pub chip: String,
    /// The system with its version.
    pub system: String,
    pub architecture: &'static str,
    pub cpu_threads: usize,
    pub total_bytes: u64,
    pub available_bytes: u64,
    /// Where the memory usage is read.
    pub memory_source: String,
    pub monitor: MonitorCost,
    /// The launcher and the library of MPI, which connects several machines.
    pub mpi: String,
    /// The NCCL library, which connects the NVIDIA GPUs of one machine.
    pub nccl: String,
    /// The device that is checked: `cpu`, `cuda` or `metal`.
    pub device: &'static str,
    /// Why this device was chosen.
    pub reason: String,
    /// `None` if the device is the CPU.
    pub gpu: Option<GpuReport>,
}

#[derive(Serialize)]
pub struct GpuReport {
    /// Such as `applegpu_g16s`.
    pub name: String,
    /// Such as `Apple 9`.
    pub family: String,
    /// Bytes that Ebb may use at most: on a Mac the recommended working set.
    pub limit_bytes: u64,
}

/// What reading the memory usage costs.
#[derive(Serialize)]
pub struct MonitorCost {
    /// CPU time of the monitor's thread, as a fraction of one core.
    pub core_fraction: f64,
    pub readings_per_second: f64,
}

/// One of Ebb's own kernels.
#[derive(Serialize)]
pub struct KernelReport {
    pub name: String,
    /// Most threads of a group that the GPU allows for this kernel.
    pub most_threads: usize,
    /// Time of its widest launch in milliseconds, with the launch and the wait for the device;
    /// `None` if it was not measured.
    pub ms: Option<f64>,
}

/// The result of `ebb doctor`.
#[derive(Serialize)]
pub struct DoctorReport {
    #[serde(flatten)]
    pub machine: MachineReport,
    /// Sentences about everything that Ebb does not use here because it gives wrong results.
    pub fell_back: Vec<String>,
    pub kernels: Vec<KernelReport>,
    pub check: DeviceCheck,
    pub findings: Vec<Finding>,
    /// How long the check took.
    pub seconds: f64,
}

impl MachineReport {
    /// Reads the facts. Measures the memory monitor for two seconds.
    pub fn read(chosen: &SelectedDevice) -> Result<Self, Failure> {
        let mut source = Machine::default().open()?;
        let sample = source.sample()?;
        Ok(MachineReport {
            version: env!("CARGO_PKG_VERSION"),
            model: machine_info::model(),
            chip: machine_info::chip().to_owned(),
            system: machine_info::system(),
            architecture: std::env::consts::ARCH,
            cpu_threads: default_threads(),
            total_bytes: sample.total_bytes,
            available_bytes: sample.available_bytes,
            memory_source: source.describe(),
            monitor: monitor_cost(source),
            mpi: describe_mpi(),
            nccl: describe_nccl(),
            device: chosen.kind.name(),
            reason: chosen.reason.clone(),
            gpu: (!chosen.device.is_cpu()).then(|| GpuReport {
                name: chosen.gpu_name(),
                family: chosen.gpu_family(),
                limit_bytes: chosen.limit_bytes(),
            }),
        })
    }

    /// Model, chip and system in one line, as far as they are known.
    pub fn name(&self) -> String {
        let mut known = vec![self.model.as_str(), &self.chip, &self.system];
        known.retain(|part| !part.is_empty());
        known.join(", ")
    }
}

impl DoctorReport {
    /// Makes the report from the results of the check.
    pub fn new(
        machine: MachineReport,
        chosen: &SelectedDevice,
        check: DeviceCheck,
        findings: Vec<Finding>,
        took: Duration,
    ) -> Self {
        let kernels = trainer::compiled_kernels(&chosen.device).into_iter();
        DoctorReport {
            fell_back: fell_back(&check, machine.device),
            machine,
            kernels: kernels
                .map(|kernel| KernelReport {
                    name: kernel.name,
                    most_threads: kernel.most_threads,
                    ms: kernel.ms,
                })
                .collect(),
            check,
            findings,
            seconds: took.as_secs_f64(),
        }
    }
}

fn fell_back(check: &DeviceCheck, device: &str) -> Vec<String> {
    let kernels = check.refused_kernels().iter().map(|refused| {
        format!(
            "Ebb does not use its own kernels for {} in {} on this machine, because these kernels give wrong results for {}",
            refused.group, refused.precision, refused.what
        )
    });
    let halves = check.failed_halves().iter().map(|(precision, what)| {
        format!(
            "Ebb does not compute in {precision} on {device} on this machine, because {what} gives wrong results"
        )
    });
    let whole = check.failed().map(|what| {
        format!("Ebb does not use {device} on this machine, because {what} gives wrong results")
    });
    kernels.chain(halves).chain(whole).collect()
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
