//! Everything but macOS: nothing naps here. Same surface as the macOS file beside it.

/// Held while a training runs.
pub struct Activity;

impl Activity {
    /// Begins the activity.
    pub fn begin() -> Self {
        Activity
    }
}
