//! Questions for a language model, one JSON object per line: multiple choice in the layouts of ARC
//! and MMLU, and questions with an answer or a regular expression. A row that cannot be used comes
//! with its line and the reason.

use crate::error::DatasetError;
use crate::open_file::open_file;
use crate::readers::is_json_lines_file;
use format::{counted, format_bytes, format_count};
use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Most bytes of a row. A longer one is skipped without keeping it in memory.
const MAX_ROW_BYTES: u64 = 1 << 20;
/// Most choices of a question: each has a letter.
const MAX_CHOICES: usize = 26;
/// Rows that decide whether a file holds questions.
const DETECTION_ROWS: usize = 100;
/// Reasons of skipped rows that are kept. The others are counted.
const KEPT_REASONS: usize = 20;
/// Most bytes of a regular expression in its compiled form.
const MAX_EXPRESSION_BYTES: usize = 1 << 20;

/// One question.
#[derive(Debug, Clone)]
pub struct Question {
    /// What is asked.
    pub text: String,
    /// What is right.
    pub expected: Expected,
}

/// The right answer of a question.
#[derive(Debug, Clone)]
pub enum Expected {
    /// One of several choices.
    Choice {
        /// The choices in their order; none of them is empty.
        choices: Vec<String>,
        /// The index of the right one.
        right: usize,
    },
    /// One of these texts.
    Answers(Vec<String>),
    /// A text in which this expression is found.
    Pattern(Regex),
}

/// One row of a file of questions.
#[derive(Debug)]
pub struct QuestionRow {
    /// Its line, counted from 1.
    pub line: u64,
    /// The question, or why there is none, as the end of a sentence that begins with "this row".
    pub question: Result<Question, String>,
}

/// How answers are compared.
#[derive(Debug, Clone, Default)]
pub struct AnswerRule {
    /// Only what this expression finds in an answer counts: its first group if it has one,
    /// otherwise everything that it matches.
    extract: Option<Regex>,
}

/// How questions are asked, and how answers are compared.
#[derive(Debug, Clone)]
pub struct QuestionOptions {
    /// Lists the choices with letters in the question, and compares the likelihoods of the letters.
    pub letters: bool,
    /// Most tokens of a generated answer.
    pub tokens: usize,
    /// How generated answers are compared.
    pub rule: AnswerRule,
}

/// How many questions a model answers correctly.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QuestionScores {
    /// Questions with choices.
    pub choices: u64,
    /// Those whose right choice has the highest log-likelihood: `acc` of lm-evaluation-harness.
    pub right: u64,
    /// Those whose right choice has the highest log-likelihood per byte: `acc_bytes` of
    /// lm-evaluation-harness, whose `acc_norm` divides by characters instead.
    pub right_normalized: u64,
    /// Questions with answers or expressions.
    pub answers: u64,
    /// Those that are answered correctly.
    pub right_answers: u64,
    /// Questions that could not be asked.
    pub skipped: u64,
    /// The lines of the first of them, each with the reason.
    pub reasons: Vec<(u64, String)>,
}

/// A file of questions that has been read once.
#[derive(Debug)]
pub struct QuestionFile {
    path: PathBuf,
    /// Number of questions with choices.
    pub choices: u64,
    /// Number of questions with an answer or a regular expression.
    pub answers: u64,
    /// Number of rows that cannot be used.
    pub skipped: u64,
    /// The lines of the first of these rows, each with the reason.
    pub reasons: Vec<(u64, String)>,
}

/// The rows of a file.
#[derive(Debug)]
pub struct QuestionRows {
    path: PathBuf,
    lines: BufReader<File>,
    line: u64,
}

/// Whether a file holds questions: JSON lines, one of the first of which has a question with
/// choices or an answer.
pub fn is_question_file(path: &Path) -> bool {
    if !is_json_lines_file(path) || !path.is_file() {
        return false;
    }
    let Ok(mut rows) = QuestionRows::open(path) else {
        return false;
    };
    for _ in 0..DETECTION_ROWS {
        match rows.next_object() {
            Ok(Some((_, Ok(object)))) if is_question(&object) => return true,
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return false,
        }
    }
    false
}

fn is_question(object: &Map<String, Value>) -> bool {
    let has_expected = ["choices", "answer", "answerKey", "regex"]
        .iter()
        .any(|key| object.contains_key(*key));
    match object.get("question") {
        Some(Value::String(_)) => has_expected,
        Some(Value::Object(question)) => question.contains_key("choices") || has_expected,
        _ => false,
    }
}

/// Adds the reason for which a row was skipped, unless there are enough.
fn keep_reason(reasons: &mut Vec<(u64, String)>, line: u64, reason: String) {
    if reasons.len() < KEPT_REASONS {
        reasons.push((line, reason));
    }
}

impl QuestionScores {
    /// Counts a question that could not be asked.
    pub fn skip(&mut self, line: u64, reason: String) {
        self.skipped += 1;
        keep_reason(&mut self.reasons, line, reason);
    }
}

impl QuestionFile {
    /// Reads all rows and counts them.
    ///
    /// # Errors
    /// The file cannot be read, or no row can be used; the error names the first row's problem.
    pub fn check(path: &Path) -> Result<Self, DatasetError> {
        let mut file = QuestionFile {
            path: path.to_owned(),
            choices: 0,
            answers: 0,
            skipped: 0,
            reasons: Vec::new(),
        };
        for row in QuestionRows::open(path)? {
            let QuestionRow { line, question } = row?;
            match question.map(|question| question.expected) {
                Ok(Expected::Choice { .. }) => file.choices += 1,
                Ok(Expected::Answers(_) | Expected::Pattern(_)) => file.answers += 1,
                Err(reason) => {
                    file.skipped += 1;
                    keep_reason(&mut file.reasons, line, reason);
                }
            }
        }
        if file.choices + file.answers > 0 {
            return Ok(file);
        }
        let reason = match file.reasons.first() {
            None => "the file is empty; write one question per line, as JSON".to_owned(),
            Some((line, reason)) => format!(
                "no row has a usable question; line {}: this row {reason}",
                format_count(*line)
            ),
        };
        Err(unreadable(path, reason))
    }

    /// Number of questions.
    pub fn questions(&self) -> u64 {
        self.choices + self.answers
    }

    /// Reads the rows again.
    ///
    /// # Errors
    /// The file can no longer be opened.
    pub fn rows(&self) -> Result<QuestionRows, DatasetError> {
        QuestionRows::open(&self.path)
    }
}

impl Iterator for QuestionRows {
    type Item = Result<QuestionRow, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (line, object) = match self.next_object() {
            Ok(found) => found?,
            Err(error) => {
                let reason = format::format_io_error(&error);
                return Some(Err(unreadable(&self.path, reason)));
            }
        };
        let question = object.and_then(|object| Question::from_object(&object));
        Some(Ok(QuestionRow { line, question }))
    }
}

type NumberedObject = (u64, Result<Map<String, Value>, String>);

impl QuestionRows {
    fn open(path: &Path) -> Result<Self, DatasetError> {
        let file = open_file(path).map_err(|error| {
            let reason = format::format_io_error(&error);
            unreadable(path, reason)
        })?;
        Ok(QuestionRows {
            path: path.to_owned(),
            lines: BufReader::new(file),
            line: 0,
        })
    }

    /// The next row that is not empty, with its line.
    fn next_object(&mut self) -> io::Result<Option<NumberedObject>> {
        loop {
            let Some(bytes) = self.next_line()? else {
                return Ok(None);
            };
            let object = match bytes {
                Err(reason) => Err(reason),
                Ok(bytes) if bytes.trim_ascii().is_empty() => continue,
                Ok(bytes) => match serde_json::from_slice(&bytes) {
                    Ok(Value::Object(object)) => Ok(object),
                    Ok(_) => Err("is not a JSON object".to_owned()),
                    Err(error) => Err(format!("is not JSON: {error}")),
                },
            };
            return Ok(Some((self.line, object)));
        }
    }

    /// The bytes of the next line, or why it is not read.
    fn next_line(&mut self) -> io::Result<Option<Result<Vec<u8>, String>>> {
        let (mut bytes, mut is_too_long) = (Vec::new(), false);
        loop {
            let start = bytes.len();
            let mut limited = self.lines.by_ref().take(MAX_ROW_BYTES + 1);
            let read = limited.read_until(b'\n', &mut bytes)?;
            if read == 0 && start == 0 && !is_too_long {
                return Ok(None);
            }
            if read == 0 || bytes.last() == Some(&b'\n') {
                break;
            }
            if bytes.len() as u64 > MAX_ROW_BYTES {
                is_too_long = true;
                bytes.clear();
            }
        }
        self.line += 1;
        if is_too_long {
            let limit = format_bytes(MAX_ROW_BYTES);
            return Ok(Some(Err(format!("is longer than {limit}"))));
        }
        if self.line == 1 && bytes.starts_with("\u{FEFF}".as_bytes()) {
            bytes.drain(.."\u{FEFF}".len());
        }
        Ok(Some(Ok(bytes)))
    }
}

impl Question {
    fn from_object(object: &Map<String, Value>) -> Result<Self, String> {
        let (text, choices) = match object.get("question") {
            Some(Value::String(text)) => (text, object.get("choices")),
            // The files of ARC itself.
            Some(Value::Object(question)) => match question.get("stem") {
                Some(Value::String(text)) => (text, question.get("choices")),
                _ => return Err("has no question".to_owned()),
            },
            _ => return Err("has no question".to_owned()),
        };
        if text.trim().is_empty() {
            return Err("has an empty question".to_owned());
        }
        let answer = ["answer", "answerKey"].iter().find_map(|key| {
            let value = object.get(*key)?;
            (!value.is_null()).then_some(value)
        });
        let expected = match (choices, object.get("regex")) {
            (Some(choices), _) => Choices::from_json(choices)?.expected(answer)?,
            (None, Some(Value::String(pattern))) => Expected::Pattern(compiled(pattern)?),
            (None, Some(_)) => return Err("has a regex that is not a text".to_owned()),
            (None, None) => Expected::Answers(answers(answer)?),
        };
        Ok(Question {
            text: text.trim().to_owned(),
            expected,
        })
    }
}

/// The choices of a question, and their labels if they have any.
struct Choices {
    texts: Vec<String>,
    labels: Vec<String>,
}

impl Choices {
    /// A list of texts, a list of objects with `text` and `label`, or an object with both as lists.
    fn from_json(json: &Value) -> Result<Self, String> {
        let unknown = || {
            "has choices that are neither a list nor an object with the lists text and label"
                .to_owned()
        };
        let (texts, labels): (Vec<&Value>, Vec<&Value>) = match json {
            Value::Array(list) if list.iter().all(Value::is_object) => {
                let all = |key: &str| list.iter().filter_map(|choice| choice.get(key)).collect();
                (all("text"), all("label"))
            }
            Value::Array(list) => (list.iter().collect(), Vec::new()),
            Value::Object(lists) => {
                let list = |key: &str| lists.get(key).and_then(Value::as_array);
                let texts = list("text").ok_or_else(unknown)?.iter().collect();
                let labels = list("label").map_or_else(Vec::new, |list| list.iter().collect());
                (texts, labels)
            }
            _ => return Err(unknown()),
        };
        Choices::new(&texts, &labels)
    }

    fn new(texts: &[&Value], labels: &[&Value]) -> Result<Self, String> {
        let all = |values: &[&Value]| {
            let texts = values.iter().map(|value| as_text(value));
            texts.collect::<Option<Vec<String>>>()
        };
        let (Some(texts), Some(labels)) = (all(texts), all(labels)) else {
            return Err("has a choice that is not a text".to_owned());
        };
        if texts.len() < 2 || texts.len() > MAX_CHOICES {
            let count = counted(texts.len() as u64, "choice", "choices");
            return Err(format!("has {count}, but 2 to 26 are possible"));
        }
        if !labels.is_empty() && labels.len() != texts.len() {
            return Err("has different numbers of labels and choices".to_owned());
        }
        if let Some(empty) = texts.iter().position(|text| text.trim().is_empty()) {
            return Err(format!("has an empty choice {}", letter(empty)));
        }
        Ok(Choices { texts, labels })
    }

    /// The choice that `answer` names: by its label, its letter, its index from 0, or its text.
    fn expected(self, answer: Option<&Value>) -> Result<Expected, String> {
        let named = answer.ok_or("has no answer")?;
        let text = as_text(named).ok_or("has an answer that is neither a text nor a number")?;
        let text = text.trim();
        let count = self.texts.len();
        let by_letter = || {
            let mut letters = (0..count).map(letter);
            letters.position(|letter| text.eq_ignore_ascii_case(&letter.to_string()))
        };
        let by_index = || text.parse().ok().filter(|index: &usize| *index < count);
        let label = self.labels.iter().position(|label| label == text);
        let right = match named {
            Value::Number(_) => label.or_else(by_index),
            _ => {
                let same = || self.texts.iter().position(|choice| choice.trim() == text);
                label.or_else(by_letter).or_else(by_index).or_else(same)
            }
        };
        match right {
            Some(right) => Ok(Expected::Choice {
                choices: self.texts,
                right,
            }),
            None => {
                let (known, last) = (self.labels.join(", "), letter(count - 1));
                let known = if known.is_empty() {
                    format!("A to {last}, or 0 to {}", count - 1)
                } else {
                    known
                };
                let shown: String = text.chars().take(40).collect();
                Err(format!(
                    "has the answer {shown:?}, which is not among its choices ({known})"
                ))
            }
        }
    }
}

/// The letter of a choice.
pub fn letter(choice: usize) -> char {
    char::from(b'A' + (choice % MAX_CHOICES) as u8)
}

/// The texts of which one is right.
fn answers(answer: Option<&Value>) -> Result<Vec<String>, String> {
    let listed: Option<Vec<String>> = match answer {
        None => return Err("has no answer".to_owned()),
        Some(Value::Array(list)) => list.iter().map(as_text).collect(),
        Some(one) => as_text(one).map(|text| vec![text]),
    };
    let texts = listed.ok_or("has an answer that is neither a text nor a number")?;
    if texts.is_empty() || texts.iter().any(|text| text.trim().is_empty()) {
        return Err("has an empty answer".to_owned());
    }
    Ok(texts)
}

fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// # Errors
/// The expression is invalid; the error is the end of a sentence that begins with "this row".
fn compiled(pattern: &str) -> Result<Regex, String> {
    let built = RegexBuilder::new(pattern)
        .size_limit(MAX_EXPRESSION_BYTES)
        .build();
    built.map_err(|error| {
        let text = error.to_string();
        let last = text.lines().last().unwrap_or_default();
        let last = last.trim_start_matches("error: ");
        format!("has an invalid regular expression: {last}")
    })
}

impl AnswerRule {
    /// A rule that only compares what the expression `extract` finds.
    ///
    /// # Errors
    /// The expression is invalid; the error says why.
    pub fn new(extract: Option<&str>) -> Result<Self, String> {
        let extract = extract.map(compiled).transpose();
        let extract = extract.map_err(|reason| reason.replace("has an invalid", "invalid"))?;
        Ok(AnswerRule { extract })
    }

    /// Whether a generated answer is right. White space around answers does not count.
    pub fn is_right(&self, expected: &Expected, given: &str) -> bool {
        match expected {
            Expected::Choice { choices, right } => choices[*right].trim() == given.trim(),
            Expected::Pattern(pattern) => pattern.is_match(given),
            Expected::Answers(answers) => {
                let Some(given) = self.extracted(given) else {
                    return false;
                };
                let mut answers = answers.iter();
                answers
                    .any(|answer| self.extracted(answer).unwrap_or(answer).trim() == given.trim())
            }
        }
    }

    /// What counts of an answer; `None` if the expression finds nothing.
    fn extracted<'t>(&self, answer: &'t str) -> Option<&'t str> {
        let Some(extract) = &self.extract else {
            return Some(answer);
        };
        let found = extract.captures(answer)?;
        let group = found.get(1).or_else(|| found.get(0))?;
        Some(group.as_str())
    }
}

fn unreadable(path: &Path, reason: String) -> DatasetError {
    DatasetError::UnreadableFile {
        file: path.to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests;
