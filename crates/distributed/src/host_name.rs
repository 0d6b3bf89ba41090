//! The name of this machine.

/// The host name, or `localhost` if the system does not give one.
pub fn host_name() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the buffer is as long as stated, and is only read up to its first zero byte.
    let failed = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) } != 0;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    if failed || name.is_empty() {
        return "localhost".to_owned();
    }
    String::from_utf8_lossy(name).into_owned()
}
