//! The samples of a run as they are saved in its data file: which row of which file is which
//! sample. A resumed run reads them instead of inspecting the folder again. Contains no text, notes
//! or skipped rows.

use super::text_inspection::{Lengths, TextFile, TextInspection, TextSample};
use crate::chat::ChatColumn;
use crate::readers::Dialect;
use crate::task::Task;
use crate::types::{Class, Ignored, Split, SplitKind};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The samples of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TextManifest {
    folder: PathBuf,
    name: String,
    language_model: bool,
    classes: Vec<String>,
    /// Path, bytes, dialect, text columns.
    files: Vec<(PathBuf, u64, Dialect, Vec<usize>)>,
    samples: Vec<CachedSample>,
    /// Fraction and seed if Ebb chose the held-out samples.
    split: Option<(f64, u64)>,
    /// What the text columns of each file hold, if the samples are conversations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    chat: Vec<Vec<ChatColumn>>,
}

/// File, row, label, split (0 train, 1 held-out, 2 test), start and end in bytes, characters, hash.
type CachedSample = (u32, u32, u32, u8, u32, u32, u32, u64);

impl From<&TextInspection> for TextManifest {
    fn from(found: &TextInspection) -> Self {
        let file = |f: &TextFile| (f.path.clone(), f.bytes, f.dialect, f.text_columns.clone());
        TextManifest {
            folder: found.folder.clone(),
            name: found.name.clone(),
            language_model: found.task == Task::LanguageModel,
            classes: found.classes.iter().map(|c| c.name.clone()).collect(),
            files: found.files.iter().map(file).collect(),
            samples: found.samples.iter().map(to_cached).collect(),
            split: match found.split {
                SplitKind::Given => None,
                SplitKind::Seeded { fraction, seed } => Some((fraction, seed)),
            },
            chat: if found.has_conversations() {
                found.files.iter().map(|f| f.chat.clone()).collect()
            } else {
                Vec::new()
            },
        }
    }
}

impl From<TextManifest> for TextInspection {
    fn from(cached: TextManifest) -> Self {
        let samples: Vec<TextSample> = cached.samples.into_iter().map(from_cached).collect();
        let mut classes: Vec<Class> = cached.classes.into_iter().map(Class::new).collect();
        for sample in &samples {
            if let Some(class) = classes.get_mut(sample.label as usize) {
                class.add(sample.split);
            }
        }
        let chat = cached.chat.into_iter().chain(std::iter::repeat(Vec::new()));
        let files = cached.files.into_iter().zip(chat);
        let files = files.map(|((path, bytes, dialect, text_columns), chat)| TextFile {
            path,
            bytes,
            dialect,
            text_columns,
            chat,
        });
        TextInspection {
            folder: cached.folder,
            name: cached.name,
            task: if cached.language_model {
                Task::LanguageModel
            } else {
                Task::TextClassification
            },
            reason: String::new(),
            columns: Vec::new(),
            classes,
            files: files.collect(),
            lengths: Lengths::new(samples.iter().map(|s| s.characters).collect()),
            bytes: samples.iter().map(|s| u64::from(s.end - s.start)).sum(),
            samples,
            encodings: Vec::new(),
            skipped: Vec::new(),
            skipped_rows: Vec::new(),
            ignored: Ignored::default(),
            refusal: None,
            notes: Vec::new(),
            split: match cached.split {
                None => SplitKind::Given,
                Some((fraction, seed)) => SplitKind::Seeded { fraction, seed },
            },
            split_names: Vec::new(),
        }
    }
}

fn to_cached(sample: &TextSample) -> CachedSample {
    let split = match sample.split {
        Split::Train => 0,
        Split::HeldOut => 1,
        Split::Test => 2,
    };
    let TextSample {
        file, row, label, ..
    } = *sample;
    let (start, end) = (sample.start, sample.end);
    (
        file,
        row,
        label,
        split,
        start,
        end,
        sample.characters,
        sample.hash,
    )
}

fn from_cached(sample: CachedSample) -> TextSample {
    let (file, row, label, split, start, end, characters, hash) = sample;
    TextSample {
        file,
        row,
        label,
        split: match split {
            0 => Split::Train,
            1 => Split::HeldOut,
            _ => Split::Test,
        },
        start,
        end,
        characters,
        hash,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts of a data.json as Ebb 0.1.0 wrote it.
    const SAVED: &str = r#"{"folder":"/data/sms","name":"sms","language_model":false,"classes":["ham","spam"],
        "files":[["train.csv",2048,{"Delimited":{"delimiter":44,"quoting":true,"header":true}},[1]],
        ["more.txt",64,{"LabelLines":"Tab"},[1]],["old.jsonl",9,{"Json":"Lines"},[0]],
        ["big.parquet",99,"Parquet",[0,2]],["note.txt",5,"Whole",[0]]],
        "samples":[[0,0,0,0,0,12,12,1234567890123456789],[0,1,1,1,0,20,19,42],[1,0,1,2,3,9,6,7]],"split":[0.2,7]}"#;

    #[test]
    fn a_data_file_of_version_0_1_still_opens() {
        let cached: TextManifest = serde_json::from_str(SAVED).expect("the format is stable");
        let rewritten = serde_json::to_string(&cached).expect("it can be written");
        let plain: String = SAVED.lines().map(str::trim_start).collect();
        assert_eq!(rewritten, plain, "new runs are written in the same format");
        let found = TextInspection::from(cached.clone());
        assert_eq!(found.task, Task::TextClassification);
        assert_eq!((found.classes[0].train, found.classes[1].held_out), (1, 1));
        assert_eq!(found.samples[2].split, Split::Test);
        assert_eq!(TextManifest::from(&found), cached);
    }
}
