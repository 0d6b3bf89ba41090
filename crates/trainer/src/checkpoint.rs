//! Atomic checkpoints. A checkpoint is written to a temporary folder, synced and renamed; reading
//! one verifies the length and checksum of every file. A kill or a power failure at any instant
//! leaves the last valid one.

mod clean_up;
mod content;
mod load_tensors;
mod state_json;

use crate::error::{Result, TrainError, at};
use crate::optimizer::tensor_to_save::{SaveError, SaveResult, save_tensors};
use crate::precision::LossScale;
use crate::saved_controller_state::{self, SavedControllerState};
use crate::skipped_steps::SkippedSteps;
use crate::train_state::TrainState;
use crate::weight_ema::fill;
use candle_core::{Device, Tensor, safetensors};
use content::NamedTensors;
use load_tensors::load_tensors;
use runlog::{RunFolder, SavedCheckpoint};
use serde::{Deserialize, Serialize};
use state_json::{FORMAT, StateJson};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

pub use clean_up::{Retention, recover, remove_old};
pub(crate) use content::Content;

const MODEL: &str = "model.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
/// The averaged weights under the names of the weights, if the run averages them.
const AVERAGE: &str = "average.safetensors";
/// The adapters, if the run trains them on frozen weights. A separate file, so that they can be
/// shared without the rest.
const ADAPTER: &str = "adapter.safetensors";
/// The momentum of the outer steps, if the machines of a group synchronize every few steps.
const OUTER: &str = "outer.safetensors";
const STATE: &str = "state.json";
/// Most bytes of this file. It lists a handful of files and numbers.
const MAX_STATE_BYTES: u64 = 1 << 20;
/// Extension of the temporary name of a checkpoint that is replaced.
const REPLACED: &str = "replaced";

/// The state of a run without its tensors.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunState {
    /// Optimizer steps done. Also the position in the data: the order is a function of (seed,
    /// step).
    pub step: u64,
    /// Training time so far in milliseconds, over all sessions of the run.
    pub at_ms: u64,
    /// Newest loss.
    pub loss: Option<f64>,
    /// Step of the newest evaluation.
    #[serde(default)]
    pub evaluated_step: u64,
    /// Newest held-out loss and score, both finite. The score is the accuracy, or the negative of a
    /// loss such as bits per byte: higher is better.
    pub evaluation: Option<(f64, f64)>,
    /// Best held-out score so far, and its step.
    pub best: Option<(f64, u64)>,
    /// Number of evaluations since the best one.
    #[serde(default)]
    pub evaluations_since_best: u64,
    /// Weight of the baseline in the newest evaluation, from 0 to 1: predictions are the weighted
    /// mean of the log-probabilities of the network and the baseline. `None` without a baseline.
    #[serde(default)]
    pub baseline_share: Option<f64>,
    /// Whether this step has the best score. Such a checkpoint is retained.
    pub is_best: bool,
    /// The loss scale, in f16 only. [`write`] reads it from the learner.
    #[serde(default)]
    pub loss_scale: Option<LossScale>,
    /// Number of checkpoints that the run has saved, this one included; 0 in checkpoints of earlier
    /// versions.
    #[serde(default)]
    pub number: u64,
    /// Counts of skipped steps. [`write`] reads them from the learner.
    #[serde(default)]
    pub skipped: SkippedSteps,
    /// Learned state of the memory controller. A separate file; the checkpoint is valid without it.
    #[serde(skip)]
    pub controller: SavedControllerState,
}

impl RunState {
    /// Counts an evaluation at this step. `best_score` is its score if it is the best one so far.
    pub fn count_evaluation(&mut self, best_score: Option<f64>) {
        match best_score {
            Some(score) => {
                self.best = Some((score, self.step));
                self.evaluations_since_best = 0;
            }
            None => self.evaluations_since_best += 1,
        }
    }
}

/// A checkpoint that was written.
pub struct Written {
    /// Its folder, relative to the run folder.
    pub path: String,
    /// Bytes of all files.
    pub bytes: u64,
}

/// Writes a checkpoint of `learner` at `state.step`.
///
/// # Errors
/// [`TrainError::CheckpointWrite`], or the device fails; nothing incomplete is left on disk.
pub fn write(run: &RunFolder, learner: &TrainState, state: &RunState) -> Result<Written> {
    let content = Content::new(learner, state);
    let content = content.map_err(|error| {
        let last = run.path.join(RunFolder::checkpoint_name(state.step));
        write_error(last, learner.saved_bytes(), io::Error::other(error))
    })?;
    write_content(run, &content)
}

/// Writes a checkpoint at the step of its content.
///
/// # Errors
/// As [`write`].
pub(crate) fn write_content(run: &RunFolder, content: &Content) -> Result<Written> {
    let path = RunFolder::checkpoint_name(content.state().step);
    let last = run.path.join(&path);
    let draft = disk::draft_path(&last);
    let bytes = write_files(&draft, content).and_then(|bytes| {
        replace_checkpoint(&draft, &last)?;
        Ok(bytes)
    });
    let bytes = bytes.map_err(|error| {
        // An incomplete checkpoint is useless: free its disk space at once.
        remove_if_possible(&draft);
        match error {
            SaveError::Device(error) => error.into(),
            SaveError::Disk(source) => write_error(last, content.bytes(), source),
        }
    })?;
    Ok(Written { path, bytes })
}

/// The error for a checkpoint of `needed` bytes that the disk refuses.
fn write_error(path: PathBuf, needed: u64, source: io::Error) -> TrainError {
    TrainError::CheckpointWrite {
        disk_space: disk_space(&path, &source, needed),
        path,
        source,
    }
}

fn write_files(draft: &Path, content: &Content) -> SaveResult<u64> {
    let parent = draft.parent().unwrap_or(draft);
    if let Some(run) = parent.parent().filter(|run| !run.is_dir()) {
        // Do not create the run folder again: a checkpoint without it could not be resumed.
        let missing = format!("the run folder {} is no longer there", run.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, missing).into());
    }
    disk::create_dir_all(parent)?;
    if draft.exists() {
        disk::remove_dir_all(draft)?;
    }
    disk::create_dir(draft)?;
    let mut files = HashMap::new();
    let mut save = |name: &str, tensors: &NamedTensors| -> SaveResult<()> {
        let path = draft.join(name);
        let sum = save_tensors(tensors, &path)?;
        disk::sync_path(&path)?;
        files.insert(name.to_owned(), sum);
        Ok(())
    };
    for (name, tensors) in content.files() {
        save(name, tensors)?;
    }
    let bytes = files.values().map(|(bytes, _)| bytes).sum();
    let state = content.state();
    let controller = match &state.controller {
        SavedControllerState::Present(file) => {
            file.write(draft)?;
            Some(fingerprint(&draft.join(saved_controller_state::FILE))?)
        }
        SavedControllerState::Absent | SavedControllerState::Unreadable(_) => None,
    };
    let file = StateJson {
        format: FORMAT,
        sum: None,
        state: state.clone(),
        files,
        controller,
    };
    let path = draft.join(STATE);
    disk::write(&path, &file.into_bytes()?)?;
    disk::sync_path(&path)?;
    disk::sync_path(draft)?;
    Ok(bytes)
}

fn replace_checkpoint(draft: &Path, last: &Path) -> io::Result<()> {
    if has_same_tensors(draft, last) {
        // The same weights were saved before. Replacing only the state leaves a valid checkpoint at
        // every instant.
        let controller = draft.join(saved_controller_state::FILE);
        if controller.exists() {
            disk::rename(&controller, &last.join(saved_controller_state::FILE))?;
        }
        disk::rename(&draft.join(STATE), &last.join(STATE))?;
        disk::sync_path(last)?;
        remove_if_possible(draft);
        return Ok(());
    }
    if !last.is_dir() {
        disk::rename(draft, last)?;
        return disk::sync_parent(last);
    }
    // The folder holds a damaged checkpoint or other weights. It is removed once the new one is in
    // its place; after a crash between the two renames `recover` finds both.
    let replaced = disk::draft_path(&last.with_extension(REPLACED));
    if replaced.exists() {
        disk::remove_dir_all(&replaced)?;
    }
    disk::rename(last, &replaced)?;
    if let Err(error) = disk::rename(draft, last) {
        let _ = disk::rename(&replaced, last);
        return Err(error);
    }
    disk::sync_parent(last)?;
    remove_if_possible(&replaced);
    Ok(())
}

/// Removes a folder that is no longer needed. If that fails, the next checkpoint or the next start
/// removes it.
fn remove_if_possible(folder: &Path) {
    let _ = disk::remove_dir_all(folder);
}

/// Whether `last` is valid and holds the same tensors as `draft`.
fn has_same_tensors(draft: &Path, last: &Path) -> bool {
    match (state_json(draft), verify(last), state_json(last)) {
        (Ok(new), Ok(_), Ok(old)) => new.files == old.files,
        _ => false,
    }
}

/// "; the checkpoint needs 1.1 GB, and 0.4 GB is free on this disk; free 0.7 GB and resume" if the
/// disk is full, else empty.
fn disk_space(path: &Path, error: &io::Error, needed: u64) -> String {
    let parent = path.parent().unwrap_or(path);
    match disk::available_bytes(parent) {
        Ok(free) if error.kind() == io::ErrorKind::StorageFull || free < needed => format!(
            "; the checkpoint needs {}, and {} is free on this disk; free {} and resume",
            runlog::format_bytes(needed),
            runlog::format_bytes(free),
            runlog::format_bytes(needed.saturating_sub(free))
        ),
        _ => String::new(),
    }
}

/// Refuses anything but a file: reading a pipe, for example, could take forever.
fn expect_file(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.is_file() {
        Ok(())
    } else {
        Err(io::Error::other("this is not a file"))
    }
}

/// Warns of a disk that has no space for two checkpoints of `learner`: the older one is removed
/// only after the newer one is complete. `None` if there is space or if the disk gives no answer.
pub fn disk_warning(run: &RunFolder, learner: &TrainState) -> Option<String> {
    let missing = missing_space(run, 2 * learner.saved_bytes())?;
    Some(format!(
        "two checkpoints of this run need {missing}, or train into a folder on another disk (--out)"
    ))
}

/// Why the disk has too little space for one more checkpoint of `learner`: there must be space for
/// two, because other programs write too. `None` if there is space or if the disk gives no answer.
pub fn space_problem(run: &RunFolder, learner: &TrainState) -> Option<String> {
    let missing = missing_space(run, 2 * learner.saved_bytes())?;
    Some(format!(
        "saving needs twice the size of a checkpoint, {missing}"
    ))
}

/// "1.1 GB, but only 0.4 GB is free on the disk of /runs/birds; free up 0.7 GB" if that is so.
fn missing_space(run: &RunFolder, needed: u64) -> Option<String> {
    let free = disk::available_bytes(&run.path).ok()?;
    (free < needed).then(|| {
        format!(
            "{}, but only {} is free on the disk of {}; free up {}",
            runlog::format_bytes(needed),
            runlog::format_bytes(free),
            run.path.display(),
            runlog::format_bytes(needed - free)
        )
    })
}

/// Length and CRC-32 of a file.
fn fingerprint(path: &Path) -> io::Result<(u64, u32)> {
    expect_file(path)?;
    let (mut file, mut sum, mut bytes) = (File::open(path)?, crc32fast::Hasher::new(), 0);
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((bytes, sum.finalize()));
        }
        sum.update(&buffer[..read]);
        bytes += read as u64;
    }
}

/// A checkpoint that was verified.
pub struct Loaded {
    /// Its folder.
    pub path: PathBuf,
    /// Its state without tensors.
    pub state: RunState,
}

/// The newest valid checkpoint, and one message per newer checkpoint that is damaged.
///
/// # Errors
/// [`TrainError::NoCheckpoint`] if none is valid, [`TrainError::CheckpointVersion`] if another
/// version of Ebb wrote one, [`TrainError::CheckpointUnreadable`] if the system refuses to read
/// one.
pub fn newest(run: &RunFolder) -> Result<(Loaded, Vec<String>)> {
    let (mut damaged, mut unusable, mut problems) = (Vec::new(), None, Vec::new());
    let checkpoints = run.checkpoints()?;
    for checkpoint in checkpoints.iter().rev() {
        match verify(&checkpoint.path) {
            Ok(state) => {
                let loaded = Loaded {
                    path: checkpoint.path.clone(),
                    state: with_late_best(state, &checkpoints),
                };
                return Ok((loaded, damaged));
            }
            Err(error) => {
                damaged.push(error.to_string());
                problems.push(short_problem(&checkpoint.path, &error));
                unusable = unusable.or_else(|| intact_but_unusable(error));
            }
        }
    }
    let damage = match problems.as_slice() {
        [] => String::new(),
        problems => format!(" ({})", problems.join("; ")),
    };
    Err(unusable.unwrap_or_else(|| TrainError::NoCheckpoint {
        run: run.path.clone(),
        damage,
    }))
}

/// The state of a checkpoint, with the best evaluation before it. The checkpoint of that evaluation
/// may have been written after this one, which then names an earlier evaluation: the disk refused
/// it before.
fn with_late_best(mut state: RunState, checkpoints: &[SavedCheckpoint]) -> RunState {
    let named = state.best.map(|(_, step)| step);
    let mut later = checkpoints.iter().rev().filter(|checkpoint| {
        checkpoint.step < state.step && named.is_none_or(|named| checkpoint.step > named)
    });
    let late = later.find_map(|checkpoint| {
        let is_best = state_json(&checkpoint.path).is_ok_and(|file| file.state.is_best);
        let found = is_best.then(|| verify(&checkpoint.path).ok()).flatten()?;
        let (score, _) = found.best?;
        let is_better = state.best.is_none_or(|(before, _)| score > before);
        is_better.then_some(found.best)
    });
    state.best = late.unwrap_or(state.best);
    state
}

/// "step-000400: model.safetensors has changed since it was written".
fn short_problem(checkpoint: &Path, error: &TrainError) -> String {
    let name = checkpoint.file_name().unwrap_or_default().display();
    match error {
        TrainError::CheckpointDamaged { problem, .. } => format!("{name}: {problem}"),
        other => format!("{name}: {other}"),
    }
}

/// The error of a checkpoint that is not damaged: another version of Ebb wrote it, or the system
/// refuses to read a file that exists, for example because the run belongs to another user.
fn intact_but_unusable(error: TrainError) -> Option<TrainError> {
    match error {
        TrainError::CheckpointVersion { .. } => Some(error),
        TrainError::File { path, source } if source.kind() != io::ErrorKind::NotFound => {
            Some(TrainError::CheckpointUnreadable { path, source })
        }
        _ => None,
    }
}

/// The checkpoint of the best evaluation, or the newest if there was no evaluation.
pub fn best(run: &RunFolder) -> Result<Loaded> {
    for checkpoint in run.checkpoints()?.into_iter().rev() {
        if let Ok(state) = verify(&checkpoint.path)
            && state.is_best
        {
            return Ok(Loaded {
                path: checkpoint.path,
                state,
            });
        }
    }
    Ok(newest(run)?.0)
}

/// Reads the state of a checkpoint and verifies its files.
///
/// # Errors
/// [`TrainError::CheckpointDamaged`] says what is wrong; [`TrainError::CheckpointVersion`] if
/// another version of Ebb wrote it.
pub fn verify(path: &Path) -> Result<RunState> {
    let damaged = |problem: String| TrainError::CheckpointDamaged {
        path: path.to_owned(),
        problem,
    };
    let file = state_json(path)?;
    if file.format != FORMAT {
        return Err(TrainError::CheckpointVersion {
            path: path.to_owned(),
            found: file.format,
            read: FORMAT,
        });
    }
    let others = file.files.keys().map(String::as_str);
    let others = others.filter(|name| ![MODEL, OPTIMIZER].contains(name));
    for name in [MODEL, OPTIMIZER].into_iter().chain(others) {
        if !is_plain_name(name) {
            return Err(damaged(format!(
                "{STATE} names a file outside the checkpoint: {name}"
            )));
        }
        let named = path.join(name);
        let found = fingerprint(&named).map_err(at(&named))?;
        if file.files.get(name) != Some(&found) {
            return Err(damaged(format!("{name} has changed since it was written")));
        }
    }
    let intact = file.controller.map(|written| {
        fingerprint(&saved_controller_state::path_in(path)).is_ok_and(|found| found == written)
    });
    Ok(RunState {
        controller: SavedControllerState::read(path, intact),
        ..file.state
    })
}

/// Whether a path below the checkpoint consists of this one name.
fn is_plain_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!(parts.next(), Some(Component::Normal(part)) if part == name) && parts.next().is_none()
}

fn state_json(path: &Path) -> Result<StateJson> {
    let file = path.join(STATE);
    expect_file(&file).map_err(at(&file))?;
    let bytes = disk::read_limited(&file, MAX_STATE_BYTES).map_err(at(&file))?;
    let path = path.to_owned();
    StateJson::parse(&bytes).map_err(|problem| match StateJson::later_format(&bytes) {
        Some(found) => TrainError::CheckpointVersion {
            path,
            found,
            read: FORMAT,
        },
        None => TrainError::CheckpointDamaged { path, problem },
    })
}

/// Loads weights, their average, the loss scale and, if asked for, the optimizer state of a
/// checkpoint into `learner`.
///
/// # Errors
/// [`TrainError::TensorMismatch`] names the first tensor that does not fit.
pub fn load(loaded: &Loaded, learner: &mut TrainState, optimizer: OptimizerState) -> Result<()> {
    let path = loaded.path.join(MODEL);
    let device = learner.device().clone();
    fill(
        &mut learner.parameters,
        saved_weights(loaded, &device)?,
        &path,
    )?;
    if let Some(average) = &mut learner.average {
        let path = loaded.path.join(AVERAGE);
        if !path.exists() {
            let problem =
                "the run saved no average of its weights; remove ema_decay from its config"
                    .to_owned();
            return Err(TrainError::TensorMismatch { path, problem });
        }
        fill(&mut average.parameters, tensors(&path, &device)?, &path)?;
    }
    if optimizer == OptimizerState::Load {
        let path = loaded.path.join(OPTIMIZER);
        // Only the moments that this machine has.
        let names = learner.optimizer.state_names(&learner.parameters);
        let saved = load_tensors(&path, &device, &names)?;
        learner.optimizer.load(&learner.parameters, saved, &path)?;
        load_outer_step(loaded, learner)?;
    }
    learner.restored(loaded.state.loss_scale, loaded.state.skipped)
}

/// Loads the momentum of the outer steps. A run that has trained on one machine since has none.
fn load_outer_step(loaded: &Loaded, learner: &mut TrainState) -> Result<()> {
    let Some(outer) = &mut learner.outer else {
        return Ok(());
    };
    let path = loaded.path.join(OUTER);
    let saved = if path.exists() {
        tensors(&path, &Device::Cpu)?
    } else {
        HashMap::new()
    };
    outer.load(&learner.parameters, &saved, &path)
}

/// Loads only the weights of a checkpoint, to start another run from them: the average if the run
/// had one, because that is what was evaluated.
///
/// # Errors
/// [`TrainError::TensorMismatch`] names the first tensor that does not fit.
pub fn load_weights(loaded: &Loaded, learner: &mut TrainState) -> Result<()> {
    let device = learner.device().clone();
    let average = loaded.path.join(AVERAGE);
    if average.exists() {
        fill(
            &mut learner.parameters,
            tensors(&average, &device)?,
            &average,
        )?;
    } else {
        let saved = saved_weights(loaded, &device)?;
        fill(&mut learner.parameters, saved, &loaded.path.join(MODEL))?;
    }
    learner.starts_from_weights()
}

/// The weights of a checkpoint by name, adapters included.
fn saved_weights(loaded: &Loaded, device: &Device) -> Result<HashMap<String, Tensor>> {
    let mut saved = tensors(&loaded.path.join(MODEL), device)?;
    let adapters = loaded.path.join(ADAPTER);
    if adapters.exists() {
        saved.extend(tensors(&adapters, device)?);
    }
    Ok(saved)
}

/// Whether to load the optimizer state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptimizerState {
    /// Load it, to continue training.
    Load,
    /// Skip it, to evaluate only.
    Skip,
}

fn tensors(path: &Path, device: &Device) -> Result<HashMap<String, Tensor>> {
    models::hub_format::expect_short_header(path).map_err(at(path))?;
    Ok(safetensors::load(path, device)?)
}
