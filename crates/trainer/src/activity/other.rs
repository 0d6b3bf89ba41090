//! Does nothing on systems other than macOS. Same surface as `macos.rs`.

/// Does nothing.
pub struct Activity;

impl Activity {
    /// Does nothing.
    pub fn begin() -> Self {
        Activity
    }
}
