//! The file layer: whatever must survive a power failure, a full disk or a failing one is created,
//! written, synced, renamed, listed and removed by the functions of this crate.
//!
//! The functions ask a [`Disk`]: the real one, or in tests a [`simulated::SimulatedDisk`], which
//! fails any operation and knows what a power failure would leave. Reading needs no layer;
//! [`read_limited`] is for small files of runs that other people may have written.
//!
//! ```
//! # fn main() -> std::io::Result<()> {
//! # let root = tempfile::tempdir()?;
//! # let root = root.path();
//! let run = root.join("runs/birds");
//! disk::create_dir_all(&run)?;
//! // After a power failure the file is complete or absent.
//! disk::write_atomic(&run.join("config.toml"), b"epochs = 20\n")?;
//! disk::write_atomic(&run.join("config.toml"), b"epochs = 30\n")?;
//! assert_eq!(std::fs::read(run.join("config.toml"))?, b"epochs = 30\n");
//!
//! // No draft is left beside it.
//! assert_eq!(disk::list(&run)?, [run.join("config.toml")]);
//! # Ok(())
//! # }
//! ```

#[cfg_attr(target_os = "macos", path = "available/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "available/other.rs")]
mod available;
#[cfg_attr(target_os = "macos", path = "plain_sync/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "plain_sync/other.rs")]
mod plain_sync;
mod sync;

mod open_without_links;
mod disk_trait;
mod operations;
mod write_then_rename;
mod read_limited;

#[doc(hidden)]
pub mod simulated;

pub use disk_trait::{Access, Disk};
pub use open_without_links::{open_without_links, read_without_links};
pub use operations::{
    File, available_bytes, copy, create_dir, create_dir_all, create_private_dir, list, now,
    remove_dir, remove_dir_all, remove_file, rename, sync_all_in, sync_parent, sync_path, write,
    write_with,
};
pub use read_limited::{read_limited, read_text_limited};
pub use sync::sync;
pub use write_then_rename::{draft_path, is_draft, remove_drafts, remove_drafts_of, write_atomic};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::sync_data;
    use std::io::ErrorKind;

    #[test]
    fn files_and_folders_can_be_synced() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("file");
        std::fs::write(&path, "content").expect("it can be written");
        let file = std::fs::File::open(&path).expect("it is there");
        sync(&file).expect("a file can be synced");
        sync_data(&file).expect("a file can be synced");
        sync_path(folder.path()).expect("a folder can be synced");
        let missing = sync_path(&folder.path().join("missing"));
        assert!(missing.is_err_and(|error| error.kind() == ErrorKind::NotFound));
    }

    #[test]
    fn the_space_of_a_volume_is_known_and_that_of_nothing_is_not() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert!(available_bytes(folder.path()).is_ok_and(|bytes| bytes > 0));
        assert!(available_bytes(&folder.path().join("missing")).is_err());
    }
}
