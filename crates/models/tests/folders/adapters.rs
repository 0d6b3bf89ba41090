//! Adapters of the fixtures' language models with the values that `make_decoders.py` gives PEFT's,
//! and their gradients beside PEFT's.

use candle_core::Tensor;
use serde_json::Value as Json;
use tape::Parameters;
use tape::inplace::to_f64;

/// Largest distance of the values of a gradient, relative to the largest of them.
const APART: f64 = 1e-4;
/// Published names of the maps of a block, and Ebb's.
const MAPS: [(&str, &str); 9] = [
    ("self_attn.q_proj", "query"),
    ("self_attn.k_proj", "key"),
    ("self_attn.v_proj", "value"),
    ("self_attn.o_proj", "projection"),
    ("self_attn.qkv_proj", "qkv"),
    ("mlp.gate_proj", "gate"),
    ("mlp.up_proj", "up"),
    ("mlp.gate_up_proj", "gate_up"),
    ("mlp.down_proj", "down"),
];

/// Gives all parameters, which are adapters, the values of the formula.
pub fn set_adapters(parameters: &mut Parameters) {
    for index in 0..parameters.len() {
        let parameter = parameters.at(index);
        let like = parameter.tensor.clone();
        let values: Vec<f64> = if parameter.name.ends_with("lora_magnitude_vector") {
            // The norms of the rows of the map, as training may have changed them.
            let norms = to_f64(&like).unwrap().into_iter().enumerate();
            let changed = norms.map(|(i, norm)| norm * (1.0 + 0.3 * (0.7 * i as f64 + 0.5).sin()));
            changed.collect()
        } else {
            let shift = f64::from(u8::from(parameter.name.ends_with("lora_B.weight")));
            let values = (0..like.elem_count()).map(|i| 0.2 * (0.7 * i as f64 + 0.3 * shift).sin());
            values.collect()
        };
        let values = Tensor::from_vec(values, like.dims(), like.device()).unwrap();
        let values = values.to_dtype(like.dtype()).unwrap();
        parameters.set(index, values).unwrap();
    }
}

/// The index of PEFT's tensor among the parameters.
pub fn index_of(parameters: &Parameters, theirs: &str) -> usize {
    let rest = theirs.strip_prefix("model.layers.").unwrap();
    let (block, map) = rest.split_once('.').unwrap();
    let (theirs, ours) = MAPS
        .iter()
        .find(|(theirs, _)| map.starts_with(theirs))
        .unwrap();
    let name = format!("blocks.{block}.{ours}{}", &map[theirs.len()..]);
    parameters.iter().position(|p| p.name == name).unwrap()
}

/// Compares every value of the gradients, one tensor per parameter, with those in `expected`, which
/// have PEFT's names.
pub fn assert_gradients(name: &str, parameters: &Parameters, found: &[Tensor], expected: &Json) {
    let all = expected.as_object().unwrap();
    assert_eq!(all.len(), parameters.len(), "{name}");
    for (theirs, expected) in all {
        let found = to_f64(&found[index_of(parameters, theirs)]).unwrap();
        let expected = numbers(expected);
        assert_eq!(found.len(), expected.len(), "{name}: {theirs}");
        let largest = expected.iter().fold(0.0f64, |m, v| m.max(v.abs()));
        assert!(largest > 0.01, "{name}: {theirs} says something");
        let pairs = found.iter().zip(&expected);
        let apart = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / largest;
        println!("{name}: {theirs} is {apart:.1e} apart");
        assert!(apart <= APART, "{name}: {theirs} is {apart:e} apart");
    }
}

pub fn numbers(json: &Json) -> Vec<f64> {
    let list = json.as_array().unwrap().iter();
    list.map(|v| v.as_f64().unwrap()).collect()
}
