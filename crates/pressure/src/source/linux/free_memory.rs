//! Free memory of the machine, excluding the page cache. One number, which the kernel returns
//! without formatting text.

use super::kernel_file::KernelFile;
use std::mem::MaybeUninit;
use std::path::Path;

/// Where free memory is read.
pub(super) enum FreeMemory {
    /// A system call.
    Kernel,
    /// A file like `/proc/meminfo`, below another root.
    File(Option<KernelFile>),
}

impl FreeMemory {
    /// Opens the reading below `root`.
    pub(super) fn open(root: &Path) -> Self {
        if root == Path::new("/") {
            Self::Kernel
        } else {
            Self::File(KernelFile::open(&root.join("proc/meminfo")).ok())
        }
    }

    /// Free memory now, in bytes; `None` if it cannot be read.
    pub(super) fn bytes(&self) -> Option<u64> {
        match self {
            Self::Kernel => from_kernel(),
            Self::File(file) => Some(file.as_ref()?.named(["MemFree"]).ok()?[0]? * 1024),
        }
    }
}

fn from_kernel() -> Option<u64> {
    let mut info = MaybeUninit::<libc::sysinfo>::zeroed();
    // SAFETY: `info` is writable and of the type that the call fills.
    let code = unsafe { libc::sysinfo(info.as_mut_ptr()) };
    if code != 0 {
        return None;
    }
    // SAFETY: the call succeeded and filled the struct of plain numbers, which was zeroed before.
    let info = unsafe { info.assume_init() };
    Some(info.freeram * u64::from(info.mem_unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_call_agrees_with_meminfo() {
        let [file, kernel] = [
            FreeMemory::File(KernelFile::open(Path::new("/proc/meminfo")).ok()),
            FreeMemory::Kernel,
        ];
        // Free memory changes meanwhile, but not by much in each of ten tries.
        let alike = (0..10).any(|_| {
            let [file, kernel] = [&file, &kernel].map(|free| free.bytes().unwrap_or(0) as f64);
            kernel > 0.0 && (file / kernel - 1.0).abs() < 0.1
        });
        assert!(alike);
    }
}
