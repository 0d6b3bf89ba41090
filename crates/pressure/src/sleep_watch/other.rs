//! Systems that are not asked about sleep. Same interface as `macos.rs`.

/// Does nothing.
pub struct SleepWatch;

impl SleepWatch {
    /// Never calls `before_sleep`.
    pub fn start(_before_sleep: impl Fn() + Send + Sync + 'static) -> Option<Self> {
        None
    }
}
