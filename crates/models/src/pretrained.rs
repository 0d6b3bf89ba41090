//! Pretrained weights that a run starts from, and how they are fine-tuned. The run copies the
//! folder with a checksum of every file, so that it can be resumed and used without the original.
//! Checkpoints then only hold trained parameters.

mod base_description;
mod fine_tuning_choices;
mod copy_weights_into_run;

pub use base_description::BaseDescription;
pub use copy_weights_into_run::{RUN_COPY, verify_run_copy};
pub use fine_tuning_choices::FineTuningChoice;

use crate::catalog::PretrainedFamily;
use crate::error::{ModelError, Result};
use crate::hub_format::{
    FineTuning, Head, HubArchitecture, HubFolder, LoadOptions, TextLimits, TrainedLayers,
};
use crate::network::Network;
use crate::parameter_builder::{AdapterShape, AdapterTargets};
use crate::pixel_normalization::PixelNormalization;
use crate::tensor_map::TensorLayout;
use candle_core::{DType, Device};
use std::path::{Path, PathBuf};
use tape::{Bits, Parameters};

/// Pretrained weights in a folder, and how they are fine-tuned.
#[derive(Debug, Clone)]
pub struct Pretrained {
    path: PathBuf,
    folder: HubFolder,
    tuning: FineTuning,
    /// Checkpointed blocks per saved input.
    segment: usize,
}

impl PartialEq for Pretrained {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path && self.tuning == other.tuning && self.segment == other.segment
    }
}

/// The settings of a run config about pretrained weights, under the same names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FineTuningSettings {
    /// The folder.
    pub from: Option<PathBuf>,
    /// `head`, `last:N` or `all`.
    pub train_only: Option<String>,
    /// Rank of adapters.
    pub adapter_rank: Option<u32>,
    /// Scale of adapters.
    pub adapter_alpha: Option<f64>,
    /// Whether adapters are rank-stabilized; not if absent.
    pub is_rank_stabilized: Option<bool>,
    /// Whether adapters are weight-decomposed; not if absent.
    pub is_weight_decomposed: Option<bool>,
    /// Fraction of the adapters' inputs that are zero in training.
    pub adapter_dropout: Option<f64>,
    /// Names of the maps that get adapters, with commas between them; all if absent.
    pub adapter_targets: Option<String>,
    /// Bits per value of frozen matrices.
    pub quantize: Option<Bits>,
    /// Checkpointed blocks per saved input; 1 if absent.
    pub checkpoint_segment: Option<u32>,
}

/// How a network is built from pretrained weights, in addition to its fine-tuning.
#[derive(Debug, Clone, Copy)]
pub struct BuildOptions<'a> {
    /// Side of images in pixels; text networks ignore it.
    pub input_size: usize,
    /// Number of outputs of the new head; language models ignore it.
    pub outputs: usize,
    /// Seed of the initial weights of the head and of adapters.
    pub seed: u64,
    /// Element type of trained parameters.
    pub dtype: DType,
    /// Device of the parameters.
    pub device: &'a Device,
}

/// Side of images in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputSize {
    /// The side that the weights were trained with.
    pub default: u32,
    /// Any side must be a multiple of this.
    pub multiple: u32,
}

/// Default `adapter_alpha` as a multiple of the rank.
const ALPHA_PER_RANK: f64 = 2.0;

impl Pretrained {
    /// Checks the settings and opens the folder; `None` if they name no folder.
    ///
    /// # Errors
    /// As [`HubFolder::open`]; [`ModelError::Setting`] if a setting does not work, or has no folder
    /// to work on.
    pub fn open(settings: &FineTuningSettings) -> Result<Option<Self>> {
        let Some(path) = &settings.from else {
            return settings.check_unused().map(|()| None);
        };
        if !path.exists() {
            let allowed = "there is no such folder; choose a Hugging Face folder with config.json and model.safetensors";
            return Err(ModelError::setting("from", path.display(), allowed));
        }
        let folder = HubFolder::open(path)?;
        let mut tuning = settings.tuning(folder.blocks())?;
        if let (Some(shape), Some(names)) = (&mut tuning.adapter, &settings.adapter_targets) {
            shape.targets = adapter_targets(&folder, names)?;
        }
        let pretrained = Pretrained {
            path: path.clone(),
            folder,
            tuning,
            segment: settings.checkpoint_segment.unwrap_or(1) as usize,
        };
        pretrained.check_tuning()?;
        Ok(Some(pretrained))
    }

    /// Opens a folder of weights that are used and not trained. Matrices are kept in `bits` per
    /// value, if given.
    ///
    /// # Errors
    /// As [`HubFolder::open`].
    pub fn open_frozen(path: &Path, bits: Option<Bits>) -> Result<Self> {
        let tuning = FineTuning {
            trained: TrainedLayers::Head,
            bits,
            ..FineTuning::default()
        };
        Ok(Pretrained {
            path: path.to_owned(),
            folder: HubFolder::open(path)?,
            tuning,
            segment: 1,
        })
    }

    /// The tokens that end a text according to its `config.json`.
    pub fn end_tokens(&self) -> Vec<u32> {
        let ends = &self.folder.config().json()["eos_token_id"];
        let listed = ends
            .as_array()
            .map_or(std::slice::from_ref(ends), Vec::as_slice);
        let ids = listed.iter().filter_map(serde_json::Value::as_u64);
        ids.filter_map(|id| u32::try_from(id).ok()).collect()
    }

    /// Refuses a fine-tuning that the network does not support.
    fn check_tuning(&self) -> Result<()> {
        let (network, tuning) = (self.folder.architecture().network(), self.tuning);
        let is_head_only = tuning.trained == TrainedLayers::Head && tuning.adapter.is_none();
        if !network.has_new_head() && is_head_only {
            let allowed = "a language model gets no new head to train; set train_only to all or last:N, or use --adapter RANK";
            return Err(ModelError::setting("train_only", "head", allowed));
        }
        if self.segment > 1 && !self.separates_documents() {
            let allowed = "only a language model with rotary positions can save the input of every N-th block; remove this setting";
            return Err(ModelError::setting(
                "checkpoint_segment",
                self.segment,
                allowed,
            ));
        }
        if network.has_linear_blocks() {
            return Ok(());
        }
        let allowed = "a ResNet consists of convolutions, which support neither adapters nor quantization; remove this setting";
        match (tuning.adapter, tuning.bits) {
            (Some(shape), _) => Err(ModelError::setting("adapter_rank", shape.rank, allowed)),
            (None, Some(bits)) => Err(ModelError::setting("quantize", bits, allowed)),
            (None, None) => Ok(()),
        }
    }

    /// What is known of the weights besides their values.
    pub fn base(&self) -> BaseDescription {
        BaseDescription::read(&self.path)
    }

    /// Its row in the catalog.
    pub fn family(&self) -> PretrainedFamily {
        let found = PretrainedFamily::from_name(self.folder.model_type());
        found.expect("only folders of a known model family can be opened")
    }

    /// Which weights are trained, and how the frozen ones are stored.
    pub fn tuning(&self) -> FineTuning {
        self.tuning
    }

    /// The folder.
    pub fn folder(&self) -> &HubFolder {
        &self.folder
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of blocks of its network.
    pub fn blocks(&self) -> u32 {
        self.folder.blocks() as u32
    }

    /// Limits of its texts; `None` for image networks.
    pub fn text_limits(&self) -> Option<TextLimits> {
        self.folder.architecture().network().text_limits()
    }

    /// Whether a token of its network sees only tokens of its own document, if several documents
    /// are in one sequence.
    pub fn separates_documents(&self) -> bool {
        matches!(self.folder.architecture(), HubArchitecture::Decoder(_))
    }

    /// Width of a token or patch, summed over all blocks.
    pub fn total_width(&self) -> u64 {
        self.folder.architecture().network().total_width() as u64
    }

    /// Whether it accepts images of this side in pixels, or texts of this many tokens.
    pub fn accepts_input_size(&self, size: u32) -> bool {
        match self.text_limits() {
            Some(limits) => size <= limits.tokens,
            None => size.is_multiple_of(self.input_size().multiple),
        }
    }

    /// Sides of its images.
    pub fn input_size(&self) -> InputSize {
        let input = self.folder.architecture().network().image_input();
        let side = self.folder.preprocessor().and_then(|p| p.side);
        let side = side.filter(|side| side.is_multiple_of(input.multiple));
        InputSize {
            default: side.unwrap_or(input.default_side) as u32,
            multiple: input.multiple as u32,
        }
    }

    /// How its pixels are normalized.
    pub fn normalization(&self) -> PixelNormalization {
        let preprocessor = self.folder.preprocessor();
        preprocessor.map_or_else(PixelNormalization::default, |p| p.normalization)
    }

    /// Path of its `tokenizer.json`.
    ///
    /// # Errors
    /// The folder has none.
    pub fn tokenizer_file(&self) -> Result<&Path> {
        let missing = "the folder has no tokenizer.json, the only vocabulary file that Ebb reads; download tokenizer.json too";
        let file = self.folder.tokenizer();
        file.ok_or_else(|| ModelError::hub_folder(&self.path, missing))
    }

    /// The network with its pretrained weights and a new head.
    pub fn build(&self, options: &BuildOptions) -> Result<(Network, Parameters)> {
        self.build_with_half(options, None)
    }

    /// Like [`Pretrained::build`], with the frozen matrices and kernels that are not quantized in
    /// this half type.
    pub fn build_with_half(
        &self,
        options: &BuildOptions,
        half: Option<DType>,
    ) -> Result<(Network, Parameters)> {
        let side = Some(options.input_size);
        let mut load = self.load_options(options);
        load.tuning.half = half;
        let loaded = self.folder.network(side, &load)?;
        Ok((self.in_segments(loaded.network), loaded.parameters))
    }

    /// Like [`Pretrained::build_with_half`] with zeros for parameters, in almost no time and
    /// memory.
    pub fn with_zeros(
        &self,
        options: &BuildOptions,
        half: Option<DType>,
    ) -> Result<(Network, Parameters)> {
        let side = Some(options.input_size);
        let mut load = self.load_options(options);
        load.tuning.half = half;
        let loaded = self.folder.with_zeros(side, &load)?;
        Ok((self.in_segments(loaded.network), loaded.parameters))
    }

    /// The network with its checkpointed blocks in segments. Other networks have no segments
    /// ([`Pretrained::open`]).
    fn in_segments(&self, mut network: Network) -> Network {
        if let Network::Gpt(gpt) = &mut network {
            gpt.set_segment(self.segment);
        }
        network
    }

    fn load_options<'a>(&self, options: &BuildOptions<'a>) -> LoadOptions<'a> {
        LoadOptions {
            head: if self.folder.architecture().network().has_new_head() {
                Head::New(options.outputs)
            } else {
                Head::Pretrained
            },
            tuning: self.tuning,
            seed: options.seed,
            dtype: options.dtype,
            device: options.device,
        }
    }

    /// What is trained, in words: "the last 2 blocks and a new head".
    pub fn trained_in_words(&self) -> String {
        let trained = match (self.tuning.adapter, self.tuning.trained) {
            (Some(shape), _) => format!("adapters of rank {} and a new head", shape.rank),
            (None, TrainedLayers::Head) => "a new head".to_owned(),
            (None, TrainedLayers::Last(1)) => "the last block and a new head".to_owned(),
            (None, TrainedLayers::Last(n)) => {
                format!("the last {n} blocks and a new head")
            }
            (None, TrainedLayers::All) => "the whole network".to_owned(),
        };
        if self.folder.architecture().network().has_new_head() {
            trained
        } else {
            trained.replace(" and a new head", "")
        }
    }

    /// These settings for a copy of the folder.
    fn in_folder(&self, path: &Path) -> Result<Self> {
        Ok(Pretrained {
            path: path.to_owned(),
            folder: HubFolder::open(path)?,
            ..*self
        })
    }
}

impl FineTuningSettings {
    /// Refuses settings that need a folder.
    fn check_unused(&self) -> Result<()> {
        let needing_folder = [
            ("train_only", self.train_only.clone()),
            ("adapter_rank", self.adapter_rank.map(|n| n.to_string())),
            ("quantize", self.quantize.map(|n| n.to_string())),
            (
                "checkpoint_segment",
                self.checkpoint_segment.map(|n| n.to_string()),
            ),
        ];
        for (key, value) in needing_folder.into_iter().chain(self.needing_adapters()) {
            if let Some(value) = value {
                let allowed = "this setting needs pretrained weights; name their folder with --from, or remove the setting";
                return Err(ModelError::setting(key, value, allowed));
            }
        }
        Ok(())
    }

    /// The settings of adapters, with their values.
    fn needing_adapters(&self) -> [(&'static str, Option<String>); 5] {
        let scaling = self.is_rank_stabilized.map(|is_rank_stabilized| {
            let name = if is_rank_stabilized {
                "rank-stabilized"
            } else {
                "standard"
            };
            name.to_owned()
        });
        let kind = self.is_weight_decomposed.map(|is_weight_decomposed| {
            let name = if is_weight_decomposed { "dora" } else { "lora" };
            name.to_owned()
        });
        let dropout = self.adapter_dropout.map(|n| n.to_string());
        [
            ("adapter_kind", kind),
            ("adapter_alpha", self.adapter_alpha.map(|n| n.to_string())),
            ("adapter_scaling", scaling),
            ("adapter_dropout", dropout),
            ("adapter_targets", self.adapter_targets.clone()),
        ]
    }

    /// The fine-tuning of a network with this many blocks.
    fn tuning(&self, blocks: usize) -> Result<FineTuning> {
        let adapter = self.adapter_rank.map(|rank| {
            let alpha = self.adapter_alpha;
            let alpha = alpha.unwrap_or(ALPHA_PER_RANK * f64::from(rank));
            AdapterShape {
                is_rank_stabilized: self.is_rank_stabilized == Some(true),
                is_weight_decomposed: self.is_weight_decomposed == Some(true),
                dropout: self.adapter_dropout.unwrap_or(0.0),
                ..AdapterShape::new(rank as usize, alpha)
            }
        });
        for (key, value) in self.needing_adapters() {
            if let (None, Some(value)) = (adapter, value) {
                let allowed =
                    "this setting needs adapters; add --adapter RANK, or remove the setting";
                return Err(ModelError::setting(key, value, allowed));
            }
        }
        let trained = match self.train_only.as_deref() {
            None if adapter.is_some() => TrainedLayers::Head,
            None => TrainedLayers::All,
            Some(text) => parse_trained_layers(text, blocks)?,
        };
        if adapter.is_some() && trained != TrainedLayers::Head {
            let text = self.train_only.as_deref().unwrap_or_default();
            let allowed =
                "adapters need frozen weights; set train_only to head, or remove this setting";
            return Err(ModelError::setting("train_only", text, allowed));
        }
        if let (Some(bits), TrainedLayers::All) = (self.quantize, trained) {
            let allowed = "only frozen weights can be quantized; add --adapter RANK, or --train-only head or last:N";
            return Err(ModelError::setting("quantize", bits, allowed));
        }
        Ok(FineTuning {
            trained,
            adapter,
            bits: self.quantize,
            half: None,
        })
    }
}

/// The maps of blocks with these names, with commas between them: those of the published weights,
/// as in PEFT, or those of Ebb.
fn adapter_targets(folder: &HubFolder, names: &str) -> Result<AdapterTargets> {
    let table = folder.architecture().network().table();
    let mut known: Vec<(&str, &str)> = Vec::new();
    for row in &table.body {
        let ours = row.ours.strip_prefix("blocks.0.");
        let Some(ours) = ours.and_then(|ours| ours.strip_suffix(".weight")) else {
            continue;
        };
        if ours.contains("norm") {
            continue;
        }
        known.push((ours, ours));
        let has_own_map = matches!(row.layout, TensorLayout::Same | TensorLayout::Transposed);
        let theirs = row.theirs.strip_suffix(".weight");
        let theirs = theirs.and_then(|theirs| theirs.rsplit('.').next());
        if let Some(theirs) = theirs.filter(|_| has_own_map) {
            known.push((theirs, ours));
        }
    }
    let mut targets = Vec::new();
    for name in names.split(',').map(str::trim) {
        let before = targets.len();
        let found = known.iter().filter(|(known, _)| *known == name);
        targets.extend(found.map(|(_, ours)| *ours));
        if targets.len() == before {
            let is_published = |ours: &str| {
                known
                    .iter()
                    .any(|(name, map)| *map == ours && *name != ours)
            };
            let shown = known
                .iter()
                .filter(|(name, map)| name != map || !is_published(map));
            let mut all: Vec<&str> = shown.map(|(name, _)| *name).collect();
            all.sort_unstable();
            all.dedup();
            let allowed = format!("the linear layers of this model are {}", all.join(", "));
            return Err(ModelError::setting("adapter_targets", name, allowed));
        }
    }
    Ok(AdapterTargets::from_names(targets))
}

fn parse_trained_layers(text: &str, blocks: usize) -> Result<TrainedLayers> {
    let last = text.strip_prefix("last:").map(str::parse::<u32>);
    match (text, last) {
        ("head", _) => Ok(TrainedLayers::Head),
        ("all", _) => Ok(TrainedLayers::All),
        (_, Some(Ok(last))) if last >= 1 && last as usize <= blocks => {
            Ok(TrainedLayers::Last(last))
        }
        _ => {
            let allowed = format!("write head, all, or last:1 to last:{blocks}");
            Err(ModelError::setting("train_only", text, allowed))
        }
    }
}
