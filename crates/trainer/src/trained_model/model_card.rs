//! The model card of an export: `README.md` as on the Hugging Face hub, with YAML that the hub
//! reads before the text. It names no path of this machine and shows no sample.

use super::{ExportFormat, TrainedModel};
use crate::error::Result;
use crate::results::Results;
use crate::sample_manifest;
use dataset::{DetectedDataset, Split, Task};
use models::pretrained::BaseDescription;
use runlog::{RunFolder, counted, format_count, format_metrics, format_percent};
use std::fmt::Write as _;
use std::path::Path;

/// The splits in the order of [`CardData`].
const SPLITS: [Split; 3] = [Split::Train, Split::HeldOut, Split::Test];
/// A card names at most this many classes.
const MAX_CLASSES: usize = 30;

/// The settings that a card lists if the run has them.
// tidy: table
#[rustfmt::skip]
const SETTINGS: &[&str] = &[
    "train_only", "adapter_rank", "adapter_kind", "adapter_alpha", "adapter_scaling",
    "adapter_dropout", "adapter_targets", "quantize", "image_size", "tokens", "vocabulary",
    "loss_on", "packing", "preference_beta", "epochs", "steps", "effective_batch",
    "effective_batch_tokens", "optimizer",
    "learning_rate", "schedule", "warmup_fraction", "weight_decay", "clip_norm", "label_smoothing",
    "token_dropout", "augment", "mix", "ema_decay", "precision", "seed",
];

/// The licences that the hub knows. It calls all others `other`.
// tidy: table
#[rustfmt::skip]
const HUB_LICENCES: &[&str] = &[
    "apache-2.0", "mit", "openrail", "bigscience-openrail-m", "creativeml-openrail-m",
    "bigscience-bloom-rail-1.0", "bigcode-openrail-m", "openrail++", "afl-3.0", "artistic-2.0",
    "bsl-1.0", "bsd", "bsd-2-clause", "bsd-3-clause", "bsd-3-clause-clear", "c-uda", "cc",
    "cc0-1.0", "cc-by-2.0", "cc-by-2.5", "cc-by-3.0", "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0",
    "cc-by-nc-2.0", "cc-by-nc-3.0", "cc-by-nc-4.0", "cc-by-nd-4.0", "cc-by-nc-nd-3.0",
    "cc-by-nc-nd-4.0", "cc-by-nc-sa-2.0", "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0", "ecl-2.0",
    "epl-1.0", "epl-2.0", "eupl-1.1", "eupl-1.2", "agpl-3.0", "gpl", "gpl-2.0", "gpl-3.0", "lgpl",
    "lgpl-2.1", "lgpl-3.0", "gemma", "llama2", "llama3", "llama3.1", "llama3.2", "llama3.3",
    "llama4",
];

/// Everything that a card says.
pub(super) struct CardFacts {
    /// What was trained: "Qwen3".
    network: String,
    task: Task,
    /// Whether the model predicts only regression targets.
    is_regression: bool,
    /// The weights that it started from; `None` for random ones.
    base: Option<CardBase>,
    /// "adapters of rank 16"; empty without a base.
    trained_part: String,
    format: ExportFormat,
    has_adapters: bool,
    data: CardData,
    /// Keys and values.
    settings: Vec<(String, String)>,
    evaluation: Option<CardEvaluation>,
    /// Whether a baseline has a part in the predictions.
    is_mixed: bool,
}

/// The weights that a model started from.
struct CardBase {
    /// Name of its folder, for a base whose name at a hub is not known.
    folder: String,
    about: BaseDescription,
}

struct CardData {
    name: String,
    /// Singular noun of a sample.
    noun: &'static str,
    train: u64,
    held_out: u64,
    test: u64,
    classes: Vec<String>,
    targets: Vec<String>,
}

struct CardEvaluation {
    /// Completed steps of the evaluated checkpoint.
    step: u64,
    /// "243 samples of the test split".
    of_what: String,
    /// Names of the columns, and the rows.
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// All other metrics in words.
    metrics: String,
}

impl TrainedModel {
    /// What the model card of an export says.
    ///
    /// # Errors
    /// The manifest of the run cannot be read.
    pub(super) fn card_facts(&self, format: ExportFormat) -> Result<CardFacts> {
        let plan = &self.plan;
        let run = RunFolder {
            path: self.run.clone(),
        };
        let pretrained = plan.pretrained.as_deref();
        let typed = plan.config.typed();
        let settings = SETTINGS.iter().filter_map(|key| {
            let value = typed.get(*key)?;
            Some(((*key).to_owned(), value.clone()))
        });
        Ok(CardFacts {
            network: plan.model.label().to_owned(),
            task: self.task(),
            is_regression: plan.classes.is_empty() && !plan.columns.is_empty(),
            base: pretrained.map(|pretrained| CardBase::new(&run, pretrained.base())),
            trained_part: pretrained.map_or_else(String::new, |it| it.trained_in_words()),
            format,
            has_adapters: pretrained.is_some_and(|it| it.tuning().adapter.is_some()),
            data: self.card_data(&run)?,
            settings: settings.collect(),
            evaluation: self.card_evaluation(&run),
            is_mixed: self.mixed_baseline.is_some(),
        })
    }

    fn card_data(&self, run: &RunFolder) -> Result<CardData> {
        let found = sample_manifest::read(run)?;
        let (name, counts) = match &found {
            DetectedDataset::Images(found) => (&found.name, SPLITS.map(|it| found.count(it))),
            DetectedDataset::Texts(found) => (&found.name, SPLITS.map(|it| found.count(it))),
        };
        let [train, held_out, test] = counts;
        // The name of a folder is no path, but nothing else forbids one.
        let last = Path::new(name).file_name().unwrap_or_default();
        Ok(CardData {
            name: last.to_string_lossy().into_owned(),
            noun: self.sample_noun(),
            train,
            held_out,
            test,
            classes: self.plan.classes.clone(),
            targets: self.plan.columns.iter().map(|it| it.name.clone()).collect(),
        })
    }

    /// The saved evaluation of the exported weights, or else the one in training; `None` if neither
    /// is there.
    fn card_evaluation(&self, run: &RunFolder) -> Option<CardEvaluation> {
        let step = self.state.step;
        // Without a readable file, the evaluation in training counts.
        let saved = Results::load(run).ok().flatten();
        if let Some(results) = saved.filter(|results| results.report.step == step) {
            let is_preference = self.plan.preference_beta.is_some();
            let noun = if self.task().is_on_documents() && !is_preference {
                "window"
            } else {
                self.sample_noun()
            };
            return Some(CardEvaluation::from_results(&results, noun));
        }
        let run = run.replay().ok()?;
        let found = run.evaluations().iter().rfind(|it| it.step == step)?;
        Some(CardEvaluation {
            step,
            of_what: "held-out samples, during the training.".to_owned(),
            columns: vec!["measure", "value"],
            rows: vec![vec!["Loss".to_owned(), format!("{:.3}", found.loss)]],
            metrics: format_metrics(&found.metrics),
        })
    }
}

impl CardBase {
    /// Runs of earlier versions have no description in their copy, but their base may still be
    /// there.
    fn new(run: &RunFolder, about: BaseDescription) -> Self {
        let original = run.config().ok().and_then(|config| config.from);
        let original = original.unwrap_or_default();
        let folder = original.file_name().unwrap_or_default();
        CardBase {
            folder: folder.to_string_lossy().into_owned(),
            about: if about.is_empty() {
                BaseDescription::read(&original)
            } else {
                about
            },
        }
    }

    /// "`org/name`".
    fn named(&self) -> String {
        match (&self.about.name, self.folder.as_str()) {
            (Some(name), _) => code(name),
            (None, "") => "a folder of pretrained weights".to_owned(),
            (None, folder) => format!("the folder {}", code(folder)),
        }
    }
}

impl CardEvaluation {
    fn from_results(results: &Results, noun: &str) -> Self {
        let report = &results.report;
        let measures = report.language_measures();
        let has_base = measures.iter().any(|it| it.before.is_some());
        let loss = vec!["Loss".to_owned(), format!("{:.3}", report.loss)];
        let rows = measures.iter().map(|it| {
            let before = it.before_text().into_iter();
            let label = std::iter::once(it.label.to_owned());
            label
                .chain(before)
                .chain([it.after_text()])
                .collect::<Vec<String>>()
        });
        let interval = report.accuracy_interval.map(|(low, high)| {
            let (low, high) = (format_percent(low), format_percent(high));
            format!(" The 95 % interval of the accuracy is {low} to {high}.")
        });
        let metrics = if measures.is_empty() {
            format_metrics(&report.metrics)
        } else {
            String::new()
        };
        CardEvaluation {
            step: report.step,
            of_what: format!(
                "{} of the {} split.{}",
                counted(report.samples, noun, &format!("{noun}s")),
                report.part,
                interval.unwrap_or_default()
            ),
            columns: if has_base {
                vec!["measure", "before", "after"]
            } else {
                vec!["measure", "value"]
            },
            rows: if measures.is_empty() {
                vec![loss]
            } else {
                rows.collect()
            },
            metrics,
        }
    }
}

impl CardFacts {
    /// The card of a folder that programs open with `opened_by`.
    pub fn card(&self, opened_by: &str) -> String {
        let parts = [
            self.front_matter(),
            self.summary(),
            self.described_data(),
            self.listed_settings(),
            self.described_evaluation(),
            self.described_licence(),
            format!(
                "## Open it\n\n    {opened_by}\n\nNAME, BASE and FOLDER stand for a name of your choice, the weights of the base, and this folder.\n"
            ),
            format!(
                "Trained and exported with Ebb {}.\n",
                env!("CARGO_PKG_VERSION")
            ),
        ];
        parts.join("\n")
    }

    /// The YAML. It has no language, because Ebb does not know it.
    fn front_matter(&self) -> String {
        let mut lines = vec!["---".to_owned()];
        let about = self.base.as_ref().map(|base| &base.about);
        if let Some(licence) = about.and_then(|about| about.licence.as_deref()) {
            if HUB_LICENCES.contains(&licence) {
                lines.push(format!("license: {licence}"));
            } else {
                lines.push("license: other".to_owned());
                lines.push(format!("license_name: {}", yaml(licence)));
            }
        }
        if let Some(name) = about.and_then(|about| about.name.as_deref()) {
            lines.push(format!("base_model: {}", yaml(name)));
            let relation = if self.format == ExportFormat::Adapters {
                "adapter"
            } else {
                "finetune"
            };
            lines.push(format!("base_model_relation: {relation}"));
        }
        if let Some(library) = library(self.format) {
            lines.push(format!("library_name: {library}"));
        }
        let pipeline = match self.task {
            Task::LanguageModel => Some("text-generation"),
            Task::TextClassification => Some("text-classification"),
            Task::ImageClassification if !self.is_regression => Some("image-classification"),
            Task::ImageClassification | Task::TokenCompression => None,
        };
        lines.extend(pipeline.map(|name| format!("pipeline_tag: {name}")));
        lines.push("tags:".to_owned());
        lines.push("- ebb".to_owned());
        if self.has_adapters {
            lines.push("- lora".to_owned());
        }
        lines.push("---\n".to_owned());
        lines.join("\n")
    }

    fn summary(&self) -> String {
        let (network, data) = (&self.network, code(&self.data.name));
        let Some(base) = &self.base else {
            let mixed = self.mixture();
            return format!(
                "# {network}, trained on {data}\n\nA model that {}. It was trained from random weights.{mixed}\n",
                self.verb()
            );
        };
        let folder = match self.format {
            ExportFormat::Adapters => {
                " This folder holds only the adapters; the weights of the base are not in it."
            }
            _ if self.has_adapters => " The adapters are merged into the weights.",
            _ => "",
        };
        format!(
            "# {network}, fine-tuned on {data}\n\nA model that {}. It started from {}; {} trained.{folder}{}\n",
            self.verb(),
            base.named(),
            were(&self.trained_part),
            self.mixture()
        )
    }

    fn verb(&self) -> &'static str {
        if self.is_regression {
            "predicts regression targets of images"
        } else {
            self.task.model_verb()
        }
    }

    fn mixture(&self) -> &'static str {
        if self.is_mixed {
            " Ebb predicts with this network and a simple baseline together; the Python file in this folder does the same."
        } else {
            ""
        }
    }

    fn described_data(&self) -> String {
        let data = &self.data;
        let nouns = format!("{}s", data.noun);
        let mut text = format!(
            "## Data\n\n{}: {} for training, {} held out",
            code(&data.name),
            counted(data.train, data.noun, &nouns),
            format_count(data.held_out)
        );
        if data.test > 0 {
            let _ = write!(text, ", {} for testing", format_count(data.test));
        }
        text.push_str(".\n");
        for (heading, names) in [("Classes", &data.classes), ("Targets", &data.targets)] {
            if names.is_empty() {
                continue;
            }
            let listed = names.iter().take(MAX_CLASSES).map(|name| code(name));
            let listed = listed.collect::<Vec<_>>().join(", ");
            let more = names.len().saturating_sub(MAX_CLASSES);
            let more = (more > 0).then(|| format!(" and {} more", format_count(more as u64)));
            let more = more.unwrap_or_default();
            let _ = writeln!(text, "\n{heading}: {listed}{more}.");
        }
        text
    }

    fn listed_settings(&self) -> String {
        let columns = ["setting", "value"].map(str::to_owned);
        let rows = self.settings.iter();
        let rows = rows.map(|(key, value)| vec![code(key), code(value)]);
        format!("## Settings\n\n{}", table(&columns, rows))
    }

    fn described_evaluation(&self) -> String {
        let Some(found) = &self.evaluation else {
            return "## Evaluation\n\nThese weights were not evaluated.\n".to_owned();
        };
        let columns: Vec<String> = found.columns.iter().map(|it| (*it).to_owned()).collect();
        let metrics = if found.metrics.is_empty() {
            String::new()
        } else {
            format!("\n{}\n", in_line(&found.metrics))
        };
        format!(
            "## Evaluation\n\nThe weights of step {} on {}\n\n{}{metrics}",
            format_count(found.step),
            found.of_what,
            table(&columns, found.rows.iter().cloned())
        )
    }

    fn described_licence(&self) -> String {
        let text = match self.base.as_ref().map(|base| base.about.licence.as_deref()) {
            None => {
                "This model has no licence yet. If you share it, choose one and name it as `license` at the top of this file.".to_owned()
            }
            Some(None) => {
                "The licence of the base is not known to Ebb. Look it up before you share this model: it may forbid that, or apply to this model, too.".to_owned()
            }
            Some(Some(licence)) => format!(
                "The licence of the base is {}. Read it before you share this model, because it may apply to this model, too.",
                code(licence)
            ),
        };
        format!("## Licence\n\n{text}\n")
    }
}

/// The library that opens a format, as the hub names it.
fn library(format: ExportFormat) -> Option<&'static str> {
    match format {
        ExportFormat::HuggingFace => Some("transformers"),
        ExportFormat::Adapters => Some("peft"),
        ExportFormat::Onnx => Some("onnx"),
        ExportFormat::CoreMl => Some("coreml"),
        ExportFormat::GgufF32
        | ExportFormat::GgufF16
        | ExportFormat::GgufQ8
        | ExportFormat::GgufQ4 => Some("gguf"),
    }
}

/// "adapters of rank 16 were", "the whole network was".
fn were(part: &str) -> String {
    let is_plural = part.starts_with("adapters") || part.contains(" and ") || part.ends_with('s');
    format!("{part} {}", if is_plural { "were" } else { "was" })
}

/// A scalar of YAML: every JSON string is one.
fn yaml(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let begins = text.chars().next().is_some_and(|c| c.is_ascii_alphabetic());
    if begins && text.chars().all(is_plain) {
        return text.to_owned();
    }
    serde_json::Value::from(text).to_string()
}

/// A text in one line.
fn in_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A name as code, so that nothing in it is Markdown.
fn code(text: &str) -> String {
    let text = in_line(text).replace('`', "'").replace('|', "/");
    format!("`{text}`")
}

fn table(columns: &[String], rows: impl Iterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule = format!("|{}\n", "---|".repeat(columns.len()));
    let rows: String = rows.map(|row| line(&row)).collect();
    format!("{}{rule}{rows}", line(columns))
}

#[cfg(test)]
mod tests;
