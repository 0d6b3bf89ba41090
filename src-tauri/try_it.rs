//! Try it: files, pictures and texts that are not part of the dataset, by id, and the answers of
//! the open page's model.

use crate::lock_mutex::lock;
use crate::prediction_rows::{Answer, InputKind, MAX_TEXT_BYTES, files_in, to_csv};
use crate::window_types::CommandError;
use dataset::{Task, is_question_file, is_table_file};
use serde::Serialize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use trainer::{GenerationOptions, TrainedModel};
use ts_rs::TS;

/// Classes in an answer.
const TOP: usize = 5;
/// Most files that are tried at once; the page says how many are left out.
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
    /// Name of the file; "Picture"; the beginning of a text.
    pub name: String,
    /// Whether it is a folder, on which the model can be evaluated.
    pub folder: bool,
    /// Whether it is a table, on which a text classifier can be evaluated.
    pub table: bool,
    /// Whether it is a file of questions for a language model.
    pub questions: bool,
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

/// Answers of one request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, TS)]
pub struct AnswersView {
    /// Number of the request.
    pub request: u32,
    /// One for each input.
    pub answers: Vec<AnswerView>,
}

/// The inputs that are tried: a folder stands for the files in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, TS)]
pub struct TryFilesView {
    /// Number of the request, which its answers carry.
    pub request: u32,
    /// Their ids.
    pub inputs: Vec<u32>,
    /// Number of files that are not tried, because only so many are tried at once.
    pub left_out: u32,
}

#[derive(Debug, Clone)]
enum Input {
    File(PathBuf),
    /// A pasted picture, in a file that is removed with it.
    Pasted(PathBuf),
    Text(String),
}

/// The answers that can be saved.
#[derive(Default)]
struct Answers {
    /// The request that they belong to, which has replaced all with a smaller number.
    request: u32,
    answers: Vec<Answer>,
}

impl Answers {
    /// # Errors
    /// A later request has replaced this one.
    fn expect_latest(&self, request: u32) -> Result<(), CommandError> {
        if request < self.request {
            return Err(replaced());
        }
        Ok(())
    }
}

fn replaced() -> CommandError {
    let why = "These answers were replaced by later ones. Try the files again.";
    CommandError::new("replaced", why)
}

/// The inputs of this process, and the answers that can be saved.
#[derive(Default)]
pub struct TryIt {
    /// The run whose page is open: what is dropped on the window is tried on its model.
    page: Mutex<Option<String>>,
    inputs: Mutex<Vec<Input>>,
    answers: Mutex<Answers>,
    /// Number of the latest request.
    requests: AtomicU32,
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
        *lock(&self.answers) = Answers {
            // The requests of this page are over.
            request: self.next_request(),
            answers: Vec::new(),
        };
        for input in lock(&self.inputs).drain(..) {
            if let Input::Pasted(path) = input {
                // A file that stays behind is in the system's temporary folder.
                // tidy: not durable: the system's temporary folder
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
                table: is_table(path),
                questions: is_question_file(path),
            }
        };
        paths.iter().map(add).collect()
    }

    /// Remembers a picture from the clipboard.
    ///
    /// # Errors
    /// It is too large, or cannot be written to the system's temporary folder.
    pub fn add_picture(&self, bytes: &[u8]) -> Result<InputView, CommandError> {
        if bytes.len() > LONGEST_PASTE {
            let why = "The picture is larger than 64 MB. Save the picture as a file and drag the file here.";
            return Err(CommandError::new("failed", why));
        }
        let number = self.pasted.fetch_add(1, Ordering::Relaxed);
        let name = format!("ebb-{}-{number}.pasted", std::process::id());
        let path = std::env::temp_dir().join(name);
        // tidy: not durable: the system's temporary folder
        std::fs::write(&path, bytes).map_err(|error| {
            let why =
                format!("The picture cannot be stored: {error}. Save the picture as a file and drag the file here.");
            CommandError::new("failed", why)
        })?;
        let mut inputs = lock(&self.inputs);
        inputs.push(Input::Pasted(path));
        Ok(InputView {
            id: inputs.len() as u32 - 1,
            name: "Picture".to_owned(),
            folder: false,
            table: false,
            questions: false,
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
            table: false,
            questions: false,
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

    fn next_request(&self) -> u32 {
        self.requests.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Begins a request: the inputs that a model is tried on, at most `MOST_FILES`. `task` is the
    /// name of its task.
    ///
    /// # Errors
    /// An id is unknown.
    pub fn files(&self, task: &str, ids: &[u32]) -> Result<TryFilesView, CommandError> {
        let kind = if task == Task::ImageClassification.name() {
            InputKind::Images
        } else {
            InputKind::Texts
        };
        let request = self.next_request();
        let mut inputs = Vec::new();
        let mut left_out = 0;
        for id in ids {
            let unused = MOST_FILES - inputs.len();
            match self.input(*id)? {
                Input::File(folder) if folder.is_dir() => {
                    let files = files_in(&[folder], kind);
                    let taken = &files[..files.len().min(unused)];
                    left_out += (files.len() - taken.len()) as u32;
                    inputs.extend(self.add_files(taken).iter().map(|input| input.id));
                }
                _ if unused == 0 => left_out += 1,
                _ => inputs.push(*id),
            }
        }
        Ok(TryFilesView {
            request,
            inputs,
            left_out,
        })
    }

    /// Discards the answers of earlier requests, which end before their next input.
    ///
    /// # Errors
    /// A later request has replaced this one, or its page was left.
    pub fn replace_earlier(&self, request: u32) -> Result<(), CommandError> {
        let mut answers = lock(&self.answers);
        answers.expect_latest(request)?;
        if request > answers.request {
            *answers = Answers {
                request,
                answers: Vec::new(),
            };
        }
        Ok(())
    }

    /// The answers for these inputs. They can be saved, together with the earlier answers of the
    /// same request, until a later request replaces it.
    ///
    /// # Errors
    /// An id is unknown, the model failed, or the request was replaced.
    pub fn answers(
        &self,
        model: &TrainedModel,
        ids: &[u32],
        request: u32,
    ) -> Result<AnswersView, CommandError> {
        self.answers_by(ids, request, |id, input| input_answer(model, id, input))
    }

    fn answers_by(
        &self,
        ids: &[u32],
        request: u32,
        answer: impl Fn(u32, Input) -> Result<AnswerView, CommandError>,
    ) -> Result<AnswersView, CommandError> {
        let mut views = Vec::new();
        for id in ids {
            self.replace_earlier(request)?;
            views.push(answer(*id, self.input(*id)?)?);
        }
        let mut saved = lock(&self.answers);
        saved.expect_latest(request)?;
        saved.answers.extend(views.iter().map(plain));
        Ok(AnswersView {
            request,
            answers: views,
        })
    }

    /// The answers of a request as CSV.
    ///
    /// # Errors
    /// The saved answers are those of another request, or the page was left.
    pub fn csv(&self, request: u32) -> Result<String, CommandError> {
        let saved = lock(&self.answers);
        if saved.request != request {
            return Err(replaced());
        }
        to_csv(&saved.answers).map_err(|error| CommandError::new("failed", error.to_string()))
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
        texts: view.texts.clone(),
        problem: view.problem.clone(),
    }
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

fn input_answer(model: &TrainedModel, id: u32, input: Input) -> Result<AnswerView, CommandError> {
    match input {
        Input::File(path) => file_answer(model, id, file_name(&path), &path),
        Input::Pasted(path) => file_answer(model, id, "Picture".to_owned(), &path),
        Input::Text(text) => text_answer(model, id, String::new(), &text),
    }
}

fn file_answer(
    model: &TrainedModel,
    id: u32,
    name: String,
    path: &Path,
) -> Result<AnswerView, CommandError> {
    if let Some(problem) = refuse_table(model.task(), path) {
        return Ok(AnswerView {
            id,
            name,
            problem: Some(problem.to_owned()),
            ..AnswerView::default()
        });
    }
    if model.task() != Task::ImageClassification {
        return match disk::read_text_limited(path, MAX_TEXT_BYTES) {
            Ok(text) => text_answer(model, id, name, &dataset::normalized_text(&text)),
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

/// Whether a file is a table, by its ending.
fn is_table(path: &Path) -> bool {
    path.is_file() && is_table_file(path)
}

/// Why a text classifier does not read this file as one text, as `ebb predict` does not.
fn refuse_table(task: Task, path: &Path) -> Option<&'static str> {
    (task == Task::TextClassification && is_table(path)).then_some(
        "This is a table with many texts. Drop the table alone to evaluate the model on it.",
    )
}

fn with_answer(id: u32, answer: Answer) -> AnswerView {
    AnswerView {
        id,
        name: answer.name,
        classes: answer.classes,
        targets: answer.targets,
        texts: answer.texts,
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
                seed: u64::from(id),
                ..GenerationOptions::default()
            };
            let continued = model.generate(text, &options, |_| ControlFlow::Continue(()))?;
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
                "Gaps filled, {} of {} correct",
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
    fn the_files_that_are_not_tried_are_counted() {
        let try_it = TryIt::default();
        let folder = tempfile::tempdir().expect("a temporary folder");
        for number in 0..5 {
            let path = folder.path().join(format!("{number}.png"));
            std::fs::write(path, "").expect("it can be written");
        }
        let single = vec![PathBuf::from("single.png"); MOST_FILES - 2];
        let mut ids: Vec<u32> = (try_it.add_files(&single).iter())
            .map(|input| input.id)
            .collect();
        assert_eq!(ids.len(), MOST_FILES - 2, "every dropped file has an id");
        ids.push(try_it.add_files(&[folder.path().to_owned()])[0].id);
        ids.push(try_it.add_text("one more".to_owned()).id);
        let task = Task::ImageClassification.name();
        let found = try_it.files(task, &ids).expect("the ids are known");
        assert_eq!((found.inputs.len(), found.left_out), (MOST_FILES, 4));
        let few = try_it.files(task, &ids[..3]).expect("the ids are known");
        assert_eq!((few.inputs.len(), few.left_out), (3, 0));
    }

    /// The answer that names its input.
    fn named(id: u32, input: Input) -> Result<AnswerView, CommandError> {
        let Input::Text(name) = input else {
            return Err(CommandError::unknown("text"));
        };
        Ok(AnswerView {
            id,
            name,
            ..AnswerView::default()
        })
    }

    /// Begins a request for a text.
    fn begin(try_it: &TryIt, text: &str) -> TryFilesView {
        let id = try_it.add_text(text.to_owned()).id;
        let begun = try_it.files(Task::TextClassification.name(), &[id]);
        begun.expect("the id is known")
    }

    #[test]
    fn the_answers_of_an_abandoned_request_never_reach_the_next() {
        let try_it = TryIt::default();
        let (abandoned, next) = (begin(&try_it, "abandoned"), begin(&try_it, "next"));
        assert_ne!(abandoned.request, next.request);
        let answered = |of: &TryFilesView| {
            let found = try_it.answers_by(&of.inputs, of.request, named);
            found.map_err(|error| error.code)
        };
        let csv = |of: &TryFilesView| try_it.csv(of.request).map_err(|error| error.code);
        let replaced = || "replaced".to_owned();
        assert_eq!(csv(&next), Err(replaced()), "it has no answers yet");

        // It is abandoned while it computes: the next one begins before its answer is there.
        let computing = try_it.answers_by(&abandoned.inputs, abandoned.request, |id, input| {
            let view = answered(&next).expect("it is the latest");
            assert_eq!((view.request, view.answers.len()), (next.request, 1));
            named(id, input)
        });
        assert_eq!(computing.map_err(|error| error.code), Err(replaced()));
        assert_eq!(answered(&abandoned), Err(replaced()), "it asks once more");
        assert_eq!(csv(&abandoned), Err(replaced()));
        let text = csv(&next).expect("it is the latest");
        assert!(
            text.contains("next") && !text.contains("abandoned"),
            "{text}"
        );

        // More answers of the same request are added.
        let more = TryFilesView {
            inputs: vec![try_it.add_text("one more".to_owned()).id],
            ..next.clone()
        };
        assert!(answered(&more).is_ok());
        let text = csv(&next).expect("it is the latest");
        assert!(text.contains("next") && text.contains("one more"), "{text}");
    }

    #[test]
    fn the_requests_of_a_page_end_when_it_is_left() {
        let try_it = TryIt::default();
        try_it.open_page("r1");
        let begun = begin(&try_it, "of r1");
        try_it.leave_page("r1");
        try_it.open_page("r2");
        let late = try_it.replace_earlier(begun.request);
        assert_eq!(late.map_err(|error| error.code), Err("replaced".to_owned()));
        let own = begin(&try_it, "of r2");
        let found = try_it.answers_by(&own.inputs, own.request, named);
        assert!(found.is_ok_and(|view| view.answers[0].name == "of r2"));
    }

    #[test]
    fn a_table_is_not_one_text_of_a_text_classifier() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let place = |name: &str| folder.path().join(name);
        for name in ["test.csv", "letter.txt"] {
            std::fs::write(place(name), "text,label\nhello,ham\n").expect("it can be written");
        }
        let names = ["test.csv", "letter.txt", "missing.csv"];
        let added = TryIt::default().add_files(&names.map(place));
        let tables: Vec<bool> = added.iter().map(|input| input.table).collect();
        assert_eq!(tables, [true, false, false]);
        let refused = |task, name| refuse_table(task, &place(name)).is_some();
        assert!(refused(Task::TextClassification, "test.csv"));
        assert!(!refused(Task::TextClassification, "letter.txt"));
        assert!(!refused(Task::LanguageModel, "test.csv"));
    }

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
