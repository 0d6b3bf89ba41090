//! The MPI library of this machine, loaded at run time: Open MPI's own interface (versions 4 and
//! 5), or the standard interface of MPI 5.0 (MPICH 5, Open MPI 6). Ebb is built without any MPI.

use crate::error::{GroupError, Result};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::error::Error;
use std::ffi::{c_char, c_int, c_void};
use std::mem::ManuallyDrop;

/// An object of MPI: an address or a small number, depending on the interface.
pub(super) type Handle = *mut c_void;

/// Names the library, instead of [`OPEN_MPI`] and [`STANDARD`].
pub(super) const VARIABLE: &str = "EBB_MPI";
const OPEN_MPI: &[&str] = &[
    "libmpi.so.40",
    "libmpi.40.dylib",
    "/opt/homebrew/lib/libmpi.40.dylib",
    "/usr/local/lib/libmpi.40.dylib",
];
const STANDARD: &[&str] = &[
    "libmpi_abi.so.1",
    "libmpi_abi.so.0",
    "libmpi_abi.1.dylib",
    "libmpi_abi.0.dylib",
    "/opt/homebrew/lib/libmpi_abi.0.dylib",
];
/// Bytes of the longest text that MPI returns.
const TEXT_BYTES: usize = 8192;

/// The send buffer of a rank whose values are already in the receive buffer, in both interfaces.
pub(super) const IN_PLACE: *const c_void = std::ptr::without_provenance(1);
/// Any sender, in both interfaces.
pub(super) const ANY_SOURCE: c_int = -1;

/// `MPI_Status`: 24 or 32 bytes. It begins with the sender in both interfaces.
#[repr(C, align(8))]
#[derive(Default)]
pub(super) struct Status {
    pub(super) source: c_int,
    rest: [c_int; 31],
}

macro_rules! functions {
    ($(#[$about:meta])* $set:ident; $($name:ident: $symbol:literal ($($argument:ty),*);)*) => {
        $(#[$about])*
        pub(super) struct $set {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl $set {
            /// # Safety
            /// The library is an MPI library: the functions have the types below.
            unsafe fn load(library: &Library) -> std::result::Result<Self, libloading::Error> {
                Ok($set {
                    $($name: {
                        // SAFETY: the caller vouches for the type of the symbol.
                        *unsafe {
                            library.get::<unsafe extern "C" fn($($argument),*) -> c_int>($symbol)
                        }?
                    },)*
                })
            }
        }
    };
}

functions! {
    /// The functions of MPI that Ebb uses.
    Functions;
    init_thread: "MPI_Init_thread" (*mut c_int, *mut c_void, c_int, *mut c_int);
    finalize: "MPI_Finalize" ();
    abort: "MPI_Abort" (Handle, c_int);
    comm_rank: "MPI_Comm_rank" (Handle, *mut c_int);
    comm_size: "MPI_Comm_size" (Handle, *mut c_int);
    set_error_handler: "MPI_Comm_set_errhandler" (Handle, Handle);
    error_string: "MPI_Error_string" (c_int, *mut c_char, *mut c_int);
    start_send: "MPI_Isend" (*const c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    start_receive: "MPI_Irecv" (*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    probe: "MPI_Iprobe" (c_int, c_int, Handle, *mut c_int, *mut Status);
    count: "MPI_Get_count" (*const Status, Handle, *mut c_int);
    test: "MPI_Test" (*mut Handle, *mut c_int, *mut Status);
    start_reduce: "MPI_Ireduce"
        (*const c_void, *mut c_void, c_int, Handle, Handle, c_int, Handle, *mut Handle);
    start_broadcast: "MPI_Ibcast" (*mut c_void, c_int, Handle, c_int, Handle, *mut Handle);
}

functions! {
    /// The functions with which processes continue after one of them has ended ("user-level failure
    /// mitigation", ULFM). Open MPI has them since version 5.
    FaultFunctions;
    is_revoked: "MPIX_Comm_is_revoked" (Handle, *mut c_int);
    failed: "MPIX_Comm_get_failed" (Handle, *mut Handle);
    revoke: "MPIX_Comm_revoke" (Handle);
    start_agreement: "MPIX_Comm_iagree" (Handle, *mut c_int, *mut Handle);
    shrink: "MPIX_Comm_shrink" (Handle, *mut Handle);
    comm_group: "MPI_Comm_group" (Handle, *mut Handle);
    group_size: "MPI_Group_size" (Handle, *mut c_int);
    translate_ranks: "MPI_Group_translate_ranks" (Handle, c_int, *const c_int, Handle, *mut c_int);
    free_group: "MPI_Group_free" (*mut Handle);
}

/// Objects that the two interfaces name differently.
pub(super) struct Objects {
    pub(super) world: Handle,
    pub(super) float: Handle,
    pub(super) double: Handle,
    pub(super) byte: Handle,
    pub(super) sum: Handle,
    errors_return: Handle,
    /// The thread that initializes MPI makes all calls.
    funneled: c_int,
}

impl Objects {
    /// Open MPI's objects are addresses of symbols.
    fn for_open_mpi(address: impl Fn(&str) -> Option<Handle>) -> Option<Self> {
        Some(Objects {
            world: address("ompi_mpi_comm_world")?,
            float: address("ompi_mpi_float")?,
            double: address("ompi_mpi_double")?,
            byte: address("ompi_mpi_byte")?,
            sum: address("ompi_mpi_op_sum")?,
            errors_return: address("ompi_mpi_errors_return")?,
            funneled: 1,
        })
    }

    /// The objects of MPI 5.0, chapter 20, are numbers.
    fn for_standard() -> Self {
        let object = |number: usize| number as Handle;
        Objects {
            world: object(0x101),
            float: object(0x210),
            double: object(0x214),
            byte: object(0x247),
            sum: object(0x21),
            errors_return: object(0x143),
            funneled: 1024,
        }
    }
}

/// Why a library or one of its functions cannot be used. The system's own text names the library
/// in most cases.
fn reason(name: &str, error: &libloading::Error) -> String {
    let text = error
        .source()
        .map_or_else(|| error.to_string(), |source| source.to_string());
    if text.contains(name) {
        text
    } else {
        format!("{name}: {text}")
    }
}

/// A loaded and initialized MPI library. It stays loaded until the process ends: MPI registers
/// functions that run at its end.
pub(super) struct MpiLibrary {
    pub(super) functions: Functions,
    /// `None` if the library cannot continue after a process has ended.
    pub(super) fault_functions: Option<FaultFunctions>,
    pub(super) objects: Objects,
    /// Where it was found.
    pub(super) name: String,
    _library: ManuallyDrop<Library>,
}

impl MpiLibrary {
    /// Loads MPI and initializes it on this thread.
    ///
    /// # Errors
    /// No usable library is found, or it cannot be initialized.
    pub(super) fn load(prefers_open_mpi: bool) -> Result<Self> {
        let library = MpiLibrary::first(prefers_open_mpi)?;
        library.initialize()?;
        Ok(library)
    }

    /// The name of the library that is loaded under the launcher of Open MPI.
    ///
    /// # Errors
    /// No usable library is found.
    pub(super) fn find() -> Result<String> {
        MpiLibrary::first(true).map(|library| library.name)
    }

    /// Whether the library that is loaded under the launcher of Open MPI can continue after a
    /// process has ended.
    pub(super) fn tolerates_faults() -> bool {
        MpiLibrary::first(true).is_ok_and(|library| library.fault_functions.is_some())
    }

    /// Opens the first library that can be used.
    fn first(prefers_open_mpi: bool) -> Result<Self> {
        let named = std::env::var(VARIABLE).ok();
        let names: Vec<&str> = match &named {
            Some(name) => vec![name],
            None if prefers_open_mpi => [OPEN_MPI, STANDARD].concat(),
            None => [STANDARD, OPEN_MPI].concat(),
        };
        let mut problems = Vec::new();
        for name in names {
            match MpiLibrary::open(name) {
                Ok(library) => return Ok(library),
                Err(problem) => problems.push(problem),
            }
        }
        Err(GroupError::Unavailable(format!(
            "no MPI library can be used ({}); install Open MPI (Debian: apt-get install openmpi-bin, Mac: brew install open-mpi), or set {VARIABLE} to the path of the library",
            problems.join("; ")
        )))
    }

    fn open(name: &str) -> std::result::Result<Self, String> {
        // Open MPI's plug-ins look its symbols up globally.
        // SAFETY: the library is what this system, or the user by a variable, calls MPI. Its
        // initializers are trusted as those of any library of the system.
        let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) };
        let library = ManuallyDrop::new(library.map_err(|error| reason(name, &error))?);
        let address = |symbol: &str| -> Option<Handle> {
            // SAFETY: only the address of the symbol is used.
            let found = unsafe { library.get::<Handle>(symbol) };
            found.ok().map(|symbol| symbol.as_raw_ptr())
        };
        let (objects, is_open_mpi) = match Objects::for_open_mpi(address) {
            Some(objects) => (objects, true),
            None if address("MPI_Abi_get_version").is_some() => (Objects::for_standard(), false),
            None => {
                return Err(format!(
                    "{name} has neither the ABI of Open MPI nor the standard ABI of MPI 5.0"
                ));
            }
        };
        // SAFETY: it has the symbols of an MPI library.
        let functions = unsafe { Functions::load(&library) };
        // Others may have functions of these names with other types.
        // SAFETY: as above.
        let fault_functions = is_open_mpi.then(|| unsafe { FaultFunctions::load(&library) });
        Ok(MpiLibrary {
            functions: functions.map_err(|error| reason(name, &error))?,
            fault_functions: fault_functions.and_then(std::result::Result::ok),
            objects,
            name: name.to_owned(),
            _library: library,
        })
    }

    fn initialize(&self) -> Result<()> {
        let mut provided = 0;
        // SAFETY: MPI may be given no arguments. It is initialized once in this process, because
        // a process joins one group.
        let code = unsafe {
            (self.functions.init_thread)(
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                self.objects.funneled,
                &mut provided,
            )
        };
        self.check(code)?;
        self.return_errors(self.objects.world)
    }

    /// Makes the calls with this communicator return errors, instead of ending the process.
    pub(super) fn return_errors(&self, world: Handle) -> Result<()> {
        // SAFETY: both objects are those of the library, which is initialized.
        let code = unsafe { (self.functions.set_error_handler)(world, self.objects.errors_return) };
        self.check(code)
    }

    /// # Errors
    /// `code` is that of a failed call.
    pub(super) fn check(&self, code: c_int) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let (mut text, mut length) = (vec![0u8; TEXT_BYTES], 0);
        // SAFETY: the buffer is longer than any text of MPI.
        unsafe { (self.functions.error_string)(code, text.as_mut_ptr().cast(), &mut length) };
        text.truncate(usize::try_from(length).unwrap_or(0));
        let text = String::from_utf8_lossy(&text).into_owned();
        Err(GroupError::Connection(text))
    }
}
