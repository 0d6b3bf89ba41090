//! A file at a hub: path, size and the checksum that a download is compared with. Large files have
//! a SHA-256, small ones git's own checksum.

use serde::{Deserialize, Serialize};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// One file of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteFile {
    /// Path in the repository.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
    /// Checksum.
    pub sum: Sum,
}

/// A checksum in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sum {
    /// SHA-256 of the bytes.
    Sha256(String),
    /// Git's checksum: SHA-1 of `blob`, the size, a zero byte and the bytes.
    Git(String),
}

impl RemoteFile {
    /// Bytes of it that were downloaded into `folder` before.
    pub fn there_bytes(&self, folder: &Path) -> u64 {
        let path = folder.join(&self.path);
        let size = |path: &Path| fs::metadata(path).map_or(0, |about| about.len());
        size(&path)
            .max(size(&path.with_added_extension("part")))
            .min(self.size)
    }

    /// Compares the file at `path` with the expected size and checksum.
    ///
    /// # Errors
    /// A sentence about the difference.
    pub fn fits(&self, path: &Path) -> Result<(), String> {
        let size = fs::metadata(path).map_err(|error| error.to_string())?.len();
        if size != self.size {
            return Err(format!(
                "the download has {size} bytes instead of {}",
                self.size
            ));
        }
        let (found, published) = match &self.sum {
            Sum::Sha256(sum) => (summed(Sha256::new(), path), sum),
            Sum::Git(sum) => {
                let head = format!("blob {size}\0");
                (summed(Sha1::new_with_prefix(head), path), sum)
            }
        };
        let found = found.map_err(|error| error.to_string())?;
        if found == published.to_ascii_lowercase() {
            Ok(())
        } else {
            Err(format!(
                "the download's checksum is {found} instead of {published}"
            ))
        }
    }
}

/// The checksum of a file, in hexadecimal digits.
fn summed<D: Digest>(mut sum: D, path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => sum.update(&buffer[..read]),
        }
    }
    let digits = sum.finalize();
    Ok(digits.iter().map(|byte| format!("{byte:02x}")).collect())
}
