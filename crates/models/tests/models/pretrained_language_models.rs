//! Today's language models compute the scores of transformers, and the gradients of PEFT's
//! adapters. The folders are tiny and random, in the published format
//! (`fixtures/published/make_decoders.py`).

// A helper that fails fails the test.
#![allow(clippy::unwrap_used)]

use crate::folders::adapters::{assert_gradients, index_of, numbers, set_adapters};
use crate::folders::{assert_error_contains, copied, fixture, make, opened};
use candle_core::{DType, Device, Tensor};
use models::export::{TrainedNetwork, export_adapter_folder, export_hub_folder};
use models::hub_format::{FineTuning, Head, HubFolder, LoadOptions, Loaded, TrainedLayers};
use models::pretrained::FineTuningSettings;
use models::{
    AdaptedLinear, AdapterShape, FrozenLinear, Gpt, ModelId, ParameterBuilder, Pretrained,
    TokenBatch, measure_row_norms,
};
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use tape::device::contiguous;
use tape::inplace::to_f64;
use tape::{Bits, Cancel, IGNORED, Kernels, Parameters, Tape, Value};

const MODELS: [&str; 10] = [
    "llama",
    "llama-linear",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3",
    "phi3",
    "smollm3",
    "olmo2",
];
const VOCABULARY: usize = 17;
const TOKENS: usize = 12;
const SAMPLES: usize = 2;
/// Largest distance from a reference, relative to its largest number.
const APART: f64 = 1e-5;
/// Every implementation of the operations.
const FORMS: [(DType, Kernels); 3] = [
    (DType::F32, Kernels::Fused),
    (DType::F32, Kernels::Composed),
    (DType::F64, Kernels::Fused),
];

fn folder(name: &str) -> String {
    format!("decoders/{name}")
}

fn reference(name: &str) -> Json {
    let file = fixture(&folder(name)).join("reference.json");
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

/// The tokens of the references' formula.
fn ids(tokens: usize) -> Vec<u32> {
    let row = |row| (0..tokens).map(move |i| ((7 * i * i + 3 * i + 5 * row) % VOCABULARY) as u32);
    (0..SAMPLES).flat_map(row).collect()
}

fn model(name: &str, dtype: DType) -> Loaded<Gpt> {
    let options = make(Head::Pretrained, dtype);
    opened(&folder(name)).language_model(&options).unwrap()
}

fn near(name: &str, found: &[f64], expected: &[f64], bar: f64) {
    assert_eq!(found.len(), expected.len(), "{name}");
    let pairs = found.iter().zip(expected);
    let apart = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let largest = expected.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    println!("{name}: {:.1e} apart", apart / largest);
    assert!(largest > 0.1, "{name}: the numbers say something");
    assert!(
        apart <= bar * largest,
        "{name}: {:e} apart",
        apart / largest
    );
}

#[test]
fn decoders_compute_the_scores_of_transformers() {
    for name in MODELS {
        let expected = numbers(&reference(name)["scores"]);
        for (dtype, kernels) in FORMS {
            let loaded = model(name, dtype);
            let tape = Tape::forward_only(&loaded.parameters, Cancel::default(), kernels);
            let scores = loaded.network.scores(&tape, &ids(TOKENS), SAMPLES).unwrap();
            let found = to_f64(scores.tensor()).unwrap();
            near(
                &format!("{name} {dtype:?} {kernels:?}"),
                &found,
                &expected,
                APART,
            );
        }
    }
}

#[test]
fn long_texts_use_the_long_factors_of_phi() {
    let loaded = model("phi3", DType::F32);
    let tape = Tape::forward_only(&loaded.parameters, Cancel::default(), Kernels::Fused);
    let tokens = 20;
    let scores = loaded.network.scores(&tape, &ids(tokens), SAMPLES).unwrap();
    let last = scores.tensor().narrow(1, tokens - 1, 1).unwrap();
    let expected = numbers(&reference("phi3")["long_scores"]);
    near(
        "phi3",
        &to_f64(&contiguous(&last).unwrap()).unwrap(),
        &expected,
        APART,
    );
}

#[test]
fn a_cache_gives_the_same_next_scores() {
    for name in MODELS {
        let loaded = model(name, DType::F64);
        let tape = Tape::forward_only(&loaded.parameters, Cancel::default(), Kernels::Fused);
        // Longer sequences of Phi-3 rotate all tokens by other angles.
        let longest = loaded.network.longest_unstretched();
        assert_eq!(longest.is_some(), name == "phi3");
        let most = longest.map_or(TOKENS, |longest| longest + 3);
        let ids = &ids(most)[..most];
        let mut cache = loaded.network.new_cache();
        for end in 4..=most {
            let new = if end == 4 || longest == Some(end - 1) {
                cache = loaded.network.new_cache();
                &ids[..end]
            } else {
                &ids[end - 1..end]
            };
            let found = loaded.network.next_scores_cached(&tape, new, &mut cache);
            let expected = loaded.network.next_scores(&tape, &ids[..end]).unwrap();
            let [found, expected] = [found.unwrap(), expected].map(|v| to_f64(v.tensor()).unwrap());
            near(&format!("{name} after {end}"), &found, &expected, 1e-12);
            let bytes = 8 * loaded.network.cached_values(cache.tokens());
            assert_eq!(cache.bytes(), bytes as u64, "{name} after {end}");
        }
    }
}

#[test]
fn a_cache_of_layers_with_windows_stops_growing() {
    let values = |name: &str, tokens| model(name, DType::F32).network.cached_values(tokens);
    // All layers of Mistral see 5 tokens; some of Gemma 3 see all.
    assert_eq!(values("mistral", 5_000), values("mistral", 5));
    assert_eq!(values("llama", 5_000), 1_000 * values("llama", 5));
    let gemma = values("gemma3", 5_000);
    assert!(gemma > values("gemma3", 5) && gemma < 1_000 * values("gemma3", 5));
}

#[test]
fn frozen_weights_are_read_in_their_half_type() {
    for half in [DType::BF16, DType::F16] {
        let read = |half| {
            let tuning = FineTuning {
                trained: TrainedLayers::Head,
                adapter: Some(AdapterShape::new(2, 6.0)),
                half,
                ..FineTuning::default()
            };
            tuned("llama", DType::F32, tuning).parameters
        };
        let (found, expected) = (read(Some(half)), read(None));
        assert!(
            found.iter().all(|p| p.tensor.dtype() == DType::F32),
            "adapters"
        );
        let pairs = found.frozen().zip(expected.frozen());
        for ((name, found), (_, expected)) in pairs {
            let [found, expected] = [found, expected].map(|it| it.whole().unwrap());
            let is_matrix = found.dims().len() > 1;
            let dtype = if is_matrix { half } else { DType::F32 };
            assert_eq!(
                (found.dtype(), found.dims()),
                (dtype, expected.dims()),
                "{name}"
            );
            let expected = expected.to_dtype(dtype).unwrap();
            let values = |it: &Tensor| to_f64(it).unwrap();
            assert_eq!(values(&found), values(&expected), "{name}");
        }
    }
}

#[test]
fn quantized_decoders_train_in_half_precision() {
    for name in MODELS {
        let loaded = adapted(name, DType::F32, Some(Bits::Nf4));
        let loss = |parameters: &Parameters| {
            let tape = Tape::record(parameters, Cancel::default(), Kernels::Composed);
            let network = &loaded.network;
            let loss = network.loss(&tape, &ids(TOKENS), &targets(), SAMPLES, 0);
            let loss = loss.unwrap();
            let found = to_f64(loss.sum.tensor()).unwrap();
            let gradients = tape.backward(vec![(loss.sum, 1.0)]).unwrap();
            assert!(gradients.iter().all(Option::is_some), "{name}");
            found
        };
        let half = loaded.parameters.rounded(DType::BF16).unwrap();
        near(name, &loss(&half), &loss(&loaded.parameters), 0.02);
    }
}

/// The model with adapters of all maps, whose values a formula gives.
fn adapted(name: &str, dtype: DType, bits: Option<Bits>) -> Loaded<Gpt> {
    let tuning = FineTuning {
        trained: TrainedLayers::Head,
        adapter: Some(AdapterShape::new(2, 6.0)),
        bits,
        ..FineTuning::default()
    };
    tuned(name, dtype, tuning)
}

/// The model with the adapters of `tuning`, whose values a formula gives.
fn tuned(name: &str, dtype: DType, tuning: FineTuning) -> Loaded<Gpt> {
    let options = LoadOptions {
        tuning,
        ..make(Head::Pretrained, dtype)
    };
    let mut loaded = opened(&folder(name)).language_model(&options).unwrap();
    set_adapters(&mut loaded.parameters);
    loaded
}

/// The next token of each token; none for the last one of a sequence.
fn targets() -> Vec<u32> {
    let ids = ids(TOKENS);
    let next = |at: usize| {
        if (at + 1).is_multiple_of(TOKENS) {
            IGNORED
        } else {
            ids[at + 1]
        }
    };
    (0..ids.len()).map(next).collect()
}

/// Checks the loss and the gradients of adapters against those of PEFT in `reference`.
fn check_gradients(
    name: &str,
    loaded: &Loaded<Gpt>,
    kernels: Kernels,
    checkpointed: usize,
    reference: &Json,
) {
    let tape = Tape::record(&loaded.parameters, Cancel::default(), kernels);
    let loss = loaded
        .network
        .loss(&tape, &ids(TOKENS), &targets(), SAMPLES, checkpointed)
        .unwrap();
    let found = to_f64(loss.sum.tensor()).unwrap();
    near(name, &found, &[reference["loss"].as_f64().unwrap()], APART);
    let gradients = tape.backward(vec![(loss.sum, 1.0)]).unwrap();
    let all = reference["gradients"].as_object().unwrap();
    assert_eq!(all.len(), loaded.parameters.len(), "{name}");
    let (mut found, mut expected) = (Vec::new(), Vec::new());
    for (theirs, sum) in all {
        let index = index_of(&loaded.parameters, theirs);
        let gradient = to_f64(gradients[index].as_ref().unwrap()).unwrap();
        let terms = gradient.iter().enumerate();
        let terms = terms.map(|(i, g)| g * (i as f64).cos());
        found.push(terms.sum::<f64>());
        expected.push(sum.as_f64().unwrap());
    }
    near(&format!("gradients of {name}"), &found, &expected, APART);
}

#[test]
fn adapters_have_the_loss_and_the_gradients_of_peft() {
    for name in MODELS {
        let reference = reference(name);
        for (dtype, kernels) in FORMS {
            for checkpointed in [0, 2] {
                let loaded = adapted(name, dtype, None);
                check_gradients(name, &loaded, kernels, checkpointed, &reference);
            }
        }
    }
}

#[test]
fn rank_stabilized_adapters_of_some_maps_have_the_gradients_of_peft() {
    for name in ["llama", "phi3"] {
        let reference = &reference(name)["rank_stabilized"];
        let settings = FineTuningSettings {
            from: Some(fixture(&folder(name))),
            adapter_rank: Some(2),
            adapter_alpha: Some(6.0),
            is_rank_stabilized: Some(true),
            adapter_targets: Some(reference["targets"].as_str().unwrap().to_owned()),
            ..FineTuningSettings::default()
        };
        let pretrained = Pretrained::open(&settings).unwrap().unwrap();
        for (dtype, kernels) in FORMS {
            let loaded = tuned(name, dtype, pretrained.tuning());
            check_gradients(name, &loaded, kernels, 0, reference);
        }
    }
}

/// PEFT multiplies the terms of adapters by the same factors, with and without rank stabilization.
#[test]
fn adapters_are_scaled_as_in_peft() {
    let file = fixture("decoders").join("scales.json");
    let scales: Json = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let scales = scales.as_array().unwrap();
    assert_eq!(scales.len(), 20);
    for scale in scales {
        let number = |key: &str| scale[key].as_f64().unwrap();
        let shape = AdapterShape {
            is_rank_stabilized: scale["is_rank_stabilized"].as_bool().unwrap(),
            ..AdapterShape::new(number("rank") as usize, number("alpha"))
        };
        assert_eq!(added_weight(shape), number("scale"), "{scale}");
    }
}

/// What a trained adapter of this shape adds to each value of its map, if `A` and `B` have a 1 in
/// their first row and column, and zeros elsewhere.
fn added_weight(shape: AdapterShape) -> f64 {
    const SIDE: usize = 3;
    let mut parameters = Parameters::default();
    let device = &Device::Cpu;
    let b = &mut ParameterBuilder::new(&mut parameters, 5, DType::F64, device);
    let frozen = Tensor::zeros((SIDE, SIDE), DType::F64, device).unwrap();
    let layer = AdaptedLinear::build(b, "query", FrozenLinear::new(frozen, None), shape).unwrap();
    for index in 0..parameters.len() {
        let like = parameters.at(index).tensor.clone();
        let (rows, columns) = like.dims2().unwrap();
        let is_down = parameters.at(index).name.ends_with("lora_A.weight");
        let of_first = |at: usize| if is_down { at / columns } else { at % columns };
        let values = (0..rows * columns).map(|at| f64::from(u8::from(of_first(at) == 0)));
        let values = Tensor::from_iter(values, device).unwrap();
        let values = values.reshape((rows, columns)).unwrap();
        parameters.set(index, values).unwrap();
    }
    let tape = Tape::forward_only(&parameters, Cancel::default(), Kernels::Fused);
    let x = Tensor::from_vec(vec![1.0f64, 0.0, 0.0], (1, SIDE), device).unwrap();
    let y = layer.forward(&tape, &Value::constant(x)).unwrap();
    to_f64(y.tensor()).unwrap()[0]
}

#[test]
fn decomposed_adapters_have_the_scores_and_the_gradients_of_peft() {
    for name in ["llama", "phi3"] {
        let reference = &reference(name)["decomposed"];
        for (dtype, kernels) in FORMS {
            for checkpointed in [0, 2] {
                let mut loaded = tuned(name, dtype, decomposed(None));
                check_decomposed(name, &loaded, kernels, checkpointed, reference);
                // Norms that were measured before are the same.
                let shape = decomposed(None).adapter.unwrap();
                measure_row_norms(&mut loaded.parameters, shape).unwrap();
                assert!(measured(&loaded.parameters) > 0, "{name}");
                check_decomposed(name, &loaded, kernels, checkpointed, reference);
                let first = loaded.parameters.at(0).tensor.clone();
                loaded.parameters.set(0, first).unwrap();
                assert_eq!(measured(&loaded.parameters), 0, "{name}");
            }
        }
    }
}

/// Checks the scores, the loss and every value of the gradients of `A`, `B` and the magnitudes.
fn check_decomposed(
    name: &str,
    loaded: &Loaded<Gpt>,
    kernels: Kernels,
    checkpointed: usize,
    reference: &Json,
) {
    let network = &loaded.network;
    let tape = Tape::forward_only(&loaded.parameters, Cancel::default(), kernels);
    let scores = network.scores(&tape, &ids(TOKENS), SAMPLES).unwrap();
    let scores = to_f64(scores.tensor()).unwrap();
    near(name, &scores, &numbers(&reference["scores"]), APART);
    let tape = Tape::record(&loaded.parameters, Cancel::default(), kernels);
    let loss = network.loss(&tape, &ids(TOKENS), &targets(), SAMPLES, checkpointed);
    let loss = loss.unwrap();
    let found = to_f64(loss.sum.tensor()).unwrap();
    near(name, &found, &[reference["loss"].as_f64().unwrap()], APART);
    let gradients = tape.backward(vec![(loss.sum, 1.0)]).unwrap();
    let gradients: Vec<Tensor> = gradients.into_iter().map(Option::unwrap).collect();
    assert_gradients(
        name,
        &loaded.parameters,
        &gradients,
        &reference["gradients"],
    );
}

/// Number of maps whose norms have been measured.
fn measured(parameters: &Parameters) -> usize {
    let all = parameters.ids();
    all.filter(|id| parameters.derived(*id).is_some()).count()
}

/// Weight-decomposed adapters of all maps.
fn decomposed(bits: Option<Bits>) -> FineTuning {
    FineTuning {
        trained: TrainedLayers::Head,
        adapter: Some(AdapterShape {
            is_weight_decomposed: true,
            ..AdapterShape::new(4, 6.0)
        }),
        bits,
        ..FineTuning::default()
    }
}

#[test]
fn new_decomposed_adapters_keep_the_loss() {
    for name in MODELS {
        for (bits, bar) in [(None, 1e-5), (Some(Bits::Eight), 1e-4)] {
            let loaded = |tuning| {
                let options = LoadOptions {
                    tuning,
                    ..make(Head::Pretrained, DType::F32)
                };
                opened(&folder(name)).language_model(&options).unwrap()
            };
            let plain = FineTuning {
                adapter: None,
                ..decomposed(bits)
            };
            let [found, expected] = [decomposed(bits), plain].map(|t| loss(&loaded(t)));
            near(&format!("{name} {bits:?}"), &[found], &[expected], bar);
        }
    }
}

#[test]
fn checkpointed_blocks_have_the_gradients_of_decomposed_adapters() {
    for name in ["llama", "gemma2", "phi3"] {
        let loaded = tuned(name, DType::F64, decomposed(None));
        let gradients = |checkpointed: usize| {
            let tape = Tape::record(&loaded.parameters, Cancel::default(), Kernels::Fused);
            let loss = loaded
                .network
                .loss(&tape, &ids(TOKENS), &targets(), SAMPLES, checkpointed);
            let found = tape.backward(vec![(loss.unwrap().sum, 1.0)]).unwrap();
            let found = found.iter().map(|g| to_f64(g.as_ref().unwrap()).unwrap());
            found.flatten().collect::<Vec<f64>>()
        };
        near(name, &gradients(2), &gradients(0), 1e-12);
    }
}

#[test]
fn adapters_of_unknown_maps_are_refused_with_the_names_of_the_model() {
    let open = |name: &str, targets: &str, rank: Option<u32>| {
        let settings = FineTuningSettings {
            from: Some(fixture(&folder(name))),
            adapter_rank: rank,
            adapter_targets: Some(targets.to_owned()),
            ..FineTuningSettings::default()
        };
        Pretrained::open(&settings)
    };
    let names = "down_proj, gate_proj, k_proj";
    assert_error_contains(
        open("llama", "q_proj,attention", Some(2)),
        &["attention", names],
    );
    assert_error_contains(open("llama", "", Some(2)), &[names]);
    assert_error_contains(open("llama", "q_proj", None), &["needs adapters"]);
    // Ebb's own names are known, too.
    assert!(open("phi3", " qkv , down_proj", Some(2)).is_ok());
}

#[test]
fn packed_documents_have_the_loss_of_separate_ones() {
    for name in MODELS {
        let loaded = model(name, DType::F64);
        let tape = Tape::forward_only(&loaded.parameters, Cancel::default(), Kernels::Fused);
        let (ids, mut targets) = (&ids(TOKENS)[..TOKENS], targets()[..TOKENS].to_vec());
        let lengths = [5, 1, 6];
        let (mut apart, mut from, mut starts) = (0.0, 0, Vec::new());
        for length in lengths {
            let to = from + length;
            targets[to - 1] = IGNORED;
            let loss = loaded
                .network
                .loss(&tape, &ids[from..to], &targets[from..to], 1, 0)
                .unwrap();
            apart += to_f64(loss.sum.tensor()).unwrap()[0];
            starts.extend(vec![from; length]);
            from = to;
        }
        let batch = TokenBatch {
            ids,
            targets: &targets,
            samples: 1,
            starts: Some(&starts),
        };
        let packed = loaded.network.packed_loss(&tape, batch, 0).unwrap();
        let packed = to_f64(packed.sum.tensor()).unwrap();
        near(&format!("{name} packed"), &packed, &[apart], 1e-12);
    }
}

#[test]
fn frozen_weights_can_be_quantized() {
    for name in MODELS {
        let expected = reference(name)["loss"].as_f64().unwrap();
        let kinds = [(Bits::Eight, 0.01), (Bits::Four, 0.15), (Bits::Nf4, 0.15)];
        for (bits, bar) in kinds {
            let loaded = adapted(name, DType::F32, Some(bits));
            let tape = Tape::forward_only(&loaded.parameters, Cancel::default(), Kernels::Fused);
            let loss = loaded
                .network
                .loss(&tape, &ids(TOKENS), &targets(), SAMPLES, 0);
            let found = to_f64(loss.unwrap().sum.tensor()).unwrap();
            near(&format!("{name} in {bits:?}"), &found, &[expected], bar);
        }
    }
}

/// A copy of a folder with another value in its config.
fn refused(name: &str, key: &str, value: Json, words: &[&str]) {
    let copy = copied(&folder(name));
    let file = copy.path().join("config.json");
    let mut config: Json = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    config[key] = value;
    fs::write(&file, config.to_string()).unwrap();
    assert_error_contains(HubFolder::open(copy.path()), words);
}

// tidy: table
#[test]
fn unknown_features_of_a_config_are_refused_by_name() {
    for (name, key, value, words) in [
        ("llama", "new_feature", json!(3), "new_feature = 3"),
        (
            "llama",
            "quantization_config",
            json!({"bits": 4}),
            "quantization_config",
        ),
        (
            "llama",
            "attention_dropout",
            json!(0.1),
            "attention_dropout = 0.1",
        ),
        (
            "llama",
            "hidden_act",
            json!("relu"),
            "hidden_act is \"relu\"",
        ),
        (
            "llama",
            "num_key_value_heads",
            json!(3),
            "not a multiple of num_key_value_heads = 3",
        ),
        (
            "llama",
            "rope_parameters",
            json!({"rope_type": "dynamic", "factor": 2.0}),
            "rope_type is \"dynamic\"",
        ),
        (
            "llama",
            "rope_parameters",
            json!({"rope_type": "linear", "factor": 2.0, "twist": 1}),
            "twist = 1",
        ),
        (
            "llama",
            "partial_rotary_factor",
            json!(0.5),
            "partial_rotary_factor = 0.5",
        ),
        (
            "phi3",
            "rope_parameters",
            json!({"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}),
            "short_factor is not a list of 4 numbers",
        ),
        (
            "gemma3",
            "attn_logit_softcapping",
            json!(5.0),
            "attn_logit_softcapping is 5",
        ),
        (
            "gemma2",
            "layer_types",
            json!(["full_attention"]),
            "layer_types",
        ),
        ("smollm3", "no_rope_layers", json!([1, 2]), "no_rope_layers"),
        (
            "gemma2",
            "use_bidirectional_attention",
            json!(true),
            "use_bidirectional_attention",
        ),
    ] {
        refused(name, key, value, &["config.json", words]);
    }
}

#[test]
fn features_that_are_off_are_ignored() {
    let copy = copied(&folder("llama"));
    let file = copy.path().join("config.json");
    let mut config: Json = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    config["rope_interleaved"] = json!(false);
    config["new_feature"] = Json::Null;
    config["_name"] = json!("x");
    fs::write(&file, config.to_string()).unwrap();
    HubFolder::open(copy.path()).unwrap();
}

/// The adapted model as a run has it.
fn as_trained(name: &str, check: impl FnOnce(&TrainedNetwork, &Loaded<Gpt>)) {
    as_trained_with(name, FineTuningSettings::default(), check);
}

/// The model with adapters of these settings as a run has it.
fn as_trained_with(
    name: &str,
    settings: FineTuningSettings,
    check: impl FnOnce(&TrainedNetwork, &Loaded<Gpt>),
) {
    let settings = FineTuningSettings {
        from: Some(fixture(&folder(name))),
        adapter_rank: Some(2),
        adapter_alpha: Some(6.0),
        ..settings
    };
    let pretrained = Pretrained::open(&settings).unwrap().unwrap();
    let loaded = tuned(name, DType::F32, pretrained.tuning());
    let trained = TrainedNetwork {
        model: ModelId::Pretrained(pretrained.family()),
        input_size: TOKENS as u32,
        classes: &[],
        targets: &[],
        parameters: &loaded.parameters,
        pretrained: Some(&pretrained),
        tokenizer: None,
    };
    check(&trained, &loaded);
}

fn loss(loaded: &Loaded<Gpt>) -> f64 {
    let tape = Tape::forward_only(&loaded.parameters, Cancel::default(), Kernels::Fused);
    let loss = loaded
        .network
        .loss(&tape, &ids(TOKENS), &targets(), SAMPLES, 0);
    to_f64(loss.unwrap().sum.tensor()).unwrap()[0]
}

#[test]
fn an_exported_folder_has_the_adapters_merged() {
    for name in MODELS {
        as_trained(name, |trained, loaded| {
            let written = tempfile::tempdir().unwrap();
            export_hub_folder(trained, written.path()).unwrap();
            let options = make(Head::Pretrained, DType::F32);
            let read = HubFolder::open(written.path()).unwrap();
            let merged = read.language_model(&options).unwrap();
            near(name, &[loss(&merged)], &[loss(loaded)], 1e-5);
        });
    }
}

#[test]
fn an_exported_folder_has_decomposed_adapters_merged() {
    for name in MODELS {
        let settings = FineTuningSettings {
            is_weight_decomposed: Some(true),
            adapter_dropout: Some(0.1),
            ..FineTuningSettings::default()
        };
        as_trained_with(name, settings, |trained, loaded| {
            let written = tempfile::tempdir().unwrap();
            export_hub_folder(trained, &written.path().join("merged")).unwrap();
            let options = make(Head::Pretrained, DType::F32);
            let read = HubFolder::open(&written.path().join("merged")).unwrap();
            let merged = read.language_model(&options).unwrap();
            near(name, &[loss(&merged)], &[loss(loaded)], 1e-5);

            let adapters = written.path().join("adapters");
            export_adapter_folder(trained, &adapters).unwrap();
            let config = fs::read(adapters.join("adapter_config.json")).unwrap();
            let config: Json = serde_json::from_slice(&config).unwrap();
            assert_eq!(config["use_dora"], true);
            assert_eq!(config["lora_dropout"], 0.1);
            let file = adapters.join("adapter_model.safetensors");
            let tensors = candle_core::safetensors::load(file, &candle_core::Device::Cpu).unwrap();
            let of_part = |part: &str| tensors.keys().filter(|name| name.ends_with(part)).count();
            let maps = of_part("lora_A.weight");
            assert_eq!(of_part(".lora_magnitude_vector"), maps);
            assert_eq!((of_part("lora_B.weight"), tensors.len()), (maps, 3 * maps));
        });
    }
}

#[test]
fn exported_adapters_have_the_names_of_peft() {
    for name in MODELS {
        as_trained(name, |trained, _| {
            let written = tempfile::tempdir().unwrap();
            export_adapter_folder(trained, written.path()).unwrap();
            let file = written.path().join("adapter_model.safetensors");
            let tensors = candle_core::safetensors::load(file, &candle_core::Device::Cpu).unwrap();
            let found: BTreeSet<String> = tensors.into_keys().collect();
            let expected = reference(name)["gradients"].as_object().unwrap().clone();
            let expected = expected
                .keys()
                .map(|name| format!("base_model.model.{name}"));
            assert_eq!(found, expected.collect(), "{name}");
        });
    }
}

#[test]
fn peft_computes_the_loss_of_exported_adapters() {
    let Some(python) = std::env::var_os("EBB_PYTHON") else {
        println!("skipped: EBB_PYTHON names no Python");
        return;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/export/peft_loss.py");
    let part = FineTuningSettings {
        is_rank_stabilized: Some(true),
        adapter_targets: Some("q_proj,down_proj".to_owned()),
        ..FineTuningSettings::default()
    };
    let all = MODELS.map(|name| (name, FineTuningSettings::default()));
    let decomposed = FineTuningSettings {
        is_weight_decomposed: Some(true),
        ..FineTuningSettings::default()
    };
    let more = [("llama", part), ("llama", decomposed)];
    for (name, settings) in all.into_iter().chain(more) {
        as_trained_with(name, settings, |trained, loaded| {
            let written = tempfile::tempdir().unwrap();
            export_adapter_folder(trained, written.path()).unwrap();
            let output = Command::new(&python)
                .arg(&script)
                .arg(fixture(&folder(name)))
                .arg(written.path())
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            if text.trim() == "skipped" {
                println!("skipped: {python:?} has no peft");
                return;
            }
            let found: f64 = text
                .trim()
                .parse()
                .unwrap_or_else(|_| panic!("{name}: {}", String::from_utf8_lossy(&output.stderr)));
            near(name, &[found], &[loss(loaded)], APART);
        });
    }
}

#[test]
fn adapters_that_do_not_exist_are_not_exported() {
    let loaded = model("llama", DType::F32);
    let trained = TrainedNetwork {
        model: ModelId::CONV_NET,
        input_size: TOKENS as u32,
        classes: &[],
        targets: &[],
        parameters: &loaded.parameters,
        pretrained: None,
        tokenizer: None,
    };
    let written = tempfile::tempdir().unwrap();
    let refused = export_adapter_folder(&trained, written.path());
    assert_error_contains(refused, &["no adapters", "--adapter RANK"]);
    assert_eq!(fs::read_dir(written.path()).unwrap().count(), 0);
}
