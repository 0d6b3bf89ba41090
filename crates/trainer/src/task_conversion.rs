//! The tasks of datasets and of the catalog of networks, translated into each other.

use dataset::Task;
use models::ModelTask;

/// The dataset's name for a task of the catalog.
pub fn dataset_task(task: ModelTask) -> Task {
    match task {
        ModelTask::ImageClassification => Task::ImageClassification,
        ModelTask::TextClassification => Task::TextClassification,
        ModelTask::LanguageModel => Task::LanguageModel,
        ModelTask::TokenCompression => Task::TokenCompression,
    }
}

/// The catalog's name for a task of a dataset.
pub fn model_task(task: Task) -> ModelTask {
    match task {
        Task::ImageClassification => ModelTask::ImageClassification,
        Task::TextClassification => ModelTask::TextClassification,
        Task::LanguageModel => ModelTask::LanguageModel,
        Task::TokenCompression => ModelTask::TokenCompression,
    }
}
