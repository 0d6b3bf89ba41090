//! Decides whether a GPU may be used. Before the first run on a GPU, every operation is compared
//! with the CPU. The result is saved for these kernels on this GPU under this version of the
//! system. Kernels of Ebb that compute an operation wrong in one precision are not used for it
//! there. A GPU that computes an operation wrong without them is refused with the operation's name;
//! if that happens only in a half precision, only that precision is refused.

mod background_check;
mod check_lock;
mod check_observer;
mod check_once;
mod compare_with_cpu;
mod difference;
mod low_priority_threads;
mod refuse_kernels;
mod small_models;

pub use background_check::BackgroundCheck;
pub use check_observer::CheckObserver;
pub use compare_with_cpu::Finding;
pub use refuse_kernels::RefusedKernels;

use crate::error::{Result, TrainError};
use crate::precision::Precision;
use candle_core::DType;
use check_lock::THIS_PROCESS;
use check_once::{MOST_UNFINISHED, decided_or_run, never_finished};
use compare_with_cpu::{CaseError, CheckCase, Reference, check_cases, count_operations};
use rayon::prelude::*;
use refuse_kernels::{compare_with, dtype_of, refuse_kernels};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::LazyLock;
use tape::device::{DeviceKind, DevicePreference, SelectedDevice, select_device, system_version};
use tape::kernels::{
    KernelGroup, LaunchTimer, TYPICAL_CONVOLUTIONS, allow, allow_all_except, fingerprint, load_all,
    take_used, use_direct_convolutions,
};
use tape::{TapeError, faster_convolutions};

/// Most bytes of a saved check.
const MAX_BYTES: u64 = 1 << 20;

/// Comparisons for which the CPU computes at once, while the device computes those before: few,
/// because all their results are in memory.
const REFERENCES_AT_ONCE: usize = 4;

/// What is compared beside the operations of the tape, and how.
const COMPARISONS: [&str; 3] = [
    include_str!("device_check/compare_with_cpu.rs"),
    include_str!("device_check/refuse_kernels.rs"),
    include_str!("device_check/small_models.rs"),
];

/// A hash of the sources of the tape and of the comparisons. The networks in `models` are not in
/// it: their operations are compared one by one.
fn hash_of_sources() -> &'static str {
    static HASH: LazyLock<String> = LazyLock::new(|| {
        let mut hasher = DefaultHasher::new();
        (fingerprint(), COMPARISONS).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    });
    &HASH
}

/// Result of comparing a device with the CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCheck {
    /// Ebb's version.
    version: String,
    /// The system's version.
    system: String,
    /// `metal` or `cuda`.
    device: String,
    /// The GPU's name.
    #[serde(default)]
    gpu: String,
    /// A hash of the sources that decide what the device computes and what is compared.
    #[serde(default)]
    kernels: String,
    /// Number of operations and models compared.
    operations: usize,
    /// The first that is wrong in f32.
    failed: Option<String>,
    /// The first that is wrong in a half precision, by the name of the precision.
    #[serde(default)]
    failed_halves: BTreeMap<String, String>,
    /// Ebb's own kernels that are not used. The fields above are about the device without them.
    #[serde(default)]
    refused_kernels: Vec<RefusedKernels>,
    /// The products of typical convolutions that are faster without columns in memory.
    #[serde(default)]
    direct_convolutions: Vec<String>,
    /// Number of checks that ended the process in the same comparison.
    #[serde(default)]
    unfinished: u32,
    /// Which comparison that was.
    #[serde(default)]
    unfinished_at: usize,
}

impl DeviceCheck {
    fn new(chosen: &SelectedDevice, findings: &[Finding]) -> Self {
        let mut failed = BTreeMap::new();
        for finding in findings.iter().filter(|finding| !finding.passed) {
            let what = format!("{} at micro-batch {}", finding.what, finding.micro_batch);
            failed.entry(finding.precision.to_owned()).or_insert(what);
        }
        DeviceCheck {
            failed: failed.remove("f32"),
            failed_halves: failed,
            operations: count_operations(findings),
            ..DeviceCheck::for_device(chosen)
        }
    }

    /// Compares a device with the CPU, first with all of Ebb's own kernels. What fails is compared
    /// again without the kernels that it used. Returns the findings about the kernels that will be
    /// used.
    ///
    /// A device that is lost during the check is replaced in `chosen`.
    ///
    /// # Errors
    /// The observer ended the check, the device is lost again and again, or it lacks memory or time
    /// even without Ebb's own kernels. This says nothing about its results.
    pub fn run(
        chosen: &mut SelectedDevice,
        observer: &mut dyn CheckObserver,
    ) -> Result<(Self, Vec<Finding>)> {
        let _kernels = load_all(&chosen.device);
        let (check, findings) = DeviceCheck::run_cases(&check_cases(), chosen, observer)?;
        // Both half precisions have the same choice, so that one that is right is measured.
        let mut halves = ["bf16", "f16"].into_iter();
        let half = halves.find(|half| !check.failed_halves.contains_key(*half));
        let types: Vec<DType> = match &check.failed {
            None => ["f32"].into_iter().chain(half).map(dtype_of).collect(),
            Some(_) => Vec::new(),
        };
        let check = DeviceCheck {
            direct_convolutions: direct_convolutions(chosen, &types, findings.len(), observer)?,
            ..check
        };
        Ok((check, findings))
    }

    /// Uses the convolutions without columns that the check saved at `path` chose for this device;
    /// if there is none, measures those of this type. For benchmarks, which do not check the
    /// device.
    ///
    /// # Errors
    /// The device failed.
    pub fn choose_convolutions(chosen: &SelectedDevice, dtype: DType, path: &Path) -> Result<()> {
        let saved = DeviceCheck::load(path, chosen).filter(|saved| saved.unfinished == 0);
        let direct = match saved {
            Some(saved) => saved.direct_convolutions,
            None => direct_convolutions(chosen, &[dtype], 0, &mut ())?,
        };
        use_direct_convolutions(&direct);
        Ok(())
    }

    /// As [`DeviceCheck::run`], but compares only the operations and models whose name contains
    /// `part`. The result must not be saved.
    ///
    /// # Errors
    /// As [`DeviceCheck::run`].
    pub fn run_only(
        part: &str,
        chosen: &mut SelectedDevice,
        observer: &mut dyn CheckObserver,
    ) -> Result<(Self, Vec<Finding>)> {
        let mut cases = check_cases();
        cases.retain(|case| case.name().contains(part));
        DeviceCheck::run_cases(&cases, chosen, observer)
    }

    fn run_cases(
        cases: &[CheckCase],
        chosen: &mut SelectedDevice,
        observer: &mut dyn CheckObserver,
    ) -> Result<(Self, Vec<Finding>)> {
        allow(true);
        let (mut findings, mut used) = (Vec::new(), Vec::new());
        let mut chunks = cases.chunks(REFERENCES_AT_ONCE).peekable();
        let mut references = chunks
            .peek()
            .map_or_else(Vec::new, |first| references_of(first));
        while let Some(chunk) = chunks.next() {
            let mut next = Vec::new();
            // The device is used by this thread only.
            rayon::in_place_scope(|scope| {
                let next = &mut next;
                if let Some(chunk) = chunks.peek() {
                    scope.spawn(move |_| *next = references_of(chunk));
                }
                for (case, reference) in chunk.iter().zip(references.drain(..)) {
                    if observer.progress(findings.len(), cases.len()).is_break() {
                        return Err(TrainError::CheckStopped);
                    }
                    take_used();
                    let (finding, error) = compare_with(case, reference, chosen)?;
                    observer.finding(&finding);
                    findings.push(finding);
                    let kernels = take_used();
                    // Without kernels to blame, a lack of memory or time says nothing about the
                    // results.
                    if let Some(error) = error
                        && kernels.is_empty()
                    {
                        return Err(error);
                    }
                    used.push(kernels);
                }
                Ok(())
            })?;
            references = next;
        }
        let refused_kernels = refuse_kernels(chosen, cases, &mut findings, &used, observer)?;
        let check = DeviceCheck {
            refused_kernels,
            ..DeviceCheck::new(chosen, &findings)
        };
        Ok((check, findings))
    }

    /// Runs the widest of what [`DeviceCheck::run`] compares once more, waiting for each of Ebb's
    /// own kernels, so that `tape::kernels::compiled` reports their times. The check itself never
    /// waits like this: training does not either.
    ///
    /// If the observer ends the measurement or the device fails, the times until then count.
    pub fn measure_kernels(chosen: &SelectedDevice, observer: &mut dyn CheckObserver) {
        let _timer = LaunchTimer::start();
        let mut cases = check_cases();
        cases.retain(|case| case.is_measured);
        for (done, case) in cases.iter().enumerate() {
            if observer.progress(done, cases.len()).is_break() {
                return;
            }
            // The check has reported what is wrong with an operation. A device that fails must not
            // be used further.
            let outcome = case.run_on_device(&chosen.device);
            if outcome.is_err_and(|error| error.fault().is_some()) {
                return;
            }
        }
    }

    /// Number of operations and models compared.
    pub fn operations(&self) -> usize {
        self.operations
    }

    /// Ebb's own kernels that are not used.
    pub fn refused_kernels(&self) -> &[RefusedKernels] {
        &self.refused_kernels
    }

    /// The half precisions that the device computes wrong, each with the comparison that failed.
    pub fn failed_halves(&self) -> &BTreeMap<String, String> {
        &self.failed_halves
    }

    /// The comparison that failed in f32: the device is not used at all.
    pub fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// A check of this device without a result yet.
    fn for_device(chosen: &SelectedDevice) -> Self {
        DeviceCheck::for_gpu(chosen.kind, chosen.gpu_name())
    }

    /// A check of the GPU with this name without a result yet.
    fn for_gpu(kind: DeviceKind, name: String) -> Self {
        DeviceCheck {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            system: system_version(),
            device: kind.to_string(),
            gpu: name,
            kernels: hash_of_sources().to_owned(),
            operations: 0,
            failed: None,
            failed_halves: BTreeMap::new(),
            refused_kernels: Vec::new(),
            direct_convolutions: Vec::new(),
            unfinished: 0,
            unfinished_at: 0,
        }
    }

    /// Reads a saved result; `None` unless it is about these kernels, this system and this GPU.
    fn load(path: &Path, chosen: &SelectedDevice) -> Option<Self> {
        let saved = DeviceCheck::load_for_any_gpu(path, chosen.kind)?;
        (saved.gpu == chosen.gpu_name()).then_some(saved)
    }

    /// As [`DeviceCheck::load`], for a device that is not made yet.
    fn load_for_any_gpu(path: &Path, kind: DeviceKind) -> Option<Self> {
        let saved: DeviceCheck =
            serde_json::from_slice(&disk::read_limited(path, MAX_BYTES).ok()?).ok()?;
        let now = DeviceCheck::for_gpu(kind, String::new());
        let is_same = saved.version == now.version
            && saved.system == now.system
            && saved.device == now.device
            && saved.kernels == now.kernels;
        is_same.then_some(saved)
    }

    /// Saves the result. A failure is ignored: the comparison then runs again next time.
    pub fn save(&self, path: &Path) {
        if let (Some(parent), Ok(text)) = (path.parent(), serde_json::to_vec(self)) {
            let _ = disk::create_dir_all(parent).and_then(|()| disk::write_atomic(path, &text));
        }
    }

    /// What is known about the device: the operation that it computes wrong, if any. `None` if a
    /// check has to be repeated.
    fn outcome(&self) -> Option<std::result::Result<(), String>> {
        match (self.unfinished, &self.failed) {
            (0, None) => Some(Ok(())),
            (0, Some(what)) => Some(Err(what.clone())),
            (MOST_UNFINISHED.., _) => Some(Err(never_finished(self.unfinished))),
            _ => None,
        }
    }

    /// Allows and refuses Ebb's own kernels for the runs of this process. Another run may compute
    /// meanwhile, so all of it changes at once.
    fn apply_to_kernels(&self) {
        allow_all_except(self.refused_kernels.iter().filter_map(|refused| {
            let mut groups = KernelGroup::ALL.into_iter();
            let group = groups.find(|group| group.name() == refused.group)?;
            Some((group, dtype_of(&refused.precision)))
        }));
        use_direct_convolutions(&self.direct_convolutions);
    }

    /// Whether it is about this device.
    fn is_about(&self, chosen: &SelectedDevice) -> bool {
        self.device == chosen.kind.name() && self.gpu == chosen.gpu_name()
    }

    /// Refuses a precision that the device computes wrong.
    fn check_precision(&self, precision: Precision) -> Result<()> {
        let name = precision.name();
        match self.failed_halves.get(name) {
            None => Ok(()),
            Some(what) => Err(TrainError::Setting {
                key: "precision",
                value: name.to_owned(),
                allowed: format!(
                    "{what} gives wrong results in {name} on {}; choose f32, or run `ebb doctor`",
                    self.device
                ),
            }),
        }
    }

    /// The text after the name of a device that passed the check: which kernels and precisions are
    /// not used on it, and how many operations were checked. Begins with a comma. `machine` is
    /// `Mac` or `machine`.
    fn passed(&self, machine: &str) -> String {
        let groups = self.refused_kernels.iter().map(|r| r.group.as_str());
        let groups: BTreeSet<&str> = groups.collect();
        let halves: Vec<&str> = self.failed_halves.keys().map(String::as_str).collect();
        let mut text = String::new();
        if !groups.is_empty() {
            let groups: Vec<&str> = groups.into_iter().collect();
            text += &format!(
                ", without Ebb's own kernels for {} (they failed the check here)",
                groups.join(", ")
            );
        }
        if !halves.is_empty() {
            text += &format!(", without {} (wrong results here)", halves.join(" and "));
        }
        text + &format!(", {} operations checked on this {machine}", self.operations)
    }

    /// The device, or the CPU if the device is wrong and the user did not ask for it.
    fn apply(self, chosen: SelectedDevice, wanted: DevicePreference) -> Result<SelectedDevice> {
        let kind = chosen.kind;
        if !chosen.device.is_cpu() {
            self.apply_to_kernels();
        }
        match self.failed {
            None => {
                let reason = format!("{}{}", chosen.reason, self.passed("machine"));
                Ok(SelectedDevice { reason, ..chosen })
            }
            Some(what) if wanted == DevicePreference::Auto => {
                let cpu = select_device(DevicePreference::Cpu)?;
                let reason = format!("{kind} cannot be used on this machine, because the check of {what} failed");
                Ok(SelectedDevice { reason, ..cpu })
            }
            Some(what) => Err(TapeError::Device(format!(
                "{kind} cannot be used on this machine, because the check of {what} failed; choose --device cpu, or run `ebb doctor`"
            ))
            .into()),
        }
    }
}

/// The references of several cases, in order.
fn references_of(cases: &[CheckCase]) -> Vec<std::result::Result<Reference, CaseError>> {
    cases.par_iter().map(CheckCase::reference).collect()
}

/// The products of typical convolutions that are faster without columns on this device, in these
/// types. They decide how other convolutions are computed, so they are measured once and saved:
/// runs on one GPU always compute in the same way. `compared` comparisons were made before.
///
/// # Errors
/// The device failed, or the observer ended the check.
fn direct_convolutions(
    chosen: &SelectedDevice,
    types: &[DType],
    compared: usize,
    observer: &mut dyn CheckObserver,
) -> Result<Vec<String>> {
    let mut direct = Vec::new();
    if chosen.device.is_cpu() {
        return Ok(direct);
    }
    let total = compared + types.len() * TYPICAL_CONVOLUTIONS;
    for (before, &dtype) in types.iter().enumerate() {
        for index in 0..TYPICAL_CONVOLUTIONS {
            let done = compared + before * TYPICAL_CONVOLUTIONS + index;
            if observer.progress(done, total).is_break() {
                return Err(TrainError::CheckStopped);
            }
            direct.extend(faster_convolutions(index, dtype, &chosen.device)?);
        }
    }
    Ok(direct)
}

/// Chooses a device and checks it if it is a GPU. The result of the check is saved at `path`.
///
/// # Errors
/// There is no such device, or it computes an operation wrong.
pub fn checked_device(wanted: DevicePreference, path: Option<&Path>) -> Result<SelectedDevice> {
    checked_device_for(wanted, Precision::F32, path, &mut ())
}

/// As [`checked_device`], for a run that computes in `precision`. If another thread checks the
/// device already, the observer follows that check, and ends it if it breaks. A device that passed
/// is not checked again in this process: another check would allow and refuse kernels while a run
/// computes with them.
///
/// # Errors
/// As [`checked_device`], the device computes an operation wrong in this precision, or the observer
/// ended the check.
pub fn checked_device_for(
    wanted: DevicePreference,
    precision: Precision,
    path: Option<&Path>,
    observer: &mut dyn CheckObserver,
) -> Result<SelectedDevice> {
    if wanted == DevicePreference::Cpu {
        return Ok(select_device(wanted)?);
    }
    let guard = THIS_PROCESS.lock(observer)?;
    let mut chosen = select_device(wanted)?;
    if chosen.device.is_cpu() {
        return Ok(chosen);
    }
    let mut observer = guard.observe(observer);
    let outcome = decided_or_run(&guard, &mut chosen, path, &mut observer, DeviceCheck::run);
    checked(outcome, chosen, wanted, precision)
}

/// The device with the outcome of its check. If it failed during the check and the user did not ask
/// for it, the CPU.
fn checked(
    outcome: Result<DeviceCheck>,
    chosen: SelectedDevice,
    wanted: DevicePreference,
    precision: Precision,
) -> Result<SelectedDevice> {
    let check = match outcome {
        Err(error) if error.device_fault().is_some() && wanted == DevicePreference::Auto => {
            let cpu = select_device(DevicePreference::Cpu)?;
            let reason = format!("{} failed while it was checked: {error}", chosen.kind);
            return Ok(SelectedDevice { reason, ..cpu });
        }
        outcome => outcome?,
    };
    check.check_precision(precision)?;
    check.apply(chosen, wanted)
}

#[cfg(test)]
mod tests;
