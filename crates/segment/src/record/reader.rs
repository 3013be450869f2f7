//! Reading a record that its writer may be writing: attempts until one is not torn, and the end of
//! them if the writer died in the middle.

use std::convert::Infallible;

use primitive::SharedBytes;
use primitive::sync::{Ordering, fence, spin_hint};
use transport_api::{OpError, Window};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::layout::Attempt;
use super::{Record, Torn};

/// Attempts between which a reader pauses for a moment. A write takes some ten nanoseconds, so more
/// are needed only if the writer was interrupted or writes without pause.
const SPINS: u32 = if cfg!(loom) { 3 } else { 128 };

/// Attempts between which it yields the processor, which a writer may need that was interrupted.
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
    #[inline]
    pub fn read_mapped(memory: &SharedBytes, at: usize) -> Result<Option<(u64, T)>, Torn> {
        let Ok(read) = until_intact(|| Ok::<_, Infallible>(Attempt::at(memory, at)));
        read
    }

    /// As [`read_mapped`](Self::read_mapped), of a region that is mapped. Each attempt is checked as
    /// other operations on the region are.
    ///
    /// # Errors
    /// As [`Window::load_words`]; inside, as [`read_mapped`](Self::read_mapped).
    #[inline]
    pub fn read_window(
        window: &Window,
        at: usize,
    ) -> Result<Result<Option<(u64, T)>, Torn>, OpError> {
        until_intact(|| {
            let mut attempt = Attempt::new();
            window.load_words(at, Self::WORDS, |index, word| attempt.put(index, word))?;
            Ok(attempt)
        })
    }
}

/// Attempts to read a record until one is not torn, there were too many, or one fails.
#[inline(always)]
pub(super) fn until_intact<T, E>(
    mut attempt: impl FnMut() -> Result<Attempt<T>, E>,
) -> Result<Result<Option<(u64, T)>, Torn>, E>
where
    T: FromBytes + IntoBytes + Immutable,
{
    let mut attempts = 0;
    loop {
        if let Some(found) = attempt()?.end() {
            // Pairs with the release store of the checksum that was just loaded.
            fence(Ordering::Acquire);
            return Ok(Ok(found));
        }
        attempts += 1;
        if attempts == SPINS + YIELDS {
            return Ok(Err(Torn { attempts }));
        }
        pause(attempts);
    }
}

/// Lets some time pass before the next attempt.
#[cold]
fn pause(attempts: u32) {
    if attempts < SPINS { spin_hint() } else { std::thread::yield_now() }
}
