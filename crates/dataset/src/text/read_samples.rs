//! Reads the texts of one split again. Each must be the same as during the inspection, since labels
//! and split were decided on it.

use super::line_ends::LineEnds;
use super::scan_rows::row_text;
use super::text_inspection::{TextFile, TextInspection, TextSample};
use crate::chat::plain_text;
use crate::error::DatasetError;
use crate::readers::{OpenFile, Row};
use crate::rng;
use crate::types::Split;

/// Reads the samples of a split with their texts, in the order of the inspection. To end the
/// reading, `take` returns an error, such as [`DatasetError::Stopped`].
///
/// # Errors
/// A file is missing or has changed since the inspection, or `take` fails.
pub fn read_samples(
    inspection: &TextInspection,
    split: Split,
    take: &mut dyn FnMut(&TextSample, &str) -> Result<(), DatasetError>,
) -> Result<(), DatasetError> {
    let mut rest = inspection.samples.as_slice();
    for (index, file) in inspection.files.iter().enumerate() {
        let count = rest.iter().take_while(|s| s.file as usize == index).count();
        let (in_file, others) = rest.split_at(count);
        rest = others;
        let samples: Vec<&TextSample> = in_file.iter().filter(|s| s.split == split).collect();
        if !samples.is_empty() {
            read_file(inspection, file, &samples, take)?;
        }
    }
    Ok(())
}

/// Reads the texts of a split until `take` returns false. A conversation is read as its contents,
/// without the names of roles.
///
/// # Errors
/// A file is missing or has changed since the inspection.
pub fn read_texts(
    inspection: &TextInspection,
    split: Split,
    take: &mut dyn FnMut(&str) -> bool,
) -> Result<(), DatasetError> {
    let is_chat = inspection.has_conversations();
    let read = read_samples(inspection, split, &mut |_, text| {
        let text = if is_chat {
            plain_text(text)
        } else {
            text.into()
        };
        if take(&text) {
            Ok(())
        } else {
            Err(DatasetError::Stopped)
        }
    });
    match read {
        Err(DatasetError::Stopped) => Ok(()),
        read => read,
    }
}

/// Reads the samples with these indices, which must be in order, and passes each with its index.
///
/// # Errors
/// A file is missing or has changed since the inspection, or `take` fails.
pub(crate) fn read_chosen(
    inspection: &TextInspection,
    chosen: &[usize],
    take: &mut dyn FnMut(usize, &str) -> Result<(), DatasetError>,
) -> Result<(), DatasetError> {
    let in_same_file = |a: &usize, b: &usize| {
        let samples = &inspection.samples;
        samples[*a].file == samples[*b].file
    };
    for indices in chosen.chunk_by(in_same_file) {
        let samples: Vec<&TextSample> = indices.iter().map(|i| &inspection.samples[*i]).collect();
        let Some(first) = samples.first() else {
            continue;
        };
        let file = &inspection.files[first.file as usize];
        // They arrive in the order in which they are in the file.
        let mut next = indices.iter();
        read_file(inspection, file, &samples, &mut |_, text| {
            next.next().map_or(Ok(()), |index| take(*index, text))
        })?;
    }
    Ok(())
}

fn read_file(
    inspection: &TextInspection,
    file: &TextFile,
    samples: &[&TextSample],
    take: &mut dyn FnMut(&TextSample, &str) -> Result<(), DatasetError>,
) -> Result<(), DatasetError> {
    let path = inspection.folder.join(&file.path);
    let opened =
        OpenFile::reopen(&path, file.dialect).map_err(|reason| DatasetError::UnreadableFile {
            file: file.path.clone(),
            reason,
        })?;
    let changed = || DatasetError::FileChanged {
        file: file.path.clone(),
    };
    let mut wanted = samples.iter().peekable();
    let (mut row, mut result) = (0u32, Ok(()));
    opened.visit(&file.text_columns, &mut |_, found| {
        let this = row;
        row += 1;
        // Both parts of a document that was cut are in the same row.
        while let Some(sample) = wanted.next_if(|s| s.row == this) {
            let unchanged = |line_ends| {
                let Row::Cells(cells) = &found else {
                    return None;
                };
                let text = row_text(cells, file.dialect, &file.chat, line_ends).ok();
                text.filter(|text| rng::hash_text(text) == sample.hash)
            };
            let text = unchanged(LineEnds::LineFeeds).or_else(|| unchanged(LineEnds::AsStored));
            let part = text
                .as_deref()
                .and_then(|text| text.get(sample.start as usize..sample.end as usize));
            result = match part {
                Some(part) => take(sample, part),
                None => Err(changed()),
            };
            if result.is_err() {
                return false;
            }
        }
        wanted.peek().is_some()
    });
    result?;
    if wanted.peek().is_some() {
        return Err(changed());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect_dataset::detect;
    use crate::detected_dataset::DetectedDataset;
    use crate::options::{InspectOptions, TextOptions};
    use crate::text::TextDataset;

    /// Earlier versions of Ebb trained on the line ends of the file.
    #[test]
    fn a_run_of_an_earlier_version_reads_the_line_ends_it_was_trained_on() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let stored = |row: usize| format!("the first line of {row}\r\nand another line");
        let line = |row: usize| format!("\"{}\",{}\r\n", stored(row), ["a", "b"][row % 2]);
        let table: String = (0..60).map(line).collect();
        let path = folder.path().join("a.csv");
        std::fs::write(&path, format!("text,label\r\n{table}")).expect("it can be written");
        let (options, texts) = (InspectOptions::default(), TextOptions::default());
        let found = detect(&path, &options, &texts, &|_| {}).expect("it can be read");
        let DetectedDataset::Texts(mut found) = found else {
            panic!("it contains texts");
        };
        let new = TextDataset::open(&found, Split::Train).expect("no file changed");
        assert!(new.len() > 10 && new.texts().all(|text| !text.contains('\r')));
        for (row, sample) in found.samples.iter_mut().enumerate() {
            sample.hash = rng::hash_text(&stored(row));
            sample.end = stored(row).len() as u32;
        }
        let old = TextDataset::open(&found, Split::Train).expect("no file changed");
        assert_eq!(old.len(), new.len());
        assert!(old.texts().all(|text| text.contains("\r\n")));
        let samples = found.samples.iter_mut();
        samples.for_each(|sample| sample.hash = sample.hash.wrapping_add(1));
        let changed = TextDataset::open(&found, Split::Train);
        assert!(matches!(changed, Err(DatasetError::FileChanged { .. })));
    }
}
