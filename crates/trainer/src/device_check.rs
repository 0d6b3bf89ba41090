//! Decides whether a GPU may be used. Before the first run on a GPU, every operation is compared
//! with the CPU. The result is saved for this version of Ebb on this version of the system. A GPU
//! that computes an operation wrong is refused with the operation's name; if that happens only in a
//! half precision, only that precision is refused.

mod findings;

pub use findings::Finding;

use crate::error::{Result, TrainError};
use crate::precision::Precision;
use findings::{compare_with_cpu, count_operations};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use tape::TapeError;
use tape::device::{DevicePreference, SelectedDevice, select_device, system_version};
use tape::kernels::allow;

/// Result of comparing a device with the CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCheck {
    /// Ebb's version.
    version: String,
    /// The system's version.
    system: String,
    /// `metal` or `cuda`.
    device: String,
    /// Number of operations and models compared.
    operations: usize,
    /// The first that is wrong in f32.
    failed: Option<String>,
    /// The first that is wrong in a half precision, by the name of the precision.
    #[serde(default)]
    failed_halves: BTreeMap<String, String>,
    /// The first that is wrong with Ebb's own kernels. The other fields are about the device
    /// without them.
    #[serde(default)]
    failed_kernel: Option<String>,
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
            ..DeviceCheck::blank(chosen)
        }
    }

    /// Compares a device with the CPU, with Ebb's own kernels, and again without them if anything
    /// is wrong. Calls `on_finding` for each finding at once. Returns the findings about the
    /// kernels that will be used.
    ///
    /// # Errors
    /// The table of operations cannot be built.
    pub fn run(
        chosen: &SelectedDevice,
        on_finding: &mut dyn FnMut(&Finding),
    ) -> Result<(Self, Vec<Finding>)> {
        allow(true);
        let findings = compare_with_cpu(chosen, on_finding)?;
        let with = DeviceCheck::new(chosen, &findings);
        let first = findings.iter().find(|finding| !finding.passed);
        let (Some(first), false) = (first, chosen.device.is_cpu()) else {
            return Ok((with, findings));
        };
        let failed = format!("{} in {}", first.what, first.precision);
        allow(false);
        let findings = compare_with_cpu(chosen, on_finding)?;
        let without = DeviceCheck {
            failed_kernel: Some(failed),
            ..DeviceCheck::new(chosen, &findings)
        };
        Ok((without, findings))
    }

    /// Number of operations and models compared.
    pub fn operations(&self) -> usize {
        self.operations
    }

    /// The first operation that is wrong with Ebb's own kernels, which are then not used.
    pub fn failed_kernel(&self) -> Option<&str> {
        self.failed_kernel.as_deref()
    }

    fn blank(chosen: &SelectedDevice) -> Self {
        DeviceCheck {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            system: system_version(),
            device: chosen.kind.to_string(),
            operations: 0,
            failed: None,
            failed_halves: BTreeMap::new(),
            failed_kernel: None,
        }
    }

    /// Reads a saved result; `None` unless it is about this version, system and device.
    fn load(path: &Path, chosen: &SelectedDevice) -> Option<Self> {
        let saved: DeviceCheck = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        let now = DeviceCheck::blank(chosen);
        let same = (&saved.version, &saved.system, &saved.device)
            == (&now.version, &now.system, &now.device);
        same.then_some(saved)
    }

    /// Saves the result. A failure is ignored: the comparison then runs again next time.
    pub fn save(&self, path: &Path) {
        if let (Some(parent), Ok(text)) = (path.parent(), serde_json::to_vec(self)) {
            let _ = std::fs::create_dir_all(parent).and_then(|()| std::fs::write(path, text));
        }
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

    /// The device, or the CPU if the device is wrong and the user did not ask for it.
    fn apply(self, chosen: SelectedDevice, wanted: DevicePreference) -> Result<SelectedDevice> {
        let kind = chosen.kind;
        if !chosen.device.is_cpu() {
            allow(self.failed_kernel.is_none());
        }
        match self.failed {
            None => {
                let without = self.failed_kernel.map_or(String::new(), |what| {
                    format!(", without Ebb's own kernels ({what} is wrong in them)")
                });
                let reason = format!("{}{without}, {} operations checked on this machine", chosen.reason, self.operations);
                Ok(SelectedDevice { reason, ..chosen })
            }
            Some(what) if wanted == DevicePreference::Auto => {
                let cpu = select_device(DevicePreference::Cpu)?;
                Ok(SelectedDevice { reason: format!("{kind} cannot be used on this machine: {what} is wrong"), ..cpu })
            }
            Some(what) => Err(TapeError::Device(format!(
                "{kind} cannot be used on this machine: {what} is wrong; choose --device cpu, or run `ebb doctor`"
            ))
            .into()),
        }
    }
}

/// Chooses a device and checks it if it is a GPU. The result of the check is saved at `path`.
///
/// # Errors
/// There is no such device, or it computes an operation wrong.
pub fn checked_device(wanted: DevicePreference, path: Option<&Path>) -> Result<SelectedDevice> {
    checked_device_for(wanted, Precision::F32, path)
}

/// As [`checked_device`], for a run that computes in `precision`.
///
/// # Errors
/// As [`checked_device`], or the device computes an operation wrong in this precision.
pub fn checked_device_for(
    wanted: DevicePreference,
    precision: Precision,
    path: Option<&Path>,
) -> Result<SelectedDevice> {
    let chosen = select_device(wanted)?;
    if chosen.device.is_cpu() {
        return Ok(chosen);
    }
    let saved = path.and_then(|path| DeviceCheck::load(path, &chosen));
    let check = match saved {
        Some(check) => check,
        None => {
            let (check, _) = DeviceCheck::run(&chosen, &mut |_| {})?;
            path.into_iter().for_each(|path| check.save(path));
            check
        }
    };
    check.check_precision(precision)?;
    check.apply(chosen, wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(second_passes: bool) -> Vec<Finding> {
        let finding = |what: &str, passed| Finding {
            precision: "f32",
            what: what.to_owned(),
            micro_batch: 2,
            difference: 0.0,
            detail: String::new(),
            passed,
        };
        vec![
            finding("linear", true),
            finding("conv2d 3x3", second_passes),
        ]
    }

    fn cpu() -> SelectedDevice {
        select_device(DevicePreference::Cpu).unwrap()
    }

    #[test]
    fn a_failed_device_is_refused_with_the_operation() {
        let check = DeviceCheck::new(&cpu(), &findings(false));
        let error = check
            .clone()
            .apply(cpu(), DevicePreference::Metal)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("conv2d 3x3 at micro-batch 2 is wrong"),
            "{error}"
        );
        let instead = check.apply(cpu(), DevicePreference::Auto).unwrap();
        assert_eq!(instead.kind, crate::DeviceKind::Cpu);
        assert!(instead.reason.contains("refused"), "{}", instead.reason);
    }

    #[test]
    fn a_failed_half_precision_alone_is_refused() {
        let mut findings = findings(true);
        findings[1].precision = "bf16";
        findings[1].passed = false;
        let check = DeviceCheck::new(&cpu(), &findings);
        let refused = check
            .check_precision(Precision::Bf16)
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("conv2d 3x3 at micro-batch 2 gives wrong results in bf16"),
            "{refused}"
        );
        assert!(check.check_precision(Precision::F32).is_ok());
        assert!(check.apply(cpu(), DevicePreference::Metal).is_ok());
    }

    #[test]
    fn a_saved_check_is_used_for_the_same_device_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/doctor.json");
        let check = DeviceCheck::new(&cpu(), &findings(true));
        check.save(&path);
        assert_eq!(DeviceCheck::load(&path, &cpu()), Some(check.clone()));
        assert_eq!(
            DeviceCheck::load(
                &path,
                &SelectedDevice {
                    kind: crate::DeviceKind::Metal,
                    ..cpu()
                }
            ),
            None
        );
        let chosen = check.apply(cpu(), DevicePreference::Auto).unwrap();
        assert!(
            chosen
                .reason
                .ends_with("2 operations checked on this machine"),
            "{}",
            chosen.reason
        );
    }
}
