//! Prevents App Nap, and idle sleep while a run computes. Same surface as `other.rs`.

use super::Activity;
use objc2::rc::Retained;
use objc2::runtime::{NSObjectProtocol, ProtocolObject};
use objc2_foundation::{NSActivityOptions, NSProcessInfo, NSString};

/// An activity that macOS knows until this is dropped.
pub struct Token(Retained<ProtocolObject<dyn NSObjectProtocol>>);

impl Token {
    /// Tells macOS that the user started this activity.
    pub fn new(activity: Activity) -> Self {
        let (reason, options) = match activity {
            Activity::Computes => ("Ebb is training", NSActivityOptions::UserInitiated),
            Activity::Waits => (
                "Ebb waits",
                NSActivityOptions::UserInitiatedAllowingIdleSystemSleep,
            ),
        };
        let reason = NSString::from_str(reason);
        Token(NSProcessInfo::processInfo().beginActivityWithOptions_reason(options, &reason))
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        // SAFETY: the token comes from `beginActivity` and is ended only here, once.
        unsafe { NSProcessInfo::processInfo().endActivity(&self.0) };
    }
}
