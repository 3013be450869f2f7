//! The program of an executor: some hundred instructions, which are data of this process and run only
//! in the other.
//!
//! ```text
//!   start      make the system calls of the setup table (`image.rs`), in order
//!   ended      write one byte: this process may look at what came back
//!   wait       read one byte: a call is there; no byte: this process has ended, exit
//!   run        clear every register, take a fresh stack, note that the call has begun, call the entry
//!              (entry returns: note its code; panics: note where)     -> ended
//!   handler    note the signal (fault, forbidden system call, deadline), exit
//! ```
//!
//! After `ended`, nothing of the jam runs: every register is loaded again, and what is read from
//! memory is read-only here. A jam can jump to any of these instructions, and that is harmless: the
//! system calls take constants only (`filter.rs` compares them), and each leads to `wait` or to the
//! end of the process. It can go there with a trap flag, or without the right to write, which ends the
//! process before it has cleared them. The call that comes then has not begun, so that this process
//! repeats it in another one.
//!
//! The same file has the functions that jams import: memory functions of C, the panic function, and
//! the log.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use crate::layout::STUB;

/// Where the program is in the file, and in memory after [`STUB`].
pub(crate) const CODE_AT: usize = 0x200;
/// Where the setup table is: after the program.
pub(crate) const TABLE_AT: usize = 0x1000;
/// Where what `xrstor` loads is: zeros, but for the control word of SSE.
pub(crate) const INITIAL_AT: usize = 0xc00;
/// The byte that `ended` writes.
pub(crate) const ENDED_AT: usize = 0x1f8;

pub(crate) const TABLE: u64 = STUB + TABLE_AT as u64;
pub(crate) const ENDED: u64 = STUB + ENDED_AT as u64;
#[cfg(target_arch = "x86_64")]
pub(crate) const INITIAL: u64 = STUB + INITIAL_AT as u64;

/// What ends the setup table.
pub(crate) const LAST: u64 = u64::MAX;
/// A bit of a system call's number in the setup table: it may fail.
pub(crate) const MAY_FAIL: u64 = 1 << 32;

macro_rules! labels {
    ($($(#[$meta:meta])* $name:ident = $label:ident,)*) => {
        // SAFETY: labels of the assembly, of which only addresses are taken.
        unsafe extern "C" {
            static gossamer_jam_executor_start: u8;
            static gossamer_jam_executor_end: u8;
            $(static $label: u8;)*
        }

        /// Addresses in the process.
        pub(crate) struct Labels {
            $($(#[$meta])* pub(crate) $name: u64,)*
        }

        /// Where the parts of the program are.
        pub(crate) fn labels() -> Labels {
            let start = (&raw const gossamer_jam_executor_start).addr();
            let base = STUB + CODE_AT as u64;
            Labels { $($name: base + ((&raw const $label).addr() - start) as u64,)* }
        }
    };
}

labels! {
    /// The address of the instruction after the system call of `ended`.
    ended = gossamer_jam_executor_ended,
    /// The address of the instruction after the system call of `wait`.
    waited = gossamer_jam_executor_waited,
    /// The address of the instruction after the system call of the exit.
    exited = gossamer_jam_executor_exited,
    handler = gossamer_jam_executor_handler,
    log = gossamer_jam_executor_log,
    panic = gossamer_jam_executor_panic,
    memcpy = gossamer_jam_executor_memcpy,
    memmove = gossamer_jam_executor_memmove,
    memset = gossamer_jam_executor_memset,
    memcmp = gossamer_jam_executor_memcmp,
    strlen = gossamer_jam_executor_strlen,
}

/// The program's bytes.
#[allow(clippy::disallowed_methods, reason = "read-only data of this process")]
pub(crate) fn code() -> &'static [u8] {
    let start = &raw const gossamer_jam_executor_start;
    let len = (&raw const gossamer_jam_executor_end).addr() - start.addr();
    // SAFETY: both labels are in one block of read-only data, in this order.
    unsafe { std::slice::from_raw_parts(start, len) }
}

/// The functions that a jam can import.
pub(crate) fn functions() -> [(&'static str, u64); 7] {
    let labels = labels();
    [
        ("memcpy", labels.memcpy),
        ("memmove", labels.memmove),
        ("memset", labels.memset),
        ("memcmp", labels.memcmp),
        ("bcmp", labels.memcmp),
        ("strlen", labels.strlen),
        ("__jam_panic", labels.panic),
    ]
}

#[cfg(test)]
mod tests;
