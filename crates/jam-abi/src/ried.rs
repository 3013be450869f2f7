//! What receiver and ried know of each other, as both see it in memory. A *ried* is a shared library
//! with functions for jams; it is loaded into a running process.
//!
//! ```text
//!   ried                                        receiver
//!   gossamer_ried: RiedData --> exports         name, signature, two addresses each
//!                           --> imports         name and signature; the receiver fills the slots
//!                           --> start(host) <-- HostTable: log, memory, the ways out of a panic
//! ```
//!
//! Both may be of different builds and compilers, so everything here is of C. The crate `ried` makes
//! these for an author; nothing else needs to.

use core::slice;
use core::sync::atomic::AtomicPtr;

use crate::import::RECORD_NAME;

/// The version of these layouts. A field is added at the end of [`HostTable`], with the next number,
/// and none is changed: a ried runs where the host's is not below its own.
pub const RIED_VERSION: u32 = 2;
/// The version of the oldest rieds that a receiver loads: their [`RiedExport`] has this layout.
pub const RIED_OLDEST: u32 = 2;

/// The symbol of a ried's [`RiedData`].
pub const RIED_SYMBOL: &str = "gossamer_ried";
/// The section with a [`record`](crate::record) of each export of a ried.
pub const RIED_EXPORT_SECTION: &str = ".ried.exports";
/// The section with a [`record`](crate::record) of each import of a ried.
pub const RIED_IMPORT_SECTION: &str = ".ried.imports";

/// What [`RiedData::start`] returns: it is ready.
pub const RIED_STARTED: *mut Failure = core::ptr::null_mut();

/// A panic or an error, which the receiver keeps: a pointer to it crosses the border, nothing else.
#[derive(Debug)]
#[repr(C)]
pub struct Failure {
    opaque: [u8; 0],
}

/// What a ried shows its receiver.
#[derive(Debug)]
#[repr(C)]
pub struct RiedData {
    /// [`RIED_VERSION`] of its build.
    pub version: u32,
    /// 0.
    pub reserved: u32,
    /// Its functions.
    pub exports: *const RiedExport,
    /// How many there are.
    pub exports_len: usize,
    /// What it needs.
    pub imports: *const &'static RiedImport,
    /// How many there are.
    pub imports_len: usize,
    /// Called once, when the imports are filled and before any export is called. [`RIED_STARTED`],
    /// or why the ried cannot be used here.
    pub start: unsafe extern "C" fn(host: *const HostTable) -> *mut Failure,
}

// SAFETY: addresses of statics and functions; the slots of imports are atomics.
unsafe impl Sync for RiedData {}

/// A function of a ried.
#[derive(Debug)]
#[repr(C)]
pub struct RiedExport {
    name: *const u8,
    name_len: usize,
    /// The hash of its types.
    pub signature: u64,
    /// For injected code: an `extern "C"` function, which leaves the jam if it panics.
    pub injected: *const (),
    /// For Local Functions and other rieds: an `extern "C-unwind"` function, out of which the
    /// *program's* panic comes, not the ried's.
    pub local: *const (),
    types: *const u8,
    types_len: usize,
}

// SAFETY: addresses of text and of functions.
unsafe impl Sync for RiedExport {}

/// A function that a ried needs.
#[derive(Debug)]
#[repr(C)]
pub struct RiedImport {
    name: *const u8,
    name_len: usize,
    /// The hash of its types.
    pub signature: u64,
    /// Filled by the receiver, with a function as in [`RiedExport::local`].
    pub address: AtomicPtr<()>,
}

// SAFETY: the address of text, and an atomic.
unsafe impl Sync for RiedImport {}

impl RiedExport {
    /// The functions of a [`record`](crate::record).
    ///
    /// # Panics
    /// If `record` is not one.
    pub const fn new(record: &'static [u8], injected: *const (), local: *const ()) -> Self {
        let (signature, name, types) = parts(record);
        let (name, name_len) = (name.as_ptr(), name.len());
        let (types, types_len) = (types.as_ptr(), types.len());
        Self { name, name_len, signature, injected, local, types, types_len }
    }

    /// The text of its types ([`function_types!`](crate::function_types)), which may be other than
    /// UTF-8 if C made it.
    ///
    /// # Safety
    /// It is of a library that is never unmapped.
    pub unsafe fn types(&self) -> &'static [u8] {
        // SAFETY: a string of the library, as the caller promises.
        unsafe { text(self.types, self.types_len) }
    }

    /// Its name, which may be other than UTF-8 if C made it.
    ///
    /// # Safety
    /// It is of a library that is never unmapped.
    pub unsafe fn name(&self) -> &'static [u8] {
        // SAFETY: a string of the library, as the caller promises.
        unsafe { text(self.name, self.name_len) }
    }
}

impl RiedImport {
    /// The empty slot of the function of a [`record`](crate::record).
    ///
    /// # Panics
    /// If `record` is not one.
    pub const fn new(record: &'static [u8]) -> Self {
        let (signature, name, _) = parts(record);
        let address = AtomicPtr::new(core::ptr::null_mut());
        Self { name: name.as_ptr(), name_len: name.len(), signature, address }
    }

    /// Its name, which may be other than UTF-8 if C made it.
    ///
    /// # Safety
    /// It is of a library that is never unmapped.
    pub unsafe fn name(&self) -> &'static [u8] {
        // SAFETY: a string of the library, as the caller promises.
        unsafe { text(self.name, self.name_len) }
    }
}

/// Signature, name and types of a [`record`](crate::record).
const fn parts(record: &'static [u8]) -> (u64, &'static [u8], &'static [u8]) {
    let (signature, rest) = record.split_first_chunk().expect("a record has a signature");
    let (name_len, _) = rest.split_first_chunk().expect("a record has the length of a name");
    let (_, texts) = record.split_at(RECORD_NAME);
    let (name, types) = texts.split_at(u16::from_le_bytes(*name_len) as usize);
    (u64::from_le_bytes(*signature), name, types)
}

impl RiedData {
    /// What a ried with these functions shows, of the version of this build.
    pub const fn new(
        exports: &'static [RiedExport],
        imports: &'static [&'static RiedImport],
        start: unsafe extern "C" fn(host: *const HostTable) -> *mut Failure,
    ) -> Self {
        Self {
            version: RIED_VERSION,
            reserved: 0,
            exports: exports.as_ptr(),
            exports_len: exports.len(),
            imports: imports.as_ptr(),
            imports_len: imports.len(),
            start,
        }
    }

    /// Its functions.
    ///
    /// # Safety
    /// It is of a library that is never unmapped.
    pub unsafe fn exports(&self) -> &'static [RiedExport] {
        // SAFETY: a table of the library, as the caller promises.
        unsafe { table(self.exports, self.exports_len) }
    }

    /// What it needs.
    ///
    /// # Safety
    /// It is of a library that is never unmapped.
    pub unsafe fn imports(&self) -> &'static [&'static RiedImport] {
        // SAFETY: a table of the library, as the caller promises.
        unsafe { table(self.imports, self.imports_len) }
    }
}

/// # Safety
/// As many bytes of a library that is never unmapped, and which nothing writes.
unsafe fn text(start: *const u8, len: usize) -> &'static [u8] {
    // SAFETY: as the caller promises.
    unsafe { table(start, len) }
}

/// # Safety
/// As many elements of a library that is never unmapped, whose fields change only as atomics.
#[allow(
    clippy::disallowed_methods,
    reason = "of a library in this process, which no peer can write"
)]
unsafe fn table<T>(start: *const T, len: usize) -> &'static [T] {
    if len == 0 {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { slice::from_raw_parts(start, len) }
}

/// What a receiver gives a ried: functions that may be called on any thread, as long as the process
/// runs. Text is UTF-8, with its length in bytes.
#[derive(Debug)]
#[repr(C)]
pub struct HostTable {
    /// [`RIED_VERSION`] of the program's build.
    pub version: u32,
    /// 0.
    pub reserved: u32,
    /// The receiver's own: the ried does not look at it.
    pub receiver: *const u8,
    /// Writes a line to the receiver's log.
    pub log: unsafe extern "C" fn(host: *const HostTable, text: *const u8, len: usize),
    /// Memory of the program's allocator: null if there is none. `align` is a power of two, `bytes` is
    /// not 0.
    pub alloc: unsafe extern "C" fn(bytes: usize, align: usize) -> *mut u8,
    /// Gives it back, with the numbers by which it was taken.
    pub free: unsafe extern "C" fn(start: *mut u8, bytes: usize, align: usize),
    /// Keeps a panic, whose parts it copies. Line and column count from 1; 0 is unknown.
    pub failure: unsafe extern "C" fn(
        message: *const u8,
        message_len: usize,
        file: *const u8,
        file_len: usize,
        line: u32,
        column: u32,
    ) -> *mut Failure,
    /// Forgets a panic.
    pub forgive: unsafe extern "C" fn(failure: *mut Failure),
    /// Leaves the jam that called the ried, past all frames in between, whose destructors do not run.
    pub escape: unsafe extern "C" fn(failure: *mut Failure) -> !,
    /// Panics, as the program does.
    pub raise: unsafe extern "C-unwind" fn(failure: *mut Failure) -> !,
    /// Calls `run` with `data` and catches the program's panics: null, or what was caught.
    pub call: unsafe extern "C" fn(
        run: unsafe extern "C-unwind" fn(data: *mut u8),
        data: *mut u8,
    ) -> *mut Failure,
}

// SAFETY: functions that any thread may call.
unsafe impl Sync for HostTable {}
// SAFETY: functions that any thread may call.
unsafe impl Send for HostTable {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_as_they_are_written() {
        extern "C" fn start(_: *const HostTable) -> *mut Failure {
            RIED_STARTED
        }
        const NAMES: [&[u8]; 3] = [
            &crate::record::<{ crate::record_bytes("one", "(u8)") }>(1, "one", "(u8)"),
            &crate::record::<{ crate::record_bytes("two", "()") }>(2, "two", "()"),
            &crate::record::<{ crate::record_bytes("three", "") }>(3, "three", ""),
        ];
        static EXPORTS: &[RiedExport] = &[
            RiedExport::new(NAMES[0], start as *const (), start as *const ()),
            RiedExport::new(NAMES[1], start as *const (), start as *const ()),
        ];
        static IMPORT: RiedImport = RiedImport::new(NAMES[2]);
        static DATA: RiedData = RiedData::new(EXPORTS, &[&IMPORT], start);
        // SAFETY: of this program, which is never unmapped.
        let (exports, imports) = unsafe { (DATA.exports(), DATA.imports()) };
        // SAFETY: texts and tables of this program, which is never unmapped.
        let types = exports.iter().map(|export| unsafe { export.types() });
        assert!(types.eq([&b"(u8)"[..], b"()"]));
        // SAFETY: texts and tables of this program, which is never unmapped.
        let exports = exports.iter().map(|export| (unsafe { export.name() }, export.signature));
        assert!(exports.eq([(&b"one"[..], 1), (b"two", 2)]));
        // SAFETY: texts and tables of this program, which is never unmapped.
        let imports = imports.iter().map(|import| (unsafe { import.name() }, import.signature));
        assert!(imports.eq([(&b"three"[..], 3)]));
        let none = RiedData::new(&[], &[], start);
        // SAFETY: texts and tables of this program, which is never unmapped.
        assert!(unsafe { none.exports().is_empty() && none.imports().is_empty() });
    }
}
