//! Reads small files that other people may have written, such as those of an imported run.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Reads a file of at most `max_bytes`.
///
/// # Errors
/// The system refuses, the file is larger, or it is not a file: a pipe or a device could be read
/// forever.
pub fn read_limited(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let found = fs::metadata(path)?;
    if !found.is_file() && !found.is_dir() {
        return Err(io::Error::other("this is not a file"));
    }
    let too_large = || io::Error::other(format!("the file is larger than {max_bytes} bytes"));
    if found.is_file() && found.len() > max_bytes {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(found.len() as usize);
    // The file may be growing.
    let rest = max_bytes.saturating_add(1);
    File::open(path)?.take(rest).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(too_large());
    }
    Ok(bytes)
}

/// Reads a file of text of at most `max_bytes`.
///
/// # Errors
/// See [`read_limited`]; or the file is not UTF-8.
pub fn read_text_limited(path: &Path, max_bytes: u64) -> io::Result<String> {
    String::from_utf8(read_limited(path, max_bytes)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the file is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("file");
        fs::write(&path, "four").expect("it can be written");
        assert_eq!(read_limited(&path, 4).ok().as_deref(), Some(&b"four"[..]));
        assert!(read_limited(&path, 3).is_err());
        fs::write(&path, [0xFF]).expect("it can be written");
        let refused = read_text_limited(&path, 4).expect_err("it is not text");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        let refused = read_limited(folder.path(), 4).expect_err("it is a folder");
        assert_eq!(refused.kind(), io::ErrorKind::IsADirectory);
        let missing = read_limited(&folder.path().join("missing"), 4);
        assert!(missing.is_err_and(|error| error.kind() == io::ErrorKind::NotFound));
    }

    /// Opening a pipe would block forever.
    #[cfg(unix)]
    #[test]
    fn a_pipe_is_not_opened() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo can be started").success());
        let refused = read_limited(&path, 4).expect_err("it is a pipe");
        assert_eq!(refused.to_string(), "this is not a file");
    }
}
