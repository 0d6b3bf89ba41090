//! Keeps the system awake while a run computes, but not while it waits for the user or for
//! memory, which can take hours. One file per platform with the same surface.

#[cfg_attr(target_os = "macos", path = "keep_awake/macos.rs")]
#[cfg_attr(not(target_os = "macos"), path = "keep_awake/other.rs")]
mod platform;

use platform::Token;
use std::cell::RefCell;

/// What the training thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// It computes: the system stays awake.
    Computes,
    /// It waits: the system may sleep.
    Waits,
}

thread_local! {
    static CURRENT: RefCell<Option<(Activity, Token)>> = const { RefCell::new(None) };
}

/// Ends the activity of this thread when it is dropped.
pub struct Awake(());

impl Awake {
    /// Begins to compute on this thread.
    pub fn begin() -> Self {
        let activity = Activity::Computes;
        CURRENT.set(Some((activity, Token::new(activity))));
        Awake(())
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

/// Says what this thread does from now on. Costs nothing if that is no change, and does nothing
/// outside [`Awake`].
pub fn set(activity: Activity) {
    CURRENT.with_borrow_mut(|current| {
        if let Some((now, token)) = current
            && *now != activity
        {
            // The new token exists before the old one ends.
            *token = Token::new(activity);
            *now = activity;
        }
    });
}

/// What this thread does; `None` outside [`Awake`].
pub fn current() -> Option<Activity> {
    CURRENT.with_borrow(|current| current.as_ref().map(|(activity, _)| *activity))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_lets_the_system_sleep() {
        set(Activity::Waits);
        assert_eq!(current(), None, "nothing has begun");
        let awake = Awake::begin();
        assert_eq!(current(), Some(Activity::Computes));
        set(Activity::Waits);
        assert_eq!(current(), Some(Activity::Waits));
        set(Activity::Computes);
        assert_eq!(current(), Some(Activity::Computes));
        drop(awake);
        assert_eq!(current(), None);
    }
}
