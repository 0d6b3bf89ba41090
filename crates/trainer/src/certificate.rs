//! Whether a GPU is trusted: before the first run on it every operation is compared with the CPU; the outcome is remembered
//! for this version of Ebb on this version of the system. A GPU that fails is refused by the name of what failed; one that fails
//! in a half precision only is refused for that precision.

use crate::doctor::{Finding, examine, operations};
use crate::error::{Result, TrainError};
use crate::precision::Precision;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use tape::TapeError;
use tape::device::{DevicePreference, SelectedDevice, select_device, system_version};
use tape::kernels::allow;

/// What an examination came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// Ebb's version.
    version: String,
    /// The system's version.
    system: String,
    /// `metal` or `cuda`.
    device: String,
    /// Operations and models examined.
    operations: usize,
    /// The first that is wrong.
    failed: Option<String>,
    /// The first that is wrong in a half precision, by the precision's name.
    #[serde(default)]
    failed_halves: BTreeMap<String, String>,
    /// The first that Ebb's own kernels did wrong here: the rest was examined, and runs, without them.
    #[serde(default)]
    failed_kernel: Option<String>,
}

impl Certificate {
    /// Sums an examination up.
    pub fn of(chosen: &SelectedDevice, findings: &[Finding]) -> Self {
        let mut failed = BTreeMap::new();
        for finding in findings.iter().filter(|finding| !finding.passed) {
            let what = format!("{} at micro-batch {}", finding.what, finding.micro_batch);
            failed.entry(finding.precision.to_owned()).or_insert(what);
        }
        Certificate {
            failed: failed.remove("f32"),
            failed_halves: failed,
            operations: operations(findings),
            ..Certificate::blank(chosen)
        }
    }

    /// Examines a device with Ebb's own kernels, and where anything is wrong once more without them. `seen` hears each finding
    /// as it is made; the findings returned are those of the forms that will run.
    pub fn examined(
        chosen: &SelectedDevice,
        seen: &mut dyn FnMut(&Finding),
    ) -> Result<(Self, Vec<Finding>)> {
        allow(true);
        let findings = examine(chosen, seen)?;
        let with = Certificate::of(chosen, &findings);
        let first = findings.iter().find(|finding| !finding.passed);
        let (Some(first), false) = (first, chosen.device.is_cpu()) else {
            return Ok((with, findings));
        };
        let failed = format!("{} in {}", first.what, first.precision);
        allow(false);
        let findings = examine(chosen, seen)?;
        let without = Certificate {
            failed_kernel: Some(failed),
            ..Certificate::of(chosen, &findings)
        };
        Ok((without, findings))
    }

    /// What Ebb's own kernels did wrong here, if anything.
    pub fn failed_kernel(&self) -> Option<&str> {
        self.failed_kernel.as_deref()
    }

    fn blank(chosen: &SelectedDevice) -> Self {
        Certificate {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            system: system_version(),
            device: chosen.kind.to_string(),
            operations: 0,
            failed: None,
            failed_halves: BTreeMap::new(),
            failed_kernel: None,
        }
    }

    /// The remembered one, if it speaks of this version, system and device.
    fn read(path: &Path, chosen: &SelectedDevice) -> Option<Self> {
        let kept: Certificate = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
        let now = Certificate::blank(chosen);
        let same =
            (&kept.version, &kept.system, &kept.device) == (&now.version, &now.system, &now.device);
        same.then_some(kept)
    }

    /// Remembers it. Failing to costs another examination next time, nothing else.
    pub fn keep(&self, path: &Path) {
        if let (Some(parent), Ok(text)) = (path.parent(), serde_json::to_vec(self)) {
            let _ = std::fs::create_dir_all(parent).and_then(|()| std::fs::write(path, text));
        }
    }

    /// Refuses a precision that the device computes wrong.
    fn allow(&self, precision: Precision) -> Result<()> {
        let name = precision.name();
        match self.failed_halves.get(name) {
            None => Ok(()),
            Some(what) => Err(TrainError::Setting {
                key: "precision",
                value: name.to_owned(),
                allowed: format!(
                    "{what} is wrong in {name} on {}; choose f32, or see `ebb doctor`",
                    self.device
                ),
            }),
        }
    }

    /// The device with the certificate's word on it, or what takes its place.
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
                Ok(SelectedDevice { reason: format!("{kind} is refused here: {what} is wrong on it"), ..cpu })
            }
            Some(what) => Err(TapeError::Device(format!(
                "{kind} is refused here: {what} is wrong on it; choose --device cpu, or see `ebb doctor`"
            ))
            .into()),
        }
    }
}

/// The device that a run may use: a GPU only after it has passed.
pub fn trusted(wanted: DevicePreference, path: Option<&Path>) -> Result<SelectedDevice> {
    trusted_in(wanted, Precision::F32, path)
}

/// As [`trusted`], for a run that computes in `precision`.
pub fn trusted_in(
    wanted: DevicePreference,
    precision: Precision,
    path: Option<&Path>,
) -> Result<SelectedDevice> {
    let chosen = select_device(wanted)?;
    if chosen.device.is_cpu() {
        return Ok(chosen);
    }
    let kept = path.and_then(|path| Certificate::read(path, &chosen));
    let certificate = match kept {
        Some(certificate) => certificate,
        None => {
            let (certificate, _) = Certificate::examined(&chosen, &mut |_| {})?;
            path.into_iter().for_each(|path| certificate.keep(path));
            certificate
        }
    };
    certificate.allow(precision)?;
    certificate.apply(chosen, wanted)
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
    fn a_device_that_fails_is_refused_by_the_name_of_what_failed() {
        let certificate = Certificate::of(&cpu(), &findings(false));
        let error = certificate
            .clone()
            .apply(cpu(), DevicePreference::Metal)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("conv2d 3x3 at micro-batch 2 is wrong"),
            "{error}"
        );
        let instead = certificate.apply(cpu(), DevicePreference::Auto).unwrap();
        assert_eq!(instead.kind, crate::DeviceKind::Cpu);
        assert!(instead.reason.contains("refused"), "{}", instead.reason);
    }

    #[test]
    fn a_device_that_fails_in_a_half_is_refused_for_that_half_alone() {
        let mut findings = findings(true);
        findings[1].precision = "bf16";
        findings[1].passed = false;
        let certificate = Certificate::of(&cpu(), &findings);
        let refused = certificate.allow(Precision::Bf16).unwrap_err().to_string();
        assert!(
            refused.contains("conv2d 3x3 at micro-batch 2 is wrong in bf16"),
            "{refused}"
        );
        assert!(certificate.allow(Precision::F32).is_ok());
        assert!(certificate.apply(cpu(), DevicePreference::Metal).is_ok());
    }

    #[test]
    fn a_certificate_is_remembered_for_the_same_device_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept/doctor.json");
        let certificate = Certificate::of(&cpu(), &findings(true));
        certificate.keep(&path);
        assert_eq!(Certificate::read(&path, &cpu()), Some(certificate.clone()));
        assert_eq!(
            Certificate::read(
                &path,
                &SelectedDevice {
                    kind: crate::DeviceKind::Metal,
                    ..cpu()
                }
            ),
            None
        );
        let chosen = certificate.apply(cpu(), DevicePreference::Auto).unwrap();
        assert!(
            chosen
                .reason
                .ends_with("2 operations checked on this machine"),
            "{}",
            chosen.reason
        );
    }
}
