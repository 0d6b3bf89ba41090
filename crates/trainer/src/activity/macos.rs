//! Prevents App Nap and idle sleep on macOS. Same surface as `other.rs`.

use objc2::rc::Retained;
use objc2::runtime::{NSObjectProtocol, ProtocolObject};
use objc2_foundation::{NSActivityOptions, NSProcessInfo, NSString};

/// Prevents App Nap and idle sleep until it is dropped.
pub struct Activity(Retained<ProtocolObject<dyn NSObjectProtocol>>);

impl Activity {
    /// Tells macOS that the user started this activity.
    pub fn begin() -> Self {
        let reason = NSString::from_str("Ebb is training");
        let options = NSActivityOptions::UserInitiated;
        Activity(NSProcessInfo::processInfo().beginActivityWithOptions_reason(options, &reason))
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        // SAFETY: the token comes from `beginActivity` and is ended only here, once.
        unsafe { NSProcessInfo::processInfo().endActivity(&self.0) };
    }
}
