//! ConvNeXt in its published format, `model_type` convnext, and as an ONNX graph.

use super::{ConvNextArchitecture, EPSILON, KERNEL};
use crate::error;
use crate::hub_format::json_config::JsonConfig;
use crate::hub_format::{BlockLayout, HubImageNetwork, HubNetwork, ImageInput, LastNorm};
use crate::image_network::ImageArchitecture;
use crate::onnx_graph::{Attribute, Features, Graph, Name};
use crate::tensor_map::{CLASSIFIER, TensorPair, TensorRow, TensorTable, rows};
use crate::transformer::Gelu;
use serde_json::{Value as Json, json};

const ENDS: &[TensorRow] = &[
    TensorRow::same("embeddings.patch_embeddings.weight", "stem.conv.weight"),
    TensorRow::same("embeddings.patch_embeddings.bias", "stem.conv.bias"),
    TensorRow::same("embeddings.layernorm.weight", "stem.norm.weight"),
    TensorRow::same("embeddings.layernorm.bias", "stem.norm.bias"),
    TensorRow::same("layernorm.weight", "norm.weight"),
    TensorRow::same("layernorm.bias", "norm.bias"),
];

/// `{}` is the stage in their name and the stage's first block in ours.
const DOWNSAMPLE: &[TensorRow] = &[
    TensorRow::same(
        "encoder.stages.{}.downsampling_layer.0.weight",
        "blocks.{}.downsample.norm.weight",
    ),
    TensorRow::same(
        "encoder.stages.{}.downsampling_layer.0.bias",
        "blocks.{}.downsample.norm.bias",
    ),
    TensorRow::same(
        "encoder.stages.{}.downsampling_layer.1.weight",
        "blocks.{}.downsample.conv.weight",
    ),
    TensorRow::same(
        "encoder.stages.{}.downsampling_layer.1.bias",
        "blocks.{}.downsample.conv.bias",
    ),
];

/// `{}` is the path of a block, theirs and ours.
const BLOCK: &[TensorRow] = &[
    TensorRow::same(
        "encoder.stages.{}.dwconv.weight",
        "blocks.{}.depthwise.weight",
    ),
    TensorRow::same("encoder.stages.{}.dwconv.bias", "blocks.{}.depthwise.bias"),
    TensorRow::same(
        "encoder.stages.{}.layernorm.weight",
        "blocks.{}.norm.weight",
    ),
    TensorRow::same("encoder.stages.{}.layernorm.bias", "blocks.{}.norm.bias"),
    TensorRow::same("encoder.stages.{}.pwconv1.weight", "blocks.{}.up.weight"),
    TensorRow::same("encoder.stages.{}.pwconv1.bias", "blocks.{}.up.bias"),
    TensorRow::same("encoder.stages.{}.pwconv2.weight", "blocks.{}.down.weight"),
    TensorRow::same("encoder.stages.{}.pwconv2.bias", "blocks.{}.down.bias"),
];

const LAYER_SCALE: &[TensorRow] = &[TensorRow::same(
    "encoder.stages.{}.layer_scale_parameter",
    "blocks.{}.scale",
)];

/// Images are halved this many times in all, so their side should be a multiple.
const SIDE_MULTIPLE: usize = 32;
/// Side of images in pixels if the config has none.
const DEFAULT_SIDE: usize = 224;

/// A pretrained ConvNeXt, described by its folder.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HubConvNext {
    architecture: ConvNextArchitecture,
    side: usize,
}

impl HubConvNext {
    /// Describes a network that was trained from scratch.
    pub(super) fn from_scratch(architecture: ConvNextArchitecture) -> Self {
        HubConvNext {
            architecture,
            side: DEFAULT_SIDE,
        }
    }

    pub(crate) fn read(config: &JsonConfig) -> error::Result<Self> {
        if config.count_or("num_channels", 3)? != 3 {
            return Err(config.refuse("Ebb supports only images with 3 channels".to_owned()));
        }
        let widths = config.counts("hidden_sizes", &[96, 192, 384, 768])?;
        let depths = config.counts("depths", &[3, 3, 9, 3])?;
        let is_empty = widths.is_empty();
        if is_empty || widths.len() != depths.len() || depths.iter().sum::<usize>() > 10_000 {
            return Err(config.refuse(format!(
                "hidden_sizes {widths:?} and depths {depths:?} do not match"
            )));
        }
        let scale = config.get("layer_scale_init_value");
        let scale = scale.map_or(Some(1e-6), Json::as_f64).unwrap_or(0.0);
        Ok(HubConvNext {
            side: config.count_or("image_size", DEFAULT_SIDE)?,
            architecture: ConvNextArchitecture {
                widths,
                depths,
                patch: config.count_or("patch_size", 4)?,
                gelu: config.gelu("hidden_act", "gelu")?,
                layer_scale: (scale > 0.0).then_some(scale),
                last_epsilon: config.positive_or("layer_norm_eps", 1e-12)?,
            },
        })
    }
}

impl HubNetwork for HubConvNext {
    fn table(&self) -> TensorTable {
        let mut body = rows(ENDS, 0);
        for (block, place) in self.architecture.places().into_iter().enumerate() {
            let ours = block.to_string();
            let mut add = |rows: &[TensorRow], theirs: &str| {
                let named = rows.iter().map(|row| row.filled(theirs, &ours));
                body.extend(named.collect::<Vec<TensorPair>>());
            };
            if place.is_downsampling() {
                add(DOWNSAMPLE, &place.stage.to_string());
            }
            let theirs = format!("{}.layers.{}", place.stage, place.layer);
            add(BLOCK, &theirs);
            if self.architecture.layer_scale.is_some() {
                add(LAYER_SCALE, &theirs);
            }
        }
        TensorTable {
            prefix: "convnext.",
            body,
            head: rows(CLASSIFIER, 0),
            unneeded: &[],
        }
    }

    fn blocks(&self) -> BlockLayout {
        BlockLayout {
            count: self.architecture.blocks(),
            last_norm: LastNorm::AfterBlocks,
            has_embedding_table: false,
        }
    }

    fn image_input(&self) -> ImageInput {
        ImageInput {
            default_side: self.side,
            multiple: SIDE_MULTIPLE,
        }
    }

    fn estimated_parameters(&self) -> f64 {
        let places = self.architecture.places();
        let widths = places.iter().map(|place| place.width as f64);
        widths.map(|width| 8.0 * width * width).sum()
    }
}

impl HubImageNetwork for HubConvNext {
    fn architecture(
        &self,
        _side: Option<usize>,
        _is_new_head: bool,
    ) -> Result<Box<dyn ImageArchitecture>, String> {
        Ok(Box::new(self.architecture.clone()))
    }

    fn transformers_class(&self) -> &'static str {
        "ConvNextForImageClassification"
    }

    fn set_side(&self, config: &mut Json, side: usize) {
        config["image_size"] = json!(side);
    }
}

impl ConvNextArchitecture {
    /// `config.json`: transformers' own `convnext`.
    pub(super) fn config(&self) -> Json {
        json!({
            "architectures": ["ConvNextForImageClassification"],
            "model_type": "convnext",
            "num_channels": 3,
            "num_stages": self.widths.len(),
            "hidden_sizes": self.widths,
            "depths": self.depths,
            "patch_size": self.patch,
            "hidden_act": match self.gelu {
                Gelu::Erf => "gelu",
                Gelu::Tanh => "gelu_pytorch_tanh",
            },
            "layer_scale_init_value": self.layer_scale.unwrap_or(0.0),
            "layer_norm_eps": self.last_epsilon,
            "drop_path_rate": 0.0,
            "initializer_range": 0.02,
        })
    }
}

/// The network up to its head as a graph.
pub(super) fn onnx_features(
    shape: &ConvNextArchitecture,
    g: &mut Graph,
    images: &str,
) -> error::Result<Features> {
    let patch = shape.patch as i64;
    let x = convolution(g, images, "stem.conv", [patch, patch, 0, 1])?;
    let mut x = g.layer_norm(&x, "stem.norm", EPSILON)?;
    for (i, place) in shape.places().into_iter().enumerate() {
        let name = |part: &str| format!("blocks.{i}.{part}");
        if place.is_downsampling() {
            let y = g.layer_norm(&x, &name("downsample.norm"), EPSILON)?;
            let y = g.transpose(&y, &[0, 3, 1, 2]);
            x = convolution(g, &y, &name("downsample.conv"), [2, 2, 0, 1])?;
        }
        let y = g.transpose(&x, &[0, 3, 1, 2]);
        let (kernel, groups) = (KERNEL as i64, place.width as i64);
        let y = convolution(g, &y, &name("depthwise"), [kernel, 1, kernel / 2, groups])?;
        let y = g.layer_norm(&y, &name("norm"), EPSILON)?;
        let y = g.linear(&y, &name("up"))?;
        let y = match shape.gelu {
            Gelu::Erf => g.gelu_erf(&y),
            Gelu::Tanh => g.gelu(&y),
        };
        let mut y = g.linear(&y, &name("down"))?;
        if shape.layer_scale.is_some() {
            let scale = g.parameter(&name("scale"))?;
            y = g.mul(&y, &scale);
        }
        x = g.add(&y, &x);
    }
    let settings = vec![
        Attribute::ints("axes", &[1, 2]),
        Attribute::int("keepdims", 0),
    ];
    let pooled = g.node("ReduceMean", &[&x], settings);
    let features = g.layer_norm(&pooled, "norm", shape.last_epsilon)?;
    Ok(Features::One("head", features))
}

/// A convolution of [batch, inputs, height, width] to [batch, .., outputs]. `sizes` are kernel,
/// stride, padding and groups.
fn convolution(g: &mut Graph, x: &str, name: &str, sizes: [i64; 4]) -> error::Result<Name> {
    let [kernel, stride, padding, groups] = sizes;
    let weight = g.parameter(&format!("{name}.weight"))?;
    let bias = g.parameter(&format!("{name}.bias"))?;
    let settings = vec![
        Attribute::ints("kernel_shape", &[kernel; 2]),
        Attribute::ints("strides", &[stride; 2]),
        Attribute::ints("pads", &[padding; 4]),
        Attribute::int("group", groups),
    ];
    let y = g.node("Conv", &[x, &weight, &bias], settings);
    Ok(g.transpose(&y, &[0, 2, 3, 1]))
}
