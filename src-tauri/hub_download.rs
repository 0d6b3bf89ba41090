//! Downloads pretrained weights by name. `--from org/name` is looked up at the hub that
//! `HF_ENDPOINT` names, and downloaded once into Ebb's home folder, unless the cache of the Hugging
//! Face libraries has it. Ebb downloads nothing else. The window asks the hub whose address the
//! user sees beside the name; before it downloads weights, it shows their size and their licence.
//!
//! What a hub gives only to signed-in users needs their access token (`token.rs`, or typed in the
//! window), which Ebb neither saves nor prints.

mod local_cache;
mod verify_checksum;
mod keychain;
mod token;
mod access;
mod hub_responses;
mod observer;
mod listing;
mod fetch;
#[cfg(feature = "desktop")]
mod offer;
mod found_models;
#[cfg(all(feature = "desktop", test))]
pub mod test_hub;

pub use access::Access;
pub use found_models::{FoundModel, found_models};
pub use observer::Observer;
#[cfg(feature = "desktop")]
pub use offer::{Offer, look_up};
pub use verify_checksum::RemoteFile;

use listing::Listing;
use observer::TerminalObserver;
use runlog::format_bytes;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Environment variable with the hub's address.
const ENDPOINT: &str = "HF_ENDPOINT";
/// File that is locked while files are downloaded.
const LOCK: &str = "download.lock";
/// Revision of a repository: its newest commit.
const NEWEST: &str = "main";
/// File that is written last. A folder that contains it is complete.
const DOWNLOAD_MARKER: &str = "fetched.json";
/// Most bytes of this file.
const MAX_MARKER_BYTES: u64 = 4 << 20;

/// Why weights could not be downloaded.
#[derive(Debug, Error)]
pub enum HubError {
    /// `HF_ENDPOINT` is not set.
    #[error(
        "there is no folder {name}; to download {name} from a hub, set the environment variable {ENDPOINT} to the address of the hub (https://…)"
    )]
    NoEndpoint { name: String },
    /// Another program has downloaded only a part of the repository, and `HF_ENDPOINT` is not set.
    #[error(
        "{name} was downloaded by another program, but {} has no {missing}; download {missing} too, or set the environment variable {ENDPOINT} to the address of a hub (https://…)",
        .folder.display()
    )]
    Incomplete {
        /// The repository.
        name: String,
        folder: PathBuf,
        /// The files that are missing.
        missing: String,
    },
    /// The connection to the hub would not be encrypted.
    #[error(
        "the connection to {endpoint} would not be encrypted; set the environment variable {ENDPOINT} to an address that starts with https://"
    )]
    NotEncrypted {
        /// The hub's address.
        endpoint: String,
    },
    /// The access token has characters that no token has.
    #[error("HF_TOKEN has a space or a control character; copy your access token again")]
    Token,
    /// The same of a token that is in the keychain or in the file of the Hugging Face libraries.
    #[error(
        "the stored access token for {host} has a space or a control character; store it again, or set HF_TOKEN"
    )]
    StoredToken {
        /// Name of the hub.
        host: String,
    },
    /// The disk has no space for a file, or for all files of a repository.
    #[error(
        "{file} needs {needed}, but only {free} is free in Ebb's folder; free up space, then try again, and the download continues"
    )]
    Space {
        /// The file or the repository.
        file: String,
        /// Size of the missing part.
        needed: String,
        /// Free space.
        free: String,
    },
    /// The hub does not answer, or the connection broke too often.
    #[error(
        "{what} could not be downloaded from {endpoint}: {reason}; check the network, then try again, and the download continues"
    )]
    Unreachable {
        /// Name of the model or file.
        what: String,
        /// The hub's address.
        endpoint: String,
        /// The network's error.
        reason: String,
    },
    /// The hub refuses the request.
    #[error("{endpoint} answered {status} for {what}: {next}")]
    Refused {
        /// Name of the model or file.
        what: String,
        /// The hub's address.
        endpoint: String,
        /// HTTP status.
        status: u16,
        /// What the user can do.
        next: &'static str,
    },
    /// The response does not have the format of a hub.
    #[error(
        "{endpoint} does not answer like a Hugging Face hub: {reason}; check the address in {ENDPOINT}"
    )]
    NoHub {
        /// The hub's address.
        endpoint: String,
        reason: String,
    },
    /// The repository has no weights that Ebb can read.
    #[error("{name} cannot be used: {reason}")]
    Unfit {
        /// The repository.
        name: String,
        /// What is missing, and what the user can do.
        reason: String,
    },
    /// A downloaded file differs from the published one.
    #[error(
        "the downloaded {file} of {name} differs from the published file ({reason}) and was deleted; try again"
    )]
    Damaged {
        /// The repository.
        name: String,
        file: String,
        /// Both checksums or sizes.
        reason: String,
    },
    /// The user ended the download.
    #[error("the download was cancelled; the part that was downloaded is kept")]
    Cancelled,
    /// A file in Ebb's home folder could not be written.
    #[error("{} could not be written: {}", .path.display(), runlog::format_io_error(.source))]
    Disk {
        path: PathBuf,
        source: std::io::Error,
    },
}

#[derive(Debug, Clone, Copy)]
pub struct Repository<'a> {
    /// `org/name`.
    pub name: &'a str,
    /// Address of the hub, without a trailing slash.
    pub endpoint: &'a str,
}

/// Content of the file that marks a complete folder. `BaseDescription` of the crate `models` reads
/// the name and the licence, which the exports of a run name.
#[derive(Debug, Serialize, Deserialize)]
struct Fetched {
    name: String,
    commit: String,
    /// The licence that the repository names. Earlier versions did not store it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    licence: Option<String>,
    files: Vec<RemoteFile>,
}

/// Whether `from` is the name of a repository: it has the form `org/name`, and no file or folder
/// has this path.
pub fn is_name(from: &Path) -> bool {
    !from.exists() && from.to_str().is_some_and(is_repository_name)
}

/// Whether a text has the form `org/name`.
pub fn is_repository_name(text: &str) -> bool {
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    let parts: Vec<&str> = text.split('/').collect();
    parts.len() == 2 && parts.into_iter().all(plain)
}

/// The address of the hub in the environment, without a trailing slash; empty if there is none.
pub fn endpoint_from_environment() -> String {
    let endpoint = std::env::var(ENDPOINT).unwrap_or_default();
    endpoint.trim_end_matches('/').to_owned()
}

/// The complete folder of a repository below `home`, or in the cache of other programs. Reads every
/// file below `home`, because it compares their checksums.
#[cfg(feature = "desktop")]
pub fn at_hand(name: &str, home: &Path) -> Option<PathBuf> {
    let downloaded = whole(&home.join(name));
    let cached = || local_cache::snapshot(name).filter(|snapshot| snapshot.missing.is_empty());
    downloaded.or_else(|| cached().map(|snapshot| snapshot.folder))
}

/// The folder of a repository below `home`, or in the cache of other programs. It is downloaded
/// into `home` if it is complete in neither; `print` receives the progress.
///
/// # Errors
/// `HF_ENDPOINT` is not set, or the download fails.
pub fn folder(name: &str, home: &Path, print: &dyn Fn(&str)) -> Result<PathBuf, HubError> {
    let place = home.join(name);
    if let Some(folder) = whole(&place) {
        print(&format!(
            "{name} was downloaded before: {}",
            folder.display()
        ));
        return Ok(folder);
    }
    let snapshot = local_cache::snapshot(name);
    if let Some(snapshot) = &snapshot
        && snapshot.missing.is_empty()
    {
        print(&format!(
            "{name} was downloaded by another program: {}",
            snapshot.folder.display()
        ));
        return Ok(snapshot.folder.clone());
    }
    let endpoint = endpoint_from_environment();
    if endpoint.is_empty() {
        return Err(not_here(name, snapshot));
    }
    if let Some(snapshot) = snapshot {
        print(&format!(
            "{name} was downloaded by another program, but {} has no {}, so Ebb downloads {name}",
            snapshot.folder.display(),
            snapshot.missing.join(", ")
        ));
    }
    let access = Access::from_environment(&endpoint)?;
    let repository = Repository {
        name,
        endpoint: &endpoint,
    };
    download(
        repository,
        access,
        home,
        NEWEST,
        &TerminalObserver::new(print),
    )
}

/// Why a repository that is not complete here cannot be used without a hub.
fn not_here(name: &str, snapshot: Option<local_cache::Snapshot>) -> HubError {
    let name = name.to_owned();
    match snapshot {
        None => HubError::NoEndpoint { name },
        Some(snapshot) => HubError::Incomplete {
            name,
            folder: snapshot.folder,
            missing: snapshot.missing.join(", "),
        },
    }
}

/// Downloads a repository at a revision into a folder below `home`, unless another process has just
/// done so. A download that was interrupted continues.
///
/// # Errors
/// The hub does not answer or refuses, the repository has no weights that Ebb can read, the disk is
/// full, or the observer cancels the download.
pub fn download(
    repository: Repository,
    access: Access,
    home: &Path,
    revision: &str,
    observer: &dyn Observer,
) -> Result<PathBuf, HubError> {
    let name = repository.name;
    let place = home.join(name);
    let _lock = lock(&place, name, observer)?;
    if let Some(folder) = whole(&place) {
        return Ok(folder);
    }
    let hub = fetch::Hub::new(repository, access, observer);
    let listing = Listing::ask(&hub, revision)?;
    let folder = place.join(&listing.commit);
    let mut files = listing.wanted(name)?;
    expect_space(name, &files, &folder)?;
    for file in &files {
        hub.fetch(&listing.commit, file, &folder)?;
    }
    let parts = listing.parts(name, &folder)?;
    expect_space(name, &parts, &folder)?;
    for file in &parts {
        hub.fetch(&listing.commit, file, &folder)?;
    }
    files.extend(parts);
    let fetched = Fetched {
        name: name.to_owned(),
        commit: listing.commit,
        licence: listing.licence,
        files,
    };
    let path = folder.join(DOWNLOAD_MARKER);
    let text = serde_json::to_vec_pretty(&fetched).map_err(|error| disk(&path)(error.into()))?;
    ::disk::write_atomic(&path, &text).map_err(disk(&path))?;
    observer.print(&format!("{name} was downloaded: {}", folder.display()));
    Ok(folder)
}

/// Refuses files of the repository `name` that do not fit on the disk together, before one of them
/// is requested. `folder` may not exist yet.
fn expect_space(name: &str, files: &[RemoteFile], folder: &Path) -> Result<(), HubError> {
    let missing = files
        .iter()
        .map(|file| file.size.saturating_sub(file.there_bytes(folder)));
    let needed = missing.fold(0, u64::saturating_add);
    let existing = folder.ancestors().find(|place| place.is_dir());
    match existing.map(::disk::available_bytes) {
        Some(Ok(free)) if free < needed => Err(HubError::Space {
            file: name.to_owned(),
            needed: format_bytes(needed),
            free: format_bytes(free),
        }),
        // A disk that gives no answer may have space.
        _ => Ok(()),
    }
}

/// Waits until no other process downloads into `place`: two would write to the same partial files.
fn lock(place: &Path, name: &str, observer: &dyn Observer) -> Result<File, HubError> {
    ::disk::create_dir_all(place).map_err(disk(place))?;
    let path = place.join(LOCK);
    // tidy: not durable: the lock of a process
    let mut options = File::options();
    let file = options.create(true).append(true).open(&path);
    let file = file.map_err(disk(&path))?;
    let mut is_waiting = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(disk(&path)(error)),
            Err(TryLockError::WouldBlock) if observer.is_cancelled() => {
                return Err(HubError::Cancelled);
            }
            Err(TryLockError::WouldBlock) => {}
        }
        if !std::mem::replace(&mut is_waiting, true) {
            observer.print(&format!(
                "Another process is downloading {name}; waiting for it to finish"
            ));
        }
        std::thread::sleep(fetch::LOOK);
    }
}

/// A complete folder whose files have not changed.
fn whole(place: &Path) -> Option<PathBuf> {
    let folders = fs::read_dir(place)
        .ok()?
        .flatten()
        .map(|entry| entry.path());
    let unchanged = |folder: &PathBuf| {
        let text = fs::read(folder.join(DOWNLOAD_MARKER)).ok()?;
        let fetched: Fetched = serde_json::from_slice(&text).ok()?;
        let mut files = fetched.files.iter();
        files
            .all(|file| file.fits(&folder.join(&file.path)).is_ok())
            .then_some(())
    };
    folders.filter(|folder| unchanged(folder).is_some()).max()
}

fn disk(path: &Path) -> impl FnOnce(std::io::Error) -> HubError + '_ {
    move |source| HubError::Disk {
        path: path.to_owned(),
        source,
    }
}

/// Removes a file if it exists.
fn remove(path: &Path) -> Result<(), HubError> {
    match ::disk::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(disk(path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_name_has_two_plain_parts() {
        for (from, name) in [
            ("org/bert-tiny_v1.5", true),
            ("org", false),
            ("./org/bert", false),
            ("../bert", false),
            ("/org/bert", false),
            ("a/b/c", false),
            ("org/", false),
            ("o rg/bert", false),
            ("src-tauri/hub_download", false),
        ] {
            assert_eq!(is_name(Path::new(from)), name, "{from}");
        }
    }
}
