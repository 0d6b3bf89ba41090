//! The footprint of this process on Linux, from `/proc/self`.

use super::kernel_file::KernelFile;
use std::path::Path;
use std::sync::OnceLock;

/// Bytes of a page if the system does not say.
const DEFAULT_PAGE_BYTES: u64 = 4096;
/// Key of the page size in the auxiliary vector.
const AT_PAGESZ: u64 = 6;

/// Bytes of a page according to the auxiliary vector of this process.
pub(super) fn page_bytes(root: &Path) -> u64 {
    let Ok(vector) = std::fs::read(root.join("proc/self/auxv")) else {
        return DEFAULT_PAGE_BYTES;
    };
    let words: Vec<u64> = vector
        .chunks_exact(8)
        .filter_map(|word| word.try_into().ok().map(u64::from_ne_bytes))
        .collect();
    words
        .chunks_exact(2)
        .find(|entry| entry[0] == AT_PAGESZ)
        .map_or(DEFAULT_PAGE_BYTES, |entry| entry[1])
}

/// Footprint of this process, in bytes: its resident set; 0 if it cannot be read. Takes about a
/// microsecond. The file is opened once, since `/proc/self` is resolved when it is opened.
pub fn own_footprint_bytes() -> u64 {
    static STATM: OnceLock<Option<(KernelFile, u64)>> = OnceLock::new();
    let open = || {
        Some((
            KernelFile::open(Path::new("/proc/self/statm")).ok()?,
            page_bytes(Path::new("/")),
        ))
    };
    let Some((statm, page)) = STATM.get_or_init(open) else {
        return 0;
    };
    statm.numbers::<2>().map_or(0, |[_, resident]| resident) * page
}

/// Highest footprint of this process since the last call, in bytes. The kernel counts it exactly,
/// and the call resets it. `None` if the kernel does not allow that.
pub fn take_own_peak_bytes() -> Option<u64> {
    static STATUS: OnceLock<Option<KernelFile>> = OnceLock::new();
    let status = STATUS
        .get_or_init(|| KernelFile::open(Path::new("/proc/self/status")).ok())
        .as_ref()?;
    let peak = status.named(["VmHWM"]).ok()?[0]? * 1024;
    std::fs::write("/proc/self/clear_refs", "5").ok()?;
    Some(peak)
}
