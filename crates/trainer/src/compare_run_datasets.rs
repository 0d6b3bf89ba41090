//! How the datasets of two runs differ, for a comparison of the runs.

use crate::sample_manifest::RunDataset;
use dataset::{DetectedDataset, Split};
use runlog::{counted, format_count};
use std::collections::HashMap;
use std::path::Path;

/// A sample: its file, the size of this file in bytes, its row, and where it begins in the row.
type Sample<'a> = (&'a Path, u64, u32, u32);

/// The samples of a run, with their class and their part of the split.
struct Samples<'a> {
    name: &'a str,
    samples: HashMap<Sample<'a>, (Option<&'a str>, Split)>,
}

impl RunDataset {
    /// How `other` differs from this dataset, in one or two sentences. The place of a folder does
    /// not count.
    pub fn describe_difference(&self, other: &RunDataset) -> String {
        describe(&Samples::from(&self.found), &Samples::from(&other.found))
    }
}

impl<'a> From<&'a DetectedDataset> for Samples<'a> {
    fn from(found: &'a DetectedDataset) -> Self {
        match found {
            DetectedDataset::Images(found) => {
                let class = |label: u32| Some(found.classes.get(label as usize)?.name.as_str());
                let files = found.files.iter();
                let samples = files.map(|file| {
                    let sample = (file.path.as_path(), file.bytes, 0, 0);
                    (sample, (class(file.label), file.split))
                });
                Samples {
                    name: &found.name,
                    samples: samples.collect(),
                }
            }
            DetectedDataset::Texts(found) => {
                let class = |label: u32| Some(found.classes.get(label as usize)?.name.as_str());
                let samples = found.samples.iter().filter_map(|text| {
                    let file = found.files.get(text.file as usize)?;
                    let sample = (file.path.as_path(), file.bytes, text.row, text.start);
                    Some((sample, (class(text.label), text.split)))
                });
                Samples {
                    name: &found.name,
                    samples: samples.collect(),
                }
            }
        }
    }
}

fn describe(run: &Samples, other: &Samples) -> String {
    let (own, others) = (&run.samples, &other.samples);
    let both = own.iter().filter_map(|(sample, place)| {
        let there = others.get(sample)?;
        Some((place, there))
    });
    let (mut shared, mut moved, mut renamed) = (0, 0, 0);
    for ((class, split), (other_class, other_split)) in both {
        shared += 1;
        moved += u64::from(split != other_split);
        renamed += u64::from(class != other_class);
    }
    let (count, other_count) = (own.len() as u64, others.len() as u64);
    if shared == 0 {
        return format!(
            "The runs share no sample: this run used {} with {}, and the other run used {} with {}.",
            run.name,
            counted(count, "sample", "samples"),
            other.name,
            counted(other_count, "sample", "samples")
        );
    }
    let mut sentences = vec![if shared == count && shared == other_count {
        format!(
            "Both runs use the same {}",
            counted(count, "sample", "samples")
        )
    } else {
        format!(
            "The runs share {}; {} only in this run and {} only in the other run",
            counted(shared, "sample", "samples"),
            are(count - shared),
            are(other_count - shared)
        )
    }];
    if moved > 0 {
        sentences.push(format!(
            "{} in another part of the split, so the held-out curves measure different samples",
            are(moved)
        ));
    }
    if renamed > 0 {
        sentences.push(format!("{} in another class", are(renamed)));
    }
    if moved == 0 && renamed == 0 && sentences[0].starts_with("Both") {
        sentences[0].push_str(" and the same split");
    }
    format!("{}.", sentences.join("; "))
}

/// "1 is", "2,105 are".
fn are(count: u64) -> String {
    match count {
        1 => "1 is".to_owned(),
        _ => format!("{} are", format_count(count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAT: Option<&str> = Some("cat");

    fn samples<'a>(name: &'a str, files: &[(&'a str, Option<&'a str>, Split)]) -> Samples<'a> {
        let samples = files
            .iter()
            .map(|(file, class, split)| ((Path::new(*file), 10, 0, 0), (*class, *split)));
        Samples {
            name,
            samples: samples.collect(),
        }
    }

    #[test]
    fn the_same_samples_are_the_same_wherever_they_are() {
        let files = [("a.png", CAT, Split::Train), ("b.png", CAT, Split::HeldOut)];
        assert_eq!(
            describe(&samples("pets", &files), &samples("moved", &files)),
            "Both runs use the same 2 samples and the same split."
        );
    }

    #[test]
    fn another_split_and_other_classes_are_named() {
        let run = samples(
            "pets",
            &[("a.png", CAT, Split::Train), ("b.png", CAT, Split::HeldOut)],
        );
        let other = samples(
            "pets",
            &[
                ("a.png", Some("dog"), Split::HeldOut),
                ("b.png", CAT, Split::HeldOut),
            ],
        );
        assert_eq!(
            describe(&run, &other),
            "Both runs use the same 2 samples; 1 is in another part of the split, so the held-out curves measure different samples; 1 is in another class."
        );
    }

    #[test]
    fn added_samples_and_other_datasets_are_named() {
        let run = samples(
            "pets",
            &[("a.png", CAT, Split::Train), ("b.png", CAT, Split::Train)],
        );
        let more = samples(
            "pets",
            &[("a.png", CAT, Split::Train), ("c.png", CAT, Split::Train)],
        );
        assert_eq!(
            describe(&run, &more),
            "The runs share 1 sample; 1 is only in this run and 1 is only in the other run."
        );
        let other = samples("birds", &[("owl.png", None, Split::Train)]);
        assert_eq!(
            describe(&run, &other),
            "The runs share no sample: this run used pets with 2 samples, and the other run used birds with 1 sample."
        );
    }
}
