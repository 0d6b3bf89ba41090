//! Installs `ebb` for the terminal: a link to the program inside the app, in a folder that needs no
//! administrator rights.

use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const NAME: &str = "ebb";
/// Folders on the shell's search path, if the user may write to them: that of macOS and that of
/// Homebrew.
#[cfg(target_os = "macos")]
const SHARED: [&str; 2] = ["/usr/local/bin", "/opt/homebrew/bin"];
/// The user's own folder, which is created.
const OWN: &str = ".local/bin";

/// Links the running program and returns a sentence for the user.
///
/// # Errors
/// A sentence with the reason and the next step.
#[cfg(target_os = "macos")]
pub fn install_here() -> Result<String, String> {
    // Started through the link, the program is known by the link.
    let program = std::env::current_exe()
        .and_then(std::fs::canonicalize)
        .map_err(|error| {
            format!("Ebb does not know where it is installed: {error}. Install it again.")
        })?;
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let home = home.ok_or(
        "Ebb cannot find your home folder. Set the environment variable HOME, then try again.",
    )?;
    install(&program, &SHARED.map(PathBuf::from), &home)
}

/// Links `program` in the first of the folders `shared` that exists and can be written to, or in
/// the user's own folder.
fn install(program: &Path, shared: &[PathBuf], home: &Path) -> Result<String, String> {
    check_place(program)?;
    for folder in shared.iter().filter(|folder| folder.is_dir()) {
        match link(program, folder) {
            Ok(()) => return Ok(installed(folder)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(in_the_way(folder));
            }
            // Not writable: the next folder.
            Err(_) => {}
        }
    }
    let own = home.join(OWN);
    // tidy: not durable: an empty folder
    let made = std::fs::create_dir_all(&own).and_then(|()| link(program, &own));
    match made {
        Ok(()) => Ok(format!(
            "{} If your shell does not find `ebb`, add this line to ~/.zprofile and open a new terminal: export PATH=\"$HOME/{OWN}:$PATH\"",
            installed(&own)
        )),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(in_the_way(&own)),
        Err(error) => Err(format!(
            "{} cannot be written: {}. Run this in a terminal instead: sudo ln -sf '{}' /usr/local/bin/{NAME}",
            own.display(),
            runlog::format_io_error(&error),
            program.display()
        )),
    }
}

fn installed(folder: &Path) -> String {
    let link = folder.join(NAME);
    format!(
        "Installed {} as a link to this app. Try: ebb --help.",
        link.display()
    )
}

fn in_the_way(folder: &Path) -> String {
    let file = folder.join(NAME);
    format!(
        "{} is another program. Remove or rename this program, then try again.",
        file.display()
    )
}

/// Refuses a program whose place will not last: outside an app, on a disk image, or where macOS
/// runs a download that was not moved.
fn check_place(program: &Path) -> Result<(), String> {
    let text = program.to_string_lossy();
    if !text.contains(".app/Contents/MacOS/") {
        return Err(
            "Ebb was not started from Ebb.app. Run `make app`, move Ebb.app to the Applications folder, open it there, then try again."
                .to_owned(),
        );
    }
    if text.starts_with("/Volumes/") || text.contains("/AppTranslocation/") {
        return Err(
            "Ebb runs from a disk image or the Downloads folder. Move Ebb.app to the Applications folder, open it there, then try again."
                .to_owned(),
        );
    }
    Ok(())
}

/// Links `program` in `folder`. Replaces a link, but no other file.
fn link(program: &Path, folder: &Path) -> std::io::Result<()> {
    let path = folder.join(NAME);
    if path
        .symlink_metadata()
        .is_ok_and(|about| !about.is_symlink())
    {
        return Err(ErrorKind::AlreadyExists.into());
    }
    let draft = folder.join(format!(".{NAME}.{}", std::process::id()));
    symlink(program, &draft)?;
    ::disk::rename(&draft, &path).inspect_err(|_| {
        let _ = ::disk::remove_file(&draft);
    })?;
    ::disk::sync_parent(&path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Place {
        _root: tempfile::TempDir,
        program: PathBuf,
        shared: Vec<PathBuf>,
        home: PathBuf,
    }

    fn place() -> Place {
        let root = tempfile::tempdir().expect("a temporary folder");
        let at = |name: &str| root.path().join(name);
        let inside = at("Ebb.app/Contents/MacOS");
        fs::create_dir_all(at("shared")).expect("it can be made");
        fs::create_dir_all(&inside).expect("it can be made");
        fs::write(inside.join(NAME), "").expect("it can be written");
        Place {
            program: inside.join(NAME),
            shared: vec![at("missing"), at("shared")],
            home: at("home"),
            _root: root,
        }
    }

    fn target(link: &Path) -> Option<PathBuf> {
        fs::read_link(link).ok()
    }

    #[test]
    fn the_tool_is_linked_in_the_first_folder_that_exists() {
        let place = place();
        let message = install(&place.program, &place.shared, &place.home).expect("it is linked");
        let link = place.shared[1].join("ebb");
        assert_eq!(target(&link), Some(place.program.clone()));
        assert!(message.contains(&link.display().to_string()), "{message}");
        assert!(!place.home.exists(), "nothing else was made");
    }

    #[test]
    fn a_program_outside_of_an_app_is_not_linked() {
        let place = place();
        let built = place.home.join("ebb/target/release/ebb");
        let message = install(&built, &place.shared, &place.home).expect_err("refused");
        assert!(message.contains("make app"), "{message}");
        assert_eq!(target(&place.shared[1].join("ebb")), None);
    }

    #[test]
    fn an_older_link_is_replaced_and_another_program_is_not() {
        let place = place();
        let link = place.shared[1].join("ebb");
        symlink("/somewhere/old", &link).expect("a link");
        install(&place.program, &place.shared, &place.home).expect("it is replaced");
        assert_eq!(target(&link), Some(place.program.clone()));
        fs::remove_file(&link).expect("it is there");
        fs::write(&link, "#!/bin/sh").expect("another program");
        let message = install(&place.program, &place.shared, &place.home).expect_err("refused");
        assert!(message.contains("another program"), "{message}");
        assert_eq!(target(&link), None);
    }

    #[test]
    fn without_a_shared_folder_the_tool_goes_to_the_users_own() {
        let place = place();
        let message = install(&place.program, &[], &place.home).expect("it is linked");
        let link = place.home.join(".local/bin/ebb");
        assert_eq!(target(&link), Some(place.program.clone()));
        assert!(message.contains("export PATH="), "{message}");
    }

    #[test]
    fn a_program_on_a_disk_image_is_not_linked() {
        let place = place();
        for program in [
            "/Volumes/Ebb/Ebb.app/Contents/MacOS/ebb",
            "/private/var/folders/x/T/AppTranslocation/1/d/Ebb.app/Contents/MacOS/ebb",
        ] {
            let message = install(Path::new(program), &place.shared, &place.home);
            let message = message.expect_err("it will not last");
            assert!(message.contains("Applications folder"), "{message}");
        }
    }

    #[test]
    fn a_home_that_cannot_be_written_gives_the_command_to_run() {
        let place = place();
        fs::write(&place.home, "a file").expect("it can be written");
        let message = install(&place.program, &[], &place.home).expect_err("no folder");
        assert!(message.contains("sudo ln -sf"), "{message}");
    }
}
