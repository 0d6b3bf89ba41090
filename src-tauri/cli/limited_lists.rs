//! Prints the first files or classes of a list, and how many more there are.

use super::output::out;
use dataset::{SkippedFile, SplitKind};
use runlog::format_count;
use std::collections::BTreeMap;

/// Maximum number of files in a list; JSON output lists all files.
pub const FILES_LISTED: usize = 10;
/// Maximum number of classes in a list; JSON output lists all classes.
pub const CLASSES_LISTED: usize = 100;

/// Prints which files were skipped and why. Of many files, prints only some.
pub fn describe_skipped(skipped: &[SkippedFile]) {
    if skipped.is_empty() {
        return;
    }
    out!("Skipped {}:", format_count(skipped.len() as u64));
    let (lines, described) = skipped_lines(skipped);
    for line in lines {
        out!("  {line}");
    }
    if described == skipped.len() && described > FILES_LISTED {
        out!("  `ebb inspect --json` lists all of these files");
    }
    describe_rest(skipped.len(), described);
}

/// One line per file, or, if there are more than `FILES_LISTED` files, one line per reason, the
/// rarest reason first (at most `FILES_LISTED` lines). Also returns the number of files that these
/// lines describe.
fn skipped_lines(skipped: &[SkippedFile]) -> (Vec<String>, usize) {
    if skipped.len() <= FILES_LISTED {
        let line = |file: &SkippedFile| format!("{}: {}", file.path.display(), file.reason);
        return (skipped.iter().map(line).collect(), skipped.len());
    }
    let mut by_reason: BTreeMap<&str, Vec<&SkippedFile>> = BTreeMap::new();
    for file in skipped {
        by_reason.entry(&file.reason).or_default().push(file);
    }
    let mut groups: Vec<(&str, Vec<&SkippedFile>)> = by_reason.into_iter().collect();
    groups.sort_by_key(|(_, files)| files.len());
    groups.truncate(FILES_LISTED);
    let line = |(reason, files): &(&str, Vec<&SkippedFile>)| {
        let first = files[0].path.display();
        match files.len() - 1 {
            0 => format!("{first}: {reason}"),
            more => format!("{first} and {} more: {reason}", format_count(more as u64)),
        }
    };
    let described = groups.iter().map(|(_, files)| files.len()).sum();
    (groups.iter().map(line).collect(), described)
}

/// Prints which samples are held out, or the split that the dataset defines.
pub fn describe_split(split: SplitKind, words: &str) {
    match split {
        SplitKind::Seeded { .. } => out!("Held out: {words}"),
        SplitKind::Given => out!("Split: {words}"),
    }
}

/// Prints how many of the `all` files or classes were not listed, if any.
pub fn describe_rest(all: usize, listed: usize) {
    if all > listed {
        let rest = format_count((all - listed) as u64);
        out!("  and {rest} more; `ebb inspect --json` lists all of them");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped(path: &str, reason: &str) -> SkippedFile {
        SkippedFile {
            path: path.into(),
            reason: reason.to_owned(),
        }
    }

    #[test]
    fn many_files_are_listed_by_reason_and_the_rare_reasons_first() {
        let mut files: Vec<SkippedFile> = (10..40)
            .map(|n| skipped(&format!("a/{n}.gif"), "The format is not supported."))
            .collect();
        files.push(skipped("z.jpg", "The image is damaged."));
        let (lines, described) = skipped_lines(&files);
        assert_eq!(
            lines,
            [
                "z.jpg: The image is damaged.",
                "a/10.gif and 29 more: The format is not supported."
            ]
        );
        assert_eq!(described, 31);
        let (lines, described) = skipped_lines(&files[..2]);
        assert_eq!(lines[1], "a/11.gif: The format is not supported.");
        assert_eq!((lines.len(), described), (2, 2));
    }
}
