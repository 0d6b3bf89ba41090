//! Fewer texts to train on, chosen by seed, each class in proportion. What is held out stays.

use super::inspection::TextInspection;
use crate::inspection::Part;
use crate::split;

impl TextInspection {
    /// The same folder with at most `limit` samples to train on.
    pub fn limited(mut self, seed: u64, limit: usize) -> Self {
        let trained = |place: &usize| self.samples[*place].part == Part::Train;
        let places: Vec<usize> = (0..self.samples.len()).filter(trained).collect();
        let named = |place: &usize| {
            let sample = &self.samples[*place];
            (sample.label, format!("{:016x}:{place}", sample.key))
        };
        let names: Vec<(u32, String)> = places.iter().map(named).collect();
        let chosen = split::limited(seed, &names, limit);
        let mut keep = vec![true; self.samples.len()];
        places.iter().for_each(|place| keep[*place] = false);
        chosen.iter().for_each(|i| keep[places[*i]] = true);
        let mut kept = keep.into_iter();
        self.samples.retain(|_| kept.next().unwrap_or(true));
        for (label, class) in self.classes.iter_mut().enumerate() {
            let of = |s: &&super::TextSample| s.label as usize == label && s.part == Part::Train;
            class.train = self.samples.iter().filter(of).count() as u32;
        }
        self
    }
}
