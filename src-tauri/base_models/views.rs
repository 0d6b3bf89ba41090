//! The types that the page and the look-up of a model exchange.

use crate::hub_download::is_repository_name;
use crate::window_types::{CommandError, WeightsView};
use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// Result of `base_models`.
#[derive(Debug, Clone, PartialEq, Serialize, TS)]
pub struct BaseModelsView {
    /// The complete models on this machine that suit the task, by name.
    pub found: Vec<FoundModelView>,
    /// Address of the hub that is suggested.
    pub hub: String,
    /// The model that was looked up last.
    pub looked_up: Option<HubModelView>,
}

/// A model on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, TS)]
pub struct FoundModelView {
    /// For `begin_with`; the name is that at the hub.
    pub weights: WeightsView,
    /// "Qwen 3".
    pub kind: String,
    /// Size of its files.
    pub bytes: u64,
    /// Whether Ebb downloaded it, rather than another program.
    pub is_own: bool,
}

/// A model at a hub, as the user typed it. The token is neither saved nor shown.
#[derive(Clone, Deserialize, TS)]
pub struct HubRequest {
    /// `org/name`.
    pub name: String,
    /// Address of the hub.
    pub hub: String,
    /// Access token; empty for the one in the environment.
    pub token: String,
}

/// The step that a look-up has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum HubStep {
    /// The hub is asked.
    Asking,
    /// The hub has the model; it can be downloaded.
    Offered,
    /// It is downloaded.
    Downloading,
    /// It is complete on this machine.
    Downloaded,
    /// It cannot be looked up or used.
    Failed,
}

/// How far the look-up or the download of a model is.
#[derive(Debug, Clone, PartialEq, Serialize, TS)]
pub struct HubModelView {
    /// `org/name`.
    pub name: String,
    /// Address of the hub.
    pub hub: String,
    /// How far it is.
    pub step: HubStep,
    /// The licence that the repository names.
    pub licence: Option<String>,
    /// Size of the files that Ebb downloads; 0 while the hub is asked.
    pub bytes: u64,
    /// Bytes of them that are on the disk.
    pub done_bytes: u64,
    /// Free space where they are downloaded to, if it is known.
    pub free_bytes: Option<u64>,
    /// Whether a training that starts from the model fits into memory.
    pub fit: Option<HubFitView>,
    /// Why the look-up or the download ended.
    pub problem: Option<String>,
    /// Whether an access token may help.
    pub needs_token: bool,
    /// The model, once it is complete.
    pub weights: Option<WeightsView>,
}

/// Whether a training that starts from a model fits into memory now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, TS)]
pub struct HubFitView {
    /// Parameters of the model, trained or not.
    pub parameters: u64,
    /// The trainable part that was estimated: everything, or adapters if everything does not fit.
    pub trains: String,
    /// "Adapters of rank 8 (LoRA)".
    pub trains_label: String,
    /// Memory that Ebb needs with the first micro-batch, or at least.
    pub needed_bytes: u64,
    /// Memory that Ebb may use now, if that is too little.
    pub available_bytes: Option<u64>,
}

impl HubRequest {
    /// The name and the address as they are sent. A name may be typed as the address of its page.
    ///
    /// # Errors
    /// The address is missing, or the name does not have the form `org/name`.
    pub fn cleaned(self) -> Result<Self, CommandError> {
        let hub = self.hub.trim().trim_end_matches('/');
        if hub.is_empty() {
            let why =
                "The address of the hub is missing. Enter an address that starts with https://.";
            return Err(CommandError::new("invalid_setting", why));
        }
        let hub = if hub.contains("://") {
            hub.to_owned()
        } else {
            format!("https://{hub}")
        };
        let typed = self.name.trim();
        let page = typed.strip_prefix(&hub);
        let page = page.and_then(|page| page.strip_prefix('/')).map(|page| {
            let parts = page.split('/').filter(|part| !part.is_empty()).take(2);
            parts.collect::<Vec<_>>().join("/")
        });
        let name = page.unwrap_or_else(|| typed.to_owned());
        if !is_repository_name(&name) {
            let why = format!(
                "“{typed}” is not the name of a model on a hub. Such a name has two parts without spaces, for example Qwen/Qwen3-0.6B."
            );
            return Err(CommandError::new("invalid_setting", why));
        }
        let token = self.token.trim().to_owned();
        Ok(HubRequest { name, hub, token })
    }
}
