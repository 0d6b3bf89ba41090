//! The NCCL library of this machine. Only the functions that Ebb uses are loaded.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// The environment variable with the path of the library, instead of [`NAMES`]; `none` if GPUs
/// exchange nothing directly.
pub const NCCL_VARIABLE: &str = "EBB_NCCL";
/// What NCCL reads from the environment. A sum in a ring has a fixed order, so a run can be
/// repeated; sums of NVLink's switches need not have one. The processes find each other through the
/// loopback interface, because they are on one machine.
pub const NCCL_ENVIRONMENT: [(&str, &str); 3] = [
    ("NCCL_ALGO", "Ring"),
    ("NCCL_NVLS_ENABLE", "0"),
    ("NCCL_SOCKET_IFNAME", "lo"),
];
const NO_LIBRARY: &str = "none";
const NAMES: &[&str] = &["libnccl.so.2", "libnccl.so"];
/// The first version whose calls need not wait for other processes, 2.14, and the first one whose
/// interface may be another one.
const VERSIONS: std::ops::Range<c_int> = 21_400..30_000;
/// `NCCL_API_MAGIC`.
const CONFIG_MAGIC: c_uint = 0xcafe_beef;
/// `NCCL_CONFIG_UNDEF_INT`.
const UNDEFINED: c_int = c_int::MIN;

/// `ncclSuccess` and `ncclInProgress`.
pub(super) const SUCCESS: c_int = 0;
pub(super) const IN_PROGRESS: c_int = 7;
/// `ncclFloat32`, `ncclFloat64` and `ncclSum`.
pub(super) const FLOAT: c_int = 7;
pub(super) const DOUBLE: c_int = 8;
pub(super) const SUM: c_int = 0;
/// `NCCL_UNIQUE_ID_BYTES`.
const ID_BYTES: usize = 128;

/// `ncclComm_t`.
pub(super) type Handle = *mut c_void;

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct UniqueId([u8; ID_BYTES]);

impl UniqueId {
    /// The identifier that another process has sent.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let bytes = bytes.try_into().map(UniqueId);
        bytes.map_err(|_| "the identifier of the connection has the wrong size".to_owned())
    }
}

/// `ncclConfig_t` of version 2.14, which all later versions accept.
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    /// A field of later versions. Here it is only padding.
    undefined: c_int,
}

impl Config {
    /// Calls return at once.
    pub(super) fn non_blocking() -> Self {
        Config {
            size: size_of::<Config>(),
            magic: CONFIG_MAGIC,
            version: VERSIONS.start as c_uint,
            blocking: 0,
            undefined: UNDEFINED,
        }
    }
}

macro_rules! functions {
    ($($name:ident: $symbol:literal ($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions of NCCL that Ebb uses.
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            /// # Safety
            /// The library is NCCL: the functions have the types below.
            unsafe fn load(library: &libloading::Library) -> Result<Self, libloading::Error> {
                Ok(Functions {
                    $($name: {
                        // SAFETY: the caller vouches for the type of the symbol.
                        *unsafe {
                            library.get::<unsafe extern "C" fn($($argument),*) -> $result>($symbol)
                        }?
                    },)*
                })
            }
        }
    };
}

functions! {
    version: "ncclGetVersion" (*mut c_int) -> c_int;
    new_id: "ncclGetUniqueId" (*mut UniqueId) -> c_int;
    begin: "ncclCommInitRankConfig" (*mut Handle, c_int, UniqueId, c_int, *mut Config) -> c_int;
    state: "ncclCommGetAsyncError" (Handle, *mut c_int) -> c_int;
    abort: "ncclCommAbort" (Handle) -> c_int;
    start_group: "ncclGroupStart" () -> c_int;
    end_group: "ncclGroupEnd" () -> c_int;
    sum: "ncclAllReduce"
        (*const c_void, *mut c_void, usize, c_int, c_int, Handle, *mut c_void) -> c_int;
    spread: "ncclBroadcast"
        (*const c_void, *mut c_void, usize, c_int, c_int, Handle, *mut c_void) -> c_int;
    error_text: "ncclGetErrorString" (c_int) -> *const c_char;
    last_error: "ncclGetLastError" (Handle) -> *const c_char;
}

/// A loaded library. It stays loaded until the process ends.
pub(super) struct Library {
    pub(super) functions: Functions,
    version: c_int,
    /// Where it was found.
    path: String,
    _library: libloading::Library,
}

/// The library of this process, which is looked for once.
pub(super) fn find() -> &'static Result<Library, String> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    LIBRARY.get_or_init(|| first(std::env::var(NCCL_VARIABLE).ok().as_deref()))
}

/// The library that the variable names, or the first one that can be used.
fn first(named: Option<&str>) -> Result<Library, String> {
    let named = named.filter(|name| !name.is_empty());
    if named == Some(NO_LIBRARY) {
        return Err(format!("{NCCL_VARIABLE} is {NO_LIBRARY}"));
    }
    let names = named.map_or(NAMES.to_vec(), |name| vec![name]);
    let mut problems = Vec::new();
    for name in names {
        match Library::open(name) {
            Ok(library) => return Ok(library),
            Err(problem) => problems.push(problem),
        }
    }
    Err(format!("NCCL cannot be used ({})", problems.join("; ")))
}

/// Why a library or one of its functions cannot be used. The system's own text names the library
/// in most cases.
fn reason(name: &str, error: &libloading::Error) -> String {
    let source = std::error::Error::source(error);
    let text = source.map_or_else(|| error.to_string(), ToString::to_string);
    if text.contains(name) {
        text
    } else {
        format!("{name}: {text}")
    }
}

impl Library {
    /// Loads a library.
    ///
    /// # Errors
    /// It cannot be loaded, is not NCCL, or has another version.
    pub(super) fn open(path: &str) -> Result<Self, String> {
        // SAFETY: the library is what this system, or the user by a variable, calls NCCL. Its
        // initializers are trusted as those of any library of the system.
        let library = unsafe { libloading::Library::new(path) };
        let library = library.map_err(|error| reason(path, &error))?;
        // SAFETY: as above.
        let functions = unsafe { Functions::load(&library) };
        let functions = functions.map_err(|error| reason(path, &error))?;
        let mut version = 0;
        // SAFETY: the number lives during the call.
        let code = unsafe { (functions.version)(&mut version) };
        if code != SUCCESS || !VERSIONS.contains(&version) {
            return Err(format!(
                "{path} has version {}, but Ebb needs NCCL 2, from version 2.14 on",
                version_text(version)
            ));
        }
        Ok(Library {
            functions,
            version,
            path: path.to_owned(),
            _library: library,
        })
    }

    /// Such as `NCCL 2.28.3`.
    pub(super) fn name(&self) -> String {
        format!("NCCL {}", version_text(self.version))
    }

    /// The name, and where it was found.
    pub(super) fn describe(&self) -> String {
        format!("{} ({})", self.name(), self.path)
    }

    /// The bytes of a new identifier of a connection.
    pub(super) fn new_id(&self) -> Result<Vec<u8>, String> {
        let mut id = UniqueId([0; ID_BYTES]);
        // SAFETY: the identifier lives during the call.
        let code = unsafe { (self.functions.new_id)(&mut id) };
        self.check(code, std::ptr::null_mut())?;
        Ok(id.0.to_vec())
    }

    /// Whether a call is complete, according to its code.
    ///
    /// # Errors
    /// The code is that of a failed call.
    pub(super) fn check(&self, code: c_int, communicator: Handle) -> Result<bool, String> {
        if code == SUCCESS || code == IN_PROGRESS {
            return Ok(code == SUCCESS);
        }
        // SAFETY: NCCL returns a text for every code, and the last error also without a
        // communicator.
        let (text, last) = unsafe {
            (
                (self.functions.error_text)(code),
                (self.functions.last_error)(communicator),
            )
        };
        let [text, last] = [text, last].map(|text| {
            if text.is_null() {
                return String::new();
            }
            // SAFETY: NCCL's texts end with a zero byte, and are copied before its next call.
            let text = unsafe { CStr::from_ptr(text) };
            text.to_string_lossy().trim().to_owned()
        });
        let separator = if last.is_empty() { "" } else { ": " };
        Err(format!("NCCL failed: {text}{separator}{last}"))
    }
}

/// The text of NCCL's number of a version.
fn version_text(version: c_int) -> String {
    format!(
        "{}.{}.{}",
        version / 10_000,
        version / 100 % 100,
        version % 100
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(named: Option<&str>) -> String {
        first(named).err().expect("there is no such library")
    }

    #[test]
    fn a_missing_library_is_a_sentence() {
        let text = refused(Some("/nowhere/libnccl.so.2"));
        assert!(
            text.starts_with("NCCL cannot be used (/nowhere/libnccl.so.2: "),
            "{text}"
        );
        assert!(!text.contains('\n'), "{text}");
        assert_eq!(refused(Some("none")), "EBB_NCCL is none");
    }

    #[test]
    fn another_library_is_a_sentence() {
        let library = if cfg!(target_os = "macos") {
            "libSystem.B.dylib"
        } else {
            "libc.so.6"
        };
        let text = refused(Some(library));
        assert!(
            text.starts_with("NCCL cannot be used (") && text.contains("ncclGetVersion"),
            "{text}"
        );
    }

    #[test]
    fn versions_are_named_as_nvidia_names_them() {
        assert_eq!(version_text(21_403), "2.14.3");
        assert_eq!(version_text(23_203), "2.32.3");
    }
}
