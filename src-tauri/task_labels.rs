//! The names of tasks as the window and the terminal show them.

#[cfg(feature = "desktop")]
use dataset::Task;

/// "image classification" for `image-classification`; "image regression" if there are targets and
/// no classes.
pub fn learned(task: &str, classes: usize, numbers: usize) -> String {
    match (classes, numbers) {
        (0, 1..) => "image regression".to_owned(),
        _ => task.replace('-', " "),
    }
}

/// What the samples must have, as a sentence. `table` tells whether a table gives the classes.
#[cfg(feature = "desktop")]
pub fn asks(task: Task, classes: usize, numbers: usize, table: bool) -> &'static str {
    match (task, classes, numbers) {
        (Task::ImageClassification, _, 0) if table => "One class per row of the table.",
        (Task::ImageClassification, 0, 1..) => {
            "A table with a column of file names and columns of numbers."
        }
        (Task::ImageClassification, _, 1..) => "Classes, and a table with columns of numbers.",
        _ => task.requirement(),
    }
}

/// The text with a capital first letter.
#[cfg(feature = "desktop")]
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

    #[test]
    fn classes_of_a_table_need_no_sub_folders() {
        let images = |numbers, table| asks(Task::ImageClassification, 4, numbers, table);
        assert_eq!(images(0, false), "One sub-folder per class.");
        assert_eq!(images(0, true), "One class per row of the table.");
        assert_eq!(
            images(2, true),
            "Classes, and a table with columns of numbers."
        );
    }
}
