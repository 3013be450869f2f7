//! [`PlainCall`]: calls whose arguments and results are bytes, which travel past the codec.
//!
//! ```text
//!   request   | head | word | bytes ..       |      the bytes as they are, up to the next word
//!   result    | first word | the others ..  |      in the request's place
//! ```
//!
//! A call's own error is not in that place: it is encoded, and stands apart, as panics and refusals
//! do. So a result needs no word that says that it is one.

use std::any::TypeId;
use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use primitive::sync::Ordering;

use crate::closure::batch::{Batch, Received};
use crate::closure::plain_bytes::PlainBytes;
use crate::closure::registry::{Delegated, Description};
use crate::codec::Portable;
use crate::wire::words::WORD;

/// A kind of call on a property of type `T` whose arguments are a word and bytes, and whose result is
/// plain. It is for layers that send bytes anyhow, and check them by themselves; the arguments of
/// [`apply_with`](crate::Trust::apply_with) are for everything else.
pub trait PlainCall<T>: 'static {
    /// Bytes of the arguments; `None` if they differ from call to call.
    const BYTES: Option<usize>;

    /// What a trustee keeps from one call to the next, while it serves calls of this kind that stand
    /// behind each other.
    type Run: Default;
    /// The result.
    type Reply: PlainBytes;
    /// The error, which the codec encodes.
    type Error: Portable;

    /// Runs on the thread of the property, in delegated context. A peer has chosen the word and the
    /// bytes, and may also have sent more bytes than the caller of an honest one gave it: up to seven,
    /// as they travel in whole words, or more where the result is longer. The bytes are the thread's
    /// own copy, and begin at a multiple of 16.
    ///
    /// # Errors
    /// What the caller gets instead of a result.
    fn serve(
        run: &mut Self::Run,
        property: &mut T,
        word: u64,
        bytes: &[u8],
    ) -> Result<Self::Reply, Self::Error>;
}

/// A call of kind `C`, seen from the trustee.
pub(crate) struct Serve<T, C>(PhantomData<fn(T, C)>);

impl<T: 'static, C: PlainCall<T>> Delegated for Serve<T, C> {
    #[inline(always)]
    unsafe fn run(property: *mut u8, batch: &mut Batch<'_>, request: Received) {
        let mut run = C::Run::default();
        loop {
            // SAFETY: the caller promises a live property of type `T` to which nothing else refers.
            let property = unsafe { &mut *property.cast::<T>() };
            let served = arguments::<T, C, _>(batch, request, |word, bytes| {
                C::serve(&mut run, property, word, bytes)
            });
            match served {
                Some(Ok(reply)) => batch.reply_bytes(request, &reply),
                Some(Err(error)) => batch.fail(error),
                None => batch.refuse("the request is shorter than its arguments"),
            }
            batch.pass(request);
            if request.head.is_bulk() || !batch.is_next(request) || batch.outsized.is_some() {
                return;
            }
        }
    }

    fn describe() -> Description {
        Description {
            property: TypeId::of::<T>(),
            property_name: std::any::type_name::<T>(),
            closure_name: std::any::type_name::<C>(),
        }
    }
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
        _ => return other_arguments(batch, request, read),
    };
    if request.words < 1 + len.div_ceil(WORD) {
        return None;
    }
    let first = batch.at + 1;
    let word = batch.slot.load(first, Ordering::Relaxed);
    let mut room = MaybeUninit::<[u128; STACK_WORDS / 2]>::uninit();
    let words = room.as_mut_ptr().cast::<u64>();
    for index in 0..len.div_ceil(WORD) {
        let word = batch.slot.load(first + 1 + index, Ordering::Relaxed);
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

#[inline(never)]
fn other_arguments<R>(
    batch: &mut Batch<'_>,
    request: Received,
    read: impl FnOnce(u64, &[u8]) -> R,
) -> Option<R> {
    let bulk = batch.bulk.take();
    let len = match &bulk {
        Some(bytes) => bytes.len().checked_sub(WORD)?,
        None => request.words.checked_sub(1)? * WORD,
    };
    let mut room = ROOM.try_with(Cell::take).unwrap_or_default();
    if room.len() * size_of::<u128>() < len {
        room.resize(len.div_ceil(size_of::<u128>()), 0);
    }
    let (_, all, _) = bytes_of(&mut room);
    let word = match &bulk {
        Some(bulk) => {
            let (word, behind) = bulk.split_first_chunk()?;
            all[..len].copy_from_slice(behind);
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
