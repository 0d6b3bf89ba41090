//! Opens files that other people may have replaced by links, such as those of a shared run folder:
//! writing through a link would change a file elsewhere.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a file to read and write it, and creates it if it does not exist.
///
/// # Errors
/// The path is a link, or not a file; the folder does not exist, or the system refuses it.
pub fn open_without_links(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    let options = options.create(true).truncate(false).read(true).write(true);
    // Opening a pipe could wait for another process.
    let options = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path).map_err(with_reason)?;
    expect_file(&file.metadata()?)?;
    Ok(file)
}

/// Opens a file to read it.
///
/// # Errors
/// As [`open_without_links`], or it does not exist.
pub fn read_without_links(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    let options = options.read(true);
    let options = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path).map_err(with_reason)?;
    expect_file(&file.metadata()?)?;
    Ok(file)
}

fn expect_file(found: &fs::Metadata) -> io::Result<()> {
    if found.is_file() {
        return Ok(());
    }
    Err(io::Error::other("it is not a file"))
}

/// The system calls a link that it must not follow a loop of links.
fn with_reason(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ELOOP) => io::Error::other("it is a link to another file; remove it"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_is_refused_and_its_file_is_not_changed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        fs::write(&target, "precious").expect("it can be written");
        symlink(&target, &link).expect("it can be linked");
        for opened in [
            open_without_links(&link),
            read_without_links(&link),
            crate::operations::File::open(&link, 0)
                .map(|_| File::open(&target).expect("it is there")),
        ] {
            let refused = opened.expect_err("it is a link").to_string();
            assert!(refused.contains("a link to another file"), "{refused}");
        }
        let left = fs::read_to_string(&target).expect("it is there");
        assert_eq!(left, "precious");
        // Nothing is created where a link leads to nothing.
        let (nothing, dangling) = (
            folder.path().join("nothing"),
            folder.path().join("dangling"),
        );
        symlink(&nothing, &dangling).expect("it can be linked");
        open_without_links(&dangling).expect_err("it is a link");
        assert!(!nothing.exists());
    }

    #[test]
    fn other_files_are_opened() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("file");
        let missing = read_without_links(&path).expect_err("it does not exist");
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        open_without_links(&path).expect("it is created");
        fs::write(&path, "kept").expect("it can be written");
        open_without_links(&path).expect("it is opened");
        read_without_links(&path).expect("it is opened");
        assert_eq!(fs::read_to_string(&path).ok().as_deref(), Some("kept"));
        read_without_links(folder.path()).expect_err("it is a folder");
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo can be started").success());
        read_without_links(&pipe).expect_err("it is a pipe");
        open_without_links(&pipe).expect_err("it is a pipe");
    }
}
