//! ConvNeXt computes the same scores as a naive implementation of the published network, whose
//! folders it reads and writes.

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::folders::{self, make};
use candle_core::{DType, Device, Tensor};
use models::export::{TrainedNetwork, export_hub_folder};
use models::hub_format::{Head, HubFolder};
use models::pretrained::{BuildOptions, FineTuningSettings};
use models::{ImageModel, ModelId, Network, Pretrained};
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use tape::device::contiguous;
use tape::inplace::to_f64;
use tape::{Cancel, Kernels, Parameters, Rng, Tape, Value};

const WIDTHS: [usize; 3] = [8, 12, 16];
const DEPTHS: [usize; 3] = [1, 2, 1];
const PATCH: usize = 4;
const CLASSES: usize = 5;

/// Published tensors by their names in the transformers library, with their shapes.
type Tensors = BTreeMap<String, (Vec<usize>, Vec<f64>)>;

/// Names and shapes of a `ConvNextForImageClassification`.
fn published_shapes() -> Vec<(String, Vec<usize>)> {
    let mut all = Vec::new();
    let mut add = |name: &str, weight: &[usize], outputs: usize| {
        all.push((format!("{name}.weight"), weight.to_vec()));
        all.push((format!("{name}.bias"), vec![outputs]));
    };
    let first = WIDTHS[0];
    add(
        "convnext.embeddings.patch_embeddings",
        &[first, 3, PATCH, PATCH],
        first,
    );
    add("convnext.embeddings.layernorm", &[first], first);
    for (stage, (&width, &depth)) in WIDTHS.iter().zip(&DEPTHS).enumerate() {
        let stage_name = format!("convnext.encoder.stages.{stage}");
        if stage > 0 {
            let inputs = WIDTHS[stage - 1];
            let name = format!("{stage_name}.downsampling_layer");
            add(&format!("{name}.0"), &[inputs], inputs);
            add(&format!("{name}.1"), &[width, inputs, 2, 2], width);
        }
        for layer in 0..depth {
            let name = format!("{stage_name}.layers.{layer}");
            add(&format!("{name}.dwconv"), &[width, 1, 7, 7], width);
            add(&format!("{name}.layernorm"), &[width], width);
            add(&format!("{name}.pwconv1"), &[4 * width, width], 4 * width);
            add(&format!("{name}.pwconv2"), &[width, 4 * width], width);
        }
    }
    add("convnext.layernorm", &[WIDTHS[2]], WIDTHS[2]);
    add("classifier", &[CLASSES, WIDTHS[2]], CLASSES);
    for (stage, (&width, &depth)) in WIDTHS.iter().zip(&DEPTHS).enumerate() {
        for layer in 0..depth {
            let name =
                format!("convnext.encoder.stages.{stage}.layers.{layer}.layer_scale_parameter");
            all.push((name, vec![width]));
        }
    }
    all
}

/// Random tensors, rounded to f32, that make every part of the network count.
fn drawn() -> Tensors {
    let named = published_shapes().into_iter().map(|(name, shape)| {
        let stream = Rng::new(11).site(&name);
        let inputs: usize = shape[1..].iter().product();
        let (mean, deviation) = match (name.contains("norm") && name.ends_with("weight"), inputs) {
            (true, _) => (1.0, 0.3),
            (false, 1) if shape.len() == 1 => (0.0, 0.5),
            (false, inputs) => (0.0, 1.5 / (inputs as f64).sqrt()),
        };
        let count: usize = shape.iter().product();
        let values = (0..count as u64)
            .map(|i| f64::from((mean + deviation * stream.normal(i)) as f32))
            .collect();
        (name, (shape, values))
    });
    named.collect()
}

fn config() -> Json {
    let labels: BTreeMap<String, String> = (0..CLASSES)
        .map(|label| (label.to_string(), format!("class {label}")))
        .collect();
    json!({
        "architectures": ["ConvNextForImageClassification"],
        "model_type": "convnext",
        "num_channels": 3,
        "num_stages": 3,
        "hidden_sizes": WIDTHS,
        "depths": DEPTHS,
        "patch_size": PATCH,
        "hidden_act": "gelu",
        "layer_scale_init_value": 1e-6,
        "layer_norm_eps": 1e-12,
        "image_size": 32,
        "id2label": labels,
    })
}

/// A folder in the published format.
fn folder(tensors: &Tensors) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), config().to_string()).unwrap();
    let tensors: HashMap<String, Tensor> = tensors
        .iter()
        .map(|(name, (shape, values))| {
            let tensor = Tensor::from_vec(values.clone(), &shape[..], &Device::Cpu).unwrap();
            (name.clone(), tensor.to_dtype(DType::F32).unwrap())
        })
        .collect();
    candle_core::safetensors::save(&tensors, folder.path().join("model.safetensors")).unwrap();
    folder
}

/// An image or its features: channels, side, and the values of each channel row by row.
#[derive(Clone)]
struct Map {
    channels: usize,
    side: usize,
    values: Vec<f64>,
}

impl Map {
    fn at(&self, channel: usize, y: isize, x: isize) -> f64 {
        let side = self.side as isize;
        if (0..side).contains(&y) && (0..side).contains(&x) {
            self.values[channel * self.side * self.side + (y * side + x) as usize]
        } else {
            0.0
        }
    }
}

/// The published network, one multiplication after the other.
struct Naive<'a>(&'a Tensors);

impl Naive<'_> {
    fn get(&self, name: &str) -> &[f64] {
        &self.0[name].1
    }

    /// A convolution as its definition reads; with `depthwise`, each channel by itself.
    fn conv(&self, name: &str, x: &Map, stride: usize, padding: isize, depthwise: bool) -> Map {
        let (shape, weight) = &self.0[&format!("{name}.weight")];
        let bias = self.get(&format!("{name}.bias"));
        let (outputs, inputs, kernel) = (shape[0], shape[1], shape[2]);
        let side = (x.side + 2 * padding as usize - kernel) / stride + 1;
        let mut values = Vec::new();
        for out in 0..outputs {
            for (row, column) in (0..side * side).map(|i| (i / side, i % side)) {
                let mut sum = bias[out];
                for input in 0..inputs {
                    let channel = if depthwise { out } else { input };
                    for (i, j) in (0..kernel * kernel).map(|i| (i / kernel, i % kernel)) {
                        let y = (row * stride + i) as isize - padding;
                        let x_at = (column * stride + j) as isize - padding;
                        let factor = weight[((out * inputs + input) * kernel + i) * kernel + j];
                        sum += factor * x.at(channel, y, x_at);
                    }
                }
                values.push(sum);
            }
        }
        Map {
            channels: outputs,
            side,
            values,
        }
    }

    fn norm_row(&self, name: &str, row: &[f64], epsilon: f64) -> Vec<f64> {
        let count = row.len() as f64;
        let mean = row.iter().sum::<f64>() / count;
        let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count;
        let weight = self.get(&format!("{name}.weight")).iter();
        let parameters = weight.zip(self.get(&format!("{name}.bias")));
        let values = row.iter().zip(parameters);
        values
            .map(|(v, (w, b))| (v - mean) / (variance + epsilon).sqrt() * w + b)
            .collect()
    }

    /// Applies `change` to the channels of every pixel.
    fn pixels(x: &Map, channels: usize, change: impl Fn(&[f64]) -> Vec<f64>) -> Map {
        let pixels = x.side * x.side;
        let mut values = vec![0.0; channels * pixels];
        for pixel in 0..pixels {
            let row = (0..x.channels).map(|channel| x.values[channel * pixels + pixel]);
            let row: Vec<f64> = row.collect();
            for (channel, value) in change(&row).into_iter().enumerate() {
                values[channel * pixels + pixel] = value;
            }
        }
        Map {
            channels,
            side: x.side,
            values,
        }
    }

    fn norm(&self, name: &str, x: &Map) -> Map {
        Naive::pixels(x, x.channels, |row| self.norm_row(name, row, 1e-6))
    }

    fn linear(&self, name: &str, row: &[f64]) -> Vec<f64> {
        let weight = self.get(&format!("{name}.weight"));
        let bias = self.get(&format!("{name}.bias"));
        let rows = weight.chunks(row.len()).zip(bias);
        rows.map(|(w, b)| b + w.iter().zip(row).map(|(w, v)| w * v).sum::<f64>())
            .collect()
    }

    fn block(&self, name: &str, x: &Map) -> Map {
        let y = self.conv(&format!("{name}.dwconv"), x, 1, 3, true);
        let y = self.norm(&format!("{name}.layernorm"), &y);
        let scale = self.get(&format!("{name}.layer_scale_parameter"));
        let mut y = Naive::pixels(&y, y.channels, |row| {
            let hidden = self.linear(&format!("{name}.pwconv1"), row);
            let hidden: Vec<f64> = hidden.into_iter().map(gelu).collect();
            let out = self.linear(&format!("{name}.pwconv2"), &hidden);
            out.iter().zip(scale).map(|(v, s)| v * s).collect()
        });
        y.values
            .iter_mut()
            .zip(&x.values)
            .for_each(|(y, x)| *y += x);
        y
    }

    fn scores(&self, image: Map) -> Vec<f64> {
        let x = self.conv(
            "convnext.embeddings.patch_embeddings",
            &image,
            PATCH,
            0,
            false,
        );
        let mut x = self.norm("convnext.embeddings.layernorm", &x);
        for (stage, &depth) in DEPTHS.iter().enumerate() {
            let name = format!("convnext.encoder.stages.{stage}");
            if stage > 0 {
                let y = self.norm(&format!("{name}.downsampling_layer.0"), &x);
                x = self.conv(&format!("{name}.downsampling_layer.1"), &y, 2, 0, false);
            }
            for layer in 0..depth {
                x = self.block(&format!("{name}.layers.{layer}"), &x);
            }
        }
        let pixels = (x.side * x.side) as f64;
        let channels = x.values.chunks(x.side * x.side);
        let means: Vec<f64> = channels.map(|c| c.iter().sum::<f64>() / pixels).collect();
        let features = self.norm_row("convnext.layernorm", &means, 1e-12);
        self.linear("classifier", &features)
    }
}

/// `x Phi(x)`, with the error function as its Taylor series.
fn gelu(x: f64) -> f64 {
    let z = x / 2f64.sqrt();
    let (mut term, mut sum) = (z, z);
    for n in 1..200 {
        term *= -z * z / n as f64;
        sum += term / (2 * n + 1) as f64;
    }
    let erf = if z.abs() > 5.0 {
        z.signum()
    } else {
        sum * 2.0 / std::f64::consts::PI.sqrt()
    };
    0.5 * x * (1.0 + erf)
}

const SAMPLES: usize = 3;

fn pixels(side: usize) -> Vec<f64> {
    let all = 0..SAMPLES * 3 * side * side;
    all.map(|i| f64::from((0.37 * i as f64 + 0.1).sin() as f32))
        .collect()
}

fn images(side: usize, dtype: DType) -> Value {
    let images = Tensor::from_vec(pixels(side), (SAMPLES, 3, side, side), &Device::Cpu).unwrap();
    Value::constant(images.to_dtype(dtype).unwrap())
}

fn scores(
    network: &Network,
    parameters: &Parameters,
    images: &Value,
    kernels: Kernels,
) -> Vec<f64> {
    let tape = Tape::forward_only(parameters, Cancel::default(), kernels);
    let scores = network.forward(&tape, images, 0).unwrap();
    to_f64(scores.tensor()).unwrap()
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |most, v| most.max(v.abs()))
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let apart: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
    largest(&apart)
}

#[test]
fn a_convnext_folder_computes_the_scores_of_a_naive_implementation() {
    let tensors = drawn();
    let folder = folder(&tensors);
    let opened = HubFolder::open(folder.path()).unwrap();
    // A side of 44 leaves a row and a column over when it is halved.
    for side in [32, 44] {
        let images_of = pixels(side);
        let each = images_of.chunks(3 * side * side).map(|image| {
            Naive(&tensors).scores(Map {
                channels: 3,
                side,
                values: image.to_vec(),
            })
        });
        let expected: Vec<f64> = each.flatten().collect();
        assert!(largest(&expected) > 0.5, "the scores say something");
        for (dtype, kernels, bar) in [
            (DType::F64, Kernels::Fused, 1e-9),
            (DType::F64, Kernels::Composed, 1e-9),
            (DType::F32, Kernels::Fused, 3e-5),
            (DType::F32, Kernels::Composed, 3e-5),
        ] {
            let made = make(Head::Pretrained, dtype);
            let loaded = opened.image_classifier(Some(side), &made).unwrap();
            let (network, parameters) = (&loaded.network, &loaded.parameters);
            let found = scores(network, parameters, &images(side, dtype), kernels);
            let apart = distance(&found, &expected);
            println!("{side} px, {dtype:?} {kernels:?}: {apart:.1e} apart");
            assert!(apart < bar, "{side} px, {dtype:?} {kernels:?}: {apart:e}");
        }
    }
}

#[test]
fn checkpointing_and_splitting_a_convnext_keep_the_gradients() {
    let folder = folder(&drawn());
    let opened = HubFolder::open(folder.path()).unwrap();
    let loaded = opened
        .image_classifier(None, &make(Head::New(3), DType::F64))
        .unwrap();
    let all = images(32, DType::F64);
    let gradient = |checkpointed: usize, samples: std::ops::Range<usize>| {
        let tape = Tape::record(&loaded.parameters, Cancel::default(), Kernels::Fused);
        let part = all
            .tensor()
            .narrow(0, samples.start, samples.len())
            .unwrap();
        let labels: Vec<u32> = samples.map(|sample| sample as u32).collect();
        let images = Value::constant(contiguous(&part).unwrap());
        let scores = loaded
            .network
            .forward(&tape, &images, checkpointed)
            .unwrap();
        let loss = tape.cross_entropy(&scores, &labels, 0.0).unwrap();
        let found = tape.backward(vec![(loss.sum, 1.0)]).unwrap();
        let values = found.into_iter().map(|g| to_f64(&g.unwrap()).unwrap());
        values.collect::<Vec<_>>().concat()
    };
    let whole = gradient(0, 0..SAMPLES);
    let bar = 1e-11 * largest(&whole);
    assert!(largest(&whole) > 1e-3);
    assert!(distance(&whole, &gradient(usize::MAX, 0..SAMPLES)) < bar);
    let (first, rest) = (gradient(0, 0..1), gradient(2, 1..SAMPLES));
    let sum: Vec<f64> = first.iter().zip(&rest).map(|(a, b)| a + b).collect();
    assert!(distance(&whole, &sum) < bar);
}

#[test]
fn the_last_block_of_a_convnext_trains_with_its_downsampling() {
    let folder = folder(&drawn());
    let settings = FineTuningSettings {
        from: Some(folder.path().to_owned()),
        train_only: Some("last:1".to_owned()),
        ..FineTuningSettings::default()
    };
    let pretrained = Pretrained::open(&settings).unwrap().unwrap();
    assert_eq!(
        (pretrained.blocks(), pretrained.family().name()),
        (4, "convnext")
    );
    assert_eq!(pretrained.input_size().multiple, 32);
    let (_, parameters) = pretrained
        .build(&BuildOptions {
            input_size: 32,
            outputs: 2,
            seed: 0,
            dtype: DType::F32,
            device: &Device::Cpu,
        })
        .unwrap();
    let trained: Vec<&str> = parameters.iter().map(|p| &*p.name).collect();
    let expected = |name: &&str| {
        ["blocks.3.", "norm.", "head."]
            .iter()
            .any(|prefix| name.starts_with(prefix))
    };
    assert!(trained.iter().all(expected), "{trained:?}");
    for name in [
        "blocks.3.downsample.conv.weight",
        "blocks.3.scale",
        "norm.bias",
    ] {
        assert!(trained.contains(&name), "{name} is not in {trained:?}");
    }
}

/// Tensors of an exported folder by name, with their shapes.
fn exported(folder: &Path) -> BTreeMap<String, Vec<usize>> {
    let file = folder.join("model.safetensors");
    let tensors = candle_core::safetensors::load(file, &Device::Cpu).unwrap();
    let named = tensors.into_iter();
    named.map(|(name, t)| (name, t.dims().to_vec())).collect()
}

#[test]
fn a_fine_tuned_convnext_is_exported_under_its_published_names() {
    let source = folder(&drawn());
    let settings = FineTuningSettings {
        from: Some(source.path().to_owned()),
        ..FineTuningSettings::default()
    };
    let preprocessor = json!({
        "image_processor_type": "ConvNextImageProcessor",
        "size": {"shortest_edge": 32},
        "crop_pct": 0.875,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    });
    let file = "preprocessor_config.json";
    fs::write(source.path().join(file), preprocessor.to_string()).unwrap();
    let pretrained = Pretrained::open(&settings).unwrap().unwrap();
    let options = BuildOptions {
        input_size: 64,
        outputs: CLASSES,
        seed: 0,
        dtype: DType::F32,
        device: &Device::Cpu,
    };
    let (network, parameters) = pretrained.build(&options).unwrap();
    let classes: Vec<String> = (0..CLASSES).map(|label| format!("new {label}")).collect();
    let trained = TrainedNetwork {
        model: ModelId::Pretrained(pretrained.family()),
        input_size: 64,
        classes: &classes,
        targets: &[],
        parameters: &parameters,
        pretrained: Some(&pretrained),
        tokenizer: None,
    };
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    export_hub_folder(&trained, &out).unwrap();
    assert_eq!(exported(&out), published_shapes().into_iter().collect());
    let config: Json = serde_json::from_slice(&fs::read(out.join("config.json")).unwrap()).unwrap();
    assert_eq!(
        config["architectures"],
        json!(["ConvNextForImageClassification"])
    );
    assert_eq!(
        (&config["image_size"], &config["model_type"]),
        (&json!(64), &json!("convnext"))
    );
    let own: Json = serde_json::from_slice(&fs::read(out.join(file)).unwrap()).unwrap();
    assert_eq!(own["size"], json!({"shortest_edge": 64}));
    let again = HubFolder::open(&out).unwrap();
    assert_eq!(again.classes(), Some(classes.clone()));
    let loaded = again
        .image_classifier(None, &make(Head::Pretrained, DType::F32))
        .unwrap();
    let images = images(64, DType::F32);
    assert_eq!(
        scores(&network, &parameters, &images, Kernels::Fused),
        scores(&loaded.network, &loaded.parameters, &images, Kernels::Fused)
    );
}

#[test]
fn a_convnext_from_scratch_reads_back_as_a_published_one() {
    let tiny = ModelId::Image(ImageModel::ConvNextTiny);
    let built = Network::build(tiny, 32, CLASSES, 9, DType::F32, &Device::Cpu);
    let (network, parameters) = built.unwrap();
    let classes: Vec<String> = (0..CLASSES).map(|label| format!("class {label}")).collect();
    let trained = TrainedNetwork {
        model: tiny,
        input_size: 32,
        classes: &classes,
        targets: &[],
        parameters: &parameters,
        pretrained: None,
        tokenizer: None,
    };
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    export_hub_folder(&trained, &out).unwrap();
    let shapes = exported(&out);
    let of = |name: &str| shapes[&format!("convnext.encoder.stages.{name}")].clone();
    assert_eq!(of("2.layers.8.dwconv.weight"), [384, 1, 7, 7]);
    assert_eq!(of("1.downsampling_layer.1.weight"), [192, 96, 2, 2]);
    assert_eq!(of("3.layers.0.layer_scale_parameter"), [768]);
    let read = HubFolder::open(&out).unwrap();
    let loaded = read
        .image_classifier(None, &make(Head::Pretrained, DType::F32))
        .unwrap();
    let images = images(32, DType::F32);
    assert_eq!(
        scores(&network, &parameters, &images, Kernels::Fused),
        scores(&loaded.network, &loaded.parameters, &images, Kernels::Fused)
    );
}

#[test]
fn a_config_that_is_no_convnext_is_refused() {
    for (key, value, word) in [
        ("hidden_sizes", json!([8, 12]), "do not match"),
        ("hidden_sizes", json!([]), "hidden_sizes"),
        ("num_channels", json!(1), "3 channels"),
        ("hidden_act", json!("relu"), "hidden_act"),
        ("patch_size", json!(0), "patch_size"),
    ] {
        let folder = folder(&drawn());
        let mut config = config();
        config[key] = value;
        fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        folders::assert_error_contains(HubFolder::open(folder.path()), &[word]);
    }
}
