//! What the window exports of a run. Everything is written under a temporary name first, so a full
//! or read-only disk leaves nothing behind.

mod tensorboard;

use crate::import_run::{ENDING, is_named_as_archive};
use crate::paths::{device_check_path, is_within};
use crate::window_types::CommandError;
use runlog::{RunConfig, RunFolder, TaskChoice, format_bytes, format_io_error};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use trainer::{DevicePreference, ExportFormat, RunDataset, TrainedModel};
use ts_rs::TS;

/// What is exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum ExportKind {
    /// Weights and settings in the format of the Hugging Face hub.
    HuggingFace,
    /// One ONNX file with its settings.
    Onnx,
    /// A Core ML package.
    CoreMl,
    /// A language model as one GGUF file, with weights in 16-bit floats.
    GgufF16,
    /// A language model as one GGUF file, with 8 bits per weight.
    GgufQ8,
    /// A language model as one GGUF file, with about 4.8 bits per weight.
    GgufQ4,
    /// The adapters of a language model alone, for PEFT.
    Adapters,
    /// The report as a page to print.
    ReportPdf,
    /// The report as a picture.
    ReportPng,
    /// The report as a drawing.
    ReportSvg,
    /// Loss, learning rate and evaluations as a table.
    CurvesCsv,
    /// The curves as a TensorBoard event file.
    Tensorboard,
    /// The run with its checkpoints as one file.
    Run,
}

/// A choice of the export sheet.
#[derive(Debug, Clone, Serialize, TS)]
pub struct ExportView {
    /// For `export_run`.
    pub kind: ExportKind,
    /// "Hugging Face folder".
    pub label: String,
    /// What opens it.
    pub opens: String,
}

const ALL: [ExportKind; 13] = [
    ExportKind::HuggingFace,
    ExportKind::GgufF16,
    ExportKind::GgufQ8,
    ExportKind::GgufQ4,
    ExportKind::Adapters,
    ExportKind::Onnx,
    ExportKind::CoreMl,
    ExportKind::ReportPdf,
    ExportKind::ReportPng,
    ExportKind::ReportSvg,
    ExportKind::CurvesCsv,
    ExportKind::Tensorboard,
    ExportKind::Run,
];

impl ExportKind {
    /// Whether a run with this task and config can be exported in this way. A GGUF file also needs
    /// a network that llama.cpp knows; others are refused with the reason.
    fn fits(self, task: TaskChoice, config: &RunConfig) -> bool {
        let is_language_model = task == TaskChoice::LanguageModel;
        match self {
            ExportKind::Onnx | ExportKind::CoreMl => !is_language_model,
            ExportKind::GgufF16 | ExportKind::GgufQ8 | ExportKind::GgufQ4 => {
                is_language_model && config.from.is_some()
            }
            ExportKind::Adapters => is_language_model && config.adapter_rank.is_some(),
            _ => true,
        }
    }

    /// Label, and what opens it.
    // tidy: table
    fn words(self) -> (&'static str, &'static str) {
        match self {
            ExportKind::HuggingFace => (
                "Hugging Face folder",
                "Python programs open this folder with the transformers library, and you can upload it to the Hugging Face hub.",
            ),
            ExportKind::Onnx => (
                "ONNX",
                "onnxruntime opens this file in Python, C++, C#, Java, JavaScript and Swift, without PyTorch.",
            ),
            ExportKind::CoreMl => (
                "Core ML",
                "Xcode opens this package, and apps for Mac, iPhone and iPad run it through Core ML and Vision.",
            ),
            ExportKind::GgufF16 => (
                "GGUF, 16 bits",
                "llama.cpp, LM Studio and Ollama run this file. It stores the weights as 16-bit floats, which is nearly exact. The folder contains a Modelfile for Ollama.",
            ),
            ExportKind::GgufQ8 => (
                "GGUF, 8 bits (Q8_0)",
                "llama.cpp, LM Studio and Ollama run this file. It is half as large as with 16 bits, and hardly less accurate.",
            ),
            ExportKind::GgufQ4 => (
                "GGUF, 4 bits (Q4_K_M)",
                "llama.cpp, LM Studio and Ollama run this file. It is a third as large as with 16 bits, and somewhat less accurate.",
            ),
            ExportKind::Adapters => (
                "Adapters for PEFT",
                "Python programs load this small folder with the PEFT library, together with the weights that the run started from.",
            ),
            ExportKind::ReportPdf => (
                "Report as PDF",
                "You can open this PDF in any browser, or in Preview on a Mac. You can print it and search its text.",
            ),
            ExportKind::ReportPng => (
                "Report as PNG",
                "Every image viewer and word processor opens this picture, which shows the loss curves and the memory use.",
            ),
            ExportKind::ReportSvg => (
                "Report as SVG",
                "Browsers and drawing programs open this drawing of the curves, which is sharp at any size.",
            ),
            ExportKind::Tensorboard => (
                "Curves for TensorBoard",
                "TensorBoard shows the curves of this event file; open the file's folder in TensorBoard.",
            ),
            ExportKind::CurvesCsv => (
                "Curves as CSV",
                "Excel, pandas and Numbers open this table of loss, learning rate and evaluations.",
            ),
            ExportKind::Run => (
                "Export run",
                "Ebb opens this file on another computer and can resume the run there: drop the file on the window, or choose “Import a run…” from the commands.",
            ),
        }
    }

    /// Title of the dialog that asks for a place.
    pub fn title(self) -> &'static str {
        self.words().0
    }

    /// The suggested name for the run `name`.
    pub fn file_name(self, name: &str) -> String {
        let name = name.replace(['/', '\\', ':'], "-");
        match self {
            ExportKind::HuggingFace => format!("{name}-hugging-face"),
            ExportKind::Onnx => format!("{name}-onnx"),
            ExportKind::CoreMl => format!("{name}.mlpackage"),
            ExportKind::GgufF16 => format!("{name}-gguf-f16"),
            ExportKind::GgufQ8 => format!("{name}-gguf-q8_0"),
            ExportKind::GgufQ4 => format!("{name}-gguf-q4_k_m"),
            ExportKind::Adapters => format!("{name}-adapters"),
            ExportKind::ReportPdf => format!("{name} report.pdf"),
            ExportKind::ReportPng => format!("{name} report.png"),
            ExportKind::ReportSvg => format!("{name} report.svg"),
            ExportKind::CurvesCsv => format!("{name} curves.csv"),
            ExportKind::Tensorboard => format!("events.out.tfevents.{name}"),
            ExportKind::Run => format!("{name}.{ENDING}"),
        }
    }
}

impl ExportKind {
    /// The endings of files that can be chosen for a report; empty for everything else.
    pub fn endings(self) -> &'static [&'static str] {
        match self {
            ExportKind::ReportPdf | ExportKind::ReportPng | ExportKind::ReportSvg => {
                &["png", "svg", "pdf"]
            }
            _ => &[],
        }
    }

    /// The kind of report that the ending of a chosen file names; everything else stays.
    fn for_place(self, place: &Path) -> Self {
        let ending = place.extension().map(|ending| ending.to_ascii_lowercase());
        let ending = ending.as_deref().and_then(|ending| ending.to_str());
        match ending.filter(|ending| self.endings().contains(ending)) {
            Some("pdf") => ExportKind::ReportPdf,
            Some("png") => ExportKind::ReportPng,
            Some("svg") => ExportKind::ReportSvg,
            _ => self,
        }
    }
}

/// Everything that a run with this task and config can be exported as.
pub fn choices(task: TaskChoice, config: &RunConfig) -> Vec<ExportView> {
    let view = |kind: ExportKind| {
        let (label, opens) = kind.words();
        ExportView {
            kind,
            label: label.to_owned(),
            opens: opens.to_owned(),
        }
    };
    let fitting = ALL.into_iter().filter(|kind| kind.fits(task, config));
    fitting.map(view).collect()
}

/// Exports to `place`, a folder for the models, else a file, whose ending decides about the format
/// of a report. Returns what was written: the names of a Core ML package and of a run get their
/// endings.
///
/// # Errors
/// The run has no checkpoint, the format cannot express its network, or `place` cannot be written.
pub fn export(run: &RunFolder, kind: ExportKind, place: &Path) -> Result<PathBuf, CommandError> {
    let kind = kind.for_place(place);
    let bytes = match kind {
        ExportKind::HuggingFace => {
            return export_model(run, ExportFormat::HuggingFace, place);
        }
        ExportKind::Onnx => return export_model(run, ExportFormat::Onnx, place),
        ExportKind::CoreMl => return export_model(run, ExportFormat::CoreMl, place),
        ExportKind::GgufF16 => return export_model(run, ExportFormat::GgufF16, place),
        ExportKind::GgufQ8 => return export_model(run, ExportFormat::GgufQ8, place),
        ExportKind::GgufQ4 => return export_model(run, ExportFormat::GgufQ4, place),
        ExportKind::Adapters => return export_model(run, ExportFormat::Adapters, place),
        ExportKind::Run => return export_archive(run, place),
        ExportKind::ReportPdf => runlog::report_pdf(&run.replay()?, &run.id())?,
        ExportKind::ReportPng | ExportKind::ReportSvg => {
            let (svg, png) = runlog::report_pages(&run.replay()?, &run.id())?;
            match kind {
                ExportKind::ReportPng => png,
                _ => svg.into_bytes(),
            }
        }
        ExportKind::CurvesCsv => {
            let events = runlog::read_events(&run.events_path())?;
            runlog::curves_csv(&events).into_bytes()
        }
        ExportKind::Tensorboard => {
            let events = runlog::read_events(&run.events_path())?;
            tensorboard::tensorboard(&events)
        }
    };
    write(place, &bytes)?;
    Ok(place.to_owned())
}

fn export_model(
    run: &RunFolder,
    format: ExportFormat,
    place: &Path,
) -> Result<PathBuf, CommandError> {
    let model = TrainedModel::load(run, DevicePreference::Cpu, Some(&device_check_path()))?;
    let exported = model.export(place, format).map_err(|error| {
        let error = CommandError::from(error);
        CommandError::new(
            &error.code,
            format!("{} Nothing was written.", ended(&error.message)),
        )
    })?;
    Ok(exported.folder)
}

/// Writes the run with its checkpoints to one file. The dialog has asked before it replaces a file.
fn export_archive(run: &RunFolder, place: &Path) -> Result<PathBuf, CommandError> {
    // A run whose dataset is missing is exported too.
    let dataset = RunDataset::read(run).ok().map(|data| data.path());
    for folder in dataset.iter().chain([&run.path]) {
        if is_within(place, folder) {
            let why = format!(
                "{} is a folder that the export must not change. Choose another folder.",
                folder.display()
            );
            return Err(CommandError::new("failed", why));
        }
    }
    let named = if is_named_as_archive(place) {
        place.to_owned()
    } else {
        let mut name = place.as_os_str().to_owned();
        name.push(format!(".{ENDING}"));
        PathBuf::from(name)
    };
    if named != place || !place.is_file() {
        return Ok(run.export_archive(&named)?.path);
    }
    let new = disk::draft_path(place);
    // Left by earlier exports.
    disk::remove_drafts_of(place);
    run.export_archive(&new)?;
    if let Err(error) = disk::rename(&new, place).and_then(|()| disk::sync_parent(place)) {
        // The next export removes what cannot be removed now.
        let _ = disk::remove_file(&new);
        let why = format!(
            "{} could not be replaced: {}. Choose another place.",
            place.display(),
            format_io_error(&error)
        );
        return Err(CommandError::new("failed", why));
    }
    Ok(place.to_owned())
}

/// The sentence with a full stop.
fn ended(sentence: &str) -> String {
    if sentence.ends_with('.') {
        sentence.to_owned()
    } else {
        format!("{sentence}.")
    }
}

/// Writes a file completely or not at all.
///
/// # Errors
/// The sentence says what is wrong with the place and what to do.
pub fn write(place: &Path, bytes: &[u8]) -> Result<(), CommandError> {
    let name = place
        .file_name()
        .unwrap_or(place.as_os_str())
        .to_string_lossy();
    // Left by an export that was killed.
    disk::remove_drafts_of(place);
    disk::write_atomic(place, bytes).map_err(|error| {
        let why = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => format!(
                "The disk is full: the export needs {}. Free some space or choose another place.",
                format_bytes(bytes.len() as u64)
            ),
            ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
                "Ebb has no permission to write to this folder. Choose another place.".to_owned()
            }
            _ => {
                let problem = format_io_error(&error);
                format!("The file could not be written: {problem}. Choose another place.")
            }
        };
        CommandError::new("failed", format!("{name}: {why}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import_run::import;
    use runlog::RunStore;

    #[test]
    fn a_place_that_cannot_be_written_is_named_and_stays_as_it_was() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let place = folder.path().join("missing/curves.csv");
        let refused = write(&place, b"a").expect_err("the folder is missing");
        assert!(
            refused.message.starts_with("curves.csv: "),
            "{}",
            refused.message
        );
        assert!(
            refused.message.ends_with("Choose another place."),
            "{}",
            refused.message
        );
        let place = folder.path().join("curves.csv");
        write(&place, b"a").expect("it can be written");
        assert_eq!(std::fs::read(&place).expect("it is there"), b"a");
        let left = std::fs::read_dir(folder.path())
            .expect("it can be read")
            .count();
        assert_eq!(left, 1, "no temporary file stays");
    }

    /// A run of a store in `home`.
    fn run(home: &Path) -> RunFolder {
        let store = RunStore::open(home.join("runs"));
        let run = store.create("birds").expect("it can be created");
        std::fs::write(run.path.join("config.toml"), "seed = 7\n").expect("it can be written");
        std::fs::write(run.events_path(), "").expect("it can be written");
        run
    }

    #[test]
    fn an_exported_run_gets_its_ending_and_replaces_what_the_dialog_allowed_to() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let run = run(home.path());
        let out = tempfile::tempdir().expect("a temporary folder");
        let export = |name: &str| export(&run, ExportKind::Run, &out.path().join(name));
        let named = out.path().join("birds.ebbrun");
        assert_eq!(export("birds").ok(), Some(named.clone()));
        let unasked = export("birds").expect_err("the dialog asked about another name");
        assert!(
            unasked.message.contains("exists already"),
            "{}",
            unasked.message
        );
        std::fs::write(&named, "an older file").expect("it can be written");
        assert_eq!(export("birds.ebbrun").ok(), Some(named.clone()));
        let written = std::fs::read(&named).expect("it is there");
        assert_eq!(written[..2], [0x1f, 0x8b], "it is compressed with gzip");
        let left = std::fs::read_dir(out.path()).expect("it can be read");
        assert_eq!(left.count(), 1, "no draft stays");

        let store = RunStore::open(out.path().join("runs"));
        let imported = import(&store, &named).expect("it can be imported");
        assert_eq!((imported.run, imported.notice), (run.id(), None));
    }

    #[test]
    fn a_run_is_not_exported_into_itself() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let run = run(home.path());
        let inside = run.path.join("birds.ebbrun");
        let refused = export(&run, ExportKind::Run, &inside).expect_err("it would contain itself");
        assert!(
            refused.message.contains("must not change"),
            "{}",
            refused.message
        );
        assert!(!inside.exists());
    }

    #[test]
    fn the_ending_of_the_file_decides_about_the_format_of_a_report() {
        let chosen = |kind: ExportKind, name: &str| kind.for_place(Path::new(name));
        let report = ExportKind::ReportPng;
        assert_eq!(chosen(report, "/a/birds.svg"), ExportKind::ReportSvg);
        assert_eq!(chosen(report, "/a/birds.v2.PDF"), ExportKind::ReportPdf);
        assert_eq!(chosen(ExportKind::ReportPdf, "birds.png"), report);
        for name in ["birds", "birds.txt", "png"] {
            assert_eq!(chosen(report, name), report);
        }
        let curves = ExportKind::CurvesCsv;
        assert_eq!(
            chosen(curves, "birds.png"),
            curves,
            "only reports have several"
        );
    }

    #[test]
    fn each_run_offers_the_formats_that_can_express_it() {
        let kinds = |task: TaskChoice, config: &RunConfig| {
            let views = choices(task, config).into_iter();
            views.map(|view| view.kind).collect::<Vec<_>>()
        };
        let own = RunConfig::default();
        let images = kinds(TaskChoice::ImageClassification, &own);
        assert!(images.contains(&ExportKind::Onnx) && images.contains(&ExportKind::CoreMl));
        assert!(!images.contains(&ExportKind::GgufF16) && !images.contains(&ExportKind::Adapters));
        let language = |config: &RunConfig| kinds(TaskChoice::LanguageModel, config);
        let scratch = language(&own);
        assert!(scratch.contains(&ExportKind::HuggingFace));
        assert!(!scratch.contains(&ExportKind::Onnx) && !scratch.contains(&ExportKind::GgufQ4));
        let fine_tuned = RunConfig {
            from: Some("/models/smol".into()),
            ..RunConfig::default()
        };
        let gguf = [ExportKind::GgufF16, ExportKind::GgufQ8, ExportKind::GgufQ4];
        let all = language(&fine_tuned);
        assert!(gguf.iter().all(|kind| all.contains(kind)), "{all:?}");
        assert!(!all.contains(&ExportKind::Adapters), "it has none");
        let adapted = RunConfig {
            adapter_rank: Some(16),
            ..fine_tuned
        };
        assert!(language(&adapted).contains(&ExportKind::Adapters));
    }

    #[test]
    fn names_of_runs_make_file_names() {
        let name = ExportKind::CurvesCsv.file_name("birds/2:1");
        assert_eq!(name, "birds-2-1 curves.csv");
    }
}
