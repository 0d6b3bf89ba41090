//! Finds the Python interpreter that checks exported models. The tests of the trainer include this
//! file too.

use std::process::Command;

/// The Python interpreter that can import all of `modules`, such as "torch, transformers". Prints
/// why the test is skipped if import is none.
pub fn python(modules: &str) -> Option<String> {
    let python = std::env::var("EBB_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let import = Command::new(&python)
        .args(["-c", &format!("import {modules}")])
        .output();
    if import.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    println!("skipped: {python} cannot import {modules}; set EBB_PYTHON to one that can");
    None
}
