//! The tasks of datasets, of configs and of the catalog of networks, translated into each other.

use dataset::Task;
use models::ModelTask;
use runlog::TaskChoice;

/// Defines a function from one enum of tasks to another. Each has the same variants.
macro_rules! task_conversion {
    ($(#[$doc:meta])* $visibility:vis $name:ident: $from:ident to $to:ident) => {
        $(#[$doc])*
        $visibility fn $name(task: $from) -> $to {
            match task {
                $from::ImageClassification => $to::ImageClassification,
                $from::TextClassification => $to::TextClassification,
                $from::LanguageModel => $to::LanguageModel,
                $from::TokenCompression => $to::TokenCompression,
            }
        }
    };
}

task_conversion! {
    /// Converts the task of a config to the task type of the dataset crate.
    pub dataset_task: TaskChoice to Task
}
task_conversion! {
    /// The dataset's name for a task of the catalog.
    pub(crate) network_task: ModelTask to Task
}
task_conversion! {
    /// The catalog's name for a task of a dataset.
    pub model_task: Task to ModelTask
}
task_conversion! {
    /// The config's name for a task.
    pub(crate) task_choice: Task to TaskChoice
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_are_inverse_and_keep_the_name() {
        for task in Task::ALL {
            let choice = task_choice(task);
            assert_eq!(choice.name(), task.name());
            assert_eq!(dataset_task(choice), task);
            assert_eq!(network_task(model_task(task)), task);
        }
    }
}
