//! Finds the bundled sample: in the app's resources, or in the checkout during development.

use std::path::{Path, PathBuf};

/// Environment variable that names another folder.
const OVERRIDE: &str = "EBB_SAMPLE";
/// Path of the sample in the app's resources, and in the checkout.
const SAMPLE: &str = "sample/groceries";
/// Where an app keeps its resources, seen from a folder above the executable: a checkout, a Mac's
/// `Contents`, `/usr`.
const RESOURCES: [&str; 3] = ["", "Resources", "lib/Ebb"];

/// The folder of the bundled sample; `None` if it is missing.
pub fn find() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(OVERRIDE).filter(|named| !named.is_empty()) {
        return Some(PathBuf::from(named)).filter(|folder| folder.is_dir());
    }
    let executable = std::env::current_exe().ok()?;
    above(&executable.canonicalize().unwrap_or(executable))
}

/// The nearest sample above `executable`.
fn above(executable: &Path) -> Option<PathBuf> {
    let folders = executable.ancestors().skip(1);
    let places = folders.flat_map(|folder| RESOURCES.map(|place| folder.join(place).join(SAMPLE)));
    places.into_iter().find(|place| place.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_sample_is_found_in_a_checkout_and_in_a_bundle() {
        let check = |executable: &str, sample: &str| {
            let root = tempfile::tempdir().expect("a temporary folder");
            assert_eq!(above(&root.path().join(executable)), None);
            fs::create_dir_all(root.path().join(sample)).expect("it can be made");
            let found = above(&root.path().join(executable)).expect("it is there");
            let relative = found.strip_prefix(root.path()).expect("it lies inside");
            assert_eq!(
                relative.components().collect::<PathBuf>(),
                Path::new(sample)
            );
        };
        check("target/release/ebb", "sample/groceries");
        check("target/release/deps/ebb-1234", "sample/groceries");
        check(
            "Ebb.app/Contents/MacOS/ebb",
            "Ebb.app/Contents/Resources/sample/groceries",
        );
        check("usr/bin/ebb", "usr/lib/Ebb/sample/groceries");
    }
}
