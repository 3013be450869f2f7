//! One delegated call, seen from the trustee: take the arguments out of the slot, run the closure
//! on the property, put the reply where the request was.
//!
//! A closure is named, not sent, so it must capture nothing; then it has no bytes, and an instance
//! of it can be made from its type alone. With the `nightly` feature a closure may capture values
//! that hold no reference ([`NoRef`](crate::NoRef)); their bytes travel in front of the arguments.

use crate::{
    codec::{self, Plain},
    error::PanicReport,
    invoke::Invoke,
    registry::{Delegated, Description},
    wire::{IN_PLACE, ReplyHead, SLOT_WORDS, Status, WORD},
};
use primitive::{SharedBytes, Words, limits::MESSAGE_BYTES, sync::Ordering};
use serde::{Serialize, de::DeserializeOwned};
use std::{any::TypeId, marker::PhantomData, mem::MaybeUninit};

/// The bytes of a middling value, kept on the stack.
pub(crate) const MIDDLING: usize = 128;

/// Where a request's payload is in its buffer: the reply may take its place.
#[derive(Clone, Copy)]
pub(crate) struct Payload {
    /// Its first word.
    pub(crate) at: usize,
    pub(crate) words: usize,
}

/// What the calls of one batch have in common.
pub(crate) struct Call<'a> {
    pub(crate) buffer: &'a SharedBytes,
    pub(crate) slot: Words<'a>,
    /// First word behind all requests and the replies that outgrew theirs.
    pub(crate) tail: usize,
    /// The payload, where it came by the bulk path.
    pub(crate) bulk: Option<Vec<u8>>,
    /// A reply that must go by the bulk path.
    pub(crate) outsized: Option<Vec<u8>>,
}

impl Call<'_> {
    /// Hands the payload to `read` as bytes of this thread's own.
    #[inline(always)]
    fn payload<R>(&mut self, payload: Payload, read: impl FnOnce(&[u8]) -> R) -> R {
        match self.bulk.take() {
            Some(bytes) => read(&bytes),
            None => copied_out(self.buffer, payload.at * WORD, payload.words * WORD, read),
        }
    }

    /// Writes the reply `value` and returns its head.
    #[inline(always)]
    pub(crate) fn reply<U: Serialize + 'static>(
        &mut self,
        payload: Payload,
        status: Status,
        value: &U,
    ) -> u64 {
        match codec::to_plain(value) {
            Some(plain) if plain.words() <= payload.words => {
                if let Plain::Word(word) = plain {
                    self.slot.store(payload.at, word, Ordering::Relaxed);
                }
                let len = plain.words() * WORD;
                ReplyHead { status, bulk: false, at: IN_PLACE, len }.pack()
            }
            Some(_) => self.refuse(payload, "the request has no room for its reply"),
            None => self.reply_encoded(payload, status, value),
        }
    }

    #[inline]
    fn reply_encoded<U: Serialize>(&mut self, payload: Payload, status: Status, value: &U) -> u64 {
        let mut encoded = codec::Encoded::<MIDDLING>::new();
        if let Err(error) = encoded.encode(value) {
            return self.refuse(payload, &format!("the result cannot be encoded: {error}"));
        }
        let bytes = encoded.bytes();
        if bytes.len() > MESSAGE_BYTES {
            return self.refuse(payload, &too_large("the result", bytes.len()));
        }
        if bytes.len() <= payload.words * WORD {
            self.buffer.write_from(payload.at * WORD, bytes);
            return ReplyHead { status, bulk: false, at: IN_PLACE, len: bytes.len() }.pack();
        }
        self.reply_long(status, bytes)
    }

    /// A reply that does not fit where the request was: behind the requests, or by the bulk path.
    #[inline(never)]
    fn reply_long(&mut self, status: Status, bytes: &[u8]) -> u64 {
        let (at, len) = (self.tail, bytes.len());
        if len <= (SLOT_WORDS - at) * WORD {
            self.buffer.write_from(at * WORD, bytes);
            self.tail = at + len.div_ceil(WORD);
            return ReplyHead { status, bulk: false, at, len }.pack();
        }
        self.outsized = Some(bytes.to_vec());
        ReplyHead { status, bulk: true, at: 0, len }.pack()
    }

    /// Says that nothing ran, and why.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse(&mut self, payload: Payload, reason: &str) -> u64 {
        // What came by the bulk path for this request is not the next one's.
        self.bulk = None;
        self.reply_encoded(payload, Status::Refused, &reason)
    }

    /// Says that the closure panicked.
    #[cold]
    pub(crate) fn panicked(&mut self, payload: Payload, report: &PanicReport) -> u64 {
        self.reply_encoded(payload, Status::Panicked, report)
    }
}

/// Says that `what` is more than a message may have.
#[cold]
pub(crate) fn too_large(what: &str, len: usize) -> String {
    format!("{what} has {len} bytes encoded, and {MESSAGE_BYTES} are the most: send it in parts")
}

/// Hands `len` bytes from byte `at` of `buffer` to `read`, after copying them out of the peer's
/// reach.
#[inline(always)]
pub(crate) fn copied_out<R>(
    buffer: &SharedBytes,
    at: usize,
    len: usize,
    read: impl FnOnce(&[u8]) -> R,
) -> R {
    if len <= MIDDLING {
        let mut bytes = [0; MIDDLING];
        buffer.read_into(at, &mut bytes[..len]);
        read(&bytes[..len])
    } else {
        let mut bytes = vec![0; len];
        buffer.read_into(at, &mut bytes);
        read(&bytes)
    }
}

/// The kind of call that `apply` and its relatives make.
pub(crate) struct Apply<T, V, I>(PhantomData<fn(T, V, I)>);

impl<T, V, I> Delegated for Apply<T, V, I>
where
    T: 'static,
    V: DeserializeOwned + 'static,
    I: Invoke<T, V>,
    I::Output: Serialize + 'static,
{
    #[inline(always)]
    unsafe fn run(property: *mut u8, call: &mut Call<'_>, payload: Payload) -> u64 {
        let (invoke, arguments) = match take::<V, I>(call, payload) {
            Ok(taken) => taken,
            Err(reason) => return call.refuse(payload, &reason),
        };
        // SAFETY: the caller promises a live property of type `T` to which nothing else refers.
        let property = unsafe { &mut *property.cast::<T>() };
        let result = invoke.invoke(property, arguments);
        call.reply(payload, Status::Done, &result)
    }

    fn describe() -> Description {
        Description {
            property: TypeId::of::<T>(),
            property_name: std::any::type_name::<T>(),
            closure_name: I::name(),
        }
    }
}

/// Takes closure and arguments out of a request; or says what is wrong with it.
#[inline(always)]
fn take<V, I>(call: &mut Call<'_>, payload: Payload) -> Result<(I, V), String>
where
    V: DeserializeOwned + 'static,
{
    if let (0, Some(words)) = (size_of::<I>(), codec::plain_words::<V>()) {
        if payload.words >= words {
            let word = || call.slot.load(payload.at, Ordering::Relaxed);
            // SAFETY: a closure without bytes, see `rebuild`.
            let invoke = unsafe { rebuild::<I>(&[]) };
            return Ok((invoke, codec::from_plain(word).expect("a plain type")));
        }
        return Err("the request is shorter than its argument".to_owned());
    }
    take_encoded(call, payload)
}

#[inline]
fn take_encoded<V, I>(call: &mut Call<'_>, payload: Payload) -> Result<(I, V), String>
where
    V: DeserializeOwned,
{
    call.payload(payload, |bytes| {
        let Some((capture, arguments)) = bytes.split_at_checked(size_of::<I>()) else {
            return Err("the request is shorter than what its closure captures".to_owned());
        };
        let arguments = codec::decode::<V>(arguments)
            .map_err(|error| format!("the arguments cannot be decoded: {error}"))?;
        // SAFETY: these are the bytes that `with_capture` took of a closure of this very type; the
        // sender forgot it, so this is a move.
        Ok((unsafe { rebuild::<I>(capture) }, arguments))
    })
}

/// The most bytes that a delegated closure can capture (with the `nightly` feature).
pub(crate) const MAX_CAPTURE: usize = MIDDLING;

/// Hands the bytes of a closure's captured values to `send`, and forgets the closure.
#[inline(always)]
pub(crate) fn with_capture<I, R>(closure: I, send: impl FnOnce(&[u8]) -> R) -> R {
    let closure = MaybeUninit::new(closure);
    let mut bytes = [0; MAX_CAPTURE];
    let bytes = &mut bytes[..size_of::<I>()];
    // SAFETY: both are valid for the size of the closure and distinct. An opaque copy gives
    // padding, which has no value in Rust, whatever the memory holds.
    unsafe { copy_frozen(bytes.as_mut_ptr(), closure.as_ptr().cast(), bytes.len()) };
    send(bytes)
}

/// # Safety
/// `to` and `from` are valid for `len` bytes and do not overlap.
#[inline(always)]
unsafe fn copy_frozen(to: *mut u8, from: *const u8, len: usize) {
    if len == 0 {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller vouches for both runs; the direction flag is clear by the ABI.
    unsafe {
        std::arch::asm!("rep movsb", inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _, options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the caller vouches for both runs.
    unsafe {
        std::arch::asm!(
            "2: ldrb {byte:w}, [{from}], #1", "strb {byte:w}, [{to}], #1",
            "subs {len}, {len}, #1", "b.ne 2b",
            byte = out(reg) _, from = inout(reg) from => _, to = inout(reg) to => _,
            len = inout(reg) len => _, options(nostack)
        );
    }
}

/// Makes the closure whose bytes these are.
///
/// # Safety
/// `bytes` are all the bytes of one closure of type `F`, made by [`with_capture`], of which no
/// other instance is made. With no bytes this needs nothing: the sender held such a closure, and a
/// value without bytes can be made from its type.
#[inline(always)]
unsafe fn rebuild<F>(bytes: &[u8]) -> F {
    let mut closure = MaybeUninit::<F>::uninit();
    // SAFETY: `bytes` is exactly as long as `F` (split off so), and the caller vouches for them.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), closure.as_mut_ptr().cast(), bytes.len());
        closure.assume_init()
    }
}
