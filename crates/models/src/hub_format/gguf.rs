//! A GGUF file as pretrained weights. [`unpack`] writes a folder in the format of the Hugging Face
//! hub: `config.json` from the metadata, `tokenizer.json` and `tokenizer_config.json` from the
//! vocabulary, and a link to the file, from which the tensors are read one by one. Nothing is
//! written beside the file itself.

pub(crate) mod token_types;
mod header;
mod header_bytes;
mod families;
mod config;
mod tensor_names;
mod tokenizer;
mod unpack;

pub(super) use header::{GGUF_FILE, GgufHeader, GgufTensor};
pub(super) use tensor_names::{RowOrder, published_tensors};
pub use unpack::{find_gguf, unpack_gguf};

use std::path::Path;

/// The licence that the GGUF file of an unpacked folder names, if it is such a folder.
pub(crate) fn licence(folder: &Path) -> Option<String> {
    let file = folder.join(GGUF_FILE);
    if !file.is_file() {
        return None;
    }
    let header = GgufHeader::read(&file).ok()?;
    let licence = header.text("general.license").ok()??;
    Some(licence.to_owned())
}
