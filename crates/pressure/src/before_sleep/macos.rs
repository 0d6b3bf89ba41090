//! macOS: the power notifications of `IOKit`. The system waits up to 30 seconds for an answer
//! before it sleeps. Same interface as `other.rs`.

use super::{BeforeSleep, SleepWatch};
use dispatch2::{DispatchQueue, DispatchRetained};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// `kIOMessageCanSystemSleep`: the machine is idle and asks whether it may sleep.
const CAN_SLEEP: u32 = 0xe000_0270;
/// `kIOMessageSystemWillSleep`: the machine will sleep.
const WILL_SLEEP: u32 = 0xe000_0280;

/// An opaque `IONotificationPort`.
#[repr(C)]
struct NotificationPort {
    _opaque: [u8; 0],
}

type Callback = extern "C-unwind" fn(*mut c_void, u32, u32, *mut c_void);

#[link(name = "IOKit", kind = "framework")]
unsafe extern "C-unwind" {
    fn IORegisterForSystemPower(
        context: *mut c_void,
        port: *mut *mut NotificationPort,
        callback: Callback,
        notifier: *mut u32,
    ) -> u32;
    fn IODeregisterForSystemPower(notifier: *mut u32) -> i32;
    fn IOAllowPowerChange(connection: u32, notification: isize) -> i32;
    fn IOServiceClose(connection: u32) -> i32;
    fn IONotificationPortSetDispatchQueue(port: *mut NotificationPort, queue: &DispatchQueue);
    fn IONotificationPortDestroy(port: *mut NotificationPort);
}

/// What the callback needs.
struct Context {
    before_sleep: BeforeSleep,
    connection: AtomicU32,
}

/// Calls back before the machine sleeps, until it is dropped.
struct PowerNotifications {
    context: *mut Context,
    port: *mut NotificationPort,
    notifier: u32,
    queue: DispatchRetained<DispatchQueue>,
}

// SAFETY: the pointers are used in `start` and `drop` only, and the callback shares nothing but the
// context, whose parts may be used from any thread.
unsafe impl Send for PowerNotifications {}

impl SleepWatch for PowerNotifications {}

/// Calls `before_sleep` on a system thread; the machine sleeps when it returns. `None` if the
/// system refuses to notify.
pub(super) fn open(before_sleep: BeforeSleep) -> Option<Box<dyn SleepWatch>> {
    Some(Box::new(PowerNotifications::start(before_sleep)?))
}

impl PowerNotifications {
    fn start(before_sleep: BeforeSleep) -> Option<Self> {
        let queue = DispatchQueue::new("ebb.sleep", None);
        let context = Box::into_raw(Box::new(Context {
            before_sleep,
            connection: AtomicU32::new(0),
        }));
        let (mut port, mut notifier) = (null_mut(), 0);
        // SAFETY: the context lives until `drop`, which ends the notifications first. Port and
        // notifier are written before the function returns.
        let connection = unsafe {
            IORegisterForSystemPower(context.cast(), &raw mut port, on_message, &raw mut notifier)
        };
        if connection == 0 {
            // SAFETY: the pointer comes from `Box::into_raw`, and no notification was registered.
            drop(unsafe { Box::from_raw(context) });
            return None;
        }
        // SAFETY: the context is alive. No message arrives before the port has a queue.
        unsafe {
            (*context).connection.store(connection, Ordering::Release);
            IONotificationPortSetDispatchQueue(port, &queue);
        }
        Some(PowerNotifications {
            context,
            port,
            notifier,
            queue,
        })
    }
}

extern "C-unwind" fn on_message(
    context: *mut c_void,
    _service: u32,
    message: u32,
    argument: *mut c_void,
) {
    // SAFETY: the context lives as long as messages can arrive.
    let context = unsafe { &*context.cast::<Context>() };
    if message == WILL_SLEEP {
        (context.before_sleep)();
    }
    if message == WILL_SLEEP || message == CAN_SLEEP {
        let connection = context.connection.load(Ordering::Acquire);
        // SAFETY: the connection is open, and the argument is the notification's number.
        unsafe { IOAllowPowerChange(connection, argument as isize) };
    }
}

impl Drop for PowerNotifications {
    fn drop(&mut self) {
        // A pointer may go to another thread only inside such a type.
        let port = AtomicPtr::new(self.port);
        // SAFETY: everything was made by `start`. The port is destroyed on its own queue, so that
        // no callback runs meanwhile. It delivers nothing more; after the queue has run dry no
        // callback runs, and the context can be freed.
        unsafe {
            IODeregisterForSystemPower(&raw mut self.notifier);
            self.queue
                .exec_sync(move || IONotificationPortDestroy(port.into_inner()));
            self.queue.exec_sync(|| {});
            IOServiceClose((*self.context).connection.load(Ordering::Acquire));
            drop(Box::from_raw(self.context));
        }
    }
}
