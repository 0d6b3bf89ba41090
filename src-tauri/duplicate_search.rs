//! The search for duplicates in one folder, in the background.

use crate::lock_mutex::lock;
use dataset::{DetectedDataset, Duplicates, find_duplicates};
use std::sync::{Arc, Mutex};
use tauri::async_runtime::spawn_blocking;

/// The search, and what it found.
#[derive(Default)]
pub struct DuplicateSearch {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    progress: Progress,
    /// Grows when a search is no longer wanted.
    generation: u64,
}

/// How far a search is.
#[derive(Default, Clone)]
pub enum Progress {
    /// None was started.
    #[default]
    Idle,
    /// Samples read so far, and all samples.
    Reading(u64, u64),
    /// The samples that were searched, and their duplicates.
    Done(Arc<DetectedDataset>, Arc<Duplicates>),
    /// Why it failed.
    Failed(String),
}

impl DuplicateSearch {
    /// How far the search is.
    pub fn progress(&self) -> Progress {
        lock(&self.state).progress.clone()
    }

    /// The duplicates of these samples, if the search has found them.
    pub fn found(&self, samples: &DetectedDataset) -> Option<Arc<Duplicates>> {
        match self.progress() {
            Progress::Done(searched, found) if searched.has_same_samples(samples) => Some(found),
            _ => None,
        }
    }

    /// The duplicates of these samples; searches now if that was not done yet.
    ///
    /// # Errors
    /// A file of texts has changed.
    pub fn find(&self, samples: &Arc<DetectedDataset>) -> Result<Arc<Duplicates>, String> {
        if let Some(found) = self.found(samples) {
            return Ok(found);
        }
        let found = find_duplicates(samples, &|_| true).map_err(|error| error.to_string())?;
        let found = Arc::new(found.unwrap_or_default());
        let mut state = lock(&self.state);
        state.generation += 1;
        state.progress = Progress::Done(Arc::clone(samples), Arc::clone(&found));
        Ok(found)
    }

    /// Starts to search these samples, unless that is done or under way.
    pub fn start(self: &Arc<Self>, samples: &Arc<DetectedDataset>) {
        let total = sample_count(samples);
        let generation = {
            let mut state = lock(&self.state);
            let begun = match &state.progress {
                Progress::Reading(..) => true,
                Progress::Done(searched, _) => searched.has_same_samples(samples),
                Progress::Idle | Progress::Failed(_) => false,
            };
            if begun {
                return;
            }
            state.generation += 1;
            state.progress = Progress::Reading(0, total);
            state.generation
        };
        let (search, samples) = (Arc::clone(self), Arc::clone(samples));
        spawn_blocking(move || {
            let found = find_duplicates(&samples, &|read| {
                let mut state = lock(&search.state);
                let wanted = state.generation == generation;
                if wanted {
                    state.progress = Progress::Reading(read, total);
                }
                wanted
            });
            let mut state = lock(&search.state);
            if state.generation == generation {
                state.progress = match found {
                    Ok(Some(found)) => Progress::Done(samples, Arc::new(found)),
                    Ok(None) => Progress::Idle,
                    Err(error) => Progress::Failed(error.to_string()),
                };
            }
        });
    }

    /// Ends a search that is under way, unless it is for the same samples.
    pub fn keep_only(&self, samples: Option<(&DetectedDataset, &DetectedDataset)>) {
        if samples.is_some_and(|(old, new)| old.has_same_samples(new)) {
            return;
        }
        let mut state = lock(&self.state);
        if matches!(state.progress, Progress::Reading(..)) {
            state.generation += 1;
            state.progress = Progress::Idle;
        }
    }
}

fn sample_count(samples: &DetectedDataset) -> u64 {
    match samples {
        DetectedDataset::Images(found) => found.image_count(),
        DetectedDataset::Texts(found) => found.source_count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dataset::{InspectOptions, TextOptions, detect};
    use std::time::{Duration, Instant};

    fn texts(rows: &str) -> (tempfile::TempDir, Arc<DetectedDataset>) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("rows.csv");
        std::fs::write(&file, format!("label,text\n{rows}")).expect("it can be written");
        let (options, texts) = (InspectOptions::default(), TextOptions::default());
        let found = detect(&file, &options, &texts, &|_| {}).expect("it can be read");
        (folder, Arc::new(found))
    }

    #[test]
    fn a_search_in_the_background_is_kept_for_the_same_samples() {
        let (_folder, samples) = texts("a,one\nb,two\na,one\nb,three\n");
        let search = Arc::new(DuplicateSearch::default());
        search.start(&samples);
        let begun = Instant::now();
        while search.found(&samples).is_none() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it never ends");
            std::thread::sleep(Duration::from_millis(5));
        }
        let found = search.find(&samples).expect("it is known");
        assert_eq!(found.groups.len(), 1);
        assert_eq!(found.groups[0].samples, [0, 2]);
        let (_other_folder, other) = texts("a,one\nb,two\nb,three\n");
        assert!(search.found(&other).is_none());
        assert!(
            search
                .find(&other)
                .is_ok_and(|found| found.groups.is_empty())
        );
    }

    #[test]
    fn a_file_that_has_changed_is_reported() {
        let (folder, samples) = texts("a,one\nb,two\na,one\nb,three\n");
        std::fs::write(folder.path().join("rows.csv"), "label,text\n").expect("it can be written");
        let search = DuplicateSearch::default();
        let error = search.find(&samples).expect_err("the rows have gone");
        assert!(error.contains("rows.csv changed"), "{error}");
    }
}
