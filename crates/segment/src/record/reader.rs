//! Reading a record that its writer may be writing: attempts until one is not torn, or until there
//! are too many, for example because the writer died in the middle.

use primitive::SharedBytes;
use primitive::sync::spin_hint;
use transport_api::{OpError, Window};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::layout::Attempt;
use super::{Record, Torn};

/// Attempts with a spin hint between them. A write takes some ten nanoseconds, so more are needed
/// only if the writer was preempted or writes without pause.
const SPINS: u32 = if cfg!(loom) { 3 } else { 128 };

/// Attempts with a yield of the processor between them, which a preempted writer may need.
const YIELDS: u32 = if cfg!(loom) { 0 } else { 4096 };

impl<T: FromBytes + IntoBytes + Immutable> Record<T> {
    /// The version and value of the record at byte `at` of memory that is mapped; `None` if it was
    /// never written. Its caller sees all that the writer did before it wrote this version, and never
    /// gets an older version later.
    ///
    /// It waits for a write to end: by spinning, then by yielding the thread (not the fiber), some
    /// thousand times.
    ///
    /// # Errors
    /// [`Torn`] if no attempt found the record between two writes.
    ///
    /// # Panics
    /// If the record is not inside `memory`, or `at` is no multiple of 8.
    #[inline(always)]
    pub fn read_mapped(memory: &SharedBytes, at: usize) -> Result<Option<(u64, T)>, Torn> {
        let mut attempts = 0;
        loop {
            if let Some(found) = Attempt::at(memory, at).end() {
                return Ok(found);
            }
            attempts = next(attempts)?;
        }
    }

    /// As [`read_mapped`](Self::read_mapped), of a region that is mapped. Each attempt is checked as
    /// other operations on the region are.
    ///
    /// # Errors
    /// As [`Window::load_words`]; inside, as [`read_mapped`](Self::read_mapped).
    #[doc(hidden)]
    #[inline(always)]
    pub fn read_window(
        window: &Window,
        at: usize,
    ) -> Result<Result<Option<(u64, T)>, Torn>, OpError> {
        let mut attempts = 0;
        loop {
            if let Some(found) = Attempt::through(window, at)?.end() {
                return Ok(Ok(found));
            }
            attempts = match next(attempts) {
                Ok(attempts) => attempts,
                Err(torn) => return Ok(Err(torn)),
            };
        }
    }
}

/// Lets some time pass after one more attempt that was torn, unless that was the last; the number of
/// attempts.
#[cold]
#[inline(never)]
fn next(attempts: u32) -> Result<u32, Torn> {
    match attempts + 1 {
        attempts if attempts >= SPINS + YIELDS => return Err(Torn { attempts }),
        ..SPINS => spin_hint(),
        _ => std::thread::yield_now(),
    }
    Ok(attempts + 1)
}
