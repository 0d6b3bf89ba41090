//! Downloads pretrained weights by name. `--from org/name` is looked up at the hub that
//! `HF_ENDPOINT` names, and downloaded once into Ebb's home folder, unless the cache of the Hugging
//! Face libraries has it. Ebb downloads nothing else, and has no hub built in.
//!
//! What a hub gives only to signed-in users needs their access token in `HF_TOKEN`, which Ebb
//! neither saves nor prints.

mod local_cache;
mod verify_checksum;
mod access;
mod hub_responses;
mod listing;
mod fetch;

use access::Access;
use listing::Listing;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use thiserror::Error;
use verify_checksum::RemoteFile;

/// Environment variable with the hub's address.
const ENDPOINT: &str = "HF_ENDPOINT";
/// File that is locked while files are downloaded.
const LOCK: &str = "download.lock";
/// File that is written last. A folder that contains it is complete.
const DOWNLOAD_MARKER: &str = "fetched.json";

/// Why weights could not be downloaded.
#[derive(Debug, Error)]
pub enum HubError {
    /// `HF_ENDPOINT` is not set.
    #[error(
        "there is no folder {name}; to download {name} from a hub, set {ENDPOINT} to the address of the hub (https://…)"
    )]
    NoEndpoint { name: String },
    /// Another program has downloaded only a part of the repository, and `HF_ENDPOINT` is not set.
    #[error(
        "{name} was downloaded by another program, but {} has no {missing}; download {missing} too, or set {ENDPOINT} to the address of a hub (https://…)",
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
        "the connection to {endpoint} would not be encrypted; set {ENDPOINT} to an address that starts with https://"
    )]
    NotEncrypted {
        /// The hub's address.
        endpoint: String,
    },
    /// The access token has characters that no token has.
    #[error("HF_TOKEN has a space or a control character; copy your access token again")]
    Token,
    /// The disk has no space for a file.
    #[error(
        "{file} needs {needed}, but only {free} are free in Ebb's folder; free up space, then try again, and the download continues"
    )]
    Space {
        /// The file.
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

/// Content of the file that marks a complete folder.
#[derive(Debug, Serialize, Deserialize)]
struct Fetched {
    name: String,
    commit: String,
    files: Vec<RemoteFile>,
}

/// Whether `from` is the name of a repository: it has the form `org/name`, and no file or folder
/// has this path.
pub fn is_name(from: &Path) -> bool {
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    let parts: Option<Vec<&str>> = from.to_str().map(|text| text.split('/').collect());
    !from.exists() && parts.is_some_and(|parts| parts.len() == 2 && parts.into_iter().all(plain))
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
    let endpoint = std::env::var(ENDPOINT).unwrap_or_default();
    let endpoint = endpoint.trim_end_matches('/');
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
    download(name, &place, endpoint, print)
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

/// Downloads a repository into `place`, unless another process has just done so.
fn download(
    name: &str,
    place: &Path,
    endpoint: &str,
    print: &dyn Fn(&str),
) -> Result<PathBuf, HubError> {
    let access = Access::from_environment(endpoint)?;
    let repository = Repository { name, endpoint };
    let _lock = lock(place, name, print)?;
    if let Some(folder) = whole(place) {
        return Ok(folder);
    }
    let hub = fetch::Hub::new(repository, access);
    let listing = Listing::ask(&hub)?;
    let folder = place.join(&listing.commit);
    let mut files = listing.wanted(name)?;
    for file in &files {
        hub.fetch(&listing.commit, file, &folder, print)?;
    }
    let parts = listing.parts(name, &folder)?;
    for file in &parts {
        hub.fetch(&listing.commit, file, &folder, print)?;
    }
    files.extend(parts);
    let fetched = Fetched {
        name: name.to_owned(),
        commit: listing.commit,
        files,
    };
    let path = folder.join(DOWNLOAD_MARKER);
    let text = serde_json::to_vec_pretty(&fetched).map_err(|error| disk(&path)(error.into()))?;
    ::disk::write_atomic(&path, &text).map_err(disk(&path))?;
    print(&format!("{name} was downloaded: {}", folder.display()));
    Ok(folder)
}

/// Waits until no other process downloads into `place`: two would write to the same partial files.
fn lock(place: &Path, name: &str, print: &dyn Fn(&str)) -> Result<File, HubError> {
    ::disk::create_dir_all(place).map_err(disk(place))?;
    let path = place.join(LOCK);
    // tidy: not durable: the lock of a process
    let mut options = File::options();
    let file = options.create(true).append(true).open(&path);
    let file = file.map_err(disk(&path))?;
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => return Err(disk(&path)(error)),
    }
    print(&format!(
        "Another process is downloading {name}; waiting for it to finish"
    ));
    file.lock().map_err(disk(&path))?;
    Ok(file)
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
