//! Prepares the ranks of a group to train together.

use crate::error::Result;
use crate::plan::Plan;
use crate::run_group::{MachineLog, Owners, RunGroup, Subject, agree, checksum, gather_members};
use runlog::GroupMember;
use tape::Parameters;
use tape::device::SelectedDevice;

/// Compares the weights and the kind of machine of all ranks, because different processors round
/// differently, and who owns which parameter. Begins the log of the ranks. This one has
/// `total_bytes` of memory.
///
/// # Errors
/// Something differs. All ranks get the same error.
pub fn enter_group(
    group: &RunGroup,
    plan: &Plan,
    chosen: &SelectedDevice,
    parameters: &Parameters,
    owners: Option<&Owners>,
    total_bytes: u64,
) -> Result<MachineLog> {
    let described = parameters.iter().map(|parameter| {
        let tensor = &parameter.tensor;
        format!(
            "{} {:?} {:?}",
            parameter.name,
            tensor.dims(),
            tensor.dtype()
        )
    });
    let (kind, gpu) = (chosen.kind, chosen.gpu_name());
    let machine = format!("{} {kind} {gpu}", std::env::consts::ARCH);
    let subject = |noun, lines| Subject { noun, lines };
    agree(
        group,
        &[
            subject("kind of processor", vec![machine.trim().to_owned()]),
            subject("parameter", described.collect()),
            subject(
                "owner of a parameter",
                owners.map(Owners::lines).unwrap_or_default(),
            ),
            subject(
                "checksum of the weights",
                vec![checksum(parameters)?.to_string()],
            ),
        ],
    )?;
    let members = gather_members(
        group,
        GroupMember {
            rank: group.rank() as u32,
            host: group.member(group.rank()).host,
            device: format!("{kind} {gpu}").trim().to_owned(),
            threads: plan.threads,
            total_bytes,
        },
    )?;
    Ok(MachineLog::new(members))
}
