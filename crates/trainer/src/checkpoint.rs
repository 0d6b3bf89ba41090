//! A checkpoint is whole or it is not there: written to a temporary folder, synced, renamed; checked by length and sum when
//! it is read. kill -9 at any instant leaves the last good one.

use crate::average::fill;
use crate::error::{Result, TrainError, at};
use crate::models::is_adapter;
use crate::pilot::kept::{self, Kept};
use crate::precision::LossScale;
use crate::skipped::SkippedSteps;
use crate::train_state::TrainState;
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
/// The averaged weights under the names of the weights, where the run keeps an average: a model file of its own.
const AVERAGE: &str = "average.safetensors";
/// What trains beside frozen weights, where the run has adapters: apart from the rest, so that it can be taken away alone.
const ADAPTER: &str = "adapter.safetensors";
const STATE: &str = "state.json";
/// How the name of a folder begins that is being filled.
const DRAFT: &str = ".draft-";
/// Newest checkpoints kept beside the best one.
const KEPT: usize = 2;

/// Everything of a run that is not a tensor.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RunState {
    /// Optimizer steps done: also the data cursor, since the order is a function of (seed, step).
    pub step: u64,
    /// Milliseconds of the run's life.
    pub at_ms: u64,
    /// Newest loss.
    pub loss: Option<f64>,
    /// Step that was evaluated last.
    #[serde(default)]
    pub evaluated_step: u64,
    /// Newest held-out loss and score, finite: the accuracy, or the bits per byte below 0.
    pub evaluation: Option<(f64, f64)>,
    /// Best held-out score so far and its step.
    pub best: Option<(f64, u64)>,
    /// Written because of the best evaluation: kept when older ones go.
    pub is_best: bool,
    /// The loss scale, in f16. [`write`] takes it from the learner.
    #[serde(default)]
    pub loss_scale: Option<LossScale>,
    /// Steps that changed nothing. [`write`] takes it from the learner.
    #[serde(default)]
    pub skipped: SkippedSteps,
    /// What the pilot knows: a file of its own, without which the checkpoint is as good.
    #[serde(skip)]
    pub pilot: Kept,
}

#[derive(Serialize, Deserialize)]
struct Envelope {
    format: u32,
    state: RunState,
    /// Length in bytes and CRC-32 of each tensor file.
    files: HashMap<String, (u64, u32)>,
    /// The same of what the pilot knows. Not among `files`: no damage to it costs the checkpoint.
    #[serde(default)]
    pilot: Option<(u64, u32)>,
}

/// Version of the layout.
const FORMAT: u32 = 1;

/// A checkpoint on disk.
pub struct Written {
    /// Folder inside the run folder.
    pub path: String,
    /// Bytes of all files.
    pub bytes: u64,
}

/// Writes a checkpoint of `learner` at `state.step`.
pub fn write(run: &RunFolder, learner: &TrainState, state: &RunState) -> Result<Written> {
    let parent = run.checkpoints_path();
    let path = RunFolder::checkpoint_name(state.step);
    let last = run.path.join(&path);
    let draft = parent.join(format!("{DRAFT}{}.{}", state.step, std::process::id()));
    let bytes = write_files(&draft, learner, state)
        .and_then(|bytes| publish(&draft, &last).map(|()| bytes));
    let bytes = bytes.map_err(|source| {
        // Half a checkpoint is worth nothing: its room is given back at once.
        let _ = fs::remove_dir_all(&draft);
        let room = room(&parent, &source, learner);
        TrainError::CheckpointWrite {
            path: last.clone(),
            source,
            room,
        }
    })?;
    Ok(Written { path, bytes })
}

fn write_files(draft: &Path, learner: &TrainState, state: &RunState) -> io::Result<u64> {
    let _ = fs::remove_dir_all(draft);
    let run = draft.parent().and_then(Path::parent);
    if let Some(run) = run.filter(|run| !run.is_dir()) {
        // A checkpoint alone could not be resumed: the folder is missed, not made anew.
        let gone = format!("the run folder {} is no longer there", run.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, gone));
    }
    fs::create_dir_all(draft)?;
    let by_name = |parameters: &Parameters| -> HashMap<String, Tensor> {
        let named = parameters.iter();
        named.map(|p| (p.name.clone(), p.tensor.clone())).collect()
    };
    let average = learner.average.as_ref();
    let average = average.map(|average| (AVERAGE, by_name(&average.parameters)));
    let mut files = HashMap::new();
    let mut keep = |name: &str, path: &Path| -> io::Result<()> {
        File::open(path)?.sync_all()?;
        files.insert(name.to_owned(), fingerprint(path)?);
        Ok(())
    };
    let (adapters, model): (HashMap<_, _>, HashMap<_, _>) = by_name(&learner.parameters)
        .into_iter()
        .partition(|(name, _)| is_adapter(name));
    let adapters = (!adapters.is_empty()).then_some((ADAPTER, adapters));
    let tensors = [(MODEL, model)].into_iter().chain(adapters).chain(average);
    for (name, tensors) in tensors {
        let path = draft.join(name);
        safetensors::save(&tensors, &path).map_err(io_error)?;
        keep(name, &path)?;
    }
    let moments = learner.optimizer.saved(&learner.parameters);
    let path = draft.join(OPTIMIZER);
    serialize_to_file(moments.map_err(io::Error::other)?, None, &path).map_err(saving)?;
    keep(OPTIMIZER, &path)?;
    let bytes = files.values().map(|(bytes, _)| bytes).sum();
    let pilot = match &state.pilot {
        Kept::Whole(knowledge) => {
            knowledge.write(draft)?;
            Some(fingerprint(&draft.join(kept::FILE))?)
        }
        Kept::Nothing | Kept::Unreadable(_) => None,
    };
    let envelope = Envelope {
        format: FORMAT,
        state: RunState {
            loss_scale: learner.loss_scale(),
            skipped: learner.skipped(),
            ..state.clone()
        },
        files,
        pilot,
    };
    let path = draft.join(STATE);
    fs::write(&path, serde_json::to_vec_pretty(&envelope)?)?;
    File::open(&path)?.sync_all()?;
    File::open(draft)?.sync_all()?;
    Ok(bytes)
}

fn publish(draft: &Path, last: &Path) -> io::Result<()> {
    if stands(draft, last) {
        // The same weights were saved before. Only the state is news: at no instant is there less than one whole checkpoint.
        if draft.join(kept::FILE).exists() {
            fs::rename(draft.join(kept::FILE), last.join(kept::FILE))?;
        }
        fs::rename(draft.join(STATE), last.join(STATE))?;
        File::open(last)?.sync_all()?;
        return fs::remove_dir_all(draft);
    }
    // What stands there is damaged.
    let _ = fs::remove_dir_all(last);
    fs::rename(draft, last)?;
    last.parent()
        .map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

/// `last` is whole and holds the very tensors of `draft`.
fn stands(draft: &Path, last: &Path) -> bool {
    match (envelope(draft), verify(last), envelope(last)) {
        (Ok(new), Ok(_), Ok(old)) => new.files == old.files,
        _ => false,
    }
}

fn io_error(error: candle_core::Error) -> io::Error {
    match error {
        candle_core::Error::Io(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

fn saving(error: SafeTensorError) -> io::Error {
    match error {
        SafeTensorError::IoError(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

/// ": 0.4 of 1.1 GB free on this disk. Free 0.7 GB, then choose Checkpoint now", where room is the trouble.
fn room(parent: &Path, error: &io::Error, learner: &TrainState) -> String {
    let needed = learner.saved_bytes();
    match fs4::available_space(parent) {
        Ok(free) if error.kind() == io::ErrorKind::StorageFull || free < needed => format!(
            ". {} of {} are free on this disk; free {} and checkpoint again",
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

/// A checkpoint that was read and verified.
pub struct Loaded {
    /// Where it lies.
    pub path: PathBuf,
    /// Everything but tensors.
    pub state: RunState,
}

/// The newest checkpoint that is whole, and sentences about newer ones that are not.
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

/// The checkpoint of the best evaluation, or the newest where none was kept as best.
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
    let damaged = |what: String| TrainError::CheckpointDamaged {
        path: path.to_owned(),
        what,
    };
    let envelope = envelope(path)?;
    if envelope.format != FORMAT {
        return Err(damaged(format!(
            "its format is {}, this Ebb reads {FORMAT}",
            envelope.format
        )));
    }
    let others = envelope.files.keys().map(String::as_str);
    let others = others.filter(|name| ![MODEL, OPTIMIZER].contains(name));
    for name in [MODEL, OPTIMIZER].into_iter().chain(others) {
        let file = path.join(name);
        let found = fingerprint(&file).map_err(at(&file))?;
        if envelope.files.get(name) != Some(&found) {
            return Err(damaged(format!("{name} is not the file that was written")));
        }
    }
    let intact = envelope
        .pilot
        .map(|written| fingerprint(&path.join(kept::FILE)).is_ok_and(|found| found == written));
    Ok(RunState {
        pilot: Kept::read(path, intact),
        ..envelope.state
    })
}

fn envelope(path: &Path) -> Result<Envelope> {
    let file = path.join(STATE);
    let text = fs::read(&file).map_err(at(&file))?;
    serde_json::from_slice(&text).map_err(|error| TrainError::CheckpointDamaged {
        path: path.to_owned(),
        what: error.to_string(),
    })
}

/// Puts the weights of a checkpoint, their average and its loss scale into a learner, and its moments unless it only evaluates.
pub fn load(loaded: &Loaded, learner: &mut TrainState, with_optimizer: Moments) -> Result<()> {
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
            let what = "the run kept no average; take ema_decay out of its config".to_owned();
            return Err(TrainError::Misfit { path, what });
        }
        fill(&mut average.parameters, tensors(&path, &device)?, &path)?;
    }
    if with_optimizer == Moments::Load {
        let path = loaded.path.join(OPTIMIZER);
        let saved = tensors(&path, &device)?;
        learner.optimizer.load(&learner.parameters, saved, &path)?;
    }
    learner.restored(loaded.state.loss_scale, loaded.state.skipped)
}

/// Whether the optimizer's moments are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moments {
    /// To train on.
    Load,
    /// To evaluate only.
    Leave,
}

fn tensors(path: &Path, device: &Device) -> Result<HashMap<String, Tensor>> {
    Ok(safetensors::load(path, device)?)
}

/// Removes what a crash left half-written and checkpoints that newer ones replace: the newest few and the best stay.
pub fn tidy(run: &RunFolder, best_step: Option<u64>) -> Result<()> {
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
    let old = checkpoints.len().saturating_sub(KEPT);
    let replaced = |c: &&SavedCheckpoint| Some(c.step) != best_step;
    for checkpoint in checkpoints.iter().take(old).filter(replaced) {
        fs::remove_dir_all(&checkpoint.path).map_err(at(&checkpoint.path))?;
    }
    Ok(())
}
