//! Compares the plan and the dataset of all ranks of a group before the first step.

use crate::data::{MAX_TOKENIZER_BYTES, TOKENIZER};
use crate::error::{Result, TrainError, at};
use crate::plan::Plan;
use crate::run_group::{RunGroup, Subject, agree};
use crate::sample_manifest::{self, RunDataset};
use dataset::DetectedDataset;
use runlog::{Group, RunFolder, SETTINGS, Setting};

/// Makes sure that all ranks of a resumed run have its samples.
///
/// # Errors
/// The folder of this rank is missing, or the ranks have different files.
pub(super) fn agree_on_files(group: &RunGroup, run: &RunFolder) -> Result<()> {
    if group.is_alone() {
        return Ok(());
    }
    let dataset = RunDataset::read(run)?;
    if let Some(missing) = dataset.missing() {
        let missing = missing.display();
        let message = format!(
            "{missing} is not on this machine, and Ebb does not send samples; copy the folder to this machine (rsync -a {missing} THIS_MACHINE:…), or pass its path on this machine with --folder"
        );
        return Err(TrainError::NotTrainable { message });
    }
    let mut lines = sample_manifest::missing_files(&dataset.found);
    if lines.is_empty() {
        lines.push("none".to_owned());
    }
    let noun = "sample file that is missing or has another size";
    agree(group, &[Subject { noun, lines }])
}

/// Compares version, settings, samples and vocabulary of all ranks.
///
/// # Errors
/// Something differs, or the vocabulary cannot be read.
pub(super) fn agree_on_run(
    group: &RunGroup,
    plan: &Plan,
    found: &DetectedDataset,
    run: &RunFolder,
) -> Result<()> {
    if group.is_alone() {
        return Ok(());
    }
    let tokenizer = run.path.join(TOKENIZER);
    let vocabulary = if tokenizer.exists() {
        let text = disk::read_text_limited(&tokenizer, MAX_TOKENIZER_BYTES);
        let text = text.map_err(at(&tokenizer))?;
        text.lines().map(str::to_owned).collect()
    } else {
        Vec::new()
    };
    let subject = |noun, lines| Subject { noun, lines };
    agree(
        group,
        &[
            subject("version of Ebb", vec![env!("CARGO_PKG_VERSION").to_owned()]),
            subject("setting", settings(plan)),
            subject("entry of the dataset", sample_manifest::lines(found)),
            subject("line of the vocabulary", vocabulary),
        ],
    )
}

/// The settings that decide the result of the training. Memory, threads and the place of files are
/// each machine's own matter.
fn settings(plan: &Plan) -> Vec<String> {
    let values = serde_json::to_value(&plan.config).unwrap_or_default();
    let decides = |setting: &&Setting| match setting.group {
        Group::Memory => false,
        Group::Compute => {
            ["precision", "exchange", "sharding", "sync_every"].contains(&setting.key)
        }
        Group::Data | Group::Model => !["folder", "from"].contains(&setting.key),
        Group::Training | Group::Compression | Group::Run => true,
    };
    let line = |setting: &Setting| {
        let value = values.get(setting.key).cloned().unwrap_or_default();
        format!("{} = {value}", setting.key)
    };
    SETTINGS.iter().filter(decides).map(line).collect()
}
