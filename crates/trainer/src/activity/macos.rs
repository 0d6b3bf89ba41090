//! App Nap and idle sleep on macOS. Same surface as the file for other systems beside it.

use objc2::rc::Retained;
use objc2::runtime::{NSObjectProtocol, ProtocolObject};
use objc2_foundation::{NSActivityOptions, NSProcessInfo, NSString};

/// Held while a training runs: without it App Nap slows the process and the Mac may fall asleep.
pub struct Activity(Retained<ProtocolObject<dyn NSObjectProtocol>>);

impl Activity {
    /// Begins the activity on this thread.
    pub fn begin() -> Self {
        let reason = NSString::from_str("Ebb is training");
        let options = NSActivityOptions::UserInitiated;
        Activity(NSProcessInfo::processInfo().beginActivityWithOptions_reason(options, &reason))
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        // SAFETY: the token came from `beginActivity` and is ended once, here.
        unsafe { NSProcessInfo::processInfo().endActivity(&self.0) };
    }
}
