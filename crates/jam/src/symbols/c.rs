//! The functions that every receiver has: those that compilers call without being asked, and the way
//! out of a panic. Version 1 of the table; a function is added, never changed.
//!
//! They have the signature [`C_SIGNATURE`]: what declares them is not an author. Every receiver also has
//! [`send_then`](crate::send_then), which authors declare, so that it is an export with its types.

use std::ffi::{c_char, c_int, c_void};

use crate::enter::escape;
use crate::error::Panicked;

/// The signature of these functions in a jam.
pub(crate) const C_SIGNATURE: u64 = 0;

/// Longest text of a panic that is kept, in bytes.
const MAX_TEXT: usize = 4096;

// SAFETY: as the C library declares them.
unsafe extern "C" {
    fn memcpy(to: *mut c_void, from: *const c_void, bytes: usize) -> *mut c_void;
    fn memmove(to: *mut c_void, from: *const c_void, bytes: usize) -> *mut c_void;
    fn memset(to: *mut c_void, byte: c_int, bytes: usize) -> *mut c_void;
    fn memcmp(left: *const c_void, right: *const c_void, bytes: usize) -> c_int;
    fn bcmp(left: *const c_void, right: *const c_void, bytes: usize) -> c_int;
    fn strlen(text: *const c_char) -> usize;
}

/// Names and addresses.
pub(crate) fn table() -> [(&'static str, usize); 7] {
    [
        ("memcpy", memcpy as *const () as usize),
        ("memmove", memmove as *const () as usize),
        ("memset", memset as *const () as usize),
        ("memcmp", memcmp as *const () as usize),
        ("bcmp", bcmp as *const () as usize),
        ("strlen", strlen as *const () as usize),
        ("__jam_panic", jam_panic as *const () as usize),
    ]
}

/// What a jam's panic handler calls.
///
/// # Safety
/// Called by a jam; each pointer is to that many readable bytes.
unsafe extern "C" fn jam_panic(
    message: *const u8,
    message_len: usize,
    file: *const u8,
    file_len: usize,
    line: u32,
    column: u32,
) -> ! {
    // SAFETY: as the jam promises.
    let (message, file) = unsafe { (text(message, message_len), text(file, file_len)) };
    escape(Panicked { message, file, line, column })
}

/// # Safety
/// A pointer to that many readable bytes, which nothing else writes.
#[allow(clippy::disallowed_methods, reason = "read-only data of a jam, which no peer can write")]
pub(crate) unsafe fn text(start: *const u8, len: usize) -> String {
    if len == 0 {
        return String::new();
    }
    // SAFETY: as promised by the caller.
    let bytes = unsafe { std::slice::from_raw_parts(start, len.min(MAX_TEXT)) };
    String::from_utf8_lossy(bytes).into_owned()
}
