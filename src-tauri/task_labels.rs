//! The names of tasks as the window and the terminal show them.

use dataset::Task;

/// "image classification" for `image-classification`; "image regression" if there are targets and
/// no classes.
pub fn learned(task: &str, classes: usize, numbers: usize) -> String {
    match (classes, numbers) {
        (0, 1..) => "image regression".to_owned(),
        _ => task.replace('-', " "),
    }
}

/// What the samples must have, as a sentence.
pub fn asks(task: Task, classes: usize, numbers: usize) -> &'static str {
    match (task, classes, numbers) {
        (Task::ImageClassification, _, 0) => "One sub-folder per class.",
        (Task::ImageClassification, 0, _) => "Columns of the table that describes the images.",
        (Task::ImageClassification, ..) => "Classes, and columns of the table.",
        (Task::TextClassification, ..) => "One label per text.",
        (Task::LanguageModel, ..) => "Documents, byte by byte.",
        (Task::TokenCompression, ..) => "Drops bytes of each text and fills the gaps.",
    }
}

/// The text with a capital first letter.
pub fn capital(words: &str) -> String {
    let mut letters = words.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_without_classes_are_regression() {
        let images = Task::ImageClassification.name();
        assert_eq!(learned(images, 0, 5), "image regression");
        assert_eq!(learned(images, 4, 5), "image classification");
        assert_eq!(learned(images, 4, 0), "image classification");
        assert_eq!(learned("language-model", 0, 0), "language model");
        assert_eq!(capital("language model"), "Language model");
    }
}
