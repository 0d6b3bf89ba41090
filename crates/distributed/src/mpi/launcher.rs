//! Finds out whether a launcher such as `mpirun` started this process, and as one of how many.

use super::library::VARIABLE;
use crate::error::{GroupError, Result};

/// Instead of a library: the process trains alone, also if a launcher started it.
const NO_LIBRARY: &str = "none";
/// Set by Open MPI's launcher with the option `--with-ft ulfm`.
const FAULT_TOLERANCE: &str = "OMPI_MCA_mpi_ft_enable";

/// A launcher that started this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Launcher {
    /// Number of processes that it started.
    pub(super) size: usize,
    /// Whether it is Open MPI's, whose library must then be loaded first.
    pub(super) is_open_mpi: bool,
    /// Whether it lets the other processes continue if one ends.
    pub(super) tolerates_faults: bool,
}

impl Launcher {
    /// The launcher according to environment variables. `None` if the process was started without
    /// one, or is to train alone. Slurm sets its variables in batch scripts, too, but those of PMI
    /// and PMIx only for processes that it starts as a group.
    ///
    /// # Errors
    /// A variable is not a number.
    pub(super) fn detect(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Launcher>> {
        if variable(VARIABLE).is_some_and(|library| library == NO_LIBRARY) {
            return Ok(None);
        }
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let is_in_group = ["PMI_RANK", "PMIX_RANK"]
            .iter()
            .any(|name| variable(name).is_some());
        let sizes = [
            ("OMPI_COMM_WORLD_SIZE", true, true),
            ("PMI_SIZE", true, false),
            ("SLURM_STEP_NUM_TASKS", is_in_group, true),
        ];
        for (name, counts, is_open_mpi) in sizes {
            let Some(value) = variable(name).filter(|_| counts) else {
                continue;
            };
            let size = value.trim().parse().ok().filter(|size| *size > 0);
            let size = size.ok_or_else(|| {
                GroupError::Unavailable(format!(
                    "the launcher's variable {name} = {value} is not a number of processes"
                ))
            })?;
            let tolerates_faults = variable(FAULT_TOLERANCE);
            return Ok(Some(Launcher {
                size,
                is_open_mpi,
                tolerates_faults: tolerates_faults
                    .is_some_and(|value| value == "1" || value == "true"),
            }));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(variables: &[(&str, &str)]) -> Result<Option<(usize, bool)>> {
        let find = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let found = Launcher::detect(find)?;
        Ok(found.map(|launcher| (launcher.size, launcher.is_open_mpi)))
    }

    #[test]
    fn a_launcher_that_tolerates_faults_is_recognized() {
        for (value, expected) in [("1", true), ("true", true), ("0", false), ("", false)] {
            let find = |name: &str| match name {
                "OMPI_COMM_WORLD_SIZE" => Some("3".to_owned()),
                FAULT_TOLERANCE => Some(value.to_owned()),
                _ => None,
            };
            let found = Launcher::detect(find).expect("the size is a number");
            let tolerates = found.map(|launcher| launcher.tolerates_faults);
            assert_eq!(tolerates, Some(expected), "{value}");
        }
    }

    #[test]
    fn launchers_are_found_by_their_variables() {
        assert_eq!(detect(&[]), Ok(None));
        assert_eq!(
            detect(&[("OMPI_COMM_WORLD_SIZE", "3")]),
            Ok(Some((3, true)))
        );
        assert_eq!(
            detect(&[("PMI_SIZE", "2"), ("PMI_RANK", "1")]),
            Ok(Some((2, false)))
        );
        // A batch script of Slurm starts no group by itself.
        assert_eq!(detect(&[("SLURM_STEP_NUM_TASKS", "4")]), Ok(None));
        let by_srun = [("SLURM_STEP_NUM_TASKS", "4"), ("PMIX_RANK", "0")];
        assert_eq!(detect(&by_srun), Ok(Some((4, true))));
        // Several independent runs on one allocation.
        let alone = [("OMPI_COMM_WORLD_SIZE", "3"), ("EBB_MPI", "none")];
        assert_eq!(detect(&alone), Ok(None));
        assert_eq!(detect(&[("OMPI_COMM_WORLD_SIZE", "")]), Ok(None));
        for wrong in ["many", "-1", "0"] {
            assert!(
                detect(&[("OMPI_COMM_WORLD_SIZE", wrong)]).is_err(),
                "{wrong}"
            );
        }
    }
}
