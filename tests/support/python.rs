//! Finds the Python interpreter that checks exported models. The tests of the trainer and of the
//! window's exports include this file too.

use std::process::Command;

/// The Python interpreter that can import all of `modules`, such as "torch, transformers". Without
/// one, says on stderr that the test is left out.
///
/// # Panics
/// If `EBB_PYTHON_MODULES` lists all of these modules: then the test must not be left out.
pub fn python(modules: &str) -> Option<String> {
    let python = std::env::var("EBB_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let import = Command::new(&python)
        .args(["-c", &format!("import {modules}")])
        .output();
    if import.as_ref().is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    let required = std::env::var("EBB_PYTHON_MODULES").unwrap_or_default();
    assert!(
        !lists_all(&required, modules),
        "{python} cannot import {modules}, but EBB_PYTHON_MODULES lists them: {import:?}"
    );
    eprintln!(
        "left out: {python} cannot import {modules}; set EBB_PYTHON to a Python that can, or make one with scripts/test-python"
    );
    None
}

/// Whether the first list of modules has all of the second one.
fn lists_all(required: &str, modules: &str) -> bool {
    let required: Vec<&str> = required.split(',').map(str::trim).collect();
    let mut modules = modules.split(',').map(str::trim);
    modules.all(|module| required.contains(&module))
}

#[test]
fn only_a_test_whose_modules_are_all_required_must_run() {
    let required = "coremltools, numpy, onnxruntime";
    assert!(lists_all(required, "numpy, coremltools"));
    assert!(!lists_all(required, "numpy, torch"));
    assert!(!lists_all("", "numpy"));
}
