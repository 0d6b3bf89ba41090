//! macOS: the question before quitting, folders on the Dock icon and *Open With*, and the menu item
//! that installs the command-line tool. Same surface as `other.rs`.

use crate::actions::{self, Action};
use crate::app_state::Shell;
use crate::command_line_tool;
use crate::quit;
use crate::show_window::show_window;
use objc2::ffi::{class_addMethod, object_getClass};
use objc2::rc::Retained;
use objc2::runtime::{AnyObject, Imp, Sel};
use objc2::{class, msg_send, sel};
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

/// Adds the table of actions, and *Install Command-Line Tool…*, to the system's usual menu.
pub fn with_menu(builder: Builder<Wry>) -> Builder<Wry> {
    builder
        .menu(|app| {
            let menu = Menu::default(app)?;
            for (position, action) in actions::all().iter().enumerate() {
                add(app, &menu, action, position)?;
            }
            let items = menu.items()?;
            if let Some(submenu) = items.first().and_then(|item| item.as_submenu()) {
                let text = "Install Command-Line Tool…";
                let item = MenuItem::with_id(app, INSTALL_TOOL, text, true, None::<&str>)?;
                submenu.insert(&item, INSTALL_TOOL_POSITION)?;
            }
            Ok(menu)
        })
        .on_menu_event(|app, event| {
            if event.id().as_ref() == INSTALL_TOOL {
                install_tool(app.clone());
            }
        })
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
    let ids: Vec<String> = actions::all()[..position]
        .iter()
        .map(|a| a.id.clone())
        .collect();
    let before = |item: &&MenuItemKind<Wry>| ids.iter().any(|id| id == item.id().as_ref());
    submenu.insert(&item, own.iter().filter(before).count())
}

/// Links the tool on a thread that may wait for the disk, and shows the result.
fn install_tool(app: AppHandle) {
    std::thread::spawn(move || {
        let (title, message) = match command_line_tool::install_here() {
            Ok(message) => ("The command-line tool is installed", message),
            Err(message) => ("The command-line tool was not installed", message),
        };
        app.dialog().message(message).title(title).show(|_| {});
    });
}

/// Makes *Quit* ask while training runs, from the menu, the Dock and at logout. The toolkit's
/// application delegate has no `applicationShouldTerminate:`, so the method is added to its class.
pub fn install(app: &AppHandle) {
    if APP.set(app.clone()).is_err() {
        return;
    }
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
        Some(app) if !quit::request(app) => CANCEL,
        _ => NOW,
    }
}

/// Shows a folder that was dropped on the Dock icon or opened by *Open With*, and a window that was
/// closed during a training.
pub fn on_event(app: &AppHandle, event: &RunEvent) {
    if let RunEvent::Reopen { .. } = event {
        show_window(app);
    }
    if let RunEvent::Opened { urls } = event
        && let Some(path) = urls.iter().find_map(|url| url.to_file_path().ok())
    {
        let (app, shell) = (app.clone(), Arc::clone(&app.state::<Arc<Shell>>()));
        // A folder on a sleeping network volume may take long to answer.
        std::thread::spawn(move || {
            let show = shell.open(&path);
            shell.show(&app, show);
        });
    }
}
