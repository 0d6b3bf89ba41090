//! The duplicates of a folder, as `ebb inspect --find-duplicates` prints them.

use super::output::out;
use dataset::{DetectedDataset, DuplicateGroup, Duplicates};
use runlog::{counted, format_count};
use serde_json::{Value, json};

/// Number of groups that are printed, those that make an evaluation leak first; JSON output has all
/// groups.
const GROUPS_LISTED: usize = 10;

/// The groups, those with samples of several splits first.
fn sorted<'a>(found: &DetectedDataset, duplicates: &'a Duplicates) -> Vec<&'a DuplicateGroup> {
    let mut groups: Vec<&DuplicateGroup> = duplicates.groups.iter().collect();
    groups.sort_by_key(|group| !group.crosses_splits(found));
    groups
}

/// Prints the groups and what to do.
pub fn describe(found: &DetectedDataset, duplicates: &Duplicates) {
    let noun = found.task().sample_noun();
    let groups = sorted(found, duplicates);
    if groups.is_empty() {
        return out!("Duplicates: none");
    }
    let leaking = groups.iter().filter(|group| group.crosses_splits(found));
    let leaking = leaking.count() as u64;
    out!(
        "Duplicates: {} of {noun}s that are the same or nearly the same",
        counted(groups.len() as u64, "group", "groups")
    );
    for group in groups.iter().take(GROUPS_LISTED) {
        let kind = if group.is_exact { "same" } else { "similar" };
        let leaks = if group.crosses_splits(found) {
            ", in more than one split"
        } else {
            ""
        };
        out!("  {kind}{leaks}: {}", names(found, group).join(", "));
    }
    if groups.len() > GROUPS_LISTED {
        let more = format_count((groups.len() - GROUPS_LISTED) as u64);
        out!("  and {more} more; `--json` lists all");
    }
    if leaking > 0 {
        out!(
            "{} samples in more than one of the training, held-out and test sets, so the accuracy will look too good. Train with --duplicates leave-out.",
            counted(leaking, "group has", "groups have")
        );
    }
}

/// All groups.
pub fn as_json(found: &DetectedDataset, duplicates: &Duplicates) -> Value {
    let group = |group: &DuplicateGroup| {
        json!({
            "samples": names(found, group), "exact": group.is_exact,
            "crosses_splits": group.crosses_splits(found),
        })
    };
    sorted(found, duplicates).into_iter().map(group).collect()
}

/// The file of each sample, and the row of a text.
fn names(found: &DetectedDataset, group: &DuplicateGroup) -> Vec<String> {
    let name = |index: &u32| match found {
        DetectedDataset::Images(found) => {
            let file = found.files.get(*index as usize)?;
            Some(file.path.display().to_string())
        }
        DetectedDataset::Texts(found) => {
            let sample = found.samples.get(*index as usize)?;
            let file = found.files.get(sample.file as usize)?;
            let row = format_count(u64::from(sample.row) + 1);
            Some(format!("{} row {row}", file.path.display()))
        }
    };
    group.samples.iter().filter_map(name).collect()
}
