//! What a run's weights begin with where they are not drawn anew: a published folder, and what of it trains. The run keeps its
//! own copy of the folder with the sum of every file, so that it can be gone on with, evaluated and asked when the folder that
//! was given has gone. A checkpoint then holds only what trains.
//!
//! Refuses to know samples and steps.

mod choices;
mod kept;

pub use choices::TrainsChoice;
pub use kept::config_of;

use crate::error::{Result, TrainError};
use crate::models::{AdapterShape, Network};
use crate::plan::Family;
use crate::published::{Architecture, Classes, Make, PublishedFolder, Trains, Tuning};
use crate::task::Pixels;
use candle_core::{DType, Device};
use dataset::{Task, Tokenizer};
use runlog::{RunConfig, format_count};
use std::path::{Path, PathBuf};
use tape::{Bits, Parameters};

/// Published weights that a run begins with.
#[derive(Debug, Clone)]
pub struct Origin {
    path: PathBuf,
    folder: PublishedFolder,
    tuning: Tuning,
}

impl PartialEq for Origin {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path && self.tuning == other.tuning
    }
}

/// What a network is built for, beside its origin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Purpose<'a> {
    /// Side of images in pixels; of texts it says nothing.
    pub side: usize,
    /// Classes; none of a language model.
    pub classes: usize,
    /// What first values follow.
    pub seed: u64,
    /// Element type of what trains.
    pub dtype: DType,
    /// Where the parameters lie.
    pub device: &'a Device,
}

/// What adapters are multiplied by, over their rank, unless asked otherwise: times their rank.
const ALPHA: f64 = 2.0;

impl Origin {
    /// What a config says of published weights; nothing where it names none.
    ///
    /// # Errors
    /// As [`PublishedFolder::open`]; a setting of fine-tuning that does not work, or that has no weights to work on.
    pub fn of(config: &RunConfig) -> Result<Option<Self>> {
        let Some(path) = &config.from else {
            let stray = [
                ("train_only", config.train_only.clone()),
                ("adapter_rank", config.adapter_rank.map(|n| n.to_string())),
                ("adapter_alpha", config.adapter_alpha.map(|n| n.to_string())),
                ("quantize", config.quantize.map(|n| n.to_string())),
            ];
            return match stray
                .into_iter()
                .find_map(|(key, value)| Some((key, value?)))
            {
                Some((key, value)) => Err(TrainError::Setting {
                    key,
                    value,
                    allowed: "it is for published weights; name them by --from, or leave it out"
                        .to_owned(),
                }),
                None => Ok(None),
            };
        };
        if !path.exists() {
            return Err(TrainError::Setting {
                key: "from",
                value: path.display().to_string(),
                allowed: "there is no such folder; give one with config.json and model.safetensors in it, as the Hugging Face hub has them"
                    .to_owned(),
            });
        }
        let folder = PublishedFolder::open(path)?;
        let tuning = tuning(config, folder.blocks())?;
        let origin = Origin {
            path: path.clone(),
            folder,
            tuning,
        };
        origin.allowed()?;
        Ok(Some(origin))
    }

    /// Refuses a tuning that its network has no place for.
    fn allowed(&self) -> Result<()> {
        let (family, tuning) = (self.family(), self.tuning);
        if family == Family::Gpt2 && tuning.trains == Trains::Head && tuning.adapter.is_none() {
            let allowed = "a GPT-2 gets no new head that could train alone: its output weights are its embeddings; write all, last:N, or --adapter RANK";
            return Err(setting("train_only", "head", allowed));
        }
        let none = "a ResNet is made of convolutions, which have none here; leave it out";
        match (family, tuning.adapter, tuning.bits) {
            (Family::ResNet, Some(shape), _) => Err(setting("adapter_rank", shape.rank, none)),
            (Family::ResNet, _, Some(Bits::Eight)) => Err(setting("quantize", 8, none)),
            (Family::ResNet, _, Some(Bits::Four)) => Err(setting("quantize", 4, none)),
            _ => Ok(()),
        }
    }

    /// Which of the published networks it is.
    pub fn family(&self) -> Family {
        use crate::published::VitFamily;
        match self.folder.architecture() {
            Architecture::Bert(_) => Family::Bert,
            Architecture::Vit(vit) => match vit.family {
                VitFamily::Vit => Family::Vit,
                VitFamily::Deit => Family::Deit,
                VitFamily::Dinov2 => Family::Dinov2,
            },
            Architecture::ResNet(_) => Family::ResNet,
            Architecture::Gpt2(_) => Family::Gpt2,
        }
    }

    /// Refuses weights that learn something else than `task`, with what would fit.
    pub(crate) fn fits(&self, task: Task) -> Result<()> {
        let family = self.family();
        if family.task() == task {
            return match task {
                Task::ImageClassification => Ok(()),
                // Before anything is created for the run.
                _ => self.vocabulary_file().map(drop),
            };
        }
        let fitting: Vec<&str> = Family::ALL
            .into_iter()
            .filter(|family| family.task() == task)
            .map(Family::name)
            .collect();
        let fits = match fitting.is_empty() {
            true => "nothing published fits it here; leave --from out".to_owned(),
            false => format!("a folder of {} would fit", fitting.join(", ")),
        };
        let allowed = format!(
            "its weights are a {}'s, for {}, and this folder is for {}; {fits}",
            family.label(),
            family.task().label(),
            task.label()
        );
        Err(setting("from", self.path.display(), allowed))
    }

    /// What trains.
    pub fn tuning(&self) -> Tuning {
        self.tuning
    }

    /// The folder.
    pub fn folder(&self) -> &PublishedFolder {
        &self.folder
    }

    /// Blocks of its network.
    pub fn blocks(&self) -> u32 {
        self.folder.blocks() as u32
    }

    /// Most tokens of a text, and different tokens.
    pub(crate) fn room(&self) -> Option<(u32, u32)> {
        let shape = match self.folder.architecture() {
            Architecture::Bert(bert) => bert.shape,
            Architecture::Gpt2(gpt) => gpt.shape,
            Architecture::Vit(_) | Architecture::ResNet(_) => return None,
        };
        Some((shape.tokens as u32, shape.vocabulary as u32))
    }

    /// Values that one token or patch has in all blocks together.
    pub(crate) fn widths(&self) -> u64 {
        let (width, depth) = match self.folder.architecture() {
            Architecture::Bert(bert) => (bert.shape.width, bert.shape.depth),
            Architecture::Gpt2(gpt) => (gpt.shape.width, gpt.shape.depth),
            Architecture::Vit(vit) => (vit.shape.width, vit.shape.depth),
            Architecture::ResNet(_) => (0, 0),
        };
        (width * depth) as u64
    }

    /// It reads images of this side in pixels, or texts of so many tokens.
    pub fn reads(&self, resolution: u32) -> bool {
        match self.room() {
            Some((tokens, _)) => resolution <= tokens,
            None => resolution.is_multiple_of(self.side().1),
        }
    }

    /// Side of the images that it was published for, and what any side has to be a multiple of, in pixels.
    pub(crate) fn side(&self) -> (u32, u32) {
        let preprocessed = self.folder.preprocessor().and_then(|p| p.side);
        let (published, multiple) = match self.folder.architecture() {
            Architecture::Vit(vit) => (vit.shape.image, vit.shape.patch),
            _ => (224, 1),
        };
        let side = preprocessed
            .filter(|side| side.is_multiple_of(multiple))
            .unwrap_or(published);
        (side as u32, multiple as u32)
    }

    /// What is done to the pixels that it sees.
    pub(crate) fn pixels(&self) -> Pixels {
        self.folder
            .preprocessor()
            .map_or_else(Pixels::default, |p| Pixels {
                mean: p.mean,
                deviation: p.deviation,
            })
    }

    /// Its vocabulary.
    ///
    /// # Errors
    /// The folder has none, or one that its network has no room for.
    pub(crate) fn tokenizer(&self) -> Result<Tokenizer> {
        let tokenizer = Tokenizer::load(self.vocabulary_file()?)?;
        let room = self.room().map_or(0, |(_, vocabulary)| vocabulary as usize);
        if tokenizer.vocabulary() > room {
            return Err(self.refuse(format!(
                "its tokenizer.json has {} tokens and its weights have rows for {}; download both from one place",
                format_count(tokenizer.vocabulary() as u64),
                format_count(room as u64)
            )));
        }
        Ok(tokenizer)
    }

    fn vocabulary_file(&self) -> Result<&Path> {
        let none = "there is no tokenizer.json in it, and Ebb reads no other vocabulary; download that file too";
        let file = self.folder.tokenizer();
        file.ok_or_else(|| self.refuse(none.to_owned()))
    }

    fn refuse(&self, reason: String) -> TrainError {
        TrainError::UnsupportedWeights {
            path: self.path.clone(),
            reason,
        }
    }

    /// The network with its published weights and a new head.
    pub(crate) fn build(&self, purpose: &Purpose) -> Result<(Network, Parameters)> {
        let loaded = self
            .folder
            .network(Some(purpose.side), &self.make(purpose))?;
        Ok((loaded.network, loaded.parameters))
    }

    /// The same with zeros for parameters.
    pub(crate) fn of_zeros(&self, purpose: &Purpose) -> Result<(Network, Parameters)> {
        let loaded = self
            .folder
            .of_zeros(Some(purpose.side), &self.make(purpose))?;
        Ok((loaded.network, loaded.parameters))
    }

    fn make<'a>(&self, purpose: &Purpose<'a>) -> Make<'a> {
        Make {
            classes: match self.family() {
                Family::Gpt2 => Classes::Published,
                _ => Classes::New(purpose.classes),
            },
            tuning: self.tuning,
            seed: purpose.seed,
            dtype: purpose.dtype,
            device: purpose.device,
        }
    }

    /// "BERT, 22,713,216 numbers, from models/minilm", and what of it trains.
    pub fn described(&self, trained: u64) -> String {
        let what = match (self.tuning.adapter, self.tuning.trains) {
            (Some(shape), _) => format!("adapters of rank {} and a new head train", shape.rank),
            (None, Trains::Head) => "a new head trains".to_owned(),
            (None, Trains::Last(1)) => "the last block and a new head train".to_owned(),
            (None, Trains::Last(n)) => format!("the last {n} blocks and a new head train"),
            (None, Trains::All) => "all of it trains".to_owned(),
        };
        let what = match self.family() {
            Family::Gpt2 => what.replace(" and a new head", ""),
            _ => what,
        };
        let bits = self.tuning.bits.map_or("", |bits| match bits {
            Bits::Eight => ", the rest in 8 bits",
            Bits::Four => ", the rest in 4 bits",
        });
        format!(
            "Begins with the weights of {} ({}, {} numbers); {what} ({} numbers){bits}",
            self.path.display(),
            self.family().label(),
            format_count(self.folder.numbers()),
            format_count(trained),
        )
    }

    /// The weights of a folder, tuned so.
    fn opened(path: &Path, tuning: Tuning) -> Result<Self> {
        Ok(Origin {
            path: path.to_owned(),
            folder: PublishedFolder::open(path)?,
            tuning,
        })
    }

    /// Where the folder lies.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn setting(key: &'static str, value: impl ToString, allowed: impl ToString) -> TrainError {
    TrainError::Setting {
        key,
        value: value.to_string(),
        allowed: allowed.to_string(),
    }
}

/// What a config says of a network of so many blocks.
fn tuning(config: &RunConfig, blocks: usize) -> Result<Tuning> {
    let adapter = config.adapter_rank.map(|rank| AdapterShape {
        rank: rank as usize,
        alpha: config.adapter_alpha.unwrap_or(ALPHA * f64::from(rank)),
    });
    if let (None, Some(alpha)) = (adapter, config.adapter_alpha) {
        let allowed = "it is for adapters; add --adapter RANK, or leave it out";
        return Err(setting("adapter_alpha", alpha, allowed));
    }
    let trains = match config.train_only.as_deref() {
        None if adapter.is_some() => Trains::Head,
        None => Trains::All,
        Some(text) => trains(text, blocks)?,
    };
    if adapter.is_some() && trains != Trains::Head {
        let text = config.train_only.as_deref().unwrap_or_default();
        let allowed =
            "adapters stand beside weights that do not train; write head, or leave it out";
        return Err(setting("train_only", text, allowed));
    }
    let bits = match config.quantize {
        None => None,
        Some(8) => Some(Bits::Eight),
        Some(4) => Some(Bits::Four),
        Some(other) => return Err(setting("quantize", other, "write 8 or 4")),
    };
    if let (Some(bits), Trains::All) = (config.quantize, trains) {
        let allowed = "only what does not train can be held in so few bits; add --adapter RANK, or --train-only head or last:N";
        return Err(setting("quantize", bits, allowed));
    }
    Ok(Tuning {
        trains,
        adapter,
        bits,
    })
}

fn trains(text: &str, blocks: usize) -> Result<Trains> {
    match (text, text.strip_prefix("last:").map(str::parse::<u32>)) {
        ("head", _) => Ok(Trains::Head),
        ("all", _) => Ok(Trains::All),
        (_, Some(Ok(last))) if last >= 1 && last as usize <= blocks => Ok(Trains::Last(last)),
        _ => Err(setting(
            "train_only",
            text,
            format!("write head, all, or last:1 to last:{blocks}"),
        )),
    }
}

/// What a config says of `--train-only`, filled in.
pub(crate) fn trains_name(trains: Trains) -> String {
    match trains {
        Trains::Head => "head".to_owned(),
        Trains::Last(last) => format!("last:{last}"),
        Trains::All => "all".to_owned(),
    }
}
