//! Looks at a folder: lists it, judges every file by its header, reads classes and splits from the names, and says why
//! it cannot be trained where it cannot. Decodes nothing and writes nothing.

use crate::decode::system::{self, Decoders};
use crate::error::DatasetError;
use crate::header::{self, Verdict};
use crate::inspection::{Class, ImageFile, Inspection, Part, SkippedFile, SplitKind};
use crate::layout::{Layout, lay_out};
use crate::roster;
use crate::sentences::{self, Situation};
use crate::table::{self, Table, TableOptions, TargetColumn, placing};
use crate::walk::{Entry, Walk, walk};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use unicode_normalization::UnicodeNormalization;

/// Headers judged between two calls of `seen`.
const FILES_PER_REPORT: usize = 256;
/// The largest share that may be held out.
const MAX_HELD_OUT_FRACTION: f64 = 0.9;

/// What a sample is called.
const NOUN: &str = "photograph";

/// Seed of everything random where the user gives none.
pub const DEFAULT_SEED: u64 = 7;

/// How a folder is looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct InspectOptions {
    /// Held out of each class where the folder brings no split, `0.0..=0.9`.
    pub held_out_fraction: f64,
    /// Chooses which photographs are held out.
    pub seed: u64,
    /// How tables beside photographs are read.
    pub table: TableOptions,
}

impl Default for InspectOptions {
    fn default() -> Self {
        Self {
            held_out_fraction: 0.2,
            seed: DEFAULT_SEED,
            table: TableOptions::default(),
        }
    }
}

impl InspectOptions {
    /// The share held out, within what can be; a fraction that is no number holds nothing out.
    pub(crate) fn fraction(&self) -> f64 {
        match self.held_out_fraction.is_nan() {
            true => 0.0,
            false => self.held_out_fraction.clamp(0.0, MAX_HELD_OUT_FRACTION),
        }
    }
}

/// Looks at a folder of photographs. `seen` is told the number of files looked at so far, on the calling thread.
pub fn inspect(
    folder: &Path,
    options: &InspectOptions,
    seen: &dyn Fn(u64),
) -> Result<Inspection, DatasetError> {
    inspect_by(folder, options, system::here, seen)
}

/// The same with what decodes the system's formats, which is a value: what follows from it can be seen on any machine.
pub(crate) fn inspect_by(
    folder: &Path,
    options: &InspectOptions,
    decoders: Decoders,
    seen: &dyn Fn(u64),
) -> Result<Inspection, DatasetError> {
    let root = real(folder)?;
    if !root.is_dir() {
        return Err(DatasetError::NotAFolder {
            path: folder.to_path_buf(),
        });
    }
    let mut found = walk(&root)?;
    let entries = (found.files.len() + found.folders.len() + found.skipped.len()) as u64
        + found.ignored.system;
    let images = judge_all(&root, &mut found, decoders, seen);
    let names: Vec<&[String]> = images
        .found
        .iter()
        .map(|(entry, _)| entry.names.as_slice())
        .collect();
    let mut layout = lay_out(&names);
    let table = beside(&root, &mut found, &images, &options.table)?;
    let mut groups = None;
    if let Some(table) = &table {
        placing::place(&mut layout, table, &options.table);
        groups = placing::together(table, &images.entries(), &options.table);
    }
    let barren = barren_folders(&found, &names);
    let fraction = options.fraction();
    let split = match layout.parts.contains(&Part::HeldOut) {
        true => SplitKind::Given,
        false => SplitKind::Seeded {
            fraction,
            seed: options.seed,
        },
    };
    let strays = layout.places.iter().filter(|place| place.is_err()).count() as u64;
    let said = roster::Said {
        table: table.as_ref(),
        groups: groups.as_ref(),
    };
    let mut placed = roster::place(images.found, &layout, said, &mut found.skipped);
    if let SplitKind::Seeded { fraction, seed } = split {
        roster::hold_out(&mut placed, groups.is_some(), fraction, seed);
    }
    let mut about = Vec::new();
    let groups = groups.map(|groups| {
        let (count, words) = placing::words(&groups, &roster::parts(&placed));
        about.extend(words);
        (groups.by, count)
    });
    let (classes, mut files) = roster::label(placed, &mut found.skipped);
    let mut targets = Vec::new();
    if let Some(table) = &table {
        let (kept, dropped) = placing::targets(&table.targets, &mut files);
        let trained = files.iter().filter(|file| file.part == Part::Train).count() as u64;
        let numbers = placing::sentence(&kept, trained);
        let notes = table.notes.iter().cloned().chain(numbers).chain(dropped);
        about.splice(0..0, notes);
        targets = kept;
    }
    let situation = Situation {
        classes: &classes,
        strays,
        skipped: found.skipped.len() as u64,
        entries,
        split_folders: &layout.split_folders,
        has_train: layout.parts.contains(&Part::Train),
    };
    found.skipped.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(Inspection {
        name: last_name(&root),
        typical_size: typical_size(&files),
        bytes: files.iter().map(|f| f.bytes).sum(),
        refusal: refusal(&situation, &files, &targets),
        notes: about
            .into_iter()
            .chain(notes(&classes, &layout, split, &images.formats, &barren))
            .collect(),
        folder: root,
        classes,
        targets,
        table: table.map(|table| PathBuf::from(table.file)),
        groups,
        files,
        skipped: found.skipped,
        ignored: found.ignored,
        split,
        split_folders: layout.split_folders,
    })
}

/// The table beside the photographs. It is no longer among the files passed over.
fn beside(
    root: &Path,
    found: &mut Walk,
    images: &Images,
    options: &TableOptions,
) -> Result<Option<Table>, DatasetError> {
    let mut left_out = Vec::new();
    let table = table::read(
        root,
        &found.files,
        &images.entries(),
        options,
        &mut left_out,
    )?;
    let table = table.filter(|table| !table.targets.is_empty() || table.label.is_some());
    if let Some(table) = &table {
        let mut named: BTreeSet<PathBuf> = left_out.iter().map(|file| file.path.clone()).collect();
        named.insert(PathBuf::from(&table.file));
        found.ignored.other = found.ignored.other.saturating_sub(named.len() as u64);
        found.skipped.extend(left_out);
    }
    Ok(table)
}

/// Why the folder cannot be trained. Numbers can be learnt without classes.
fn refusal(situation: &Situation, files: &[ImageFile], targets: &[TargetColumn]) -> Option<String> {
    if targets.is_empty() || !situation.classes.is_empty() {
        return sentences::refusal(situation);
    }
    let trained = files.iter().filter(|file| file.part == Part::Train).count();
    (trained < 2).then(|| {
        "There are too few photographs with numbers to train on. Add photographs, and rows that name them."
            .to_owned()
    })
}

/// The path without links, as text that can be written down.
pub(crate) fn real(path: &Path) -> Result<PathBuf, DatasetError> {
    let real = path
        .canonicalize()
        .map_err(|source| DatasetError::of_folder(path, source))?;
    match real.to_str() {
        Some(_) => Ok(real),
        None => Err(DatasetError::NotText { folder: real }),
    }
}

/// Its last name, for showing.
pub(crate) fn last_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().nfc().collect()
}

/// What the headers say.
struct Images {
    /// Photographs that can be used, with width and height.
    found: Vec<(Entry, (u32, u32))>,
    /// Image formats that are not read.
    formats: BTreeMap<&'static str, u64>,
}

impl Images {
    /// Photographs as they were listed.
    fn entries(&self) -> Vec<&Entry> {
        self.found.iter().map(|(entry, _)| entry).collect()
    }
}

/// Judges every listed file, many at a time; names those left out.
fn judge_all(root: &Path, found: &mut Walk, decoders: Decoders, seen: &dyn Fn(u64)) -> Images {
    let mut images = Images {
        found: Vec::new(),
        formats: BTreeMap::new(),
    };
    let mut count = 0;
    for chunk in found.files.chunks(FILES_PER_REPORT) {
        let verdicts: Vec<Verdict> = chunk
            .par_iter()
            .map(|entry| header::judge(&root.join(&entry.path), entry.bytes, decoders))
            .collect();
        for (entry, verdict) in chunk.iter().zip(verdicts) {
            match verdict {
                Verdict::Image { width, height } => {
                    images.found.push((entry.clone(), (width, height)))
                }
                Verdict::Refused { reason, format } => {
                    if let Some(name) = format {
                        *images.formats.entry(name).or_default() += 1;
                    }
                    found.skipped.push(SkippedFile {
                        path: entry.path.clone(),
                        reason,
                    });
                }
                Verdict::Other => found.ignored.other += 1,
            }
        }
        count += chunk.len() as u64;
        seen(count);
    }
    images
}

/// The topmost folders without a readable photograph at or below them.
fn barren_folders(found: &Walk, photographs: &[&[String]]) -> Vec<String> {
    let full: BTreeSet<&[String]> = photographs
        .iter()
        .flat_map(|names| (0..names.len()).map(|depth| &names[..depth]))
        .collect();
    let is_full = |names: &[String]| names.is_empty() || full.contains(names);
    found
        .folders
        .iter()
        .filter(|f| !is_full(&f.names) && is_full(&f.names[..f.names.len() - 1]))
        .map(|f| f.names.join("/"))
        .collect()
}

fn notes(
    classes: &[Class],
    layout: &Layout,
    split: SplitKind,
    formats: &BTreeMap<&'static str, u64>,
    barren: &[String],
) -> Vec<String> {
    let held_out_name = match split {
        SplitKind::Given => {
            sentences::missing_in("the held-out folder", NOUN, classes, |c| c.held_out)
        }
        SplitKind::Seeded { .. } => sentences::alone(NOUN, classes),
    };
    let test = match layout.parts.contains(&Part::Test) {
        true => sentences::missing_in("the test folder", NOUN, classes, |c| c.test),
        false => None,
    };
    [
        sentences::imbalance(NOUN, classes),
        held_out_name,
        test,
        sentences::formats(formats),
        sentences::barren(barren),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Median width and median height.
fn typical_size(files: &[ImageFile]) -> Option<(u32, u32)> {
    let median = |side: fn(&ImageFile) -> u32| {
        let mut sides: Vec<u32> = files.iter().map(side).collect();
        sides.sort_unstable();
        sides.get(sides.len() / 2).copied()
    };
    Some((median(|f| f.width)?, median(|f| f.height)?))
}
