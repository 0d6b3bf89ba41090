//! Exports the adapters of a language model as a folder that PEFT opens. The base weights are not
//! in it: the folder names the ones that the run started from.

use super::atomic_folder::{Exported, write, write_folder};
use super::config_json::pretty;
use super::safetensors_file::{to_cpu, write_tensors_as};
use super::tokenizer::copy_chat_files;
use super::trained_network::TrainedNetwork;
use crate::error::{ModelError, Result, at};
use crate::hub_format::{HubArchitecture, TOKENIZER};
use crate::lora::{ADAPTER_PARTS, is_adapter};
use crate::parameter_builder::AdapterShape;
use crate::pretrained::Pretrained;
use crate::tensor_map::TensorLayout;
use candle_core::Tensor;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// Prefix of all names in PEFT.
const PREFIX: &str = "base_model.model.";

/// Writes the folder, which must be new or empty. It appears complete or not at all.
///
/// # Errors
/// The folder is not empty or cannot be written; the network is no language model with adapters.
pub fn export_adapter_folder(trained: &TrainedNetwork, folder: &Path) -> Result<Exported> {
    let adapted = trained
        .pretrained
        .and_then(|pretrained| Some((pretrained, pretrained.tuning().adapter?)));
    let Some((pretrained, shape)) = adapted else {
        let sentence = "This run has no adapters. Train it with --from MODEL --adapter RANK, or export it in another format.";
        return Err(ModelError::NotExportable(sentence.to_owned()));
    };
    let exported = AdapterFolder::new(trained, pretrained, shape)?;
    write_folder(folder, |draft| exported.write(draft))?;
    Exported::list(
        folder,
        "PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(BASE), FOLDER)",
    )
}

/// The files of the folder.
struct AdapterFolder<'a> {
    pretrained: &'a Pretrained,
    tensors: HashMap<String, Tensor>,
    config: Value,
}

impl<'a> AdapterFolder<'a> {
    fn new(
        trained: &TrainedNetwork,
        pretrained: &'a Pretrained,
        shape: AdapterShape,
    ) -> Result<Self> {
        let architecture = pretrained.folder().architecture();
        // GPT-2 stores its maps transposed.
        let is_transposed = matches!(architecture, HubArchitecture::Gpt2(_));
        if !matches!(architecture, HubArchitecture::Decoder(_)) && !is_transposed {
            let sentence = "Only the adapters of language models can be exported alone. Export the run as a Hugging Face folder, which has the adapters merged.";
            return Err(ModelError::NotExportable(sentence.to_owned()));
        }
        let parameters = trained.parameters.iter();
        let adapters: HashMap<&str, &Tensor> = parameters
            .filter(|p| is_adapter(&p.name))
            .map(|p| (&*p.name, &p.tensor))
            .collect();
        let table = architecture.network().table();
        let (mut tensors, mut modules) = (HashMap::new(), BTreeSet::new());
        for row in &table.body {
            let maps = matches!(row.layout, TensorLayout::Same | TensorLayout::Transposed);
            let (Some(ours), Some(theirs)) = (
                row.ours.strip_suffix("weight").filter(|_| maps),
                row.theirs.strip_suffix("weight"),
            ) else {
                continue;
            };
            for part in ADAPTER_PARTS {
                if let Some(tensor) = adapters.get(&*format!("{ours}{part}")) {
                    let name = format!("{PREFIX}{}{theirs}{part}", table.prefix);
                    tensors.insert(name, to_cpu(tensor)?);
                    let module = theirs.trim_end_matches('.').rsplit('.').next();
                    modules.extend(module.map(str::to_owned));
                }
            }
        }
        let config = config(pretrained, shape, modules, is_transposed)?;
        Ok(AdapterFolder {
            pretrained,
            tensors,
            config,
        })
    }

    fn write(self, draft: &Path) -> Result<()> {
        write(draft, "adapter_config.json", pretty(&self.config))?;
        if let Some(tokenizer) = self.pretrained.folder().tokenizer() {
            disk::copy(tokenizer, &draft.join(TOKENIZER)).map_err(at(tokenizer))?;
            copy_chat_files(self.pretrained.path(), draft)?;
        }
        write_tensors_as(draft, "adapter_model.safetensors", self.tensors)
    }
}

/// `adapter_config.json` for adapters of the maps `modules`.
fn config(
    pretrained: &Pretrained,
    shape: AdapterShape,
    modules: BTreeSet<String>,
    is_transposed: bool,
) -> Result<Value> {
    let base = std::path::absolute(pretrained.path()).map_err(at(pretrained.path()))?;
    let alpha = if shape.alpha.fract() == 0.0 {
        json!(shape.alpha as i64)
    } else {
        json!(shape.alpha)
    };
    Ok(json!({
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base.display().to_string(),
        "r": shape.rank,
        "lora_alpha": alpha,
        "lora_dropout": shape.dropout,
        "target_modules": modules,
        "fan_in_fan_out": is_transposed,
        "bias": "none",
        "use_rslora": shape.is_rank_stabilized,
        "use_dora": shape.is_weight_decomposed,
        "inference_mode": true,
    }))
}
