//! Which files are parts of their own, by their names: `train.csv` beside `test.csv`, `data/train/x.jsonl`,
//! `banking77_test.csv`. Opens no file.

use crate::inspection::Part;
use crate::layout::part_of;

/// The part that each file stands for. Meant only where a file to train on has a companion of another part.
pub(crate) fn of(files: &[&[String]]) -> Vec<Option<Part>> {
    let parts: Vec<Option<Part>> = files.iter().map(|names| claimed(names)).collect();
    let has = |part: Part| parts.contains(&Some(part));
    match has(Part::Train) && (has(Part::HeldOut) || has(Part::Test)) {
        true => parts,
        false => vec![None; files.len()],
    }
}

/// The part that a path claims: by a folder on the way, else by a word of the file's name.
fn claimed(names: &[String]) -> Option<Part> {
    let (file, folders) = names.split_last()?;
    let by_folder = folders.iter().rev().find_map(|folder| part_of(folder));
    let stem = file
        .rsplit_once('.')
        .map_or(file.as_str(), |(stem, _)| stem);
    let words = stem.split(|c: char| !c.is_alphanumeric());
    by_folder.or_else(|| words.filter(|word| !word.is_empty()).find_map(word_part))
}

fn word_part(word: &str) -> Option<Part> {
    match word.to_lowercase().as_str() {
        "training" => Some(Part::Train),
        "dev" => Some(Part::HeldOut),
        _ => part_of(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(paths: &[&str], expected: &[Option<Part>]) {
        let names: Vec<Vec<String>> = paths
            .iter()
            .map(|path| path.split('/').map(str::to_owned).collect())
            .collect();
        let views: Vec<&[String]> = names.iter().map(Vec::as_slice).collect();
        assert_eq!(of(&views), expected, "{paths:?}");
    }

    #[test]
    fn files_and_folders_named_after_parts_are_parts() {
        let (train, held_out, test) = (Some(Part::Train), Some(Part::HeldOut), Some(Part::Test));
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
    fn a_part_without_a_companion_is_a_name_like_others() {
        check(&["test.csv"], &[None]);
        check(&["train.csv", "more.csv"], &[None, None]);
        check(&["contest.csv", "trainers.csv"], &[None, None]);
    }
}
