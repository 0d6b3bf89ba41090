//! Same surface as `macos.rs`.

/// Niceness of the thread: a larger number is a lower priority.
const NICE: i32 = 10;

/// Lowers the priority of this thread. A failure is ignored: the work is then done as usual.
pub(super) fn lower_priority() {
    // SAFETY: 0 names the calling thread, and only its scheduling changes.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_thread_gives_way() {
        // SAFETY: 0 names the calling thread.
        let nice = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let before = nice();
        let lowered = std::thread::spawn(move || {
            lower_priority();
            nice()
        });
        assert_eq!(lowered.join().ok(), Some(before.max(NICE)));
        assert_eq!(nice(), before);
    }
}
