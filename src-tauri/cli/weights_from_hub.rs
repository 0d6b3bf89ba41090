//! Downloads pretrained weights if a config names a repository at a hub, and unpacks a GGUF file.
//! This happens before anything is planned.

use super::failure::Failure;
use super::output::status;
use crate::hub_download::{self, HubError};
use crate::paths::{gguf_path, hub_path};
use runlog::RunConfig;
use std::path::{Path, PathBuf};
use trainer::ChatModel;

/// Downloads the weights if `from` names a repository at a hub, and unpacks a GGUF file. Returns
/// the config with the folder of the weights as `from`.
pub fn with_downloaded_weights(mut config: RunConfig) -> Result<RunConfig, Failure> {
    if let Some(from) = config.from.as_deref()
        && let Some(folder) = downloaded(from)?
    {
        config.from = Some(folder);
    }
    Ok(config)
}

/// Downloads the weights if `from` names a repository at a hub, and unpacks a GGUF file. Returns
/// their folder; `None` if `from` is a folder already.
pub fn downloaded(from: &Path) -> Result<Option<PathBuf>, Failure> {
    if let Some(folder) = unpacked(from)? {
        return Ok(Some(folder));
    }
    if !hub_download::is_name(from) {
        return Ok(None);
    }
    let name = from.to_string_lossy().into_owned();
    let folder = hub_download::folder(&name, &hub_path(), &|line| status!("{line}"))?;
    Ok(Some(folder))
}

/// The unpacked folder of a GGUF file; `None` if `path` names none.
pub fn unpacked(path: &Path) -> Result<Option<PathBuf>, Failure> {
    Ok(ChatModel::unpack_gguf(path, &gguf_path())?)
}

impl From<HubError> for Failure {
    fn from(error: HubError) -> Self {
        match error {
            HubError::NoEndpoint { .. } | HubError::Incomplete { .. } => {
                Failure::usage(error.to_string())
            }
            error => Failure::new(error.to_string()),
        }
    }
}
