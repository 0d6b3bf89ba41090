//! A trained network as a folder that others load: `config.json`, what is done to samples first, and `model.safetensors` under the
//! published names. A vision transformer goes by transformers' own `vit`. A residual network with GroupNorm has no name there:
//! its folder carries the few lines of PyTorch that read it.
//!
//! Refuses to know runs and checkpoints. A folder that has something in it is left alone.

use super::again::Rewritten;
use super::names::{Named, Table, Take};
use super::own_texts;
use super::settings::refusal;
use super::vit::VitFolder;
use super::whole::{Exported, whole, write};
use super::{CONFIG, PREPROCESSOR};
use crate::error::Result;
use crate::models::{Branch, ImageShape, ResNetShape, Stem, VitShape, VitStyle, merged};
use crate::origin::Origin;
use crate::plan::ModelKind;
use crate::task::{BALANCE, DEVIATION, MEAN};
use candle_core::{DType, Device, Tensor};
use dataset::{TargetColumn, Task, Tokenizer};
use safetensors::tensor::serialize_to_file;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use tape::{Activation, Parameters};

const MODEL: &str = "model.safetensors";
const MODELING: &str = "modeling_ebb.py";
/// The lines of PyTorch that read a residual network of Ebb's.
const MODELING_TEXT: &str = include_str!("modeling_ebb.py");
/// Pillow's bilinear filter, in the words of the format.
const BILINEAR: u32 = 2;

/// A trained network.
pub struct Trained<'a> {
    /// Network.
    pub kind: ModelKind,
    /// Side of its images in pixels; of texts it says nothing.
    pub side: u32,
    /// Class names in label order.
    pub classes: &'a [String],
    /// Numbers that it gives behind the scores of the classes, in deviations from their means.
    pub columns: &'a [TargetColumn],
    /// Its parameters.
    pub parameters: &'a Parameters,
    /// What it began with, and its adapters; absent, it was drawn anew.
    pub origin: Option<&'a Origin>,
    /// What its texts were read with; of photographs it says nothing.
    pub tokenizer: Option<&'a Tokenizer>,
}

impl Trained<'_> {
    /// Writes the folder: first one beside it, which takes its name when it is whole.
    ///
    /// # Errors
    /// The folder has something in it, or cannot be written; the network compresses tokens.
    pub fn write(&self, folder: &Path) -> Result<Exported> {
        if let ModelKind::Texts(model) = self.kind
            && model.size.task() == Task::TokenCompression
        {
            let reason = "a token compression is two networks at once, and other programs have no words for that; the run itself stays usable";
            return Err(refusal(folder, reason.to_owned()));
        }
        let rewritten = self.rewritten(self.outputs()).transpose()?;
        whole(folder, |draft| match &rewritten {
            Some(rewritten) => rewritten.fill(draft, self.with_numbers(rewritten.described())),
            None => self.fill(draft),
        })?;
        let opened_by = match (&rewritten, self.kind) {
            (Some(rewritten), _) => rewritten.opened_by(),
            (None, ModelKind::Texts(model)) => own_texts::opened_by(model),
            (None, kind) if is_residual(kind) => {
                "AutoModelForImageClassification.from_pretrained(FOLDER, trust_remote_code=True)"
            }
            (None, _) => "AutoModelForImageClassification.from_pretrained(FOLDER)",
        };
        Exported::of(folder, opened_by)
    }

    /// What it began with, to be written again with these names of outputs; nothing where it was drawn anew.
    pub(super) fn rewritten(&self, outputs: Vec<String>) -> Option<Result<Rewritten<'_>>> {
        let origin = self.origin?;
        let merged = merged(self.parameters, origin.tuning().adapter);
        Some(merged.map(|values| Rewritten {
            folder: origin.folder(),
            values,
            outputs,
            side: match origin.family().task() {
                Task::ImageClassification => self.side as usize,
                _ => 0,
            },
        }))
    }

    fn fill(&self, draft: &Path) -> Result<()> {
        let tensors = match self.kind {
            ModelKind::Texts(model) => self.fill_with_texts(draft, model)?,
            _ => self.fill_with_images(draft)?,
        };
        let path = draft.join(MODEL);
        let format = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        serialize_to_file(tensors, Some(format), &path)
            .map_err(|error| refusal(&path, error.to_string()))
    }

    /// Writes settings of a network for images; gives its tensors under the names that they leave by.
    fn fill_with_images(&self, draft: &Path) -> Result<HashMap<String, Tensor>> {
        write(draft, PREPROCESSOR, pretty(&self.preprocessor()))?;
        Ok(match ImageShape::of(self.kind, self.side as usize) {
            Some(ImageShape::Vit(shape)) => {
                write(draft, CONFIG, pretty(&self.described(vit(shape))))?;
                let folder = VitFolder::own(shape, VitStyle::own(shape));
                published(&merged(self.parameters, None)?, &folder.table())?
            }
            None => {
                let reason = "its weights began as somebody else's, and those are not there";
                return Err(refusal(draft, reason.to_owned()));
            }
            Some(ImageShape::ResNet(shape, style)) => {
                let settings = resnet(&shape, style.branch);
                write(draft, CONFIG, pretty(&self.described(settings)))?;
                write(draft, MODELING, MODELING_TEXT)?;
                let named = self.parameters.iter().filter(|p| p.name != BALANCE);
                let cpu = |tensor: &Tensor| tensor.to_device(&Device::Cpu)?.to_dtype(DType::F32);
                named
                    .map(|p| Ok((p.name.clone(), cpu(&p.tensor)?)))
                    .collect::<Result<_>>()?
            }
        })
    }

    /// The settings of a network with the names of its outputs.
    fn described(&self, config: Value) -> Value {
        self.with_numbers(with_classes(config, &self.outputs()))
    }

    /// Names of the classes, and of the numbers behind them.
    fn outputs(&self) -> Vec<String> {
        let columns = self.columns.iter().map(|column| column.name.clone());
        self.classes.iter().cloned().chain(columns).collect()
    }

    /// The settings with what the last outputs are to be multiplied by and added to, to be in the columns' units.
    fn with_numbers(&self, mut config: Value) -> Value {
        if !self.columns.is_empty() {
            config["ebb_numbers"] = json!(self.columns);
        }
        config
    }

    /// The largest square from the middle, brought to the side that was trained at.
    pub(super) fn preprocessor(&self) -> Value {
        json!({
            "image_processor_type": "BitImageProcessor",
            "do_convert_rgb": true,
            "do_resize": true,
            "size": { "shortest_edge": self.side },
            "resample": BILINEAR,
            "do_center_crop": true,
            "crop_size": { "height": self.side, "width": self.side },
            "do_rescale": true,
            "rescale_factor": 1.0 / 255.0,
            "do_normalize": true,
            "image_mean": MEAN,
            "image_std": DEVIATION,
        })
    }
}

/// The settings of a network with those that all classifiers have.
pub(super) fn with_classes(mut config: Value, classes: &[String]) -> Value {
    let by_label = classes.iter().enumerate();
    let names: serde_json::Map<String, Value> = by_label
        .map(|(label, name)| (label.to_string(), json!(name)))
        .collect();
    let by_name = classes.iter().enumerate();
    let labels: serde_json::Map<String, Value> = by_name
        .map(|(label, name)| (name.clone(), json!(label)))
        .collect();
    config["id2label"] = Value::Object(names);
    config["label2id"] = Value::Object(labels);
    config["torch_dtype"] = json!("float32");
    config
}

pub(super) fn vit(shape: VitShape) -> Value {
    let style = VitStyle::own(shape);
    json!({
        "architectures": ["ViTForImageClassification"],
        "model_type": "vit",
        "hidden_size": shape.width,
        "num_hidden_layers": shape.depth,
        "num_attention_heads": shape.heads,
        "intermediate_size": style.block.hidden,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.02,
        "layer_norm_eps": style.block.epsilon,
        "image_size": shape.image,
        "patch_size": shape.patch,
        "num_channels": 3,
        "qkv_bias": true,
        "encoder_stride": shape.patch,
    })
}

/// It needs code of its own to be opened: the field's residual networks normalise over the batch.
fn is_residual(kind: ModelKind) -> bool {
    matches!(ImageShape::of(kind, 224), Some(ImageShape::ResNet(..)))
}

pub(super) fn resnet(shape: &ResNetShape, branch: Branch) -> Value {
    json!({
        "architectures": ["EbbResNetForImageClassification"],
        "auto_map": {
            "AutoConfig": "modeling_ebb.EbbResNetConfig",
            "AutoModelForImageClassification": "modeling_ebb.EbbResNetForImageClassification",
        },
        "model_type": "ebb_resnet",
        "stem": match shape.stem {
            Stem::Plain => "plain",
            Stem::Pooled => "pooled",
        },
        "channels": shape.channels,
        "blocks": shape.blocks,
        "groups": shape.groups,
        "branch": match branch {
            Branch::Basic => "basic",
            Branch::Bottleneck { .. } => "bottleneck",
        },
        "hidden_act": match shape.activation {
            Activation::Gelu => "gelu",
            Activation::Relu | Activation::None => "relu",
        },
    })
}

pub(super) fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Parameters under their published names and in their published shapes.
pub(super) fn published(
    by_name: &HashMap<String, Tensor>,
    table: &Table,
) -> Result<HashMap<String, Tensor>> {
    let mut tensors = BTreeMap::<String, Shaped>::new();
    let body = table.body.iter().map(|row| (table.prefix, row));
    for (prefix, row) in body.chain(table.head.iter().map(|row| ("", row))) {
        let Named {
            published,
            ours,
            take,
        } = row;
        let tensor = by_name
            .get(ours)
            .expect("a table of a network names its parameters");
        let host = tensor.to_device(&Device::Cpu)?.to_dtype(DType::F32)?;
        let host = host.flatten_all()?.to_vec1::<f32>()?;
        let name = format!("{prefix}{published}");
        if let Take::FrozenScale | Take::FrozenShift = take {
            tensors.extend(norm(&name, *take, host));
            continue;
        }
        let shape = take.published_shape(tensor.dims());
        let count = shape.iter().product();
        let (_, values) = tensors
            .entry(name)
            .or_insert_with(|| (shape, vec![0.0; count]));
        take.write(&host, tensor.dims(), values);
    }
    let tensor = |(name, (shape, values)): (String, (Vec<usize>, Vec<f32>))| {
        Ok((name, Tensor::from_vec(values, shape, &Device::Cpu)?))
    };
    tensors.into_iter().map(tensor).collect()
}

/// The sizes of a tensor and its numbers, row by row.
type Shaped = (Vec<usize>, Vec<f32>);

/// One factor or one term a channel as part of a BatchNorm of mean 0 and deviation 1.
fn norm(name: &str, take: Take, ours: Vec<f32>) -> Vec<(String, Shaped)> {
    let channels = ours.len();
    let part = |part: &str, values: Vec<f32>| (format!("{name}.{part}"), (vec![channels], values));
    let variance = (1.0 - super::resnet::EPSILON) as f32;
    match take {
        Take::FrozenScale => vec![
            part("weight", ours),
            part("running_mean", vec![0.0; channels]),
            part("running_var", vec![variance; channels]),
        ],
        _ => vec![part("bias", ours)],
    }
}
