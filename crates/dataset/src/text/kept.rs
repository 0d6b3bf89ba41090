//! An inspection of texts as it is written down for a resume: which row of which file is which sample. Keeps no text; what
//! was said while looking (notes, skipped rows) is left out.

use super::inspection::{Lengths, Task, TextFile, TextInspection, TextSample};
use super::source::Format;
use crate::inspection::{Class, Ignored, Part, SplitKind};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The samples of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptTexts {
    folder: PathBuf,
    name: String,
    language_model: bool,
    classes: Vec<String>,
    /// Path, bytes, format, columns of the text.
    files: Vec<(PathBuf, u64, Format, Vec<usize>)>,
    samples: Vec<KeptSample>,
    /// Fraction and seed where Ebb chose what is held out.
    split: Option<(f64, u64)>,
}

/// File, row, label, part (0 train, 1 held out, 2 test), first and last byte, characters, key.
type KeptSample = (u32, u32, u32, u8, u32, u32, u32, u64);

impl From<&TextInspection> for KeptTexts {
    fn from(found: &TextInspection) -> Self {
        let part = |part| match part {
            Part::Train => 0,
            Part::HeldOut => 1,
            Part::Test => 2,
        };
        let sample = |s: &TextSample| {
            let (place, span) = ((s.file, s.row, s.label), (s.start, s.end));
            let (file, row, label) = place;
            (
                file,
                row,
                label,
                part(s.part),
                span.0,
                span.1,
                s.characters,
                s.key,
            )
        };
        let file = |f: &TextFile| (f.path.clone(), f.bytes, f.format, f.texts.clone());
        KeptTexts {
            folder: found.folder.clone(),
            name: found.name.clone(),
            language_model: found.task == Task::LanguageModel,
            classes: found.classes.iter().map(|c| c.name.clone()).collect(),
            files: found.files.iter().map(file).collect(),
            samples: found.samples.iter().map(sample).collect(),
            split: match found.split {
                SplitKind::Given => None,
                SplitKind::Seeded { fraction, seed } => Some((fraction, seed)),
            },
        }
    }
}

impl From<KeptTexts> for TextInspection {
    fn from(kept: KeptTexts) -> Self {
        let samples: Vec<TextSample> = kept.samples.into_iter().map(sample).collect();
        let mut counts = vec![[0; 3]; kept.classes.len()];
        for sample in &samples {
            let place = match sample.part {
                Part::Train => 0,
                Part::HeldOut => 1,
                Part::Test => 2,
            };
            if let Some(count) = counts.get_mut(sample.label as usize) {
                count[place] += 1;
            }
        }
        let class = |(name, [train, held_out, test]): (String, [u32; 3])| Class {
            name,
            train,
            held_out,
            test,
        };
        let file = |(path, bytes, format, texts)| TextFile {
            path,
            bytes,
            format,
            texts,
        };
        TextInspection {
            folder: kept.folder,
            name: kept.name,
            task: match kept.language_model {
                true => Task::LanguageModel,
                false => Task::TextClassification,
            },
            why: String::new(),
            columns: Vec::new(),
            classes: kept.classes.into_iter().zip(counts).map(class).collect(),
            files: kept.files.into_iter().map(file).collect(),
            lengths: Lengths::of(samples.iter().map(|s| s.characters).collect()),
            bytes: samples.iter().map(|s| u64::from(s.end - s.start)).sum(),
            samples,
            encodings: Vec::new(),
            skipped: Vec::new(),
            skipped_rows: Vec::new(),
            ignored: Ignored::default(),
            refusal: None,
            notes: Vec::new(),
            split: kept
                .split
                .map_or(SplitKind::Given, |(fraction, seed)| SplitKind::Seeded {
                    fraction,
                    seed,
                }),
            split_names: Vec::new(),
        }
    }
}

fn sample((file, row, label, part, start, end, characters, key): KeptSample) -> TextSample {
    TextSample {
        file,
        row,
        label,
        part: match part {
            0 => Part::Train,
            1 => Part::HeldOut,
            _ => Part::Test,
        },
        start,
        end,
        characters,
        key,
    }
}
