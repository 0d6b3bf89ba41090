//! The commands of the data page. Like those in `commands.rs` they take ids and return views.

use crate::app_state::Shell;
use crate::augmented_samples_view::{self, DrawnView};
use crate::commands::{Answer, config_of, status};
use crate::conversations_view::{self, ConversationView};
use crate::data_choices::DataChoices;
use crate::data_page::{self, DataFile, DataSampleView, DataView};
use crate::duplicates_view::{self, DuplicatesView};
use crate::first_samples::{self, FirstSampleView};
use crate::lock_mutex::lock;
use crate::opened_dataset_folders::{ReadFolder, SEED};
use crate::run_commands::show_in_file_manager;
use crate::window_types::{CommandError, PlanSettings};
use dataset::DetectedDataset;
use std::sync::Arc;
use tauri::State;
use tauri::ipc::Response;

/// What a folder holds: classes, files with problems, the first rows of a table.
#[tauri::command]
pub async fn data(shell: State<'_, Arc<Shell>>, inspection: String) -> Answer<DataView> {
    status(shell, move |shell| {
        Ok(data_page::data(&shell.inspections.read(&inspection)?))
    })
    .await
}

/// Samples of one class, from the one at place `from` within the class.
#[tauri::command]
pub async fn data_samples(
    shell: State<'_, Arc<Shell>>,
    inspection: String,
    class: u32,
    from: u32,
    count: u32,
) -> Answer<Vec<DataSampleView>> {
    status(shell, move |shell| {
        let read = shell.inspections.read(&inspection)?;
        data_page::samples(found(&read)?, class, from, count)
    })
    .await
}

/// A few samples of different classes with their labels, for the plan page.
#[tauri::command]
pub async fn first_samples(
    shell: State<'_, Arc<Shell>>,
    inspection: String,
) -> Answer<Vec<FirstSampleView>> {
    status(shell, move |shell| {
        let read = shell.inspections.read(&inspection)?;
        first_samples::choose(found(&read)?, &read.choices)
    })
    .await
}

/// The first conversations of a folder as the model of these settings reads them, for the plan
/// page; none for other data.
#[tauri::command]
pub async fn conversations(
    shell: State<'_, Arc<Shell>>,
    inspection: String,
    settings: PlanSettings,
) -> Answer<Vec<ConversationView>> {
    status(shell, move |shell| {
        let found = shell.inspections.take(&inspection, settings.seed)?;
        let config = config_of(shell, &inspection, &settings, &found)?;
        Ok(conversations_view::views(&found, &config)?)
    })
    .await
}

/// The thumbnail of an image, as the bytes of a JPEG.
#[tauri::command]
pub async fn data_thumbnail(
    shell: State<'_, Arc<Shell>>,
    inspection: String,
    sample: u32,
) -> Answer<Response> {
    status(shell, move |shell| {
        let read = shell.inspections.read(&inspection)?;
        Ok(Response::new(data_page::thumbnail(&read, sample)?))
    })
    .await
}

/// Shows a file of a folder in the file manager.
#[tauri::command]
pub async fn reveal_file(
    shell: State<'_, Arc<Shell>>,
    inspection: String,
    file: DataFile,
) -> Answer<()> {
    status(shell, move |shell| {
        let path = data_page::file(&shell.inspections.read(&inspection)?, file)?;
        show_in_file_manager(&path)
    })
    .await
}

/// Changes what of a folder is used. The inspection follows.
#[tauri::command]
pub async fn choose_data(
    shell: State<'_, Arc<Shell>>,
    inspection: String,
    choices: DataChoices,
) -> Answer<()> {
    status(shell, move |shell| {
        shell.inspections.choose(&inspection, choices)
    })
    .await
}

/// The duplicates in a folder, or how far the search for them is. `start` starts it.
#[tauri::command]
pub async fn data_duplicates(
    shell: State<'_, Arc<Shell>>,
    inspection: String,
    start: bool,
) -> Answer<DuplicatesView> {
    status(shell, move |shell| {
        let search = shell.inspections.duplicates(&inspection)?;
        if start {
            let read = shell.inspections.read(&inspection)?;
            search.start(found(&read)?);
        }
        duplicates_view::view(&search.progress())
    })
    .await
}

/// Draws the first images of a run with these settings.
#[tauri::command]
pub async fn draw_samples(
    shell: State<'_, Arc<Shell>>,
    inspection: String,
    settings: PlanSettings,
) -> Answer<Vec<DrawnView>> {
    status(shell, move |shell| {
        let found = shell.inspections.take(&inspection, SEED)?;
        let config = config_of(shell, &inspection, &settings, &found)?;
        let (views, pictures) = augmented_samples_view::draw(&config, &found)?;
        *lock(&shell.drawn) = (inspection, pictures);
        Ok(views)
    })
    .await
}

/// One of the images that were drawn last, as the bytes of a JPEG.
#[tauri::command]
pub async fn drawn_sample(
    shell: State<'_, Arc<Shell>>,
    inspection: String,
    place: u32,
) -> Answer<Response> {
    status(shell, move |shell| {
        let drawn = lock(&shell.drawn);
        let picture = drawn
            .1
            .get(place as usize)
            .filter(|_| drawn.0 == inspection);
        let why = "This image is no longer there. Look at the data again.";
        let picture = picture.ok_or_else(|| CommandError::new("unknown_id", why))?;
        Ok(Response::new(picture.clone()))
    })
    .await
}

fn found(read: &ReadFolder) -> Answer<&Arc<DetectedDataset>> {
    let why = "The folder cannot be read. The plan page shows the reason.";
    let missing = || CommandError::new("not_trainable", why);
    read.samples.as_ref().ok_or_else(missing)
}
