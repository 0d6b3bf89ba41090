//! Published weights by name: `--from org/name` is looked up at the hub that `HF_ENDPOINT` names,
//! fetched once into Ebb's home, and from then on a folder like any other. Nothing is fetched that
//! was not asked for by such a name, no host stands in Ebb, and no port is opened.
//!
//! Refuses to know what weights are for, and accounts: what a hub gives only to some is downloaded
//! by hand.

mod listing;
mod remote_file;
mod fetch;

use listing::Listing;
use remote_file::RemoteFile;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Environment variable with the hub's address.
const ENDPOINT: &str = "HF_ENDPOINT";
/// Written last into a folder: it is whole, and these are its files.
const WHOLE: &str = "fetched.json";

/// Why weights are not there.
#[derive(Debug, Error)]
pub enum HubError {
    /// Nobody said where the hub is.
    #[error(
        "there is no folder {name} here, and to fetch {name} by name Ebb has to be told where: set {ENDPOINT} to the address of the hub (https://…), or give a folder"
    )]
    NoEndpoint { name: String },
    /// It does not answer, or broke off too often.
    #[error(
        "{what} could not be fetched from {endpoint}: {reason}; what is there already is kept, so ask again when the network is back"
    )]
    Unreachable {
        /// A model or a file.
        what: String,
        /// The hub's address.
        endpoint: String,
        /// What the network said.
        reason: String,
    },
    /// It says no.
    #[error("{endpoint} answers {status} for {what}: {next}")]
    Refused {
        /// A model or a file.
        what: String,
        /// The hub's address.
        endpoint: String,
        /// HTTP status.
        status: u16,
        /// What would help.
        next: &'static str,
    },
    /// The answer is not what a hub answers.
    #[error("{endpoint} does not answer as a hub does: {reason}; look at {ENDPOINT}")]
    NoHub {
        /// The address.
        endpoint: String,
        reason: String,
    },
    /// The repository has no weights that Ebb reads.
    #[error("{name} cannot be used: {reason}")]
    Unfit {
        /// The repository.
        name: String,
        /// What is missing, and the next move.
        reason: String,
    },
    /// What came is not what was announced.
    #[error(
        "{file} of {name} did not arrive as it was published ({reason}); it was thrown away, so ask again"
    )]
    Damaged {
        /// The repository.
        name: String,
        file: String,
        /// Both sums or sizes.
        reason: String,
    },
    /// Ebb's own folder.
    #[error("{} could not be written: {source}", .path.display())]
    Disk {
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

#[derive(Debug, Clone, Copy)]
pub struct Repository<'a> {
    /// `org/name`.
    pub name: &'a str,
    /// Address of the hub, without a slash at its end.
    pub endpoint: &'a str,
}

/// What a whole folder keeps of where it came from.
#[derive(Debug, Serialize, Deserialize)]
struct Fetched {
    name: String,
    commit: String,
    files: Vec<RemoteFile>,
}

/// True for what can only be the name of a repository: `org/name`, and nothing of that name lies
/// here.
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

/// The folder of a repository of that name, below `home`: the one that is there, else fetched.
/// `say` is told what goes on.
///
/// # Errors
/// No hub is named, or it does not give what is needed.
pub fn folder(name: &str, home: &Path, print: &dyn Fn(&str)) -> Result<PathBuf, HubError> {
    let place = home.join(name);
    if let Some(folder) = whole(&place) {
        print(&format!("{name} was fetched before: {}", folder.display()));
        return Ok(folder);
    }
    let endpoint = std::env::var(ENDPOINT).unwrap_or_default();
    let endpoint = endpoint.trim_end_matches('/');
    if endpoint.is_empty() {
        let name = name.to_owned();
        return Err(HubError::NoEndpoint { name });
    }
    let repository = Repository { name, endpoint };
    let hub = fetch::Hub::new(repository);
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
    let path = folder.join(WHOLE);
    let text = serde_json::to_vec_pretty(&fetched).map_err(|error| disk(&path)(error.into()))?;
    fs::write(&path, text).map_err(disk(&path))?;
    print(&format!("{name} is there: {}", folder.display()));
    Ok(folder)
}

/// A folder that was fetched whole, with all its files still as they were.
fn whole(place: &Path) -> Option<PathBuf> {
    let folders = fs::read_dir(place)
        .ok()?
        .flatten()
        .map(|entry| entry.path());
    let unchanged = |folder: &PathBuf| {
        let text = fs::read(folder.join(WHOLE)).ok()?;
        let fetched: Fetched = serde_json::from_slice(&text).ok()?;
        let mut files = fetched.files.iter();
        files
            .all(|file| file.fits(&folder.join(&file.path)).is_ok())
            .then_some(())
    };
    folders.filter(|folder| unchanged(folder).is_some()).max()
}

/// An error of the disk at that place.
fn disk(path: &Path) -> impl FnOnce(std::io::Error) -> HubError + '_ {
    move |source| HubError::Disk {
        path: path.to_owned(),
        source,
    }
}

/// Removes a file, whether it is there or not.
fn remove(path: &Path) -> Result<(), HubError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(disk(path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_plain_words_are_a_name() {
        for (from, name) in [
            ("org/bert-tiny_v1.5", true),
            ("org", false),
            ("./org/bert", false),
            ("../bert", false),
            ("/org/bert", false),
            ("a/b/c", false),
            ("org/", false),
            ("o rg/bert", false),
            ("src-tauri/hub", false),
        ] {
            assert_eq!(is_name(Path::new(from)), name, "{from}");
        }
    }
}
