//! Downloads pretrained weights if a config names a repository at a hub. This happens before
//! anything is planned.

use super::failure::Failure;
use super::output::status;
use crate::hub_download::{self, HubError};
use runlog::{RunConfig, RunStore};

/// Downloads the weights if `from` names a repository at a hub. Returns the config with the folder
/// of the downloaded weights as `from`.
pub fn with_downloaded_weights(mut config: RunConfig) -> Result<RunConfig, Failure> {
    let Some(name) = config
        .from
        .as_deref()
        .filter(|from| hub_download::is_name(from))
    else {
        return Ok(config);
    };
    let home = RunStore::default_root().with_file_name("hub");
    let name = name.to_string_lossy().into_owned();
    config.from = Some(hub_download::folder(&name, &home, &|line| {
        status!("{line}")
    })?);
    Ok(config)
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
