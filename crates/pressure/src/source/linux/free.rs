//! What nothing is in, of the whole machine: one number, for which the kernel writes no text. Knows nothing of what is available.

use super::files::Kept;
use std::mem::MaybeUninit;
use std::path::Path;

/// Who says it.
pub(super) enum Free {
    /// The kernel, by a call.
    Kernel,
    /// A file like `/proc/meminfo`, below another root than the machine's.
    File(Option<Kept>),
}

impl Free {
    /// Below `root`.
    pub(super) fn open(root: &Path) -> Self {
        match root == Path::new("/") {
            true => Self::Kernel,
            false => Self::File(Kept::open(&root.join("proc/meminfo")).ok()),
        }
    }

    /// Free memory now, bytes; nothing where nobody says.
    pub(super) fn bytes(&self) -> Option<u64> {
        match self {
            Self::Kernel => kernel(),
            Self::File(file) => Some(file.as_ref()?.named(["MemFree"]).ok()?[0]? * 1024),
        }
    }
}

fn kernel() -> Option<u64> {
    let mut said = MaybeUninit::<libc::sysinfo>::zeroed();
    // SAFETY: `said` is writable and of the type that the call fills.
    let code = unsafe { libc::sysinfo(said.as_mut_ptr()) };
    if code != 0 {
        return None;
    }
    // SAFETY: the call succeeded and filled the struct of plain numbers, which was zeroed before.
    let said = unsafe { said.assume_init() };
    Some(said.freeram * u64::from(said.mem_unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_what_its_file_says() {
        let [file, kernel] = [
            Free::File(Kept::open(Path::new("/proc/meminfo")).ok()),
            Free::Kernel,
        ];
        // Others take and give back meanwhile, but not half of what is free in each of ten tries.
        let alike = (0..10).any(|_| {
            let [file, kernel] = [&file, &kernel].map(|free| free.bytes().unwrap_or(0) as f64);
            kernel > 0.0 && (file / kernel - 1.0).abs() < 0.1
        });
        assert!(alike);
    }
}
