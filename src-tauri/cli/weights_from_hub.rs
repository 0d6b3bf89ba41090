//! Downloads pretrained weights if a config names a repository at a hub. This happens before
//! anything is planned.

use super::failure::Failure;
use super::output::status;
use crate::hub_download::{self, HubError};
use runlog::{RunConfig, RunStore};
use std::path::{Path, PathBuf};

/// Downloads the weights if `from` names a repository at a hub. Returns the config with the folder
/// of the downloaded weights as `from`.
pub fn with_downloaded_weights(mut config: RunConfig) -> Result<RunConfig, Failure> {
    if let Some(from) = config.from.as_deref()
        && let Some(folder) = downloaded(from)?
    {
        config.from = Some(folder);
    }
    Ok(config)
}

/// Downloads the weights if `from` names a repository at a hub. Returns their folder.
pub fn downloaded(from: &Path) -> Result<Option<PathBuf>, Failure> {
    if !hub_download::is_name(from) {
        return Ok(None);
    }
    let home = RunStore::default_root().with_file_name("hub");
    let name = from.to_string_lossy().into_owned();
    let folder = hub_download::folder(&name, &home, &|line| status!("{line}"))?;
    Ok(Some(folder))
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
