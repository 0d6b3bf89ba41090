//! Same surface as `other.rs`.

/// Lowers the priority of this thread. A failure is ignored: the work is then done as usual.
pub(super) fn lower_priority() {
    // SAFETY: it only changes how this thread is scheduled.
    unsafe { libc::pthread_set_qos_class_self_np(libc::qos_class_t::QOS_CLASS_UTILITY, 0) };
}
