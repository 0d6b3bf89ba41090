//! The rules of the house that no compiler checks: who may import whom, how a file opens, how long
//! it may grow, which words stay out. Each rule is a function from text to complaints, tried once
//! on the project and once on something planted. Refuses to know what the code does.

mod functions;
mod imports;
mod links;
mod mac;
mod modules;
mod sources;
mod texts;
mod words;

/// The checkout that is being tested.
fn root() -> &'static std::path::Path {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Fails with every complaint, one a line.
fn none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}
