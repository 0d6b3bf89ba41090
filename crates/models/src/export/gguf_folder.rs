//! Exports a language model as one GGUF file, with its tokenizer and chat template, and as a
//! `Modelfile` for Ollama. Only architectures that llama.cpp computes in the same way can be
//! exported; every setting that it would ignore is refused by name.

use super::atomic_folder::{Exported, create_file, write, write_folder};
use super::gguf::{ChatFormat, Description, GgufWeights, Vocabulary, WeightTypes, tensors};
use super::trained_network::TrainedNetwork;
use crate::error::{ModelError, Result, at};
use crate::hub_format::{HubArchitecture, HubDecoder, JsonConfig};
use crate::lora::merged_parameters;
use crate::pretrained::Pretrained;
use candle_core::quantized::QTensor;
use candle_core::quantized::gguf_file::{self, Value};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::path::Path;

/// Writes the folder, which must be new or empty. It appears complete or not at all.
///
/// # Errors
/// The folder is not empty or cannot be written; llama.cpp does not know the network, one of its
/// settings, or its tokenizer.
pub fn export_gguf_folder(
    trained: &TrainedNetwork,
    folder: &Path,
    weights: GgufWeights,
    chat: &ChatFormat,
) -> Result<Exported> {
    let decoder =
        trained
            .pretrained
            .and_then(|pretrained| match pretrained.folder().architecture() {
                HubArchitecture::Decoder(decoder) => Some((pretrained, decoder)),
                _ => None,
            });
    let Some((pretrained, decoder)) = decoder else {
        let sentence = "A GGUF file can only hold a language model that was fine-tuned from Llama, Mistral, Qwen, Gemma, Phi, SmolLM or OLMo. Export this run in another format.";
        return Err(ModelError::NotExportable(sentence.to_owned()));
    };
    let file = GgufFile::new(trained, pretrained, decoder, weights, chat)?;
    write_folder(folder, |draft| file.write(draft))?;
    let opened_by = "llama.cpp and LM Studio; for Ollama: ollama create NAME -f FOLDER/Modelfile";
    Exported::list(folder, opened_by)
}

/// The file and what is beside it.
struct GgufFile {
    name: String,
    metadata: Vec<(String, Value)>,
    tensors: Vec<(String, QTensor)>,
    model_file: String,
}

impl GgufFile {
    fn new(
        trained: &TrainedNetwork,
        pretrained: &Pretrained,
        decoder: &HubDecoder,
        weights: GgufWeights,
        chat: &ChatFormat,
    ) -> Result<Self> {
        let description = Description::new(decoder)?;
        let settings = JsonConfig::read(pretrained.path(), "tokenizer_config.json")?;
        let vocabulary = Vocabulary::read(
            pretrained.tokenizer_file()?,
            settings.as_ref(),
            pretrained.folder().config(),
            decoder.shape.vocabulary,
        )?;
        let values = merged_parameters(trained.parameters, pretrained.tuning().adapter)?;
        let types = WeightTypes::new(weights, &decoder.shape);
        let mut metadata =
            description.metadata(vocabulary.model_name(pretrained.family().label()), weights);
        let context = description.context();
        metadata.extend(vocabulary.metadata(chat));
        Ok(GgufFile {
            name: format!("model-{}.gguf", weights.name()),
            metadata,
            tensors: tensors(values, &description, types)?,
            model_file: model_file(weights, chat, context),
        })
    }

    fn write(&self, draft: &Path) -> Result<()> {
        let path = draft.join(&self.name);
        let mut file = Counted {
            inner: create_file(&path)?,
            written: 0,
        };
        let metadata: Vec<(&str, &Value)> = self
            .metadata
            .iter()
            .map(|(key, value)| (&**key, value))
            .collect();
        let tensors: Vec<(&str, &QTensor)> = self
            .tensors
            .iter()
            .map(|(name, tensor)| (&**name, tensor))
            .collect();
        let written = gguf_file::write(&mut file, &metadata, &tensors);
        written.map_err(|error| match error {
            candle_core::Error::Io(error) => at(&path)(error),
            error => ModelError::hub_folder(&path, error.to_string()),
        })?;
        file.flush().map_err(at(&path))?;
        write(draft, "Modelfile", &self.model_file)
    }
}

/// The `Modelfile`. Ollama takes the chat template from the GGUF file.
fn model_file(weights: GgufWeights, chat: &ChatFormat, context: usize) -> String {
    let mut text = format!(
        "# ollama create NAME -f Modelfile\nFROM ./model-{}.gguf\nPARAMETER num_ctx {}\n",
        weights.name(),
        context.min(4_096)
    );
    // A Modelfile has no escapes for these.
    let is_plain = |end: &&str| !end.contains(['"', '\\', '\n']);
    if let Some(end) = chat.answer_end.as_deref().filter(is_plain) {
        text.push_str(&format!("PARAMETER stop \"{end}\"\n"));
    }
    text
}

/// Counts what is written: candle asks for the position, and the file layer has none.
struct Counted<W> {
    inner: W,
    written: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<W: Write> Seek for Counted<W> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match to {
            SeekFrom::Current(0) => Ok(self.written),
            _ => Err(io::Error::from(ErrorKind::Unsupported)),
        }
    }
}
