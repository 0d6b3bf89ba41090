//! The JSON files of exported folders.

use crate::pixel_normalization::PixelNormalization;
use crate::text_backbone::SequenceShape;
use crate::text_encoder::TextEncoderStyle;
use crate::transformer::BlockShape;
use serde_json::{Map, Value, json};

/// Code of the bilinear filter in Pillow.
const BILINEAR: u32 = 2;

/// JSON text with indentation.
pub fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Adds the class names and other keys that all classifiers have.
pub fn with_classes(mut config: Value, classes: &[String]) -> Value {
    let by_label = classes.iter().enumerate();
    let names: Map<String, Value> = by_label
        .map(|(label, name)| (label.to_string(), json!(name)))
        .collect();
    let by_name = classes.iter().enumerate();
    let labels: Map<String, Value> = by_name
        .map(|(label, name)| (name.clone(), json!(label)))
        .collect();
    config["id2label"] = Value::Object(names);
    config["label2id"] = Value::Object(labels);
    config["torch_dtype"] = json!("float32");
    config
}

/// `config.json` of a text encoder trained from scratch, for `modeling_ebb_encoder.py`.
pub fn text_encoder_config(shape: &SequenceShape) -> Value {
    let block = TextEncoderStyle::from_scratch(*shape).block;
    json!({
        "architectures": ["EbbEncoderForSequenceClassification"],
        "auto_map": {
            "AutoConfig": "modeling_ebb_encoder.EbbEncoderConfig",
            "AutoModelForSequenceClassification": "modeling_ebb_encoder.EbbEncoderForSequenceClassification",
        },
        "model_type": "ebb_text_encoder",
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": shape.tokens,
        "hidden_size": shape.width,
        "num_hidden_layers": shape.depth,
        "num_attention_heads": shape.heads,
        "intermediate_size": block.hidden,
        "layer_norm_eps": block.epsilon,
    })
}

/// `config.json` of a language model: transformers' own `gpt2`.
pub fn gpt2_config(shape: &SequenceShape, block: &BlockShape, boundary: Option<u32>) -> Value {
    json!({
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": shape.vocabulary,
        "n_positions": shape.tokens,
        "n_embd": shape.width,
        "n_layer": shape.depth,
        "n_head": shape.heads,
        "n_inner": block.hidden,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": block.epsilon,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "tie_word_embeddings": true,
        "bos_token_id": boundary,
        "eos_token_id": boundary,
        "torch_dtype": "float32",
    })
}

/// `preprocessor_config.json` of networks trained from scratch: the largest centred square, resized
/// to `side` pixels.
pub fn preprocessor_config(side: u32) -> Value {
    let PixelNormalization { mean, std } = PixelNormalization::default();
    json!({
        "image_processor_type": "BitImageProcessor",
        "do_convert_rgb": true,
        "do_resize": true,
        "size": { "shortest_edge": side },
        "resample": BILINEAR,
        "do_center_crop": true,
        "crop_size": { "height": side, "width": side },
        "do_rescale": true,
        "rescale_factor": 1.0 / 255.0,
        "do_normalize": true,
        "image_mean": mean,
        "image_std": std,
    })
}
