//! Predictions as rows: the files of a folder, the answer for each as names and numbers, and all of
//! them as CSV. The terminal and the window share this.

use std::path::{Path, PathBuf};
use trainer::{Prediction, TrainedModel};

/// Endings of image files, in lower case.
const IMAGE_ENDINGS: [&str; 7] = ["jpg", "jpeg", "png", "webp", "heic", "heif", "avif"];
/// Most bytes of a file with one text. A model reads only its beginning.
pub const MAX_TEXT_BYTES: u64 = 64 << 20;
/// Folders inside folders are read up to this depth.
const MAX_DEPTH: usize = 8;

/// The kind of files that a model reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputKind {
    /// Images.
    Images,
    /// Files with one text each.
    Texts,
}

impl InputKind {
    /// Whether a file is of this kind, by its ending.
    fn includes(self, path: &Path) -> bool {
        match self {
            InputKind::Images => {
                let ending = path.extension().map(|e| e.to_string_lossy().to_lowercase());
                ending.is_some_and(|ending| IMAGE_ENDINGS.contains(&&*ending))
            }
            InputKind::Texts => dataset::is_text_file(path),
        }
    }
}

/// The answer for one file or text.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The file or text.
    pub name: String,
    /// Classes with their probabilities, the most probable first.
    pub classes: Vec<(String, f64)>,
    /// Regression targets, in the units of their columns.
    pub targets: Vec<(String, f64)>,
    /// Texts with a label: a continuation, or what a compression keeps.
    pub texts: Vec<(String, String)>,
    /// Why the file cannot be read.
    pub problem: Option<String>,
}

impl Answer {
    /// The answer of `model` for the file or text `name`, with at most `top` classes.
    pub fn new(
        model: &TrainedModel,
        name: String,
        outcome: &Result<Prediction, String>,
        top: usize,
    ) -> Self {
        let prediction = outcome.as_ref().ok();
        Answer {
            name,
            classes: prediction.map_or(Vec::new(), |found| top_classes(model, found, top)),
            targets: prediction.map_or(Vec::new(), |found| target_values(model, found)),
            texts: Vec::new(),
            problem: outcome.as_ref().err().cloned(),
        }
    }
}

/// The most probable classes by name.
pub fn top_classes(
    model: &TrainedModel,
    prediction: &Prediction,
    top: usize,
) -> Vec<(String, f64)> {
    let classes = prediction.classes.iter().take(top);
    classes
        .map(|&(label, probability)| (model.classes()[label as usize].clone(), probability))
        .collect()
}

/// Predicted targets, by column and in the column's unit.
pub fn target_values(model: &TrainedModel, prediction: &Prediction) -> Vec<(String, f64)> {
    let columns = model.columns().iter().zip(&prediction.targets);
    columns
        .map(|(column, value)| (column.name.clone(), column.unstandardize(*value)))
        .collect()
}

/// Replaces each folder by the files in it, sorted by path. Everything else stays.
pub fn files_in(paths: &[PathBuf], kind: InputKind) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            let mut inside = Vec::new();
            list(path, kind, MAX_DEPTH, &mut inside);
            inside.sort();
            found.extend(inside);
        } else {
            found.push(path.clone())
        }
    }
    found
}

/// Hidden files and links are left out.
fn list(folder: &Path, kind: InputKind, depth: usize, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        let Ok(file_type) = entry.file_type() else {
            continue;
        };
        if file_type.is_dir() && !hidden && depth > 0 {
            list(&path, kind, depth - 1, found);
        }
        if file_type.is_file() && !hidden && kind.includes(&path) {
            found.push(path);
        }
    }
}

/// The name of a column of texts: "gaps_filled" for "Gaps filled, 3 of 5 correct".
fn text_column(label: &str) -> String {
    let name = label.split(',').next().unwrap_or_default();
    name.to_lowercase().replace(' ', "_")
}

/// The answers as CSV: a row per file with its classes, targets, texts, and the problem if it could
/// not be read.
///
/// # Errors
/// Writing to memory fails, which does not happen.
pub fn to_csv(answers: &[Answer]) -> Result<String, csv::Error> {
    let classes = answers
        .iter()
        .map(|answer| answer.classes.len())
        .max()
        .unwrap_or(0);
    let with_targets = answers.iter().find(|answer| !answer.targets.is_empty());
    let targets = with_targets.map_or(&[][..], |answer| &answer.targets);
    let with_texts = answers.iter().find(|answer| !answer.texts.is_empty());
    let texts = with_texts.map_or(&[][..], |answer| &answer.texts);
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut head = vec!["file".to_owned()];
    for place in 1..=classes {
        let number = if place == 1 {
            String::new()
        } else {
            format!("_{place}")
        };
        head.extend([format!("class{number}"), format!("probability{number}")]);
    }
    head.extend(targets.iter().map(|(name, _)| name.clone()));
    head.extend(texts.iter().map(|(label, _)| text_column(label)));
    head.push("problem".to_owned());
    writer.write_record(&head)?;
    for answer in answers {
        let mut row = vec![answer.name.clone()];
        for place in 0..classes {
            let class = answer.classes.get(place);
            row.push(class.map_or(String::new(), |(name, _)| name.clone()));
            row.push(class.map_or(String::new(), |(_, value)| format!("{value:.4}")));
        }
        for place in 0..targets.len() {
            let target = answer.targets.get(place);
            row.push(target.map_or(String::new(), |(_, value)| format!("{value}")));
        }
        for place in 0..texts.len() {
            let text = answer.texts.get(place);
            row.push(text.map_or(String::new(), |(_, text)| text.clone()));
        }
        row.push(answer.problem.clone().unwrap_or_default());
        writer.write_record(&row)?;
    }
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_become_rows_with_the_same_columns() {
        let read = Answer {
            name: "a, b.jpg".to_owned(),
            classes: vec![("llama".to_owned(), 0.75), ("ibis".to_owned(), 0.25)],
            targets: vec![("mass_g".to_owned(), 12.5)],
            texts: Vec::new(),
            problem: None,
        };
        let unread = Answer {
            name: "c.jpg".to_owned(),
            classes: Vec::new(),
            targets: Vec::new(),
            texts: Vec::new(),
            problem: Some("It cannot be decoded.".to_owned()),
        };
        assert_eq!(
            to_csv(&[read, unread]).expect("memory can be written"),
            "file,class,probability,class_2,probability_2,mass_g,problem\n\
             \"a, b.jpg\",llama,0.7500,ibis,0.2500,12.5,\n\
             c.jpg,,,,,,It cannot be decoded.\n"
        );
    }

    #[test]
    fn the_texts_of_an_answer_have_columns() {
        let compressed = |kept: &str, filled: &str| Answer {
            name: "a.txt".to_owned(),
            classes: Vec::new(),
            targets: Vec::new(),
            texts: vec![
                ("Kept, 2 of 4 tokens".to_owned(), kept.to_owned()),
                ("Gaps filled, 1 of 2 correct".to_owned(), filled.to_owned()),
            ],
            problem: None,
        };
        assert_eq!(
            to_csv(&[compressed("a..d", "abcd"), compressed("x", "y, z")])
                .expect("memory can be written"),
            "file,kept,gaps_filled,problem\na.txt,a..d,abcd,\na.txt,x,\"y, z\",\n"
        );
    }

    #[test]
    fn a_folder_stands_for_the_files_in_it() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let place = folder.path();
        std::fs::create_dir_all(place.join("inner/.hidden")).expect("it can be made");
        for file in [
            "b.PNG",
            "inner/a.jpg",
            "notes.txt",
            ".c.jpg",
            "inner/.hidden/d.jpg",
        ] {
            std::fs::write(place.join(file), "").expect("it can be written");
        }
        let single = PathBuf::from("single.bmp");
        let found = files_in(&[single.clone(), place.to_owned()], InputKind::Images);
        assert_eq!(
            found,
            [single, place.join("b.PNG"), place.join("inner/a.jpg")]
        );
        let texts = files_in(&[place.to_owned()], InputKind::Texts);
        assert_eq!(texts, [place.join("notes.txt")]);
    }
}
