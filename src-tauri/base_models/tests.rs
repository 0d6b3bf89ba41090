//! Look-ups and downloads of the window, at a hub on this machine.

use super::*;
use crate::hub_download::test_hub::{COMMIT, TestHub};
use std::time::{Duration, Instant};
use tempfile::TempDir;

struct Place {
    hub: TestHub,
    home: TempDir,
    models: BaseModels,
    weights: OpenedWeightFolders,
}

/// A training that fits. The folder has everything that a plan reads.
fn fits(preview: &Path) -> Result<HubFitView, CommandError> {
    assert!(preview.join("config.json").is_file());
    Ok(HubFitView {
        parameters: 10_741,
        trains: "all".to_owned(),
        trains_label: "Everything".to_owned(),
        needed_bytes: 1 << 30,
        available_bytes: None,
    })
}

impl Place {
    fn new() -> Self {
        Place {
            hub: TestHub::open("vit"),
            home: tempfile::tempdir().expect("a temporary folder"),
            models: BaseModels::default(),
            weights: OpenedWeightFolders::default(),
        }
    }

    fn request(&self, name: &str, token: &str) -> HubRequest {
        HubRequest {
            name: name.to_owned(),
            hub: self.hub.address.clone(),
            token: token.to_owned(),
        }
    }

    fn look_up(&self, name: &str, token: &str) -> HubModelView {
        let (request, home) = (self.request(name, token), self.home.path().to_owned());
        let begun = self.models.look_up(request, home, Box::new(fits));
        begun.map_err(|error| error.message).expect("it begins");
        self.until(|view| view.step != HubStep::Asking)
    }

    fn download(&self) -> Result<(), String> {
        let begun = self.models.download(self.home.path().to_owned());
        begun.map_err(|error| error.message)
    }

    /// What the page sees as soon as this holds.
    fn until(&self, holds: impl Fn(&HubModelView) -> bool) -> HubModelView {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let view = self.models.looked_up(&self.weights);
            let view = view.expect("something was looked up");
            if holds(&view) {
                return view;
            }
            assert!(Instant::now() < deadline, "{view:?}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn ended(&self) -> HubModelView {
        self.until(|view| view.step != HubStep::Downloading)
    }
}

#[test]
fn a_model_is_offered_before_it_is_downloaded_and_then_found() {
    let place = Place::new();
    let page = format!("{}/tiny/vit/tree/main", place.hub.address);
    let offered = place.look_up(&page, "");
    assert_eq!(
        (offered.step, &*offered.name),
        (HubStep::Offered, "tiny/vit")
    );
    assert_eq!(offered.licence.as_deref(), Some("apache-2.0"));
    assert_eq!((offered.bytes, offered.done_bytes), (place.hub.bytes(), 0));
    assert_eq!(offered.fit.map(|fit| fit.parameters), Some(10_741));
    assert_eq!(offered.weights, None);
    place.download().expect("it begins");
    let done = place.ended();
    assert_eq!((done.step, done.problem), (HubStep::Downloaded, None));
    assert_eq!(done.done_bytes, place.hub.bytes());
    let weights = done.weights.expect("it is complete");
    assert_eq!(weights.name, "tiny/vit");
    let folder = place.weights.folder(&weights.id).expect("it is known");
    let real = place.home.path().canonicalize().expect("it is there");
    assert_eq!(folder, real.join("tiny/vit").join(COMMIT));
    // A second look-up needs no hub.
    place.hub.change(|hub| hub.requests = 0);
    let again = place.look_up("tiny/vit", "");
    assert_eq!(again.weights, Some(weights.clone()));
    place.hub.change(|hub| assert_eq!(hub.requests, 0));
    let view = |task| {
        place
            .models
            .view(Some(task), place.home.path(), &place.weights)
    };
    let found = view(Task::ImageClassification).found;
    assert!(
        found
            .iter()
            .any(|found| found.weights == weights && found.is_own)
    );
    let found = view(Task::LanguageModel).found;
    assert!(
        found.iter().all(|found| found.weights != weights),
        "another task"
    );
}

#[test]
fn a_stopped_download_continues_where_it_was() {
    let place = Place::new();
    place.look_up("tiny/vit", "");
    place.hub.change(|hub| hub.stalls = true);
    place.download().expect("it begins");
    let half = place.hub.weights().len() as u64 / 2;
    let small = place.hub.bytes() - place.hub.weights().len() as u64;
    place.until(|view| view.done_bytes == small + half);
    place.models.stop();
    let stopped = place.ended();
    assert_eq!((stopped.step, stopped.problem), (HubStep::Offered, None));
    assert_eq!(stopped.done_bytes, small + half);
    place.hub.change(|hub| hub.stalls = false);
    let before = place.hub.sent_bytes("model.safetensors");
    place.download().expect("it begins");
    assert_eq!(place.ended().step, HubStep::Downloaded);
    let sent = place.hub.sent_bytes("model.safetensors") - before;
    assert_eq!(sent, place.hub.weights().len() as u64 - half);
}

#[test]
fn a_download_whose_connection_breaks_can_be_continued() {
    let place = Place::new();
    place.look_up("tiny/vit", "");
    place.hub.change(|hub| hub.breaks = vec![1000; 5]);
    place.download().expect("it begins");
    let broken = place.ended();
    assert_eq!(broken.step, HubStep::Offered);
    let why = broken.problem.expect("it broke");
    assert!(why.contains("check the network"), "{why}");
    place.download().expect("it begins");
    assert_eq!(place.ended().step, HubStep::Downloaded);
}

#[test]
fn names_and_addresses_that_cannot_be_are_refused_before_anything_is_asked() {
    let place = Place::new();
    for name in [
        "",
        "my model",
        "vit",
        "a/b/c",
        "../vit",
        "tiny/",
        "https://other.example/a/b",
    ] {
        let home = place.home.path().to_owned();
        let refused = place
            .models
            .look_up(place.request(name, ""), home, Box::new(fits));
        let why = refused.expect_err(name).message;
        assert!(why.contains("for example Qwen/Qwen3-0.6B"), "{why}");
    }
    let nowhere = HubRequest {
        hub: " ".to_owned(),
        ..place.request("tiny/vit", "")
    };
    let why = nowhere.cleaned().err().map(|error| error.message);
    assert!(why.is_some_and(|why| why.contains("address of the hub is missing")));
    place.hub.change(|hub| assert_eq!(hub.requests, 0));
    let plain = HubRequest {
        hub: "http://hub.invalid".to_owned(),
        ..place.request("tiny/vit", "")
    };
    let home = place.home.path().to_owned();
    let begun = place.models.look_up(plain, home, Box::new(fits));
    begun.map_err(|error| error.message).expect("it begins");
    let refused = place.until(|view| view.step == HubStep::Failed);
    let why = refused.problem.unwrap_or_default();
    assert!(why.contains("would not be encrypted"), "{why}");
    assert_eq!(
        place.request("a/b", "").cleaned().ok().map(|it| it.hub),
        Some(place.hub.address.clone())
    );
}

#[test]
fn what_the_hub_refuses_ends_in_the_next_move() {
    let place = Place::new();
    let failed = |name: &str, token: &str| {
        let view = place.look_up(name, token);
        assert_eq!(view.step, HubStep::Failed);
        (view.problem.unwrap_or_default(), view.needs_token)
    };
    let (why, needs_token) = failed("tiny/vat", "");
    assert!(why.contains("check the spelling of the name"), "{why}");
    assert!(!needs_token);
    place.hub.change(|hub| hub.refusal = Some("403 Forbidden"));
    let (why, needs_token) = failed("tiny/vit", "");
    assert!(why.contains("enter your access token"), "{why}");
    assert!(needs_token);
    let (why, _) = failed("tiny/vit", "two words");
    assert!(why.contains("Copy the token again"), "{why}");
    place.hub.change(|hub| hub.refusal = None);
    assert_eq!(
        place.look_up("tiny/vit", "hf_secret").step,
        HubStep::Offered
    );
    place
        .hub
        .change(|hub| assert_eq!(hub.authorization.as_deref(), Some("Bearer hf_secret")));
    place.hub.change(|hub| {
        hub.files.remove("model.safetensors");
    });
    let (why, _) = failed("tiny/vit", "");
    assert!(why.contains("no file model.safetensors"), "{why}");
}

#[test]
fn a_model_that_the_data_cannot_use_is_refused_by_its_name() {
    let place = Place::new();
    let refuse = |preview: &Path| {
        let why = format!("{}: it reads images", preview.display());
        Err(CommandError::new("failed", why))
    };
    let (request, home) = (place.request("tiny/vit", ""), place.home.path().to_owned());
    let begun = place.models.look_up(request, home, Box::new(refuse));
    begun.map_err(|error| error.message).expect("it begins");
    let refused = place.until(|view| view.step == HubStep::Failed);
    assert_eq!(
        refused.problem.as_deref(),
        Some("tiny/vit: it reads images")
    );
}

#[test]
fn a_download_that_does_not_fit_on_the_disk_is_not_begun() {
    let place = Place::new();
    // A file that is as large on paper; the folder without values takes no space.
    place.hub.change(|hub| hub.listed_bytes = Some(1 << 43));
    let offered = place.look_up("tiny/vit", "");
    assert_eq!(offered.step, HubStep::Offered, "{offered:?}");
    assert!(offered.free_bytes.is_some_and(|free| free < offered.bytes));
    place.hub.change(|hub| hub.requests = 0);
    let why = place.download().expect_err("it is too large");
    assert!(
        why.contains("tiny/vit needs") && why.contains("free up space"),
        "{why}"
    );
    place.hub.change(|hub| assert_eq!(hub.requests, 0));
}

#[test]
fn the_types_of_the_base_models_are_current() {
    use ts_rs::TS;
    crate::window_types::tests::current_types(|config| {
        BaseModelsView::export_all(config)?;
        HubRequest::export_all(config)
    });
}
