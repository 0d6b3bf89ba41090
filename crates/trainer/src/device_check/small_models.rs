//! A small model of each family, from scratch and in the style of the published ones, with made-up
//! samples that are the same on every machine.

use super::difference::Difference;
use crate::error::Result;
use crate::plan::Compression;
use crate::task::{ForwardContext, ImageSample, MicroBatchResult, Sequence, Text};
use candle_core::{DType, Device};
use dataset::Window;
use models::{
    DropPolicy, Heads, ImageModel, ModelId, ModelTask, Network, PretrainedFamily, SmallSizes,
    TextModel, TextSize,
};
use runlog::PolicyTraining;
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, KinkLog, KinkUse, Parameters, Rng};

/// Side of the images, in pixels.
const IMAGE_SIZE: usize = 32;
/// Side of the images of real networks.
const REAL_IMAGE_SIZE: usize = 224;
const CLASSES: usize = 5;
/// Tokens of a text or window.
const TOKENS: usize = 24;
const VOCABULARY: u32 = 64;
const SEED: u64 = 3;

/// A model of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SmallModel {
    ConvNet,
    ResNet,
    /// With images of the usual size.
    ResNetOf224,
    Vit,
    /// With images of the usual size.
    VitOf224,
    TextEncoder,
    Gpt,
    Compressor,
    Published(PretrainedFamily),
}

/// What a model is built from.
enum Source {
    Catalog(ModelId),
    Published(PretrainedFamily),
}

impl SmallModel {
    pub const ALL: [SmallModel; 24] = [
        SmallModel::ConvNet,
        SmallModel::ResNet,
        SmallModel::ResNetOf224,
        SmallModel::Vit,
        SmallModel::VitOf224,
        SmallModel::TextEncoder,
        SmallModel::Gpt,
        SmallModel::Compressor,
        SmallModel::Published(PretrainedFamily::Vit),
        SmallModel::Published(PretrainedFamily::Deit),
        SmallModel::Published(PretrainedFamily::Dinov2),
        SmallModel::Published(PretrainedFamily::ResNet),
        SmallModel::Published(PretrainedFamily::ConvNext),
        SmallModel::Published(PretrainedFamily::Bert),
        SmallModel::Published(PretrainedFamily::Gpt2),
        SmallModel::Published(PretrainedFamily::Llama),
        SmallModel::Published(PretrainedFamily::Mistral),
        SmallModel::Published(PretrainedFamily::Qwen2),
        SmallModel::Published(PretrainedFamily::Qwen3),
        SmallModel::Published(PretrainedFamily::Gemma2),
        SmallModel::Published(PretrainedFamily::Gemma3),
        SmallModel::Published(PretrainedFamily::Phi3),
        SmallModel::Published(PretrainedFamily::SmolLm3),
        SmallModel::Published(PretrainedFamily::Olmo2),
    ];

    fn source(self) -> Source {
        let text = |size, policy| {
            Source::Catalog(ModelId::Text(TextModel {
                size,
                tokens: TOKENS as u32,
                vocabulary: VOCABULARY,
                policy,
                neighbors: TextModel::NEIGHBORS,
            }))
        };
        match self {
            SmallModel::ConvNet => Source::Catalog(ModelId::CONV_NET),
            SmallModel::ResNet | SmallModel::ResNetOf224 => {
                Source::Catalog(ModelId::Image(ImageModel::ResNet18))
            }
            SmallModel::Vit | SmallModel::VitOf224 => Source::Catalog(ModelId::VIT_MICRO),
            SmallModel::TextEncoder => text(TextSize::TextMicro, None),
            SmallModel::Gpt => text(TextSize::GptMicro, None),
            // A learned policy may choose other tokens after the slightest rounding.
            SmallModel::Compressor => text(TextSize::CompressMicro, Some(DropPolicy::EveryKth)),
            SmallModel::Published(family) => Source::Published(family),
        }
    }

    fn image_size(self) -> usize {
        match self {
            SmallModel::ResNetOf224 | SmallModel::VitOf224 => REAL_IMAGE_SIZE,
            _ => IMAGE_SIZE,
        }
    }

    /// Whether it is compared with this many samples. Large images only add the sizes of their
    /// feature maps, so one sample is enough.
    pub fn is_compared_with(self, samples: usize) -> bool {
        samples == 1 || self.image_size() == IMAGE_SIZE
    }

    /// Its name in the catalog, with the size of large images.
    pub fn name(self) -> &'static str {
        match self.source() {
            _ if self == SmallModel::ResNetOf224 => "resnet18 of 224 pixels",
            _ if self == SmallModel::VitOf224 => "vit_micro of 224 pixels",
            Source::Catalog(id) => id.name(),
            Source::Published(family) => family.name(),
        }
    }

    fn task(self) -> ModelTask {
        match self.source() {
            Source::Catalog(id) => id.task(),
            Source::Published(family) => family.task(),
        }
    }

    fn build(self) -> Result<(Network, Parameters)> {
        let (dtype, device) = (DType::F32, Device::Cpu);
        Ok(match self.source() {
            Source::Catalog(id) => {
                Network::build(id, self.image_size(), CLASSES, SEED, dtype, &device)?
            }
            Source::Published(family) => {
                let sizes = SmallSizes {
                    image_size: IMAGE_SIZE,
                    tokens: TOKENS,
                    vocabulary: VOCABULARY as usize,
                    outputs: CLASSES,
                };
                family.small_network(sizes, SEED)?
            }
        })
    }

    /// The model with its gradient from the CPU in f64. The weights are rounded to `dtype` first.
    pub fn reference(self, samples: usize, dtype: DType) -> Result<ModelReference> {
        let model = self.build()?;
        let exact = (DType::F64, &Device::Cpu);
        let expected = if self.follows_the_device() {
            None
        } else {
            Some(self.gradients(&model, samples, dtype, exact, None)?)
        };
        Ok(ModelReference {
            of: self,
            samples,
            model,
            expected,
        })
    }

    /// Whether the CPU takes the sides of the device near the kinks of the network. Among the 2
    /// million values that the ReLUs of a ResNet get with large images, rounding moves some to the
    /// other side of zero, where the gradient is another one.
    fn follows_the_device(self) -> bool {
        self == SmallModel::ResNetOf224
    }

    /// Computes the loss and the gradient in `dtype` on `device`, without a comparison.
    pub fn run_on(self, samples: usize, dtype: DType, device: &Device) -> Result<()> {
        self.gradients(&self.build()?, samples, dtype, (dtype, device), None)
            .map(drop)
    }

    /// Gradients computed in an element type on a device, from weights rounded to `rounded`.
    fn gradients(
        self,
        model: &(Network, Parameters),
        samples: usize,
        rounded: DType,
        on: (DType, &Device),
        kinks: Option<KinkUse>,
    ) -> Result<Gradients> {
        let ((network, parameters), (dtype, device)) = (model, on);
        let parameters = converted(&parameters.rounded(rounded)?, rounded, dtype, device)?;
        let compression = compression();
        let context = ForwardContext {
            class_weights: None,
            preference_beta: None,
            compression: Some(&compression),
            pixels: Default::default(),
            network,
            parameters: &parameters,
            input_size: if self.task() == ModelTask::ImageClassification {
                self.image_size()
            } else {
                TOKENS
            },
            label_smoothing: 0.1,
            heads: Heads::for_classes(CLASSES),
            checkpointed: 0,
            dtype,
            loss_factor: 1.0,
            device,
            cancel: Cancel::default(),
            seed: 0,
            step: 0,
            kernels: Kernels::Fused,
            limit_bytes: None,
            kinks,
            without_adapters: false,
        };
        let result = self.run(&context, samples)?;
        let named = parameters.iter().zip(&result.gradients);
        let named = named.map(|(p, g)| Ok((p.name.clone(), to_f64(g)?)));
        Ok(Gradients {
            loss: result.loss,
            gradients: named.collect::<Result<_>>()?,
        })
    }

    fn run(self, context: &ForwardContext, samples: usize) -> Result<MicroBatchResult> {
        let samples = 0..samples;
        match self.task() {
            ModelTask::ImageClassification => {
                let image = |index| image(index, self.image_size());
                context.gradients(&samples.map(image).collect::<Vec<_>>())
            }
            ModelTask::TextClassification => {
                context.gradients(&samples.map(text).collect::<Vec<_>>())
            }
            ModelTask::LanguageModel => context.gradients(&samples.map(window).collect::<Vec<_>>()),
            ModelTask::TokenCompression => {
                context.gradients(&samples.map(sequence).collect::<Vec<_>>())
            }
        }
    }
}

/// A model, and what a device is compared with.
pub(super) struct ModelReference {
    of: SmallModel,
    samples: usize,
    model: (Network, Parameters),
    /// `None` if the CPU follows the device, so that it computes after it.
    expected: Option<Gradients>,
}

impl ModelReference {
    /// Largest relative difference of the loss and of the whole gradient on `device` from the
    /// CPU's.
    pub fn difference(&self, dtype: DType, device: &Device) -> Result<Difference> {
        let ModelReference { model, samples, .. } = self;
        let gradients = |on, kinks| self.of.gradients(model, *samples, dtype, on, kinks);
        let Some(expected) = &self.expected else {
            let log = KinkLog::default();
            let found = gradients((dtype, device), Some(KinkUse::Record(&log)))?;
            let exact = (DType::F64, &Device::Cpu);
            let expected = gradients(exact, Some(KinkUse::Follow(&log)))?;
            return Ok(largest(&found, &expected, log.divergence().farthest));
        };
        Ok(largest(&gradients((dtype, device), None)?, expected, 0.0))
    }
}

/// The largest difference: that of the loss, of the gradient, or of the value farthest from a kink
/// whose side the CPU took from the device.
fn largest(found: &Gradients, expected: &Gradients, farthest: f64) -> Difference {
    let loss = (found.loss - expected.loss).abs() / expected.loss.abs();
    let (gradient, worst) = difference(expected, found);
    if farthest > loss.max(gradient) {
        Difference {
            relative: farthest,
            of: "a value at which ReLU or max pooling chose differently".to_owned(),
        }
    } else if gradient.is_nan() || gradient > loss {
        let of = worst.map_or_else(String::new, |name| {
            format!(", most in the gradient of {name}")
        });
        Difference {
            relative: gradient,
            of: format!("the gradient{of}"),
        }
    } else {
        Difference {
            relative: loss,
            of: "the loss".to_owned(),
        }
    }
}

struct Gradients {
    loss: f64,
    gradients: Vec<(String, Vec<f64>)>,
}

/// The parameters in `dtype` on `device`; vectors stay in f32 beside a half type.
fn converted(
    parameters: &Parameters,
    rounded: DType,
    dtype: DType,
    device: &Device,
) -> Result<Parameters> {
    let mut converted = Parameters::default();
    for parameter in parameters.iter() {
        let (name, tensor) = (parameter.name.clone(), &parameter.tensor);
        let dtype = match dtype {
            DType::F64 => DType::F64,
            _ if tensor.dtype() == rounded => rounded,
            _ => DType::F32,
        };
        converted.add(name, to_f64(tensor)?, tensor.dims(), dtype, device)?;
    }
    Ok(converted)
}

/// `|found - expected| / |expected|` over all parameters, and the parameter whose gradient differs
/// most.
fn difference<'a>(expected: &'a Gradients, found: &Gradients) -> (f64, Option<&'a str>) {
    let (mut apart, mut whole, mut worst) = (0.0, 0.0, None);
    for ((name, a), (_, b)) in expected.gradients.iter().zip(&found.gradients) {
        let square: f64 = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum();
        apart += square;
        whole += a.iter().map(|v| v * v).sum::<f64>();
        if worst.is_none_or(|(most, _): (f64, _)| square.total_cmp(&most).is_ge()) {
            worst = Some((square, name.as_str()));
        }
    }
    let relative = apart.sqrt() / whole.sqrt().max(1e-30);
    (relative, worst.map(|(_, name)| name))
}

fn compression() -> Compression {
    Compression {
        policy: DropPolicy::EveryKth,
        learning: PolicyTraining::Joint,
        keep_fraction: Some(0.5),
        keep_cost: 1.0,
        temperature: (1.0, 0.1),
        steps: 10,
        seed: SEED,
    }
}

fn stream(index: usize) -> Rng {
    Rng::new(5).site("doctor").at(index as u64)
}

fn image(index: usize, size: usize) -> ImageSample {
    let pixels = 3 * size * size;
    let stream = stream(index);
    ImageSample {
        index: index as u32,
        label: (index * 2 % CLASSES) as u32,
        pixels: (0..pixels as u64)
            .map(|i| (stream.uniform(i) * 256.0) as u8)
            .collect(),
        ..ImageSample::default()
    }
}

fn ids(index: usize, count: usize) -> Vec<u32> {
    let stream = stream(index);
    let id = |i: u64| (stream.uniform(i) * f64::from(VOCABULARY)) as u32;
    (0..count as u64).map(id).collect()
}

/// Every text is shorter than the one before, so that there is padding.
fn text(index: usize) -> Text {
    Text {
        index: index as u32,
        label: (index * 2 % CLASSES) as u32,
        ids: ids(index, TOKENS - 2 * index % TOKENS),
        baseline: Vec::new(),
    }
}

fn window(index: usize) -> Window {
    let ids = ids(index, TOKENS + 1);
    Window {
        index: index as u32,
        inputs: ids[..TOKENS].to_vec(),
        targets: ids[1..].to_vec(),
        documents: vec![0; TOKENS],
        positions: (0..TOKENS as u32).collect(),
    }
}

fn sequence(index: usize) -> Sequence {
    Sequence {
        index: index as u32,
        step: 1,
        ids: ids(index, TOKENS),
        frequencies: vec![1.0 / VOCABULARY as f32; VOCABULARY as usize].into(),
    }
}
