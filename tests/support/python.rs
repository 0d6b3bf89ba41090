//! The Python that exports are asked with. The tests of the trainer take it from here too.

use std::process::Command;

/// A Python that has what it takes ("torch, transformers"); where there is none, says so and gives
/// nothing.
pub fn python(needs: &str) -> Option<String> {
    let python = std::env::var("EBB_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let there = Command::new(&python)
        .args(["-c", &format!("import {needs}")])
        .output();
    if there.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    println!("skipped: {python} has not all of {needs}; EBB_PYTHON names one that has");
    None
}
