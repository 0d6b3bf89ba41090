//! Try it: files, pictures and texts that are not part of the dataset, by id, and what the model of
//! the open page makes of them.

use crate::lock::lock;
use crate::predictions::{Answer, InputKind, files_in, to_csv};
use crate::window_types::CommandError;
use dataset::Task;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use trainer::{GenerationOptions, TrainedModel};
use ts_rs::TS;

/// Classes in an answer.
const TOP: usize = 5;
/// Most files that are tried at once.
const MOST_FILES: usize = 2000;
/// Longest pasted picture or text, in bytes.
const LONGEST_PASTE: usize = 64 << 20;
/// Side of the picture beside an answer, in pixels.
const PICTURE: u32 = 448;
/// Tokens that a language model continues a prompt with.
const TOKENS: usize = 160;

/// Something to try a model on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, TS)]
pub struct InputView {
    /// Its id.
    pub id: u32,
    /// Name of the file; "Pasted picture"; the beginning of a text.
    pub name: String,
    /// Whether it is a folder, on which the model can be evaluated.
    pub folder: bool,
}

/// The answer of a model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, TS)]
pub struct AnswerView {
    /// Id of the input.
    pub id: u32,
    /// Its name.
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

#[derive(Debug, Clone)]
enum Input {
    File(PathBuf),
    /// A pasted picture, in a file that is removed with it.
    Pasted(PathBuf),
    Text(String),
}

/// The inputs of this process, and the answers that can be saved.
#[derive(Default)]
pub struct TryIt {
    /// The run whose page is open: what is dropped on the window is tried on its model.
    page: Mutex<Option<String>>,
    inputs: Mutex<Vec<Input>>,
    answers: Mutex<Vec<Answer>>,
    pasted: AtomicU32,
}

impl TryIt {
    /// Opens the page of a run. If another page was open, its inputs are forgotten.
    pub fn open_page(&self, run: &str) {
        if lock(&self.page).as_deref() != Some(run) {
            self.change_page(Some(run.to_owned()));
        }
    }

    /// Leaves the page of a run, unless that of another one is open already.
    pub fn leave_page(&self, run: &str) {
        if lock(&self.page).as_deref() == Some(run) {
            self.change_page(None);
        }
    }

    fn change_page(&self, run: Option<String>) {
        *lock(&self.page) = run;
        lock(&self.answers).clear();
        for input in lock(&self.inputs).drain(..) {
            if let Input::Pasted(path) = input {
                // A file that stays behind is in the system's temporary folder.
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// Whether what is dropped on the window is tried.
    pub fn takes_drops(&self) -> bool {
        lock(&self.page).is_some()
    }

    /// Remembers files and folders.
    pub fn add_files(&self, paths: &[PathBuf]) -> Vec<InputView> {
        let mut inputs = lock(&self.inputs);
        let add = |path: &PathBuf| {
            inputs.push(Input::File(path.clone()));
            InputView {
                id: inputs.len() as u32 - 1,
                name: file_name(path),
                folder: path.is_dir(),
            }
        };
        paths.iter().take(MOST_FILES).map(add).collect()
    }

    /// Remembers a picture from the clipboard.
    ///
    /// # Errors
    /// It is too large, or cannot be written to the system's temporary folder.
    pub fn add_picture(&self, bytes: &[u8]) -> Result<InputView, CommandError> {
        if bytes.len() > LONGEST_PASTE {
            let why =
                "The picture is larger than 64 MB. Save the picture as a file and drop the file.";
            return Err(CommandError::new("failed", why));
        }
        let number = self.pasted.fetch_add(1, Ordering::Relaxed);
        let name = format!("ebb-{}-{number}.pasted", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, bytes).map_err(|error| {
            let why =
                format!("The picture cannot be stored: {error}. Save the picture as a file and drop the file.");
            CommandError::new("failed", why)
        })?;
        let mut inputs = lock(&self.inputs);
        inputs.push(Input::Pasted(path));
        Ok(InputView {
            id: inputs.len() as u32 - 1,
            name: "Pasted picture".to_owned(),
            folder: false,
        })
    }

    /// Remembers a text.
    pub fn add_text(&self, text: String) -> InputView {
        let name = text.chars().take(60).collect::<String>();
        let mut inputs = lock(&self.inputs);
        inputs.push(Input::Text(text));
        InputView {
            id: inputs.len() as u32 - 1,
            name: name.replace('\n', " "),
            folder: false,
        }
    }

    fn input(&self, id: u32) -> Result<Input, CommandError> {
        let input = lock(&self.inputs).get(id as usize).cloned();
        input.ok_or_else(|| CommandError::unknown("file"))
    }

    /// The file or folder of an input.
    ///
    /// # Errors
    /// The id is unknown, or that of a text.
    pub fn path(&self, id: u32) -> Result<PathBuf, CommandError> {
        match self.input(id)? {
            Input::File(path) | Input::Pasted(path) => Ok(path),
            Input::Text(_) => Err(CommandError::unknown("file")),
        }
    }

    /// The answers for these inputs; a folder stands for the files in it. They can be saved until
    /// others are asked for.
    ///
    /// # Errors
    /// An id is unknown, or the model failed.
    pub fn answers(
        &self,
        model: &TrainedModel,
        ids: &[u32],
    ) -> Result<Vec<AnswerView>, CommandError> {
        let kind = match model.task() {
            Task::ImageClassification => InputKind::Images,
            _ => InputKind::Texts,
        };
        let mut views = Vec::new();
        for id in ids {
            match self.input(*id)? {
                Input::File(folder) if folder.is_dir() => {
                    let files = files_in(&[folder], kind);
                    for input in self.add_files(&files) {
                        let path = self.path(input.id)?;
                        views.push(file_answer(model, input.id, input.name, &path)?);
                    }
                }
                Input::File(path) => views.push(file_answer(model, *id, file_name(&path), &path)?),
                Input::Pasted(path) => {
                    let name = "Pasted picture".to_owned();
                    views.push(file_answer(model, *id, name, &path)?);
                }
                Input::Text(text) => views.push(text_answer(model, *id, String::new(), &text)?),
            }
        }
        *lock(&self.answers) = views.iter().map(plain).collect();
        Ok(views)
    }

    /// The latest answers as CSV.
    pub fn csv(&self) -> Result<String, CommandError> {
        to_csv(&lock(&self.answers)).map_err(|error| CommandError::new("failed", error.to_string()))
    }

    /// The picture of an input as the model sees it, as a JPEG.
    pub fn picture(&self, id: u32) -> Result<Vec<u8>, CommandError> {
        let path = self.path(id)?;
        dataset::thumbnail(&path, PICTURE).map_err(|why| CommandError::new("unreadable", why))
    }

    /// Where the model looked: the number of pixels per side, and a byte for each.
    ///
    /// # Errors
    /// The id is unknown, the file cannot be read, or the model failed.
    pub fn saliency(&self, model: &TrainedModel, id: u32) -> Result<Vec<u8>, CommandError> {
        let found = model.saliency(&self.path(id)?)?;
        let found = found.map_err(|why| CommandError::new("unreadable", why))?;
        Ok(found.strengths)
    }
}

fn plain(view: &AnswerView) -> Answer {
    Answer {
        name: view.name.clone(),
        classes: view.classes.clone(),
        targets: view.targets.clone(),
        problem: view.problem.clone(),
    }
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

fn file_answer(
    model: &TrainedModel,
    id: u32,
    name: String,
    path: &Path,
) -> Result<AnswerView, CommandError> {
    if model.task() != Task::ImageClassification {
        return match std::fs::read_to_string(path) {
            Ok(text) => text_answer(model, id, name, &text),
            Err(error) => Ok(AnswerView {
                id,
                name,
                problem: Some(format!(
                    "The file cannot be read as text ({error}). Choose a file of UTF-8 text."
                )),
                ..AnswerView::default()
            }),
        };
    }
    let outcome = model.predict(&[path.to_owned()])?.pop();
    let outcome = outcome.unwrap_or_else(|| Err("Nothing was predicted.".to_owned()));
    Ok(with_answer(id, Answer::new(model, name, &outcome, TOP)))
}

fn with_answer(id: u32, answer: Answer) -> AnswerView {
    AnswerView {
        id,
        name: answer.name,
        classes: answer.classes,
        targets: answer.targets,
        texts: Vec::new(),
        problem: answer.problem,
    }
}

fn text_answer(
    model: &TrainedModel,
    id: u32,
    name: String,
    text: &str,
) -> Result<AnswerView, CommandError> {
    let mut view = AnswerView {
        id,
        name,
        ..AnswerView::default()
    };
    match model.task() {
        Task::ImageClassification => {
            view.problem = Some("This model reads images. Drop or choose an image.".to_owned());
        }
        Task::TextClassification => {
            let found = model.predict_texts(&[text.to_owned()])?.pop();
            let outcome = found.ok_or_else(|| "Nothing was predicted.".to_owned());
            return Ok(with_answer(
                id,
                Answer::new(model, view.name, &outcome, TOP),
            ));
        }
        Task::LanguageModel => {
            let options = GenerationOptions {
                tokens: TOKENS,
                temperature: 0.8,
                top_k: None,
                seed: u64::from(id),
            };
            let continued = model.generate(text, &options)?;
            view.texts = vec![("Continuation".to_owned(), format!("{text}{continued}"))];
        }
        Task::TokenCompression => {
            let found = model.compress(text)?;
            let kept = format!(
                "Kept, {} of {} tokens",
                found.kept_places.len(),
                found.tokens
            );
            let filled = format!(
                "Filled in, {} of {} gaps right",
                found.correct,
                found.dropped()
            );
            view.texts = vec![(kept, found.marked), (filled, found.filled)];
        }
    }
    Ok(view)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_have_ids_until_the_page_is_left() {
        let try_it = TryIt::default();
        assert!(!try_it.takes_drops());
        try_it.open_page("r1");
        try_it.leave_page("r0");
        assert!(try_it.takes_drops(), "another page was left");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let added = try_it.add_files(&[folder.path().to_owned()]);
        assert!(added[0].folder);
        let picture = try_it.add_picture(b"no picture").expect("it is small");
        let path = try_it.path(picture.id).expect("it is known");
        assert!(path.is_file());
        let refused = try_it.picture(picture.id).map_err(|error| error.code);
        assert_eq!(refused, Err("unreadable".to_owned()));
        let text = try_it.add_text("two\nlines".to_owned());
        assert_eq!((text.id, &*text.name), (2, "two lines"));
        assert!(try_it.path(text.id).is_err(), "a text has no file");
        try_it.leave_page("r1");
        assert!(!path.exists(), "pasted pictures are removed");
        assert!(try_it.path(0).is_err());
    }
}
