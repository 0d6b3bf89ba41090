//! The names of runs: what a user calls a run, or else the name of its dataset.

use runlog::RunNotes;

/// Longest name of a run, in characters.
pub const MAX_CHARS: usize = 200;

/// The name that a user gave a run, else the dataset's, else its id.
pub fn shown_name(id: &str, notes: &RunNotes, dataset: Option<&str>) -> String {
    let own = Some(notes.name.as_str()).filter(|name| !name.is_empty());
    own.or(dataset).unwrap_or(id).to_owned()
}

/// A name without spaces around it, cut to the longest name.
pub fn shortened(name: &str) -> String {
    name.trim().chars().take(MAX_CHARS).collect()
}

/// Whether another run has this name and this run does not. `names` are the ids and names of all.
/// Runs of one dataset have the same name until they are renamed, so an unchanged name is accepted.
pub fn is_taken<'a>(
    run: &str,
    name: &str,
    names: impl Iterator<Item = (&'a str, &'a str)>,
) -> bool {
    let same: Vec<&str> = names
        .filter(|(_, other)| other.to_lowercase() == name.to_lowercase())
        .map(|(id, _)| id)
        .collect();
    !name.is_empty() && !same.is_empty() && !same.contains(&run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_another_run_has_is_taken() {
        let names = [("r1", "birds"), ("r2", "birds"), ("r3", "Shelves")];
        let taken = |run: &str, name: &str| is_taken(run, name, names.into_iter());
        assert!(taken("r1", "shelves"));
        assert!(taken("r3", "birds"));
        assert!(!taken("r1", "birds"), "the name stays");
        assert!(!taken("r3", "shelves"), "only the capital changes");
        assert!(!taken("r1", "wrens"));
        assert!(!taken("r1", ""), "the dataset's name is restored");
    }

    #[test]
    fn a_name_is_trimmed_and_shortened() {
        assert_eq!(shortened("  garden birds\n"), "garden birds");
        assert_eq!(shortened(&"é".repeat(MAX_CHARS + 1)), "é".repeat(MAX_CHARS));
    }
}
