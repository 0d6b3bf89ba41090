//! The tasks that a model can be trained for, and everything that a user reads about each.

/// A task that a model can be trained for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Task {
    /// Predict the class of an image, its regression targets, or both.
    ImageClassification,
    /// Predict the class of a text.
    TextClassification,
    /// Predict the next token of a document.
    LanguageModel,
    /// Decide which tokens of a document can be left out. Ebb never detects this task; the user
    /// asks for it on a dataset of documents.
    TokenCompression,
}

/// What a task is called, in the window, in the terminal and in files.
struct Words {
    name: &'static str,
    label: &'static str,
    sample_noun: &'static str,
    step_noun: &'static str,
    data_noun: &'static str,
    size_unit: &'static str,
    model_verb: &'static str,
    requirement: &'static str,
}

impl Task {
    /// Every task, in the order of `--help`.
    pub const ALL: [Task; 4] = [
        Task::ImageClassification,
        Task::TextClassification,
        Task::LanguageModel,
        Task::TokenCompression,
    ];

    fn words(self) -> Words {
        match self {
            Task::ImageClassification => Words {
                name: "image-classification",
                label: "image classification",
                sample_noun: "image",
                step_noun: "image",
                data_noun: "images",
                size_unit: "px",
                model_verb: "classifies images",
                requirement: "One sub-folder per class.",
            },
            Task::TextClassification => Words {
                name: "text-classification",
                label: "text classification",
                sample_noun: "text",
                step_noun: "text",
                data_noun: "texts with labels",
                size_unit: "tokens",
                model_verb: "classifies texts",
                requirement: "One label per text.",
            },
            Task::LanguageModel => Words {
                name: "language-model",
                label: "language model",
                sample_noun: "document",
                step_noun: "window",
                data_noun: "documents",
                size_unit: "tokens",
                model_verb: "is a language model",
                requirement: "The model reads documents byte by byte.",
            },
            Task::TokenCompression => Words {
                name: "token-compression",
                label: "token compression",
                sample_noun: "document",
                step_noun: "window",
                data_noun: "documents",
                size_unit: "tokens",
                model_verb: "compresses texts",
                requirement: "The model drops bytes of each text and fills the gaps.",
            },
        }
    }

    /// The task with this name; `None` if there is none, as in a run of a newer version.
    pub fn from_name(name: &str) -> Option<Self> {
        Task::ALL.into_iter().find(|task| task.name() == name)
    }

    /// The name on the command line, such as `image-classification`.
    pub fn name(self) -> &'static str {
        self.words().name
    }

    /// The name in sentences, such as "image classification".
    pub fn label(self) -> &'static str {
        self.words().label
    }

    /// The singular noun for one sample: "image", "text" or "document".
    pub fn sample_noun(self) -> &'static str {
        self.words().sample_noun
    }

    /// The singular noun for the units that a step counts. For documents it is "window", because
    /// documents are packed into windows.
    pub fn step_noun(self) -> &'static str {
        self.words().step_noun
    }

    /// What a dataset for this task holds, such as "texts with labels".
    pub fn data_noun(self) -> &'static str {
        self.words().data_noun
    }

    /// The unit of the input size: "px" or "tokens".
    pub fn size_unit(self) -> &'static str {
        self.words().size_unit
    }

    /// What a trained model does, such as "classifies texts".
    pub fn model_verb(self) -> &'static str {
        self.words().model_verb
    }

    /// What a dataset must have, as a sentence.
    pub fn requirement(self) -> &'static str {
        self.words().requirement
    }

    /// The task that a dataset is detected as when the user asks for this one. Token compression
    /// trains on the same documents as a language model.
    pub fn detected_as(self) -> Task {
        match self {
            Task::TokenCompression => Task::LanguageModel,
            task => task,
        }
    }

    /// Whether samples are documents, which have no label and are packed into windows.
    pub fn is_on_documents(self) -> bool {
        matches!(self, Task::LanguageModel | Task::TokenCompression)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_found_by_its_name_only() {
        for task in Task::ALL {
            assert_eq!(Task::from_name(task.name()), Some(task));
            assert_eq!(task.name().replace('-', " "), task.label());
        }
        assert_eq!(Task::from_name("object-detection"), None);
    }
}
