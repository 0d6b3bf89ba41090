//! Atomic checkpoints. A checkpoint is written to a temporary folder, synced and renamed; reading
//! one verifies the length and checksum of every file. `kill -9` at any instant leaves the last
//! valid one.

use crate::controller_state::{self, SavedControllerState};
use crate::error::{Result, TrainError, at};
use crate::precision::LossScale;
use crate::skipped_steps::SkippedSteps;
use crate::train_state::TrainState;
use crate::weight_ema::fill;
use ::safetensors::tensor::{SafeTensorError, serialize_to_file};
use candle_core::{Device, Tensor, safetensors};
use models::is_adapter;
use runlog::{RunFolder, SavedCheckpoint};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use tape::Parameters;

const MODEL: &str = "model.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
/// The averaged weights under the names of the weights, if the run averages them.
const AVERAGE: &str = "average.safetensors";
/// The adapters, if the run trains them on frozen weights. A separate file, so that they can be
/// shared without the rest.
const ADAPTER: &str = "adapter.safetensors";
const STATE: &str = "state.json";
/// Prefix of a temporary folder.
const DRAFT: &str = ".draft-";
/// Number of newest checkpoints that are retained in addition to the best one.
const RETAINED: usize = 2;

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
    /// Whether this step has the best score. Such a checkpoint is retained.
    pub is_best: bool,
    /// The loss scale, in f16 only. [`write`] reads it from the learner.
    #[serde(default)]
    pub loss_scale: Option<LossScale>,
    /// Counts of skipped steps. [`write`] reads them from the learner.
    #[serde(default)]
    pub skipped: SkippedSteps,
    /// Learned state of the memory controller. A separate file; the checkpoint is valid without it.
    #[serde(skip)]
    pub controller: SavedControllerState,
}

#[derive(Serialize, Deserialize)]
struct Envelope {
    format: u32,
    state: RunState,
    /// Length in bytes and CRC-32 of each tensor file.
    files: HashMap<String, (u64, u32)>,
    /// Length and CRC-32 of the controller state. Not in `files`, because damage to it does not
    /// invalidate the checkpoint.
    #[serde(default, alias = "pilot")]
    controller: Option<(u64, u32)>,
}

/// Version of the layout.
const FORMAT: u32 = 1;

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
/// [`TrainError::CheckpointWrite`]; nothing incomplete is left on disk.
pub fn write(run: &RunFolder, learner: &TrainState, state: &RunState) -> Result<Written> {
    let parent = run.checkpoints_path();
    let path = RunFolder::checkpoint_name(state.step);
    let last = run.path.join(&path);
    let draft = parent.join(format!("{DRAFT}{}.{}", state.step, std::process::id()));
    let bytes = write_files(&draft, learner, state)
        .and_then(|bytes| replace_checkpoint(&draft, &last).map(|()| bytes));
    let bytes = bytes.map_err(|source| {
        // An incomplete checkpoint is useless: free its disk space at once.
        let _ = fs::remove_dir_all(&draft);
        let disk_space = disk_space(&parent, &source, learner);
        TrainError::CheckpointWrite {
            path: last.clone(),
            source,
            disk_space,
        }
    })?;
    Ok(Written { path, bytes })
}

fn write_files(draft: &Path, learner: &TrainState, state: &RunState) -> io::Result<u64> {
    let _ = fs::remove_dir_all(draft);
    let run = draft.parent().and_then(Path::parent);
    if let Some(run) = run.filter(|run| !run.is_dir()) {
        // Do not create the run folder again: a checkpoint without it could not be resumed.
        let missing = format!("the run folder {} is no longer there", run.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, missing));
    }
    fs::create_dir_all(draft)?;
    let mut files = HashMap::new();
    let mut seal = |name: &str, path: &Path| -> io::Result<()> {
        disk::sync_path(path)?;
        files.insert(name.to_owned(), fingerprint(path)?);
        Ok(())
    };
    for (name, tensors) in weight_files(learner) {
        let path = draft.join(name);
        safetensors::save(&tensors, &path).map_err(candle_error)?;
        seal(name, &path)?;
    }
    let moments = learner.optimizer.saved(&learner.parameters);
    let path = draft.join(OPTIMIZER);
    serialize_to_file(moments.map_err(io::Error::other)?, None, &path)
        .map_err(safetensors_error)?;
    seal(OPTIMIZER, &path)?;
    let bytes = files.values().map(|(bytes, _)| bytes).sum();
    let controller = match &state.controller {
        SavedControllerState::Present(file) => {
            file.write(draft)?;
            Some(fingerprint(&draft.join(controller_state::FILE))?)
        }
        SavedControllerState::Absent | SavedControllerState::Unreadable(_) => None,
    };
    let envelope = Envelope {
        format: FORMAT,
        state: RunState {
            loss_scale: learner.loss_scale(),
            skipped: learner.skipped(),
            ..state.clone()
        },
        files,
        controller,
    };
    let path = draft.join(STATE);
    fs::write(&path, serde_json::to_vec_pretty(&envelope)?)?;
    disk::sync_path(&path)?;
    disk::sync_path(draft)?;
    Ok(bytes)
}

/// The files of weights, each with its tensors by name. Adapters and averages are separate files.
fn weight_files(learner: &TrainState) -> Vec<(&'static str, HashMap<String, Tensor>)> {
    let by_name = |parameters: &Parameters| -> HashMap<String, Tensor> {
        let named = parameters.iter();
        named.map(|p| (p.name.clone(), p.tensor.clone())).collect()
    };
    let (adapters, model): (HashMap<_, _>, HashMap<_, _>) = by_name(&learner.parameters)
        .into_iter()
        .partition(|(name, _)| is_adapter(name));
    let mut files = vec![(MODEL, model)];
    if !adapters.is_empty() {
        files.push((ADAPTER, adapters));
    }
    if let Some(average) = &learner.average {
        files.push((AVERAGE, by_name(&average.parameters)));
    }
    files
}

fn replace_checkpoint(draft: &Path, last: &Path) -> io::Result<()> {
    if has_same_tensors(draft, last) {
        // The same weights were saved before. Replacing only the state leaves a valid checkpoint at
        // every instant.
        let controller = draft.join(controller_state::FILE);
        if controller.exists() {
            fs::rename(controller, last.join(controller_state::FILE))?;
        }
        fs::rename(draft.join(STATE), last.join(STATE))?;
        disk::sync_path(last)?;
        return fs::remove_dir_all(draft);
    }
    // A folder that exists holds a damaged checkpoint or other weights.
    let _ = fs::remove_dir_all(last);
    fs::rename(draft, last)?;
    last.parent().map_or(Ok(()), disk::sync_path)
}

/// Whether `last` is valid and holds the same tensors as `draft`.
fn has_same_tensors(draft: &Path, last: &Path) -> bool {
    match (envelope(draft), verify(last), envelope(last)) {
        (Ok(new), Ok(_), Ok(old)) => new.files == old.files,
        _ => false,
    }
}

fn candle_error(error: candle_core::Error) -> io::Error {
    match error {
        candle_core::Error::Io(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

fn safetensors_error(error: SafeTensorError) -> io::Error {
    match error {
        SafeTensorError::IoError(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

/// "; 0.4 GB of 1.1 GB are free on this disk; free 0.7 GB and checkpoint again" if the disk is
/// full, else empty.
fn disk_space(parent: &Path, error: &io::Error, learner: &TrainState) -> String {
    let needed = learner.saved_bytes();
    match disk::available_bytes(parent) {
        Ok(free) if error.kind() == io::ErrorKind::StorageFull || free < needed => format!(
            "; {} of {} are free on this disk; free {} and checkpoint again",
            runlog::format_bytes(free),
            runlog::format_bytes(needed),
            runlog::format_bytes(needed.saturating_sub(free))
        ),
        _ => String::new(),
    }
}

/// Length and CRC-32 of a file.
fn fingerprint(path: &Path) -> io::Result<(u64, u32)> {
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
/// [`TrainError::NoCheckpoint`] if none is valid.
pub fn newest(run: &RunFolder) -> Result<(Loaded, Vec<String>)> {
    let mut damaged = Vec::new();
    for checkpoint in run.checkpoints()?.into_iter().rev() {
        match verify(&checkpoint.path) {
            Ok(state) => {
                return Ok((
                    Loaded {
                        path: checkpoint.path,
                        state,
                    },
                    damaged,
                ));
            }
            Err(error) => damaged.push(error.to_string()),
        }
    }
    Err(TrainError::NoCheckpoint {
        run: run.path.clone(),
    })
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

fn verify(path: &Path) -> Result<RunState> {
    let damaged = |problem: String| TrainError::CheckpointDamaged {
        path: path.to_owned(),
        problem,
    };
    let envelope = envelope(path)?;
    if envelope.format != FORMAT {
        return Err(damaged(format!(
            "the checkpoint has format {}, but this version of Ebb reads format {FORMAT}",
            envelope.format
        )));
    }
    let others = envelope.files.keys().map(String::as_str);
    let others = others.filter(|name| ![MODEL, OPTIMIZER].contains(name));
    for name in [MODEL, OPTIMIZER].into_iter().chain(others) {
        let file = path.join(name);
        let found = fingerprint(&file).map_err(at(&file))?;
        if envelope.files.get(name) != Some(&found) {
            return Err(damaged(format!("{name} has changed since it was written")));
        }
    }
    let intact = envelope.controller.map(|written| {
        fingerprint(&controller_state::path_in(path)).is_ok_and(|found| found == written)
    });
    Ok(RunState {
        controller: SavedControllerState::read(path, intact),
        ..envelope.state
    })
}

fn envelope(path: &Path) -> Result<Envelope> {
    let file = path.join(STATE);
    let text = fs::read(&file).map_err(at(&file))?;
    serde_json::from_slice(&text).map_err(|error| TrainError::CheckpointDamaged {
        path: path.to_owned(),
        problem: error.to_string(),
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
    let mut saved = tensors(&path, &device)?;
    let adapters = loaded.path.join(ADAPTER);
    if adapters.exists() {
        saved.extend(tensors(&adapters, &device)?);
    }
    fill(&mut learner.parameters, saved, &path)?;
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
        let saved = tensors(&path, &device)?;
        learner.optimizer.load(&learner.parameters, saved, &path)?;
    }
    learner.restored(loaded.state.loss_scale, loaded.state.skipped)
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
    Ok(safetensors::load(path, device)?)
}

/// Removes temporary folders that a crash left and all checkpoints except the newest two and the
/// best.
pub fn remove_old(run: &RunFolder, best_step: Option<u64>) -> Result<()> {
    let parent = run.checkpoints_path();
    if let Ok(entries) = fs::read_dir(&parent) {
        for entry in entries
            .flatten()
            .filter(|e| e.file_name().to_string_lossy().starts_with(DRAFT))
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let checkpoints = run.checkpoints()?;
    let old = checkpoints.len().saturating_sub(RETAINED);
    let replaced = |c: &&SavedCheckpoint| Some(c.step) != best_step;
    for checkpoint in checkpoints.iter().take(old).filter(replaced) {
        fs::remove_dir_all(&checkpoint.path).map_err(at(&checkpoint.path))?;
    }
    Ok(())
}
