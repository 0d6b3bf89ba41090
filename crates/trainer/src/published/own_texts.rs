//! Ebb's own networks for texts as folders that others load. Its language model is a GPT-2 in all but its name. Its encoder has
//! no name in the field: the folder carries the few lines of PyTorch that read it.
//!
//! Refuses to know how a vocabulary splits a text.

use super::export::{Trained, pretty, published, with_classes};
use super::gpt2::Gpt2Folder;
use super::settings::refusal;
use super::whole::write;
use super::{CONFIG, TOKENIZER};
use crate::error::Result;
use crate::models::{BlockShape, SequenceShape, TextEncoderStyle, merged};
use crate::plan::TextModel;
use candle_core::{DType, Device, Tensor};
use dataset::{Task, Tokenizer};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;

const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const MODELING: &str = "modeling_ebb_encoder.py";
/// The lines of PyTorch that read an encoder of Ebb's.
const MODELING_TEXT: &str = include_str!("modeling_ebb_encoder.py");
/// Tokens with a part of their own, by what transformers calls it.
const PARTS: [(&str, &str); 7] = [
    ("pad_token", "[PAD]"),
    ("unk_token", "[UNK]"),
    ("cls_token", "[CLS]"),
    ("sep_token", "[SEP]"),
    ("mask_token", "[MASK]"),
    ("bos_token", "<|endoftext|>"),
    ("eos_token", "<|endoftext|>"),
];

impl Trained<'_> {
    /// Writes settings and vocabulary of a network for texts; gives its tensors under the names that they leave by.
    pub(super) fn fill_with_texts(
        &self,
        draft: &Path,
        model: TextModel,
    ) -> Result<HashMap<String, Tensor>> {
        let shape = model.shape();
        let values = merged(self.parameters, None)?;
        let tensors = match model.size.task() {
            Task::LanguageModel => {
                let block = shape.block(true);
                let boundary = self.tokenizer.and_then(Tokenizer::boundary);
                write(draft, CONFIG, pretty(&gpt2(&shape, &block, boundary)))?;
                published(&values, &Gpt2Folder { shape, block }.table())?
            }
            Task::TextClassification => {
                write(
                    draft,
                    CONFIG,
                    pretty(&with_classes(encoder(&shape), self.classes)),
                )?;
                write(draft, MODELING, MODELING_TEXT)?;
                let cpu = |(name, tensor): (String, Tensor)| {
                    Ok((name, tensor.to_device(&Device::Cpu)?.to_dtype(DType::F32)?))
                };
                values.into_iter().map(cpu).collect::<Result<_>>()?
            }
            Task::TokenCompression | Task::ImageClassification => {
                let reason = "it is no network for classes of texts or for documents";
                return Err(refusal(draft, reason.to_owned()));
            }
        };
        if let Some(tokenizer) = self.tokenizer {
            write_vocabulary(draft, tokenizer, shape.tokens)?;
        }
        Ok(tensors)
    }
}

/// How Python opens the folder of a network for texts.
pub(super) fn opened_by(model: TextModel) -> &'static str {
    match model.size.task() {
        Task::LanguageModel => "AutoModelForCausalLM.from_pretrained(FOLDER)",
        _ => "AutoModelForSequenceClassification.from_pretrained(FOLDER, trust_remote_code=True)",
    }
}

/// The vocabulary, and what transformers asks of it.
pub(super) fn write_vocabulary(draft: &Path, tokenizer: &Tokenizer, tokens: usize) -> Result<()> {
    let text = tokenizer
        .to_exported_json()
        .map_err(|error| refusal(draft, error.to_string()))?;
    write(draft, TOKENIZER, text)?;
    let mut settings = json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": tokens,
        "clean_up_tokenization_spaces": false,
    });
    for (part, token) in PARTS {
        let stands_between = token.starts_with('<') && tokenizer.boundary().is_some();
        if tokenizer.token(token).is_some()
            || (stands_between && tokenizer.token("[SEP]").is_none())
        {
            settings[part] = json!(token);
        }
    }
    write(draft, TOKENIZER_CONFIG, pretty(&settings))
}

fn gpt2(shape: &SequenceShape, block: &BlockShape, boundary: Option<u32>) -> Value {
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

/// The settings of an encoder of Ebb's.
pub(super) fn encoder(shape: &SequenceShape) -> Value {
    let block = TextEncoderStyle::own(*shape).block;
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
