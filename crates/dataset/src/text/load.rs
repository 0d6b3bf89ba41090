//! The texts of one part of an inspected folder, read again. Each must still be what it was when the folder was looked at:
//! labels and split were decided on it.

use super::cells::Row;
use super::gather::text_of;
use super::inspection::{TextInspection, TextSample};
use super::source::Source;
use crate::error::DatasetError;
use crate::inspection::Part;
use crate::stream;

/// Gives the samples of a part with their texts, in the order of the inspection.
pub(crate) fn texts(
    inspection: &TextInspection,
    part: Part,
    take: &mut dyn FnMut(&TextSample, &str) -> Result<(), DatasetError>,
) -> Result<(), DatasetError> {
    let mut rest = inspection.samples.as_slice();
    for (place, file) in inspection.files.iter().enumerate() {
        let here = rest.iter().take_while(|s| s.file as usize == place).count();
        let (mine, others) = rest.split_at(here);
        rest = others;
        let mut wanted = mine.iter().filter(|s| s.part == part).peekable();
        if wanted.peek().is_none() {
            continue;
        }
        let lost = |reason| DatasetError::LostFile {
            file: file.path.clone(),
            reason,
        };
        let changed = || DatasetError::Changed {
            file: file.path.clone(),
        };
        let source =
            Source::open(&inspection.folder.join(&file.path), file.format).map_err(lost)?;
        let (mut row, mut failed) = (0u32, None);
        source.visit(&file.texts, &mut |_, found| {
            let this = row;
            row += 1;
            // Both ends of a document that was cut have the same row.
            while let Some(sample) = wanted.next_if(|s| s.row == this) {
                let text = match &found {
                    Row::Cells(cells) => text_of(cells, file.format),
                    Row::Fault(_) => None,
                };
                let span = sample.start as usize..sample.end as usize;
                let same = text
                    .as_deref()
                    .filter(|text| stream::name(text) == sample.key);
                let Some(text) = same.and_then(|text| text.get(span)) else {
                    failed = Some(changed());
                    return false;
                };
                if let Err(error) = take(sample, text) {
                    failed = Some(error);
                    return false;
                }
            }
            wanted.peek().is_some()
        });
        match failed {
            Some(error) => return Err(error),
            None if wanted.peek().is_some() => return Err(changed()),
            None => {}
        }
    }
    Ok(())
}
