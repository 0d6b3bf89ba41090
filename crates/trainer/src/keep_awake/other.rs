//! Does nothing on systems other than macOS. Same surface as `macos.rs`.

use super::Activity;

/// Stands for an activity.
pub struct Token;

impl Token {
    /// Does nothing.
    pub fn new(_activity: Activity) -> Self {
        Token
    }
}
