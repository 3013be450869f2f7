//! [`PlainCall`]: calls whose arguments and results are bytes, which travel past the codec.
//!
//! ```text
//!   request   | head | word | bytes ..       |      the bytes as they are, up to the next word
//!   another   | head | bytes ..              |      with the word of the one before in the batch
//!   result    | first word | the others ..  |      in the request's place
//! ```
//!
//! Calls behind each other often have the same word, such as the handle of what they call. So it is
//! sent once in a batch: [`Again`] is the closure of those that follow. A word of zero is always sent.
//! Those that are short are served by the run ([`PlainCalls`]), all of them by one
//! [`PlainCall::serve_run`].
//!
//! A call's own error is not in that place: it is encoded, and stands apart, as panics and refusals
//! do. So a result needs no word that says that it is one.

use std::any::TypeId;
use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use primitive::sync::Ordering;

use crate::closure::batch::{Batch, Place, Received};
use crate::closure::plain_bytes::{PlainBytes, reply_words};
use crate::closure::plain_run::PlainCalls;
use crate::closure::registry::{Delegated, Description, registry};
use crate::codec::Portable;
use crate::wire::words::{RequestHead, WORD};

/// A kind of call on a property of type `T` whose arguments are a word and bytes, and whose result is
/// plain. It is for layers that send bytes anyhow, and check them by themselves; the arguments of
/// [`apply_with`](crate::Trust::apply_with) are for everything else.
pub trait PlainCall<T>: 'static {
    /// Bytes of the arguments; `None` if they differ from call to call. With a number,
    /// [`serve`](Self::serve) gets exactly so many: a request with fewer is refused
    /// ([`DelegateError::Refused`](crate::DelegateError)), and what follows them is left out.
    const BYTES: Option<usize>;

    /// What a trustee keeps from one call to the next, while it serves calls of this kind that stand
    /// behind each other.
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

    /// Serves calls that stand behind each other and have the same word, in their order, as
    /// [`serve`](Self::serve) serves each: those from the first to the last, or to one that fails. Those
    /// that have not [ended](PlainCalls::end) come again, but for the one that failed.
    ///
    /// # Errors
    /// What the caller of the first call gets that has not ended.
    #[inline(always)]
    fn serve_run(
        run: &mut Self::Run,
        property: &mut T,
        word: u64,
        calls: &mut PlainCalls<'_, Self::Reply>,
    ) -> Result<(), Self::Error> {
        let mut room = [0; STACK_WORDS / 2];
        let (_, copy, _) = bytes_of(&mut room);
        let copy = &mut copy[..Self::BYTES.unwrap_or_default()];
        while calls.left() > 0 {
            calls.copy_arguments(copy);
            let reply = Self::serve(run, property, word, copy)?;
            calls.end(&reply);
        }
        Ok(())
    }
}

/// A call of kind `C`, seen from the trustee.
pub(crate) struct Serve<T, C>(PhantomData<fn(T, C)>);

impl<T: 'static, C: PlainCall<T>> Delegated for Serve<T, C> {
    #[inline(always)]
    unsafe fn run(property: *mut u8, batch: &mut Batch<'_>, request: Received) {
        let mut run = C::Run::default();
        // SAFETY: as the caller promises.
        let is_next_again = unsafe { serve::<T, C, false>(&mut run, property, batch, request) };
        if let Some(request) = is_next_again {
            // SAFETY: as the caller promises: the request is for the same property.
            unsafe { serve::<T, C, true>(&mut run, property, batch, request) };
        }
    }

    fn describe() -> Description {
        describe::<T, C>(true)
    }
}

/// As [`Serve`], with the word of the call of plain bytes before it in the batch.
pub(crate) struct Again<T, C>(PhantomData<fn(T, C)>);

impl<T: 'static, C: PlainCall<T>> Delegated for Again<T, C> {
    unsafe fn run(property: *mut u8, batch: &mut Batch<'_>, request: Received) {
        // SAFETY: as the caller promises.
        unsafe { serve::<T, C, true>(&mut C::Run::default(), property, batch, request) };
    }

    fn describe() -> Description {
        describe::<T, C>(false)
    }
}

fn describe<T: 'static, C: 'static>(has_word: bool) -> Description {
    Description {
        property: TypeId::of::<T>(),
        property_name: std::any::type_name::<T>(),
        closure_name: std::any::type_name::<C>(),
        has_word,
        serves_runs: false,
    }
}

/// Serves a request and those behind it that are the same but for their arguments. If one with its word
/// left out follows them on the same property, that is returned.
///
/// # Safety
/// As of [`Delegated::run`].
#[inline(always)]
unsafe fn serve<T: 'static, C: PlainCall<T>, const AGAIN: bool>(
    run: &mut C::Run,
    property: *mut u8,
    batch: &mut Batch<'_>,
    request: Received,
) -> Option<Received> {
    while is_short::<T, C, AGAIN>(batch, request) {
        // SAFETY: the caller promises a live property of type `T` to which nothing else refers.
        serve_short::<T, C, AGAIN>(run, unsafe { &mut *property.cast::<T>() }, batch, request);
        if AGAIN || batch.outsized.is_some() || !batch.is_next(request) {
            return None;
        }
    }
    loop {
        // SAFETY: the caller promises a live property of type `T` to which nothing else refers.
        let property = unsafe { &mut *property.cast::<T>() };
        let served = arguments::<T, C, _, AGAIN>(batch, request, |word, bytes| {
            C::serve(run, property, word, bytes)
        });
        match served {
            Some(Ok(reply)) => batch.reply_bytes(request, &reply),
            Some(Err(error)) => batch.fail(error),
            None => refuse(batch, request, AGAIN, C::BYTES.unwrap_or(0)),
        }
        batch.pass(request);
        if request.head.is_bulk() || batch.outsized.is_some() {
            return None;
        }
        if !batch.is_next(request) {
            let next = batch.request().filter(|_| !AGAIN)?;
            return leaves_word_out::<T, C>(request.head, next.head).then_some(next);
        }
    }
}

/// The longest result of a run, in bytes.
const RUN_REPLY_BYTES: usize = 1024;

/// Words behind the head of a call of this kind that has its word left out: of its arguments or its
/// result, whichever has more; `None` if that differs from call to call, or they are long.
const fn short_words<T, C: PlainCall<T>>() -> Option<usize> {
    match C::BYTES {
        Some(len) if len <= STACK_WORDS * WORD && size_of::<C::Reply>() <= RUN_REPLY_BYTES => {
            let (arguments, reply) = (len.div_ceil(WORD), reply_words::<C::Reply>());
            Some(if arguments > reply { arguments } else { reply })
        }
        _ => None,
    }
}

/// Whether [`serve_short`] serves a request, which has its word, or leaves it out if `AGAIN`.
#[inline(always)]
fn is_short<T, C: PlainCall<T>, const AGAIN: bool>(
    batch: &mut Batch<'_>,
    request: Received,
) -> bool {
    let Some(words) = (const { short_words::<T, C>() }) else { return false };
    if usize::from(!AGAIN) + words != request.words || request.head.is_bulk() {
        return false;
    }
    if !AGAIN {
        batch.word = batch.slot.load(batch.at + 1, Ordering::Relaxed);
    }
    batch.word != 0
}

/// Serves a short request, and those behind it that are the same but for their arguments and leave out its
/// word: the most common calls. Not part of its caller, for the reason of `call.rs`'s `run_plain`.
#[inline(never)]
fn serve_short<T: 'static, C: PlainCall<T>, const AGAIN: bool>(
    run: &mut C::Run,
    property: &mut T,
    batch: &mut Batch<'_>,
    request: Received,
) {
    let (end, word) = (batch.end, batch.word);
    let words = const { short_words::<T, C>() }.unwrap_or_default();
    let step = 1 + words;
    let head = match AGAIN {
        true => Some(request.head.word()),
        false => head_again::<T, C>(batch, request, words),
    };
    let (memory, slot, at) = (batch.buffer, batch.slot.part(0, end), batch.at);
    let mut place = Place { batch, at };
    let mut has_word = !AGAIN;
    loop {
        let bytes = C::BYTES.unwrap_or_default();
        let (head_and_step, at) = ((head, step), &mut place.at);
        let mut calls = PlainCalls::new((memory, slot), at, has_word, head_and_step, bytes);
        let served = C::serve_run(run, property, word, &mut calls);
        assert!(
            served.is_err() || !calls.is_untouched(),
            "a run of calls, none of which has ended"
        );
        if let Err(error) = served {
            place.batch.at = calls.pass_failed();
            place.batch.fail(error);
            if place.batch.outsized.is_some() {
                return;
            }
        }
        has_word = false;
        let next = head.filter(|_| place.at + step <= end);
        if next.is_none_or(|head| slot.load(place.at, Ordering::Relaxed) != head) {
            return;
        }
    }
}

/// The head of the request behind this one, if that is the same call with its word left out, and has as many
/// `words`.
#[inline(always)]
fn head_again<T: 'static, C: PlainCall<T>>(
    batch: &Batch<'_>,
    request: Received,
    words: usize,
) -> Option<u64> {
    let next = batch.at + 1 + request.words;
    if next >= batch.end {
        return None;
    }
    let next = RequestHead::from_word(batch.slot.load(next, Ordering::Relaxed));
    let is_short = next.words() == words && leaves_word_out::<T, C>(request.head, next);
    is_short.then_some(next.word())
}

/// Whether the request behind one with this head is the same call with its word left out.
#[inline(always)]
fn leaves_word_out<T: 'static, C: PlainCall<T>>(before: RequestHead, next: RequestHead) -> bool {
    next.property() == before.property()
        && !next.is_bulk()
        && registry().is_kind::<Again<T, C>>(next.closure())
}

/// Refuses a request without its word, or with fewer bytes of arguments than the `expected` ones behind
/// the word.
#[cold]
#[inline(never)]
fn refuse(batch: &mut Batch<'_>, request: Received, is_again: bool, expected: usize) {
    if is_again && batch.word == 0 {
        let reason = "the request leaves its word out, and the call of plain bytes before it in \
                      the batch has none, or zero: send the word";
        return batch.refuse(reason);
    }
    if !is_again {
        batch.word = 0;
    }
    let found = batch.bulk.as_ref().map_or(request.words * WORD, Vec::len);
    let expected = expected + if is_again { 0 } else { WORD };
    batch.refuse(&format!(
        "the request has {found} bytes of arguments, and at least {expected} were expected"
    ));
}

/// Bytes that are copied to the stack.
const STACK_WORDS: usize = 16;

/// Hands word and bytes of a request to `read`, copied out of the peer's reach; `None` if it has
/// fewer. The word is that of the request before if `AGAIN`.
#[inline(always)]
fn arguments<T, C: PlainCall<T>, R, const AGAIN: bool>(
    batch: &mut Batch<'_>,
    request: Received,
    read: impl FnOnce(u64, &[u8]) -> R,
) -> Option<R> {
    let len = match C::BYTES {
        Some(len) if !request.head.is_bulk() && len <= STACK_WORDS * WORD => len,
        _ => return other_arguments(batch, request, AGAIN, C::BYTES, read),
    };
    let before = usize::from(!AGAIN);
    if request.words < before + len.div_ceil(WORD) {
        return None;
    }
    let first = batch.at + 1 + before;
    if !AGAIN {
        batch.word = batch.slot.load(batch.at + 1, Ordering::Relaxed);
    } else if batch.word == 0 {
        return None;
    }
    let word = batch.word;
    let mut room = MaybeUninit::<[u128; STACK_WORDS / 2]>::uninit();
    let words = room.as_mut_ptr().cast::<u64>();
    for index in 0..len.div_ceil(WORD) {
        let word = batch.slot.load(first + index, Ordering::Relaxed);
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

/// As [`arguments`], of a call that is long, or of no certain length.
#[inline(never)]
fn other_arguments<R>(
    batch: &mut Batch<'_>,
    request: Received,
    is_again: bool,
    expected: Option<usize>,
    read: impl FnOnce(u64, &[u8]) -> R,
) -> Option<R> {
    let before = usize::from(!is_again);
    let found = match &batch.bulk {
        Some(bytes) => bytes.len().checked_sub(before * WORD)?,
        None => request.words.checked_sub(before)? * WORD,
    };
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
            let (word, behind) = bulk.split_at(before * WORD);
            all[..len].copy_from_slice(&behind[..len]);
            word.first_chunk().map(|word| u64::from_le_bytes(*word))
        }
        None => {
            batch.buffer.read_into((batch.at + 1 + before) * WORD, &mut all[..len]);
            (!is_again).then(|| batch.slot.load(batch.at + 1, Ordering::Relaxed))
        }
    };
    match word {
        Some(word) => batch.word = word,
        None if batch.word == 0 => return None,
        None => {}
    }
    let result = read(batch.word, &all[..len]);
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
