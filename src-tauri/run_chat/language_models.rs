//! The language models of one results page: the trained model, and the model that its run started
//! from. Only one of them is in memory.

use crate::inference_thread::{Canceller, Model};
use crate::paths::device_check_path;
use crate::window_types::CommandError;
use runlog::RunFolder;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use trainer::{ChatModel, DevicePreference};

/// The models of a run. They are loaded when they are asked for.
pub struct LanguageModels {
    run: RunFolder,
    /// The chat model in memory, and whether it holds the weights that the run started from.
    loaded: RefCell<Option<(bool, ChatModel)>>,
    /// Raised when the page is left.
    is_left: Arc<AtomicBool>,
}

impl Model for LanguageModels {
    fn load(folder: &RunFolder) -> Result<Self, CommandError> {
        Ok(LanguageModels {
            run: folder.clone(),
            loaded: RefCell::default(),
            is_left: Arc::default(),
        })
    }

    fn canceller(&self) -> Canceller {
        let is_left = Arc::clone(&self.is_left);
        Box::new(move || is_left.store(true, Ordering::Relaxed))
    }

    fn free_unused_memory(&self) {
        if let Some((_, model)) = &*self.loaded.borrow() {
            model.free_unused_memory();
        }
    }
}

impl LanguageModels {
    /// The run.
    pub fn run(&self) -> &RunFolder {
        &self.run
    }

    /// Whether the page was left.
    pub fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Relaxed)
    }

    /// Frees the chat model, so that another model fits into memory.
    pub fn free_chat(&self) {
        *self.loaded.borrow_mut() = None;
    }

    /// Calls `work` with the chat model of the run, or of what it started from if `is_base`. `work`
    /// also gets whether the model has to leave out its adapters for that.
    ///
    /// # Errors
    /// Those of `work`. The model cannot be loaded or cannot chat; the run started from random
    /// weights.
    pub fn with_chat<T>(
        &self,
        is_base: bool,
        work: impl FnOnce(&ChatModel, bool) -> Result<T, CommandError>,
    ) -> Result<T, CommandError> {
        let config = self.run.config()?;
        // With adapters, the base is in the trained model.
        let has_adapters = config.adapter_rank.is_some();
        let loads_base = is_base && !has_adapters;
        let mut loaded = self.loaded.borrow_mut();
        let (_, model) = match loaded.take().filter(|(base, _)| *base == loads_base) {
            Some(found) => loaded.insert(found),
            None => loaded.insert((loads_base, self.load_chat(loads_base)?)),
        };
        let outcome = work(model, is_base && has_adapters);
        if matches!(&outcome, Err(error) if error.needs_reload()) {
            *loaded = None;
        }
        outcome
    }

    fn load_chat(&self, is_base: bool) -> Result<ChatModel, CommandError> {
        let (device, check) = (DevicePreference::Auto, device_check_path());
        if !is_base {
            return Ok(ChatModel::from_run(&self.run, device, Some(&check), None)?);
        }
        let base = ChatModel::from_run_base(&self.run, device, Some(&check), None)?;
        base.ok_or_else(|| {
            let why = "This run started from random weights, so there is no model to compare with.";
            CommandError::new("failed", why)
        })
    }
}
