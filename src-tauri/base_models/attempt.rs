//! One look-up or download. It writes only to its own view: if it is stopped, another attempt takes
//! its place, and the thread of this one ends unseen.

use super::problem::Problem;
use super::views::{HubFitView, HubModelView, HubRequest, HubStep};
use crate::hub_download::{Observer, Offer, RemoteFile};
use crate::lock_mutex::lock;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// A look-up or a download.
pub struct Attempt {
    request: HubRequest,
    is_cancelled: AtomicBool,
    state: Mutex<State>,
}

#[derive(Clone)]
struct State {
    view: HubModelView,
    /// The commit that was looked up.
    commit: String,
    /// Bytes of each file that are on the disk.
    done: BTreeMap<String, u64>,
    folder: Option<PathBuf>,
}

impl Attempt {
    /// A look-up that begins.
    pub fn new(request: HubRequest) -> Self {
        let view = HubModelView {
            name: request.name.clone(),
            hub: request.hub.clone(),
            step: HubStep::Asking,
            licence: None,
            bytes: 0,
            done_bytes: 0,
            free_bytes: None,
            fit: None,
            problem: None,
            needs_token: false,
            weights: None,
        };
        Attempt {
            request,
            is_cancelled: AtomicBool::new(false),
            state: Mutex::new(State {
                view,
                commit: String::new(),
                done: BTreeMap::new(),
                folder: None,
            }),
        }
    }

    /// Another attempt at the same model, from this step on.
    pub fn again(&self, step: HubStep) -> Self {
        let mut state = lock(&self.state).clone();
        state.done.clear();
        state.view.step = step;
        state.view.problem = None;
        Attempt {
            request: self.request.clone(),
            is_cancelled: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    pub fn request(&self) -> &HubRequest {
        &self.request
    }

    pub fn view(&self) -> HubModelView {
        lock(&self.state).view.clone()
    }

    pub fn commit(&self) -> String {
        lock(&self.state).commit.clone()
    }

    /// The complete folder.
    pub fn folder(&self) -> Option<PathBuf> {
        lock(&self.state).folder.clone()
    }

    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::SeqCst);
    }

    /// The hub has the model.
    pub fn offer(&self, offer: &Offer, fit: HubFitView) {
        let mut state = lock(&self.state);
        state.commit.clone_from(&offer.commit);
        let view = &mut state.view;
        view.step = HubStep::Offered;
        view.licence.clone_from(&offer.licence);
        view.bytes = offer.bytes;
        view.done_bytes = offer.there_bytes;
        view.free_bytes = offer.free_bytes;
        view.fit = Some(fit);
    }

    /// The model is complete.
    pub fn finish(&self, folder: PathBuf) {
        let mut state = lock(&self.state);
        state.view.step = HubStep::Downloaded;
        state.folder = Some(folder);
    }

    /// A download can be tried again; a look-up ends.
    pub fn fail(&self, problem: Problem) {
        let view = &mut lock(&self.state).view;
        view.step = if view.step == HubStep::Downloading {
            HubStep::Offered
        } else {
            HubStep::Failed
        };
        view.problem = Some(problem.sentence);
        view.needs_token = problem.needs_token;
    }
}

impl Observer for Attempt {
    fn print(&self, _: &str) {}

    fn progress(&self, file: &RemoteFile, done: u64) {
        let mut state = lock(&self.state);
        if state.view.step == HubStep::Downloading {
            state.done.insert(file.path.clone(), done);
            state.view.done_bytes = state.done.values().sum();
        }
    }

    fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::SeqCst)
    }
}
