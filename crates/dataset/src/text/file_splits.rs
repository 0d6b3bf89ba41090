//! Decides which files are splits of their own, by their names: `train.csv` beside `test.csv`,
//! `data/train/x.jsonl`, `banking77_test.csv`. Opens no file.

use crate::types::Split;

/// The split of each file, given by its names from the folder down. Splits only count if there is a
/// training file and a file of another split.
pub(crate) fn splits_by_name(files: &[Vec<String>]) -> Vec<Option<Split>> {
    let splits: Vec<Option<Split>> = files.iter().map(|names| split_in_path(names)).collect();
    let has = |split: Split| splits.contains(&Some(split));
    if has(Split::Train) && (has(Split::HeldOut) || has(Split::Test)) {
        splits
    } else {
        vec![None; files.len()]
    }
}

/// The split that a path names: in a folder, or else in a word of the file name.
fn split_in_path(names: &[String]) -> Option<Split> {
    let (file, folders) = names.split_last()?;
    let by_folder = folders.iter().rev().find_map(|name| Split::from_name(name));
    let stem = file
        .rsplit_once('.')
        .map_or(file.as_str(), |(stem, _)| stem);
    let mut words = stem.split(|c: char| !c.is_alphanumeric());
    by_folder.or_else(|| words.find_map(split_in_word))
}

fn split_in_word(word: &str) -> Option<Split> {
    match word.to_lowercase().as_str() {
        "training" => Some(Split::Train),
        "dev" => Some(Split::HeldOut),
        _ => Split::from_name(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(paths: &[&str], expected: &[Option<Split>]) {
        let names: Vec<Vec<String>> = paths
            .iter()
            .map(|path| path.split('/').map(str::to_owned).collect())
            .collect();
        assert_eq!(splits_by_name(&names), expected, "{paths:?}");
    }

    #[test]
    fn files_and_folders_named_after_splits_are_splits() {
        let (train, held_out, test) = (Some(Split::Train), Some(Split::HeldOut), Some(Split::Test));
        check(
            &["train.csv", "dev.csv", "test.csv"],
            &[train, held_out, test],
        );
        check(
            &["banking77_train.csv", "banking77_test.csv", "notes.csv"],
            &[train, test, None],
        );
        check(
            &["data/train/a.jsonl", "data/validation/a.jsonl"],
            &[train, held_out],
        );
        check(
            &[
                "data/train-00000-of-00001.parquet",
                "data/test-00000-of-00001.parquet",
            ],
            &[train, test],
        );
    }

    #[test]
    fn a_split_name_without_another_split_has_no_meaning() {
        check(&["test.csv"], &[None]);
        check(&["train.csv", "more.csv"], &[None, None]);
        check(&["contest.csv", "trainers.csv"], &[None, None]);
    }
}
