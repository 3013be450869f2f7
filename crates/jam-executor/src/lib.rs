//! Untrusted jams: an [`Executor`] runs them in a separate process.
//!
//! A jam that [`Inject`](jam::Inject) sends runs inside the receiver's process, so a policy admits only
//! trusted code. An executor runs any code. Its process has the call, a scratch segment and nothing
//! else: no memory of this process, no file, no system call. A jam that crashes, loops or breaks a rule ends
//! that process; the caller gets an [`ExecutorError`] that says which jam and where, and the next call
//! starts another one.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use jam::LoadedJam;
//! use jam_executor::Executor;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let blob = Vec::new();
//! let sum = LoadedJam::<(), u64, u32, u64>::from_blob(&blob)?; // from any source
//! let mut executor =
//!     Executor::builder().deadline(Duration::from_millis(100)).scratch(1 << 20).start()?;
//! println!("{}", executor.run(&sum, 10, &[1, 2, 3])?);
//! # Ok(())
//! # }
//! ```
//!
//! # What a jam may use
//!
//! Arguments, payload, result, the log, panics, memory functions of C, and the scratch segment, which
//! is its property:
//!
//! ```ignore
//! jam::property! { pub struct Scratch = "gossamer.Scratch@1"; }
//!
//! pub fn count(scratch: &mut Scratch, payload: &[u8]) -> u64 {
//!     let bytes: &mut [u8] = jam::scratch(scratch);
//!     /* ... */
//! }
//! ```
//!
//! Functions that programs export, and other properties, exist only in this process, so the executor
//! [refuses](ExecutorError::Refused) a jam that needs them.
//!
//! # What protects what
//!
//! | | By |
//! |---|---|
//! | memory, descriptors, environment of this process | `execve`: the program is a few hundred instructions of this crate in a memfd; no page and no descriptor of this process reaches it, but one socket, one pipe and the memory of calls |
//! | the system | a seccomp filter that admits three system calls, each at one instruction of the program, with constant arguments: "ended", "wait for a call", "exit" |
//! | code of the process, other than the jam | text is not writable, nothing writable is executable, and no system call changes that |
//! | memory and processors | all memory is mapped at the start; a deadline for each call; resource limits of zero |
//! | one call from another | "ended" is a system call after which only the program runs, so a jam cannot pretend to have ended; registers, stack, arguments and scratch are cleared before the next call; a call whose process ends before it begins is repeated once, in another process |
//! | this process from the jam's output | results, logs and reports of faults are copied out and checked; the jam can forge their contents |
//! | the system from orphaned executors | the kernel kills an executor when this process's end of a pipe is closed |
//!
//! Side channels between processes on one core are not covered. `docs/decisions/0039-executor.md`
//! explains the design.
//!
//! # Reading order
//!
//! `layout.rs` (where everything is), `stub/` (the program), `filter.rs`, `image.rs` (the file that is
//! executed), `memory.rs`, `process.rs`; `code.rs` (linking), `claims.rs` (what comes back), `error.rs`,
//! `builder.rs`, `running.rs`, `executor.rs`.

#![deny(unsafe_code)]
#![cfg(target_os = "linux")]
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]

mod builder;
mod claims;
mod code;
mod error;
#[allow(unsafe_code)]
mod executor;
mod filter;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod image;
#[cfg(all(test, not(address_sanitizer)))]
mod isolated;
mod layout;
#[allow(unsafe_code)]
mod memory;
#[allow(unsafe_code)]
mod process;
mod running;
#[allow(unsafe_code)]
mod stub;
#[cfg(all(test, not(address_sanitizer)))]
#[allow(unsafe_code)]
mod test_jams;
// AddressSanitizer has the program's addresses.
#[cfg(all(test, not(address_sanitizer)))]
#[allow(unsafe_code)]
mod unconfined;

pub use builder::Builder;
pub use error::{ExecutorError, Fault};
pub use executor::Executor;
