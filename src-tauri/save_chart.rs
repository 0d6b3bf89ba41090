//! Saves the picture of the charts that the page has drawn.

use crate::app_state::Shell;
use crate::commands::{Answer, status};
use crate::export_run;
use crate::language::translate;
use crate::window_types::CommandError;
use std::sync::Arc;
use tauri::ipc::{InvokeBody, Request};
use tauri::{State, WebviewWindow};
use tauri_plugin_dialog::DialogExt;

/// The first bytes of every PNG.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Lets the user save the charts as they are shown. The body of the request is a PNG. Returns the
/// name of the file, or `None` if the user cancelled.
#[tauri::command]
pub async fn save_chart(
    window: WebviewWindow,
    shell: State<'_, Arc<Shell>>,
    request: Request<'_>,
) -> Answer<Option<String>> {
    let picture = picture(request.body())?;
    let dialog = window.dialog().file().set_parent(&window);
    let dialog = dialog
        .set_title(translate("Save picture of the charts"))
        .set_file_name("charts.png")
        .add_filter("PNG", &["png"]);
    status(shell, move |_| {
        let Some(place) = dialog
            .blocking_save_file()
            .and_then(|place| place.into_path().ok())
        else {
            return Ok(None);
        };
        export_run::write(&place, &picture)?;
        let written = place.file_name().unwrap_or(place.as_os_str());
        Ok(Some(written.to_string_lossy().into_owned()))
    })
    .await
}

/// The bytes of a PNG; anything else is refused.
fn picture(body: &InvokeBody) -> Answer<Vec<u8>> {
    match body {
        InvokeBody::Raw(bytes) if bytes.starts_with(PNG) => Ok(bytes.clone()),
        _ => {
            let why = "The charts could not be drawn as a picture. Export the report instead.";
            Err(CommandError::new("failed", why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_png_is_saved() {
        let drawn = [PNG, b"the rest"].concat();
        let kept = picture(&InvokeBody::Raw(drawn.clone())).expect("it is a PNG");
        assert_eq!(kept, drawn);
        for other in [
            InvokeBody::Raw(b"<svg/>".to_vec()),
            InvokeBody::Raw(Vec::new()),
            InvokeBody::Json(serde_json::Value::Null),
        ] {
            assert!(picture(&other).is_err_and(|error| error.code == "failed"));
        }
    }
}
