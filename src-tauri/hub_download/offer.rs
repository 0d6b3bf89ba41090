//! What a hub has under a name, before its weights are downloaded: their size, their licence, and a
//! folder with everything about them but their values. A plan can be made and estimated from this
//! folder.

use super::fetch::Hub;
use super::listing::Listing;
use super::{Access, HubError, NEWEST, Observer, RemoteFile, Repository, disk, lock};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Folder without weights, beside those of the commits.
const PREVIEW: &str = "preview";
/// Bytes of the length at the start of a file of weights.
const LENGTH_BYTES: u64 = 8;
/// Bytes of a file of weights that are requested at first. The lists of small models are shorter.
const FIRST_BYTES: u64 = 1 << 14;
/// Most bytes of another file. Ebb reads no larger ones.
const MAX_SMALL_BYTES: u64 = 64 << 20;
/// Most bytes of a list of tensors that Ebb reads.
const MAX_HEADER_BYTES: u64 = 16 << 20;

/// A model at a hub.
pub struct Offer {
    /// The commit that was looked up.
    pub commit: String,
    /// The licence that the repository names.
    pub licence: Option<String>,
    /// Size of the files that Ebb downloads.
    pub bytes: u64,
    /// Bytes of them that an earlier download left.
    pub there_bytes: u64,
    /// Free space where they are downloaded to, if it is known.
    pub free_bytes: Option<u64>,
    /// The folder without values.
    pub preview: Preview,
}

/// A folder like that of a downloaded model, but the weights in it have no values. It is removed
/// when this value is dropped. No other process uses it meanwhile.
pub struct Preview {
    path: PathBuf,
    _lock: File,
}

impl Preview {
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Preview {
    fn drop(&mut self) {
        // The next look-up replaces what cannot be removed now.
        let _ = ::disk::remove_dir_all(&self.path);
    }
}

/// Asks a hub for a model. Downloads its small files and the lists of its tensors into a folder
/// below `home` that is removed again.
///
/// # Errors
/// As for a download.
pub fn look_up(
    repository: Repository,
    access: Access,
    home: &Path,
    observer: &dyn Observer,
) -> Result<Offer, HubError> {
    let name = repository.name;
    let place = home.join(name);
    let lock = lock(&place, name, observer)?;
    let hub = Hub::new(repository, access, observer);
    let listing = Listing::ask(&hub, NEWEST)?;
    let mut files = listing.wanted(name)?;
    let preview = Preview {
        path: place.join(PREVIEW),
        _lock: lock,
    };
    start_empty(preview.path())?;
    let (weights, small): (Vec<RemoteFile>, _) = files.iter().cloned().partition(is_weights);
    for file in &small {
        let most = file.size.min(MAX_SMALL_BYTES);
        let bytes = match most {
            0 => Vec::new(),
            most => hub.read_start(&listing.commit, &file.path, most)?,
        };
        write(&preview.path().join(&file.path), &bytes)?;
    }
    let parts = listing.parts(name, preview.path())?;
    for file in weights.iter().chain(&parts) {
        let start = read_header(&hub, &listing.commit, file)?;
        write_without_values(&preview.path().join(&file.path), &start, file.size)?;
    }
    files.extend(parts);
    let folder = place.join(&listing.commit);
    Ok(Offer {
        bytes: files.iter().map(|file| file.size).sum(),
        there_bytes: files.iter().map(|file| file.there_bytes(&folder)).sum(),
        free_bytes: ::disk::available_bytes(&place).ok(),
        commit: listing.commit,
        licence: listing.licence,
        preview,
    })
}

fn is_weights(file: &RemoteFile) -> bool {
    file.path.ends_with(".safetensors")
}

fn start_empty(path: &Path) -> Result<(), HubError> {
    // It exists only if a process was killed.
    let _ = ::disk::remove_dir_all(path);
    ::disk::create_dir_all(path).map_err(disk(path))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), HubError> {
    let parent = path.parent().unwrap_or(path);
    ::disk::create_dir_all(parent).map_err(disk(parent))?;
    ::disk::write(path, bytes).map_err(disk(path))
}

/// The length and the list of tensors at the start of a file of weights. A list that is too long is
/// not read to its end, and is refused when the folder is opened.
fn read_header(hub: &Hub, commit: &str, file: &RemoteFile) -> Result<Vec<u8>, HubError> {
    let first = hub.read_start(commit, &file.path, FIRST_BYTES.min(file.size))?;
    let length = first.first_chunk().copied().map_or(0, u64::from_le_bytes);
    let end = length.min(MAX_HEADER_BYTES) + LENGTH_BYTES;
    if end <= first.len() as u64 || first.len() as u64 >= file.size {
        return Ok(first);
    }
    hub.read_start(commit, &file.path, end.min(file.size))
}

/// Writes the start of a file, which then gets its size without taking space on most disks.
fn write_without_values(path: &Path, start: &[u8], size: u64) -> Result<(), HubError> {
    write(path, start)?;
    // tidy: not durable: a folder that is removed at once
    let file = File::options().write(true).open(path);
    file.and_then(|file| file.set_len(size)).map_err(disk(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub_download::test_hub::{COMMIT, Ignore, TestHub};
    use crate::hub_download::{at_hand, download};
    use std::fs;

    #[test]
    fn an_offer_has_everything_but_the_values() {
        let hub = TestHub::open("vit");
        let home = tempfile::tempdir().expect("a temporary folder");
        let place = home.path().join("tiny/vit");
        let partial = place.join(COMMIT).join("model.safetensors.part");
        write(&partial, &[0; 500]).expect("it can be written");
        let ask = || look_up(hub.repository(), hub.access(), home.path(), &Ignore);
        let offer = ask().expect("it is there");
        assert_eq!((&*offer.commit, offer.bytes), (COMMIT, hub.bytes()));
        assert_eq!(offer.licence.as_deref(), Some("apache-2.0"));
        assert_eq!(offer.there_bytes, 500);
        assert!(offer.free_bytes.is_some());
        let preview = offer.preview.path().to_owned();
        let (file, real) = (preview.join("model.safetensors"), hub.weights());
        let copy = fs::read(&file).expect("it is there");
        assert_eq!(copy.len(), real.len());
        assert_eq!(copy[..200], real[..200], "the list of tensors");
        assert!(copy.ends_with(&[0; 1000]), "no values");
        let received = hub.sent_bytes("model.safetensors");
        assert!(received <= FIRST_BYTES, "{received}");
        drop(offer);
        assert!(!preview.exists(), "it is removed");
        assert_eq!(at_hand("tiny/vit", home.path()), None);
        let loaded = download(hub.repository(), hub.access(), home.path(), COMMIT, &Ignore);
        assert_eq!(at_hand("tiny/vit", home.path()), loaded.ok());
    }
}
