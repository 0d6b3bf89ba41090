//! What the window exports of a run. Everything is written under a temporary name first, so a full
//! or read-only disk leaves nothing behind.

mod tensorboard;

use crate::paths::device_check_path;
use crate::window_types::CommandError;
use runlog::{RunFolder, format_bytes};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use trainer::{DevicePreference, ExportFormat, TrainedModel};
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

const ALL: [ExportKind; 8] = [
    ExportKind::HuggingFace,
    ExportKind::Onnx,
    ExportKind::CoreMl,
    ExportKind::ReportPdf,
    ExportKind::ReportPng,
    ExportKind::ReportSvg,
    ExportKind::CurvesCsv,
    ExportKind::Tensorboard,
];

impl ExportKind {
    /// Label, and what opens it.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            ExportKind::HuggingFace => (
                "Hugging Face folder",
                "Python programs open this folder with the transformers library, and you can upload it to the Hugging Face hub.",
            ),
            ExportKind::Onnx => (
                "ONNX",
                "onnxruntime opens it in Python, C++, C#, Java, JavaScript and Swift, without PyTorch.",
            ),
            ExportKind::CoreMl => (
                "Core ML",
                "Xcode opens this package, and apps for Mac, iPhone and iPad run it through Core ML and Vision.",
            ),
            ExportKind::ReportPdf => (
                "Report as PDF",
                "Preview and every browser open this page, print it, and find its text.",
            ),
            ExportKind::ReportPng => (
                "Report as PNG",
                "Every image viewer and word processor opens this picture of the curves and the memory.",
            ),
            ExportKind::ReportSvg => (
                "Report as SVG",
                "Browsers and drawing programs open this drawing of the curves, which is sharp at any size.",
            ),
            ExportKind::Tensorboard => (
                "Curves for TensorBoard",
                "TensorBoard opens this event file if you give it the folder of the file.",
            ),
            ExportKind::CurvesCsv => (
                "Curves as CSV",
                "Excel, pandas and Numbers open this table of loss, learning rate and evaluations.",
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
            ExportKind::ReportPdf => format!("{name} report.pdf"),
            ExportKind::ReportPng => format!("{name} report.png"),
            ExportKind::ReportSvg => format!("{name} report.svg"),
            ExportKind::CurvesCsv => format!("{name} curves.csv"),
            ExportKind::Tensorboard => format!("events.out.tfevents.{name}"),
        }
    }
}

/// Everything that can be exported.
pub fn choices() -> Vec<ExportView> {
    let view = |kind: ExportKind| {
        let (label, opens) = kind.words();
        ExportView {
            kind,
            label: label.to_owned(),
            opens: opens.to_owned(),
        }
    };
    ALL.map(view).into()
}

/// Exports to `place`, a folder for the models, else a file, and returns what was written: the name
/// of a Core ML package gets its ending.
///
/// # Errors
/// The run has no checkpoint, the format cannot express its network, or `place` cannot be written.
pub fn export(run: &RunFolder, kind: ExportKind, place: &Path) -> Result<PathBuf, CommandError> {
    let bytes = match kind {
        ExportKind::HuggingFace => {
            return export_model(run, ExportFormat::HuggingFace, place);
        }
        ExportKind::Onnx => return export_model(run, ExportFormat::Onnx, place),
        ExportKind::CoreMl => return export_model(run, ExportFormat::CoreMl, place),
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

/// The sentence with a full stop.
fn ended(sentence: &str) -> String {
    match sentence.ends_with('.') {
        true => sentence.to_owned(),
        false => format!("{sentence}."),
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
    let draft = place.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = std::fs::write(&draft, bytes).and_then(|()| std::fs::rename(&draft, place));
    written.map_err(|error| {
        // It may not exist.
        let _ = std::fs::remove_file(&draft);
        let why = match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => format!(
                "The disk is full: the export needs {}. Free some space or choose another place.",
                format_bytes(bytes.len() as u64)
            ),
            ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
                "Ebb has no permission to write to this folder. Choose another place.".to_owned()
            }
            _ => format!("The file could not be written: {error}. Choose another place."),
        };
        CommandError::new("failed", format!("{name}: {why}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn names_of_runs_make_file_names() {
        let name = ExportKind::CurvesCsv.file_name("birds/2:1");
        assert_eq!(name, "birds-2-1 curves.csv");
    }
}
