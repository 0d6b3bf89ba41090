//! The files of a model folder that say how conversations are written: the chat template, and the
//! names of special tokens that it uses.

use super::chat_template::ChatTemplate;
use crate::error::DatasetError;
use crate::open_file::open_file;
use format::format_bytes;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

const TEMPLATE: &str = "chat_template.jinja";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const SPECIAL_TOKENS: &str = "special_tokens_map.json";
/// Every file that is read, relative to the folder.
pub const TEMPLATE_FILES: [&str; 3] = [TEMPLATE, TOKENIZER_CONFIG, SPECIAL_TOKENS];
/// Most bytes of one of these files. A config that lists its added tokens has about a million.
const MAX_FILE_BYTES: u64 = 16 << 20;

impl ChatTemplate {
    /// Reads the chat template of a model folder; `None` if the folder has none.
    ///
    /// # Errors
    /// A file cannot be read, or the template is not valid.
    pub fn from_folder(folder: &Path) -> Result<Option<Self>, DatasetError> {
        let config = read_json(folder, TOKENIZER_CONFIG)?;
        let mut tokens = special_tokens(&read_json(folder, SPECIAL_TOKENS)?);
        tokens.extend(special_tokens(&config));
        let alone = read(folder, TEMPLATE)?;
        let (file, sources) = match alone {
            Some(source) => (TEMPLATE, BTreeMap::from([("default".to_owned(), source)])),
            None => (TOKENIZER_CONFIG, named_templates(&config["chat_template"])),
        };
        let Some(source) = sources.get("default") else {
            return Ok(None);
        };
        let with_tools = sources.get("tool_use").map(String::as_str);
        ChatTemplate::new(source, with_tools, &tokens)
            .map(Some)
            .map_err(|reason| unusable(folder, file, reason))
    }
}

/// The templates of a config, by name. An only template is the default.
fn named_templates(found: &Value) -> BTreeMap<String, String> {
    if let Some(source) = found.as_str() {
        return BTreeMap::from([("default".to_owned(), source.to_owned())]);
    }
    let templates = found.as_array().into_iter().flatten();
    let templates = templates.filter_map(|one| {
        let (name, source) = (one["name"].as_str()?, one["template"].as_str()?);
        Some((name.to_owned(), source.to_owned()))
    });
    templates.collect()
}

/// The special tokens of a config, such as `bos_token`, each with its text.
fn special_tokens(config: &Value) -> BTreeMap<String, String> {
    let entries = config.as_object().into_iter().flatten();
    let tokens = entries.filter_map(|(name, value)| {
        let text = value.as_str().or_else(|| value["content"].as_str())?;
        name.ends_with("_token")
            .then(|| (name.clone(), text.to_owned()))
    });
    tokens.collect()
}

fn read_json(folder: &Path, name: &str) -> Result<Value, DatasetError> {
    let Some(text) = read(folder, name)? else {
        return Ok(Value::Null);
    };
    serde_json::from_str(&text).map_err(|error| unusable(folder, name, error.to_string()))
}

/// The text of a file; `None` if there is none.
fn read(folder: &Path, name: &str) -> Result<Option<String>, DatasetError> {
    let path = folder.join(name);
    if !path.exists() {
        return Ok(None);
    }
    let refuse = |reason: String| unusable(folder, name, reason);
    let file = open_file(&path).map_err(|error| refuse(error.to_string()))?;
    let mut bytes = Vec::new();
    let read = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| refuse(error.to_string()))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let limit = format_bytes(MAX_FILE_BYTES);
        return Err(refuse(format!("the file has more than {limit}")));
    }
    let text = String::from_utf8(bytes).map_err(|_| refuse("the file is not UTF-8".to_owned()))?;
    Ok(Some(text))
}

fn unusable(folder: &Path, name: &str, reason: String) -> DatasetError {
    DatasetError::ChatTemplate {
        file: folder.join(name),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).expect("it can be written");
        }
        folder
    }

    fn rendered(files: &[(&str, &str)]) -> Option<String> {
        let folder = folder(files);
        let found = ChatTemplate::from_folder(folder.path()).expect("the files are valid");
        found.map(|template| template.render(&[], &[], false).expect("it renders"))
    }

    #[test]
    fn a_template_is_read_from_its_own_file_or_from_the_config() {
        let config = r#"{"chat_template":"a{{ bos_token }}","bos_token":{"content":"<s>"}}"#;
        assert_eq!(rendered(&[]), None);
        assert_eq!(rendered(&[(TOKENIZER_CONFIG, "{}")]), None);
        assert_eq!(
            rendered(&[(TOKENIZER_CONFIG, config)]).as_deref(),
            Some("a<s>")
        );
        let files = [
            (TOKENIZER_CONFIG, config),
            (TEMPLATE, "b{{ bos_token }}{{ eos_token }}"),
        ];
        assert_eq!(rendered(&files).as_deref(), Some("b<s>"));
        let map = (SPECIAL_TOKENS, r#"{"eos_token":"</s>","bos_token":"no"}"#);
        let files = [files[0], files[1], map];
        assert_eq!(rendered(&files).as_deref(), Some("b<s></s>"));
        let named = r#"{"chat_template":[{"name":"tool_use","template":"t"},{"name":"default","template":"d"}]}"#;
        assert_eq!(rendered(&[(TOKENIZER_CONFIG, named)]).as_deref(), Some("d"));
    }

    #[test]
    fn a_broken_file_is_named() {
        for (files, expected) in [
            (&[(TEMPLATE, "{% if %}")], "chat_template.jinja"),
            (&[(TOKENIZER_CONFIG, "{")], "tokenizer_config.json"),
        ] {
            let folder = folder(files);
            let error = ChatTemplate::from_folder(folder.path()).expect_err("it is broken");
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
