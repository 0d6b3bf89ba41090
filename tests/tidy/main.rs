//! Rules that no compiler checks: which crate may import which, how a file starts, how long a
//! function may be, how it takes its arguments, which words are not used. Each rule is a function
//! from text to complaints. It is tested on the project and on a planted fault.

mod autorelease_pools;
mod lengths;
mod crate_imports;
mod links;
mod mac_scripts_and_bundle;
mod metal;
mod module_cycles;
mod python_scripts;
mod same_features;
mod sources;
mod consistency;
mod dependencies;
mod durable_files;
mod trainer_exports;
mod tuple_arguments;
mod unsafe_code;
mod without_window;
mod words;

/// The checkout that is being tested.
fn root() -> &'static std::path::Path {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Fails with all complaints, one per line.
fn none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}
