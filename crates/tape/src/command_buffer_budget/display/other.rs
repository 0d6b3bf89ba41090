//! Systems without Metal: no command buffer has a budget. Same interface as `macos.rs`.

/// False: the state of the display is not known.
pub(crate) fn is_asleep() -> bool {
    false
}
