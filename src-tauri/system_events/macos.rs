//! macOS: the question before quitting, the end of fullscreen, folders on the Dock icon and *Open
//! With*, and the menu item that installs the command-line tool. Same surface as `other.rs`.

use crate::app_state::Shell;
use crate::command_line_tool;
use crate::language::{Language, current, translate};
use crate::menu_actions::{self, Action};
use crate::quit;
use crate::show_window::{left_fullscreen, show_window};
use block2::RcBlock;
use objc2::ffi::{class_addMethod, object_getClass};
use objc2::rc::Retained;
use objc2::runtime::{AnyObject, Imp, Sel};
use objc2::{class, msg_send, sel};
use objc2_foundation::{NSNotification, NSNotificationCenter, NSString};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};
use tauri::menu::{Menu, MenuItem, MenuItemKind, Submenu};
use tauri::{AppHandle, Builder, Manager, RunEvent, Wry};
use tauri_plugin_dialog::DialogExt;

const INSTALL_TOOL: &str = "install-command-line-tool";
/// Where the item stands in the application's menu: below *About*.
const INSTALL_TOOL_POSITION: usize = 1;
/// `NSTerminateCancel` and `NSTerminateNow`.
const CANCEL: usize = 0;
const NOW: usize = 1;

static APP: OnceLock<AppHandle> = OnceLock::new();

#[link(name = "AppKit", kind = "framework")]
unsafe extern "C" {
    /// Posted after the system has moved a window out of fullscreen.
    static NSWindowDidExitFullScreenNotification: &'static NSString;
}

/// Adds the table of actions, and *Install Command-Line Tool…*, to the system's usual menu.
pub fn with_menu(builder: Builder<Wry>) -> Builder<Wry> {
    builder.menu(menu).on_menu_event(|app, event| {
        if event.id().as_ref() == INSTALL_TOOL {
            install_tool(app.clone());
        }
    })
}

/// The menu bar in the language of the window.
fn menu(app: &AppHandle) -> tauri::Result<Menu<Wry>> {
    let menu = Menu::default(app)?;
    for (position, action) in menu_actions::all().iter().enumerate() {
        add(app, &menu, action, position)?;
    }
    let items = menu.items()?;
    add_recent(app, &items)?;
    if let Some(submenu) = items.first().and_then(|item| item.as_submenu()) {
        let text = translate("Install Command-Line Tool…");
        let item = MenuItem::with_id(app, INSTALL_TOOL, text, true, None::<&str>)?;
        submenu.insert(&item, INSTALL_TOOL_POSITION)?;
    }
    translate_titles(&items)?;
    Ok(menu)
}

/// Translates the titles of the menus and the system's own items, which the toolkit names in
/// English. The other items are translated already.
fn translate_titles(items: &[MenuItemKind<Wry>]) -> tauri::Result<()> {
    if current() == Language::English {
        return Ok(());
    }
    for submenu in items.iter().filter_map(MenuItemKind::as_submenu) {
        submenu.set_text(translate(&submenu.text()?))?;
        for item in submenu.items()? {
            if let MenuItemKind::Predefined(item) = item {
                item.set_text(translate(&item.text()?.replace('&', "")))?;
            }
        }
    }
    Ok(())
}

/// Shows the menu bar in another language.
pub fn language_changed(app: &AppHandle) -> tauri::Result<()> {
    app.set_menu(menu(app)?)?;
    crate::recent_menu::refresh(app);
    Ok(())
}

/// Adds an action to the menu that it names: an existing one, above the system's items, or a new
/// one before *Window*. `position` keeps the order of the table.
fn add(app: &AppHandle, menu: &Menu<Wry>, action: &Action, position: usize) -> tauri::Result<()> {
    let Some(title) = &action.menu else {
        return Ok(());
    };
    let key = action.accelerator();
    let item = MenuItem::with_id(app, &action.id, action.label(), true, key.as_deref())?;
    let items = menu.items()?;
    let titled = |title: &str| {
        items.iter().position(|item| {
            let text = item.as_submenu().and_then(|submenu| submenu.text().ok());
            text.as_deref() == Some(title)
        })
    };
    let known = titled(title).and_then(|at| items[at].as_submenu());
    let Some(submenu) = known else {
        let submenu = Submenu::with_items(app, title, true, &[&item])?;
        return menu.insert(&submenu, titled("Window").unwrap_or(items.len()));
    };
    let own = submenu.items()?;
    let ids: Vec<String> = menu_actions::all()[..position]
        .iter()
        .map(|a| a.id.clone())
        .collect();
    let before = |item: &&MenuItemKind<Wry>| ids.iter().any(|id| id == item.id().as_ref());
    submenu.insert(&item, own.iter().filter(before).count())
}

/// Adds *Open recent* below *Open folder…*, the first item of the File menu.
fn add_recent(app: &AppHandle, items: &[MenuItemKind<Wry>]) -> tauri::Result<()> {
    let submenus = items.iter().filter_map(MenuItemKind::as_submenu);
    let mut files = submenus.filter(|submenu| submenu.text().is_ok_and(|text| text == "File"));
    let Some(file) = files.next() else {
        return Ok(());
    };
    let recent = Submenu::with_id(
        app,
        crate::recent_menu::SUBMENU,
        translate("Open recent"),
        true,
    )?;
    file.insert(&recent, 1)
}

/// Links the tool on a thread that may wait for the disk, and shows the result.
fn install_tool(app: AppHandle) {
    tauri::async_runtime::spawn_blocking(move || {
        let (title, message) = match command_line_tool::install_here() {
            Ok(message) => ("The command-line tool is installed", message),
            Err(message) => ("The command-line tool was not installed", message),
        };
        app.dialog()
            .message(message)
            .title(translate(title))
            .show(|_| {});
    });
}

/// Makes *Quit* ask while training runs, and follows the end of fullscreen.
pub fn install(app: &AppHandle) {
    if APP.set(app.clone()).is_err() {
        return;
    }
    follow_fullscreen();
    ask_before_quitting();
}

/// Hides a window that was closed in fullscreen once it has left fullscreen.
fn follow_fullscreen() {
    let ended = RcBlock::new(|_: NonNull<NSNotification>| {
        if let Some(app) = APP.get() {
            left_fullscreen(app);
        }
    });
    let center = NSNotificationCenter::defaultCenter();
    // SAFETY: the name is a constant of AppKit, and the block may run on any thread.
    let observer = unsafe {
        center.addObserverForName_object_queue_usingBlock(
            Some(NSWindowDidExitFullScreenNotification),
            None,
            None,
            &ended,
        )
    };
    // The center keeps the observer.
    drop(observer);
}

/// Makes *Quit* ask while training runs, from the menu, the Dock and at logout. The toolkit's
/// application delegate has no `applicationShouldTerminate:`, so the method is added to its class.
fn ask_before_quitting() {
    // SAFETY: `sharedApplication` and `delegate` take no arguments and return objects or nil.
    let (shared, delegate): (Retained<AnyObject>, Option<Retained<AnyObject>>) = unsafe {
        let shared: Retained<AnyObject> = msg_send![class!(NSApplication), sharedApplication];
        let delegate = msg_send![&*shared, delegate];
        (shared, delegate)
    };
    let Some(delegate) = delegate else {
        return;
    };
    let should_terminate: extern "C-unwind" fn(&AnyObject, Sel, &AnyObject) -> usize =
        should_terminate;
    // SAFETY: the method has the signature that the type encoding declares: an unsigned 64-bit
    // result, the receiver, the selector and one object.
    unsafe {
        let method: Imp = std::mem::transmute(should_terminate);
        class_addMethod(
            object_getClass(&*delegate).cast_mut(),
            sel!(applicationShouldTerminate:),
            method,
            c"Q@:@".as_ptr(),
        );
        // AppKit may remember which methods a delegate has; setting it again makes AppKit look.
        let _: () = msg_send![&*shared, setDelegate: None::<&AnyObject>];
        let _: () = msg_send![&*shared, setDelegate: &*delegate];
    }
}

extern "C-unwind" fn should_terminate(_this: &AnyObject, _: Sel, _sender: &AnyObject) -> usize {
    match APP.get() {
        Some(app) if !quit::may_terminate(app) => CANCEL,
        _ => NOW,
    }
}

/// Shows a folder that was dropped on the Dock icon or opened by *Open With*, and the window if it
/// was closed during a training.
pub fn on_event(app: &AppHandle, event: &RunEvent) {
    if let RunEvent::Reopen { .. } = event {
        show_window(app);
    }
    if let RunEvent::Opened { urls } = event {
        let paths = urls.iter().filter_map(|url| url.to_file_path().ok());
        let paths: Vec<PathBuf> = paths.collect();
        let (app, shell) = (app.clone(), Arc::clone(&app.state::<Arc<Shell>>()));
        // A folder on a sleeping network volume may take long to answer.
        tauri::async_runtime::spawn_blocking(move || {
            shell.open_first(&app, &paths);
            show_window(&app);
        });
    }
}
