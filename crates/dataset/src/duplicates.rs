//! Samples that are the same or nearly the same: found by their decoded pixels or their texts. Each
//! group has a first sample; every other one is a duplicate of it, so that no chain of similar
//! samples becomes one group.

mod image_fingerprint;
mod text_signature;

use crate::detected_dataset::DetectedDataset;
use crate::error::DatasetError;
use crate::image_inspection::ImageInspection;
use crate::text::{TextInspection, read_chosen};
use crate::types::{SkippedFile, Split, SplitKind};
use crate::user_messages::listed;
use format::counted;
use image_fingerprint::ImageFingerprint;
use rayon::prelude::*;
use std::collections::{BTreeSet, HashMap};
use text_signature::{BANDS, TextSignature};

/// Samples that are read between two calls of `on_progress`.
const SAMPLES_PER_REPORT: usize = 64;

/// The duplicates of a dataset. Samples are indices of its images or texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Duplicates {
    /// Groups of at least two samples.
    pub groups: Vec<DuplicateGroup>,
    /// Images that cannot be decoded.
    pub unreadable: Vec<SkippedFile>,
}

/// Samples that are the same or nearly the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuplicateGroup {
    /// The first sample, then its duplicates in ascending order.
    pub samples: Vec<u32>,
    /// Whether all have the same pixels or the same text.
    pub is_exact: bool,
}

impl DuplicateGroup {
    /// Whether its samples are in different splits.
    pub fn crosses_splits(&self, found: &DetectedDataset) -> bool {
        let splits = self.samples.iter().filter_map(|i| split_of(found, *i));
        splits.collect::<BTreeSet<Split>>().len() > 1
    }

    /// Whether its samples are in different classes.
    fn crosses_classes(&self, found: &DetectedDataset) -> bool {
        let labels = self.samples.iter().filter_map(|i| label_of(found, *i));
        labels.collect::<BTreeSet<u32>>().len() > 1
    }

    /// The sample that stays. If the dataset brings its own split, that is one to evaluate on, so
    /// that results can be compared; otherwise it is the first.
    fn kept(&self, found: &DetectedDataset) -> u32 {
        let split = match found {
            DetectedDataset::Images(found) => found.split,
            DetectedDataset::Texts(found) => found.split,
        };
        let rank = |index: &&u32| match (split, split_of(found, **index)) {
            (SplitKind::Seeded { .. }, _) | (_, Some(Split::Test)) => 0,
            (_, Some(Split::HeldOut)) => 1,
            (_, _) => 2,
        };
        let kept = self.samples.iter().min_by_key(rank);
        kept.copied().unwrap_or_default()
    }
}

fn split_of(found: &DetectedDataset, index: u32) -> Option<Split> {
    match found {
        DetectedDataset::Images(found) => Some(found.files.get(index as usize)?.split),
        DetectedDataset::Texts(found) => Some(found.samples.get(index as usize)?.split),
    }
}

/// The class of a sample; 0 without classes.
fn label_of(found: &DetectedDataset, index: u32) -> Option<u32> {
    match found {
        DetectedDataset::Images(found) => Some(found.files.get(index as usize)?.label),
        DetectedDataset::Texts(found) => Some(found.samples.get(index as usize)?.label),
    }
}

impl Duplicates {
    /// The samples that are left out if one of each group stays.
    pub(crate) fn left_out(&self, found: &DetectedDataset) -> BTreeSet<u32> {
        let others = |group: &DuplicateGroup| {
            let kept = group.kept(found);
            let others = group.samples.iter().filter(move |index| **index != kept);
            others.copied().collect::<Vec<_>>()
        };
        self.groups.iter().flat_map(others).collect()
    }

    /// A sentence about the samples that are left out.
    pub(crate) fn describe(&self, found: &DetectedDataset) -> Option<String> {
        let left_out = self.left_out(found).len() as u64;
        let across = self.groups.iter().filter(|g| g.crosses_splits(found));
        let across = match across.count() as u64 {
            0 => String::new(),
            n => format!(
                " {} samples in more than one of the training, held-out and test sets.",
                counted(n, "group of duplicates had", "groups of duplicates had")
            ),
        };
        (left_out > 0).then(|| {
            let noun = found.task().sample_noun();
            let conflicts = self.describe_conflicts(found);
            format!(
                "{} left out.{across}{conflicts}",
                counted(
                    left_out,
                    &format!("duplicate {noun} is"),
                    &format!("duplicate {noun}s are")
                )
            )
        })
    }
}

impl Duplicates {
    /// A sentence about groups whose samples are in different classes; empty without one.
    fn describe_conflicts(&self, found: &DetectedDataset) -> String {
        let mut conflicts = self.groups.iter().filter(|g| g.crosses_classes(found));
        let Some(first) = conflicts.next() else {
            return String::new();
        };
        let groups = counted(
            1 + conflicts.count() as u64,
            "group of duplicates has samples of different classes",
            "groups of duplicates have samples of different classes",
        );
        let files = match found {
            DetectedDataset::Images(found) => {
                let file = |index: &u32| found.files.get(*index as usize);
                let paths = first.samples.iter().filter_map(file);
                let paths: Vec<String> = paths.map(|f| f.path.display().to_string()).collect();
                format!(" ({})", listed(&paths))
            }
            DetectedDataset::Texts(_) => String::new(),
        };
        format!(
            " {groups}{files}. Check which class is right: Ebb trains on one sample of each group, with the class of that sample."
        )
    }
}

/// Finds the duplicates of a dataset. Decodes every image and reads every text. `on_progress` gets
/// the number of samples read so far and returns whether to continue. `None` if it did not.
///
/// # Errors
/// A file of texts has changed since the inspection.
pub fn find_duplicates(
    found: &DetectedDataset,
    on_progress: &dyn Fn(u64) -> bool,
) -> Result<Option<Duplicates>, DatasetError> {
    match found {
        DetectedDataset::Images(found) => Ok(among_images(found, on_progress)),
        DetectedDataset::Texts(found) => among_texts(found, on_progress),
    }
}

fn among_images(found: &ImageInspection, on_progress: &dyn Fn(u64) -> bool) -> Option<Duplicates> {
    let mut fingerprints: Vec<Option<ImageFingerprint>> = Vec::with_capacity(found.files.len());
    let mut unreadable = Vec::new();
    for chunk in found.files.chunks(SAMPLES_PER_REPORT) {
        let taken: Vec<_> = chunk
            .par_iter()
            .map(|file| ImageFingerprint::from_file(&found.folder.join(&file.path)))
            .collect();
        for (file, taken) in chunk.iter().zip(taken) {
            if let Err(reason) = &taken {
                unreadable.push(SkippedFile {
                    path: file.path.clone(),
                    reason: reason.clone(),
                });
            }
            fingerprints.push(taken.ok());
        }
        if !on_progress(fingerprints.len() as u64) {
            return None;
        }
    }
    let mut groups = Groups::from_hashes(fingerprints.iter().map(|f| f.as_ref().map(|f| f.pixels)));
    // Only images of almost the same brightness can be alike.
    let mut by_brightness: Vec<(f32, u32)> = groups
        .firsts()
        .filter_map(|index| Some((fingerprints[index as usize].as_ref()?.brightness, index)))
        .collect();
    by_brightness.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    for first in groups.firsts().collect::<Vec<u32>>() {
        let Some(print) = fingerprints[first as usize].as_ref() else {
            continue;
        };
        let (low, high) = print.brightness_range();
        let start = by_brightness.partition_point(|(brightness, _)| *brightness < low);
        let near = by_brightness[start..]
            .iter()
            .take_while(|(brightness, _)| *brightness <= high)
            .map(|(_, index)| *index);
        groups.join(first, near, |other| {
            let other = fingerprints[other as usize].as_ref();
            other.is_some_and(|other| print.is_near(other))
        });
    }
    Some(Duplicates {
        groups: groups.finish(),
        unreadable,
    })
}

fn among_texts(
    found: &TextInspection,
    on_progress: &dyn Fn(u64) -> bool,
) -> Result<Option<Duplicates>, DatasetError> {
    // A document that is cut for the split is one text.
    let wanted: Vec<usize> = (0..found.samples.len())
        .filter(|index| found.samples[*index].start == 0)
        .collect();
    let mut signatures: Vec<Option<TextSignature>> = vec![None; found.samples.len()];
    let (mut read, mut goes_on) = (0, true);
    read_chosen(found, &wanted, &mut |index, text| {
        read += 1;
        if goes_on {
            signatures[index] = TextSignature::from_text(text);
            if read % SAMPLES_PER_REPORT == 0 {
                goes_on = on_progress(read as u64);
            }
        }
        Ok(())
    })?;
    if !goes_on || !on_progress(read as u64) {
        return Ok(None);
    }
    let hashes = found.samples.iter();
    let mut groups = Groups::from_hashes(hashes.map(|s| (s.start == 0).then_some(s.hash)));
    let mut buckets: HashMap<(usize, u64), Vec<u32>> = HashMap::new();
    for index in groups.firsts() {
        for band in signatures[index as usize]
            .iter()
            .flat_map(TextSignature::bands)
        {
            buckets.entry(band).or_default().push(index);
        }
    }
    for first in groups.firsts().collect::<Vec<u32>>() {
        let Some(signature) = signatures[first as usize].as_ref() else {
            continue;
        };
        let mut near: Vec<u32> = Vec::with_capacity(BANDS);
        for band in signature.bands() {
            near.extend(buckets.get(&band).into_iter().flatten());
        }
        groups.join(first, near.into_iter(), |other| {
            let other = signatures[other as usize].as_ref();
            other.is_some_and(|other| signature.is_near(other))
        });
    }
    Ok(Some(Duplicates {
        groups: groups.finish(),
        unreadable: Vec::new(),
    }))
}

/// Groups that are being formed.
struct Groups {
    /// The samples with the same hash as this one; empty if another one comes first.
    members: Vec<Vec<u32>>,
    /// Whether a group has joined another one.
    joined: Vec<bool>,
    /// Whether a group has samples that are only nearly the same.
    is_near: Vec<bool>,
}

impl Groups {
    /// Groups of equal hashes. A sample without a hash is in no group.
    fn from_hashes(hashes: impl Iterator<Item = Option<u64>>) -> Self {
        let mut first: HashMap<u64, usize> = HashMap::new();
        let mut members: Vec<Vec<u32>> = Vec::new();
        for (index, hash) in hashes.enumerate() {
            members.push(Vec::new());
            if let Some(hash) = hash {
                let place = *first.entry(hash).or_insert(index);
                members[place].push(index as u32);
            }
        }
        Groups {
            joined: vec![false; members.len()],
            is_near: vec![false; members.len()],
            members,
        }
    }

    /// The first sample of each group, in ascending order.
    fn firsts(&self) -> impl Iterator<Item = u32> + '_ {
        let first =
            |(index, members): (usize, &Vec<u32>)| (!members.is_empty()).then_some(index as u32);
        self.members.iter().enumerate().filter_map(first)
    }

    /// Joins the groups of later `others` that are near to the one of `first`, unless it has joined
    /// one itself.
    fn join(
        &mut self,
        first: u32,
        others: impl Iterator<Item = u32>,
        is_near: impl Fn(u32) -> bool,
    ) {
        if self.joined[first as usize] {
            return;
        }
        for other in others.filter(|other| *other > first) {
            if !self.joined[other as usize] && is_near(other) {
                self.joined[other as usize] = true;
                let members = std::mem::take(&mut self.members[other as usize]);
                self.members[first as usize].extend(members);
                self.is_near[first as usize] = true;
            }
        }
    }

    fn finish(self) -> Vec<DuplicateGroup> {
        let several = self.members.into_iter().zip(self.is_near);
        let several = several.filter(|(members, _)| members.len() > 1);
        let group = |(mut samples, is_near): (Vec<u32>, bool)| {
            samples.sort_unstable();
            DuplicateGroup {
                samples,
                is_exact: !is_near,
            }
        };
        several.map(group).collect()
    }
}

#[cfg(test)]
mod tests;
