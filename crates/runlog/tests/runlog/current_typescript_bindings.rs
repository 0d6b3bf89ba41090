//! The committed TypeScript types match the Rust types.

use runlog::{PullHeader, RunEvent};
use std::path::Path;
use ts_rs::TS;

fn generated() -> &'static Path {
    Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../ui/src/generated"
    ))
}

#[test]
fn bindings_are_current() {
    let fresh = tempfile::tempdir().expect("a temporary folder");
    let checked = runlog::check_typescript_bindings::check(generated(), fresh.path(), |config| {
        RunEvent::export_all(config)?;
        PullHeader::export_all(config)
    });
    assert_eq!(checked, Ok(()));
}

#[test]
fn a_stale_binding_is_named() {
    let fresh = tempfile::tempdir().expect("a temporary folder");
    let stale = tempfile::tempdir().expect("a temporary folder");
    let checked = runlog::check_typescript_bindings::check(stale.path(), fresh.path(), |config| {
        runlog::RunStatus::export_all(config)
    });
    if std::env::var_os(runlog::check_typescript_bindings::UPDATE).is_none() {
        let message = checked.expect_err("nothing is committed there");
        assert!(message.contains("RunStatus.ts"), "{message}");
    }
}
