//! The models that a plan can start from: those that are complete on this machine, and one at a
//! hub. Ebb asks a hub only after the user has typed a name and chosen *Look up*, and downloads
//! weights only after *Download*. The page asks for what there is so far. Closing the page ends
//! neither.

mod attempt;
mod problem;
mod views;

pub use views::{BaseModelsView, FoundModelView, HubFitView, HubModelView, HubRequest, HubStep};

use crate::hub_download::{self, Access, HubError, Repository, found_models};
use crate::lock_mutex::lock;
use crate::opened_weight_folders::OpenedWeightFolders;
use crate::window_types::CommandError;
use attempt::Attempt;
use dataset::Task;
use problem::{Problem, problem};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use trainer::{PretrainedFamily, STACK_BYTES, model_task};

/// The hub that the page suggests if the environment names none.
const PUBLIC_HUB: &str = "https://huggingface.co";

/// Estimates the training that would start from a folder without values.
pub type Fit = Box<dyn FnOnce(&Path) -> Result<HubFitView, CommandError> + Send>;

/// The model that is looked up or downloaded.
#[derive(Default)]
pub struct BaseModels {
    attempt: Mutex<Option<Arc<Attempt>>>,
}

impl BaseModels {
    /// The models on this machine that suit a task, and how far the look-up is.
    pub fn view(
        &self,
        task: Option<Task>,
        home: &Path,
        weights: &OpenedWeightFolders,
    ) -> BaseModelsView {
        let family = |name: &str| {
            let mut suited = task
                .into_iter()
                .flat_map(|task| PretrainedFamily::for_task(model_task(task)));
            suited.find(|family| family.name() == name)
        };
        let found = found_models(home).into_iter();
        let found = found.filter_map(|found| {
            Some(FoundModelView {
                kind: family(&found.model_type)?.label().to_owned(),
                weights: weights.open_named(&found.folder, &found.name),
                bytes: found.bytes,
                is_own: found.is_own,
            })
        });
        let endpoint = hub_download::endpoint_from_environment();
        BaseModelsView {
            found: found.collect(),
            hub: Some(endpoint)
                .filter(|endpoint| !endpoint.is_empty())
                .unwrap_or_else(|| PUBLIC_HUB.to_owned()),
            looked_up: self.looked_up(weights),
        }
    }

    /// How far the look-up or the download is; `None` without one.
    pub fn looked_up(&self, weights: &OpenedWeightFolders) -> Option<HubModelView> {
        let attempt = lock(&self.attempt).clone()?;
        let mut view = attempt.view();
        let folder = attempt.folder();
        view.weights = folder.map(|folder| weights.open_named(&folder, &view.name));
        Some(view)
    }

    /// Looks a model up. An earlier look-up or download ends.
    ///
    /// # Errors
    /// The name is none, or no thread can be started.
    pub fn look_up(
        &self,
        request: HubRequest,
        home: PathBuf,
        fit: Fit,
    ) -> Result<(), CommandError> {
        let request = request.cleaned()?;
        self.stop();
        let attempt = Arc::new(Attempt::new(request));
        self.start(attempt, move |attempt| look_up(attempt, &home, fit))
    }

    /// Downloads the model that was looked up. A download that was interrupted continues.
    ///
    /// # Errors
    /// None was looked up, the disk is too small, or no thread can be started.
    pub fn download(&self, home: PathBuf) -> Result<(), CommandError> {
        let offered = lock(&self.attempt).clone();
        let offered = offered.filter(|attempt| attempt.view().step == HubStep::Offered);
        let offered = offered.ok_or_else(|| CommandError::unknown("model"))?;
        expect_space(&offered, &home)?;
        let attempt = Arc::new(offered.again(HubStep::Downloading));
        self.start(attempt, move |attempt| download(attempt, &home))
    }

    /// Ends the look-up or the download. What was downloaded stays, and can be continued.
    pub fn stop(&self) {
        let mut current = lock(&self.attempt);
        let Some(attempt) = current.take() else {
            return;
        };
        attempt.cancel();
        if attempt.view().step == HubStep::Downloading {
            *current = Some(Arc::new(attempt.again(HubStep::Offered)));
        }
    }

    fn start(
        &self,
        attempt: Arc<Attempt>,
        work: impl FnOnce(&Attempt) -> Result<(), Problem> + Send + 'static,
    ) -> Result<(), CommandError> {
        let works = Arc::clone(&attempt);
        let thread = thread::Builder::new().name("base model".to_owned());
        let thread = thread.stack_size(STACK_BYTES).spawn(move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| work(&works)));
            if let Err(problem) = outcome.unwrap_or_else(|_| Err(Problem::internal())) {
                works.fail(problem);
            }
        });
        thread.map_err(|error| CommandError::no_thread(&error))?;
        *lock(&self.attempt) = Some(attempt);
        Ok(())
    }
}

fn look_up(attempt: &Attempt, home: &Path, fit: Fit) -> Result<(), Problem> {
    let request = attempt.request();
    if let Some(folder) = hub_download::at_hand(&request.name, home) {
        attempt.finish(folder);
        return Ok(());
    }
    let access = access(request)?;
    let offer = hub_download::look_up(repository(request), access, home, attempt);
    let offer = offer.map_err(|error| problem(&error))?;
    let preview = offer.preview.path();
    let fit = fit(preview).map_err(|error| Problem {
        // The folder without values has no meaning for the user.
        sentence: error
            .message
            .replace(&preview.display().to_string(), &request.name),
        needs_token: false,
    })?;
    attempt.offer(&offer, fit);
    Ok(())
}

fn download(attempt: &Attempt, home: &Path) -> Result<(), Problem> {
    let request = attempt.request();
    let (access, commit) = (access(request)?, attempt.commit());
    let folder = hub_download::download(repository(request), access, home, &commit, attempt);
    attempt.finish(folder.map_err(|error| problem(&error))?);
    Ok(())
}

/// Refuses a download that does not fit on the disk, before it begins.
fn expect_space(offered: &Attempt, home: &Path) -> Result<(), CommandError> {
    let view = offered.view();
    let needed = view.bytes.saturating_sub(view.done_bytes);
    match disk::available_bytes(home) {
        Ok(free) if free < needed => {
            let error = HubError::Space {
                file: view.name,
                needed: runlog::format_bytes(needed),
                free: runlog::format_bytes(free),
            };
            Err(CommandError::new("failed", problem(&error).sentence))
        }
        // A disk that gives no answer may have space.
        _ => Ok(()),
    }
}

fn repository(request: &HubRequest) -> Repository<'_> {
    Repository {
        name: &request.name,
        endpoint: &request.hub,
    }
}

/// With the token that was typed, else the one in the environment.
fn access(request: &HubRequest) -> Result<Access, Problem> {
    let access = if request.token.is_empty() {
        Access::from_environment(&request.hub)
    } else {
        Access::new(&request.hub, &request.token)
    };
    access.map_err(|error| problem(&error))
}

#[cfg(test)]
mod tests;
