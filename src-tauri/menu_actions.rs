//! The table of actions that menu bar, context menu, keyboard and palette share. The page owns it,
//! because it performs them.

use crate::language::translate;
use serde::Deserialize;
use tauri::menu::{Menu, MenuItem};
use tauri::{AppHandle, Emitter, Runtime, Wry};

/// The event that asks the page to perform an action.
const ACTION: &str = "action";

/// Begins the id of an item of a context menu. The menu bar has the same actions.
const CONTEXT: &str = "context:";

/// One action.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(
    not(target_os = "macos"),
    allow(dead_code, reason = "only a Mac has a menu bar")
)]
pub struct Action {
    /// Its id.
    pub id: String,
    /// What it is called.
    pub label: String,
    /// What it is called where there is no Finder.
    pub elsewhere: Option<String>,
    /// The menu of the menu bar that contains the action; `None` if the system has its own item for
    /// it.
    pub menu: Option<String>,
    /// The key that performs it together with the command key: "o", or "shift+o".
    pub key: Option<String>,
    /// What it is about: it is in the context menu of this "run", "chart", "class" or "sample".
    pub on: Option<String>,
}

impl Action {
    /// The label for this system, in the language of the window.
    pub fn label(&self) -> String {
        match &self.elsewhere {
            Some(elsewhere) if !cfg!(target_os = "macos") => translate(elsewhere),
            _ => translate(&self.label),
        }
    }

    /// The shortcut as the menu bar takes it: "CmdOrCtrl+O". Space and Backspace are left to the
    /// page, because a menu would take them away from text fields.
    #[cfg(any(target_os = "macos", test))]
    pub fn accelerator(&self) -> Option<String> {
        let key = self
            .key
            .as_deref()
            .filter(|key| ![" ", "Backspace"].contains(key))?;
        let (shift, key) = match key.strip_prefix("shift+") {
            Some(key) => ("Shift+", key),
            None => ("", key),
        };
        let key = match key {
            "Enter" => "Enter".to_owned(),
            key => key.to_uppercase(),
        };
        Some(format!("CmdOrCtrl+{shift}{key}"))
    }
}

/// All actions, in the order of the menus.
pub fn all() -> Vec<Action> {
    serde_json::from_str(include_str!("../ui/src/actions/actions.json"))
        .expect("a test reads this table")
}

/// Asks the page to perform an action, for `run` if it is about one.
pub fn perform<R: Runtime>(app: &AppHandle<R>, id: &str, run: Option<String>) {
    // Fails only if there is no page, and then nothing can be performed.
    let _ = app.emit(ACTION, serde_json::json!({"id": id, "run": run}));
}

/// The action of a menu item, and the run that it is about. `context_run` is the run of the context
/// menu that was opened last. An item of the menu bar is about the run that the page shows, so a
/// context menu that was closed without a choice must not change it.
pub fn chosen(item: &str, context_run: Option<String>) -> (&str, Option<String>) {
    match item.strip_prefix(CONTEXT) {
        Some(action) => (action, context_run),
        None => (item, None),
    }
}

/// The actions of the context menu of a "run", "chart", "class" or "sample".
fn about(on: &str) -> impl Iterator<Item = Action> {
    let about = move |action: &Action| action.on.as_deref() == Some(on);
    all().into_iter().filter(about)
}

/// The context menu of a "run", "chart", "class" or "sample"; what the page cannot perform now is
/// disabled.
pub fn context_menu(
    app: &AppHandle<Wry>,
    on: &str,
    enabled: &[String],
) -> tauri::Result<Menu<Wry>> {
    let menu = Menu::new(app)?;
    for action in about(on) {
        let is_enabled = enabled.contains(&action.id);
        let id = format!("{CONTEXT}{}", action.id);
        let item = MenuItem::with_id(app, id, action.label(), is_enabled, None::<&str>)?;
        menu.append(&item)?;
    }
    Ok(menu)
}

/// Enables the items of the menu bar that the page can perform now, and disables the others.
pub fn enable(app: &AppHandle<Wry>, enabled: &[String]) -> tauri::Result<()> {
    let Some(menu) = app.menu() else {
        return Ok(());
    };
    let items = menu.items()?;
    let inner = items
        .iter()
        .filter_map(|item| item.as_submenu()?.items().ok());
    for item in inner.flatten() {
        if let Some(item) = item.as_menuitem()
            && all().iter().any(|action| action.id == item.id().as_ref())
        {
            item.set_enabled(enabled.iter().any(|id| id == item.id().as_ref()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_and_shortcuts_are_unique_and_shortcuts_are_understood() {
        let actions = all();
        let ids: HashSet<_> = actions.iter().map(|action| &action.id).collect();
        assert_eq!(ids.len(), actions.len());
        let keys: Vec<_> = actions.iter().filter_map(Action::accelerator).collect();
        let different: HashSet<_> = keys.iter().collect();
        assert_eq!(different.len(), keys.len(), "{keys:?}");
        for key in &keys {
            assert!(key.starts_with("CmdOrCtrl+") && key.len() > 10, "{key}");
        }
        let again = actions.iter().find(|action| action.id == "repeat-run");
        let shortcut = again.and_then(Action::accelerator);
        assert_eq!(shortcut.as_deref(), Some("CmdOrCtrl+Shift+D"));
        let in_texts = ["pause", "trash-run"].map(|id| {
            let action = actions.iter().find(|action| action.id == id);
            action.map(Action::accelerator)
        });
        assert_eq!(in_texts, [Some(None), Some(None)]);
    }

    #[test]
    fn only_an_item_of_a_context_menu_is_about_its_run() {
        let run = || Some("run-a".to_owned());
        assert_eq!(chosen("context:trash-run", run()), ("trash-run", run()));
        assert_eq!(chosen("trash-run", run()), ("trash-run", None));
        assert_eq!(chosen("context:copy-class", None), ("copy-class", None));
    }

    #[test]
    fn runs_charts_classes_and_samples_have_a_context_menu() {
        let ids = |on: &str| about(on).map(|action| action.id).collect::<Vec<_>>();
        assert_eq!(ids("run")[0], "open-run");
        assert_eq!(ids("chart"), ["save-chart", "copy-values", "whole-run"]);
        assert_eq!(ids("class"), ["class-right", "class-mistake", "copy-class"]);
        assert_eq!(ids("sample"), ["reveal-sample", "copy-sample"]);
        assert!(ids("window").is_empty());
        let all_of_them = ["run", "chart", "class", "sample"].map(|on| ids(on).len());
        let with_menu = all().iter().filter(|action| action.on.is_some()).count();
        assert_eq!(all_of_them.iter().sum::<usize>(), with_menu);
    }
}
