//! [`PlainCall`]: calls whose arguments and results are bytes, which travel past the codec.
//!
//! ```text
//!   request   | head | word | bytes ..       |      the bytes as they are, up to the next word
//!   result    | first word | the others ..  |      in the request's place
//! ```
//!
//! Consecutive calls often have the same word, such as the handle of what they call. Those whose
//! arguments and results are short and of one length each are sent in runs then, which have head and word
//! once, and are served by the run ([`PlainCalls`]), all of them by one [`PlainCall::serve_run`].
//!
//! A call's own error is not in that place: it is encoded, and stands apart, as panics and refusals
//! do. So a result needs no word that says that it is one.

use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::{self, MaybeUninit};

use primitive::sync::Ordering;

use crate::closure::batch::{Batch, Received};
use crate::closure::plain_bytes::{PlainBytes, result_words};
use crate::closure::plain_run::PlainCalls;
use crate::closure::registry::{Delegated, Description};
use crate::codec::Portable;
use crate::wire::words::{RunLayout, WORD};

/// A kind of call on a property of type `T` whose arguments are a word and bytes, and whose result is
/// plain. It is for layers that send bytes anyhow, and check them by themselves; the arguments of
/// [`apply_with`](crate::Trust::apply_with) are for everything else.
pub trait PlainCall<T>: 'static {
    /// Bytes of the arguments; `None` if they differ from call to call. With a number,
    /// [`serve`](Self::serve) gets exactly so many: a request with fewer is refused
    /// ([`DelegateError::Refused`](crate::DelegateError)), and what follows them is left out.
    const BYTES: Option<usize>;

    /// What a trustee keeps from one call to the next, while it serves calls of this kind that stand
    /// one after another.
    type Run: Default;
    /// The result.
    type Reply: PlainBytes;
    /// The error, which the codec encodes.
    type Error: Portable;

    /// Runs on the thread of the property, in delegated context. A peer has chosen the word and the
    /// bytes. Without a number in [`BYTES`](Self::BYTES) it has chosen their length, too; of an honest
    /// peer come up to seven bytes more than its caller gave, as they travel in whole words, or more
    /// where the result is longer. The bytes are the thread's own copy, and begin at a multiple of 16.
    ///
    /// # Errors
    /// What the caller gets instead of a result.
    fn serve(
        run: &mut Self::Run,
        property: &mut T,
        word: u64,
        bytes: &[u8],
    ) -> Result<Self::Reply, Self::Error>;

    /// Serves calls that stand one after another and have the same word, in their order, as
    /// [`serve`](Self::serve) serves each: those from the first to the last, or to one that fails. Those
    /// that have not [ended](PlainCalls::end) come again, but for the one that failed.
    ///
    /// # Errors
    /// What the caller of the first call gets that has not ended.
    #[inline(always)]
    fn serve_run(
        property: &mut T,
        word: u64,
        calls: &mut PlainCalls<'_, '_, Self::Reply>,
    ) -> Result<(), Self::Error> {
        let mut run = Self::Run::default();
        let mut room = [0; STACK_WORDS / 2];
        let (_, copy, _) = bytes_of(&mut room);
        calls.serve_each(copy, |copy| Self::serve(&mut run, property, word, copy))
    }
}

/// A call of kind `C`, seen from the trustee.
pub(crate) struct Serve<T, C>(PhantomData<fn(T, C)>);

impl<T: 'static, C: PlainCall<T>> Delegated for Serve<T, C> {
    unsafe fn run(property: *mut u8, batch: &mut Batch<'_>, request: Received) {
        // SAFETY: the caller promises a live property of type `T` to which nothing else refers.
        let property = unsafe { &mut *property.cast::<T>() };
        if const { run_layout::<T, C>().is_none() } {
            serve::<T, C>(property, batch, request);
        } else if request.head.is_run() {
            serve_run::<T, C>(property, batch);
        } else {
            serve_apart::<T, C>(property, batch, request);
        }
    }

    fn describe() -> Description {
        let description = Description::of::<T, C>(std::any::type_name::<C>());
        Description { message_at: None, runs: run_layout::<T, C>(), ..description }
    }
}

/// The longest result of a call in a run, in bytes.
const RUN_REPLY_BYTES: usize = 1024;

/// How runs of such calls lie, if they are sent in runs: arguments and results are short, and of one length
/// each.
pub(crate) const fn run_layout<T, C: PlainCall<T>>() -> Option<RunLayout> {
    match C::BYTES {
        Some(len) if len <= STACK_WORDS * WORD && size_of::<C::Reply>() <= RUN_REPLY_BYTES => {
            let (arguments, result) = (len.div_ceil(WORD), result_words::<C::Reply>());
            let longest = if arguments > result { arguments } else { result };
            Some(RunLayout::behind_common(if longest > 0 { longest } else { 1 }))
        }
        _ => None,
    }
}

/// Serves what is left of a run: the most common calls. Not part of its caller, for the reason of `call.rs`'s
/// `run_plain`.
#[inline(never)]
fn serve_run<T: 'static, C: PlainCall<T>>(property: &mut T, batch: &mut Batch<'_>) {
    let Some(layout) = (const { run_layout::<T, C>() }) else { return };
    let note = NotePanic(batch);
    let batch = &mut *note.0;
    while batch.left > 0 {
        let (word, count) = (batch.word, batch.left);
        let mut calls = PlainCalls::new(batch, layout.words(), C::BYTES.unwrap_or_default());
        let served = C::serve_run(property, word, &mut calls);
        match served {
            Ok(()) => assert!(batch.left < count, "`serve_run` ended no call"),
            Err(error) => {
                assert!(batch.left > 0, "`serve_run` failed after the last call");
                batch.fail(error);
                batch.pass(batch.run);
                if batch.outsized.is_some() {
                    break;
                }
            }
        }
    }
    mem::forget(note);
}

/// A run that is being served. It is dropped by a panic only, and then notes whether every call of the run
/// had its result.
struct NotePanic<'a, 'b>(&'a mut Batch<'b>);

impl Drop for NotePanic<'_, '_> {
    #[cold]
    fn drop(&mut self) {
        self.0.panicked_after_run = self.0.left == 0;
    }
}

/// As [`serve`], for a kind whose calls mostly come in runs. Out of line: inlined, it costs
/// [`Delegated::run`] six saved registers.
#[inline(never)]
fn serve_apart<T: 'static, C: PlainCall<T>>(
    property: &mut T,
    batch: &mut Batch<'_>,
    request: Received,
) {
    serve::<T, C>(property, batch, request);
}

/// Serves a request with its own head, and those after it that are the same but for their arguments.
#[inline(always)]
fn serve<T: 'static, C: PlainCall<T>>(property: &mut T, batch: &mut Batch<'_>, request: Received) {
    let mut run = C::Run::default();
    loop {
        let served = arguments::<T, C, _>(batch, request, |word, bytes| {
            C::serve(&mut run, property, word, bytes)
        });
        match served {
            Some(Ok(reply)) => batch.reply_bytes(request, &reply),
            Some(Err(error)) => batch.fail(error),
            None => refuse(batch, request, WORD + C::BYTES.unwrap_or(0)),
        }
        batch.pass(request);
        if request.head.is_bulk() || batch.outsized.is_some() || !batch.is_next(request) {
            return;
        }
    }
}

/// Refuses a request with fewer bytes than the `expected` ones.
#[cold]
#[inline(never)]
fn refuse(batch: &mut Batch<'_>, request: Received, expected: usize) {
    let found = batch.bulk.as_ref().map_or(request.words * WORD, Vec::len);
    batch.refuse(&format!(
        "the request has {found} bytes of arguments, and at least {expected} were expected"
    ));
}

/// Bytes that are copied to the stack.
const STACK_WORDS: usize = 16;

/// Hands word and bytes of a request to `read`, copied out of the peer's reach; `None` if it has
/// fewer.
#[inline(always)]
fn arguments<T, C: PlainCall<T>, R>(
    batch: &mut Batch<'_>,
    request: Received,
    read: impl FnOnce(u64, &[u8]) -> R,
) -> Option<R> {
    let len = match C::BYTES {
        Some(len) if !request.head.is_bulk() && len <= STACK_WORDS * WORD => len,
        _ => return other_arguments(batch, request, C::BYTES, read),
    };
    if request.words < 1 + len.div_ceil(WORD) {
        return None;
    }
    let word = batch.slot.load(batch.at + 1, Ordering::Relaxed);
    let mut room = MaybeUninit::<[u128; STACK_WORDS / 2]>::uninit();
    let words = room.as_mut_ptr().cast::<u64>();
    for index in 0..len.div_ceil(WORD) {
        let word = batch.slot.load(batch.at + 2 + index, Ordering::Relaxed);
        // SAFETY: inside the room: it has at least as many words as `len` bytes take.
        unsafe { words.add(index).write(word) };
    }
    // SAFETY: the bytes of the words that were just written, in memory of this thread.
    Some(read(word, unsafe { bytes(words, len) }))
}

/// # Safety
/// So many bytes are initialised there, and nobody writes them meanwhile.
#[inline(always)]
#[allow(clippy::disallowed_methods, reason = "memory of this thread, which no peer can write")]
unsafe fn bytes<'a>(words: *const u64, len: usize) -> &'a [u8] {
    // SAFETY: as promised by the caller.
    unsafe { std::slice::from_raw_parts(words.cast(), len) }
}

thread_local! {
    /// Where long arguments are copied to, if no call has it.
    static ROOM: Cell<Vec<u128>> = const { Cell::new(Vec::new()) };
}

/// The longest room that a thread keeps.
const MAX_KEPT: usize = 1 << 20;

/// As [`arguments`], of a call that is long, or of variable length.
#[inline(never)]
fn other_arguments<R>(
    batch: &mut Batch<'_>,
    request: Received,
    expected: Option<usize>,
    read: impl FnOnce(u64, &[u8]) -> R,
) -> Option<R> {
    let found = batch.bulk.as_ref().map_or(request.words * WORD, Vec::len).checked_sub(WORD)?;
    let len = expected.unwrap_or(found);
    if found < len {
        return None;
    }
    let bulk = batch.bulk.take();
    let mut room = ROOM.try_with(Cell::take).unwrap_or_default();
    if room.len() * size_of::<u128>() < len {
        room.resize(len.div_ceil(size_of::<u128>()), 0);
    }
    let (_, all, _) = bytes_of(&mut room);
    let word = match &bulk {
        Some(bulk) => {
            let (word, behind) = bulk.split_first_chunk()?;
            all[..len].copy_from_slice(&behind[..len]);
            u64::from_le_bytes(*word)
        }
        None => {
            batch.buffer.read_into((batch.at + 2) * WORD, &mut all[..len]);
            batch.slot.load(batch.at + 1, Ordering::Relaxed)
        }
    };
    let result = read(word, &all[..len]);
    if room.len() * size_of::<u128>() <= MAX_KEPT {
        let _ = ROOM.try_with(|kept| kept.set(room));
    }
    Some(result)
}

/// The bytes of a room.
fn bytes_of(room: &mut [u128]) -> (&mut [u128], &mut [u8], &mut [u128]) {
    // SAFETY: any bytes are integers.
    unsafe { room.align_to_mut::<u8>() }
}
