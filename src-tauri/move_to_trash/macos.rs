//! macOS: the trash of Finder. Same function as `linux.rs`.

use std::path::Path;
use trash::TrashContext;
use trash::macos::{DeleteMethod, TrashContextExtMacos};

/// Moves a folder to the trash. The default method would control Finder, which macOS asks the user
/// to allow.
pub fn move_to_trash(path: &Path) -> Result<(), trash::Error> {
    let mut context = TrashContext::default();
    context.set_delete_method(DeleteMethod::NsFileManager);
    context.delete(path)
}
