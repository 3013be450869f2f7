//! One delegated call, seen from the trustee: take the arguments out of the slot, run the closure
//! on the property, put the reply where the request was.
//!
//! A closure is named, not sent, so it must capture nothing; then it has no bytes, and an instance
//! of it can be made from its type alone. With the `nightly` feature a closure may capture values
//! that hold no reference ([`NoRef`](crate::NoRef)); their bytes travel in front of the arguments.

use std::any::TypeId;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use primitive::sync::Ordering;
use primitive::{SharedBytes, Words};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::closure::invoke::Invoke;
use crate::closure::registry::{Delegated, Description};
use crate::codec::{self, Plain};
use crate::error::PanicReport;
use crate::wire::bulk::BATCH_REPLY_BYTES;
use crate::wire::words::{BATCH_WORDS, ReplyHead, RequestHead, SLOT_WORDS, Status, WORD};

/// The bytes of a middling value, kept on the stack.
pub(crate) const MIDDLING: usize = 128;

/// A batch that is being served: where the calls of its closures find their arguments, and leave
/// their results.
pub(crate) struct Batch<'a> {
    pub(crate) buffer: &'a SharedBytes,
    pub(crate) slot: Words<'a>,
    /// First word behind the requests.
    pub(crate) end: usize,
    /// The head of the request that is being served, or of the next.
    pub(crate) at: usize,
    /// First word behind the requests and the replies that stand apart.
    pub(crate) tail: usize,
    /// The payload of the request that is being served, where it came by the bulk path.
    pub(crate) bulk: Option<Vec<u8>>,
    /// A reply that must go by the bulk path before anything else is served.
    pub(crate) outsized: Option<Vec<u8>>,
    /// Bytes of all replies that go by the bulk path.
    pub(crate) bulk_bytes: usize,
}

/// One request of a batch.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) head: RequestHead,
    /// Words behind the head that belong to it: cut where the batch ends.
    pub(crate) words: usize,
}

impl Batch<'_> {
    /// The request whose turn it is; `None` behind the last one.
    #[inline(always)]
    pub(crate) fn request(&self) -> Option<Request> {
        if self.at >= self.end {
            return None;
        }
        let head = RequestHead::from_word(self.slot.load(self.at, Ordering::Relaxed));
        Some(Request { head, words: head.words().min(self.end - self.at - 1) })
    }

    /// Goes on to the next request.
    #[inline(always)]
    pub(crate) fn pass(&mut self, request: Request) {
        self.at += 1 + request.words;
    }

    /// Whether the next request is such a one again, whole.
    #[inline(always)]
    fn is_next(&self, request: Request) -> bool {
        self.at + request.words < self.end
            && self.slot.load(self.at, Ordering::Relaxed) == request.head.word()
    }

    /// Hands the payload of `request` to `read` as bytes of this thread's own.
    #[inline(always)]
    fn payload<R>(&mut self, request: Request, read: impl FnOnce(&[u8]) -> R) -> R {
        match self.bulk.take() {
            Some(bytes) => read(&bytes),
            None => copied_out(self.buffer, (self.at + 1) * WORD, request.words * WORD, read),
        }
    }

    /// Writes the result of `request`. It is gone when anything is written: if its destructor
    /// panics, there is no reply yet.
    #[inline(always)]
    fn reply<U: Serialize + 'static>(&mut self, request: Request, value: U) {
        match codec::to_plain(&value) {
            Some(Plain::Word(word)) => self.slot.store(self.at, word, Ordering::Relaxed),
            Some(Plain::Nothing) => {}
            None => self.reply_encoded(request, value),
        }
    }

    #[inline]
    fn reply_encoded<U: Serialize>(&mut self, request: Request, value: U) {
        let mut encoded = codec::Encoded::<MIDDLING>::new();
        let outcome = encoded.encode(&value);
        let undelivered = codec::Undelivered(encoded.bytes());
        drop(value);
        std::mem::forget(undelivered);
        if let Err(error) = outcome {
            return self.refuse(&format!("the result cannot be encoded: {error}"));
        }
        let bytes = encoded.bytes();
        if bytes.len() <= request.words * WORD {
            self.slot.store(self.at, bytes.len() as u64, Ordering::Relaxed);
            return self.buffer.write_from((self.at + 1) * WORD, bytes);
        }
        self.reply_apart(Status::Done, bytes);
    }

    /// A reply that does not fit where its request was, or is no result: behind the requests, or by
    /// the bulk path. A word is kept for the head of each that may still come, so that there is
    /// room for this one.
    #[inline(never)]
    fn reply_apart(&mut self, status: Status, bytes: &[u8]) {
        let (at, len, words) = (self.at, bytes.len(), bytes.len().div_ceil(WORD));
        let bulk = self.tail + 1 + words > SLOT_WORDS - BATCH_WORDS;
        if bulk && status == Status::Done && self.bulk_bytes + len > BATCH_REPLY_BYTES {
            let reason = format!(
                "the results of one batch have more than {BATCH_REPLY_BYTES} bytes: ask for fewer \
                 large results at a time, or for parts of them"
            );
            codec::give_back(bytes);
            return self.refuse(&reason);
        }
        let head = ReplyHead { status, bulk, at, len };
        self.slot.store(self.tail, head.pack(), Ordering::Relaxed);
        self.tail += 1;
        if bulk {
            self.bulk_bytes += len;
            self.outsized = Some(bytes.to_vec());
        } else {
            self.buffer.write_from(self.tail * WORD, bytes);
            self.tail += words;
        }
    }

    fn reply_report<R: Serialize>(&mut self, status: Status, report: &R) {
        let mut encoded = codec::Encoded::<MIDDLING>::new();
        // What a report is made of can be encoded; an empty payload says so less well.
        let _ = encoded.encode(report);
        self.reply_apart(status, encoded.bytes());
    }

    /// Says that nothing ran, and why.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse(&mut self, reason: &str) {
        // What came by the bulk path for this request is not the next one's.
        self.bulk = None;
        self.reply_report(Status::Refused, &reason);
    }

    /// Says that the closure panicked.
    #[cold]
    pub(crate) fn panicked(&mut self, report: &PanicReport) {
        self.reply_report(Status::Panicked, report);
    }
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
    unsafe fn run(property: *mut u8, batch: &mut Batch<'_>, request: Request) {
        loop {
            match take::<V, I>(batch, request) {
                Ok((invoke, arguments)) => {
                    // SAFETY: the caller promises a live property of type `T` to which nothing else
                    // refers.
                    let property = unsafe { &mut *property.cast::<T>() };
                    let result = invoke.invoke(property, arguments);
                    batch.reply(request, result);
                }
                Err(reason) => batch.refuse(&reason),
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
            closure_name: I::name(),
        }
    }
}

/// Takes closure and arguments out of a request; or says what is wrong with it.
#[inline(always)]
fn take<V, I>(batch: &mut Batch<'_>, request: Request) -> Result<(I, V), String>
where
    V: DeserializeOwned + 'static,
{
    if let (0, Some(words)) = (size_of::<I>(), codec::plain_words::<V>()) {
        if request.words >= words {
            let word = || batch.slot.load(batch.at + 1, Ordering::Relaxed);
            // SAFETY: a closure without bytes, see `rebuild`.
            let invoke = unsafe { rebuild::<I>(&[]) };
            return Ok((invoke, codec::from_plain(word).expect("a plain type")));
        }
        return Err("the request is shorter than its argument".to_owned());
    }
    take_encoded(batch, request)
}

#[inline]
fn take_encoded<V, I>(batch: &mut Batch<'_>, request: Request) -> Result<(I, V), String>
where
    V: DeserializeOwned,
{
    batch.payload(request, |bytes| {
        let Some((capture, arguments)) = bytes.split_at_checked(size_of::<I>()) else {
            return Err("the request is shorter than what its closure captures".to_owned());
        };
        let arguments = if request.head.is_bulk() {
            codec::decode::<V>(arguments)
        } else {
            // The request has room for its result, too: what follows the arguments is left over
            // from earlier batches.
            codec::decode_front::<V>(arguments)
        };
        let arguments =
            arguments.map_err(|error| format!("the arguments cannot be decoded: {error}"))?;
        // SAFETY: these are the bytes that `with_capture` took of a closure of this very type; the
        // sender forgot it, so this is a move. (An honest sender: see `rebuild`, and `noref.rs` for
        // closures with bytes.)
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
/// other instance is made. With no bytes that is only what an honest sender did: any other may name
/// a closure that it never held. A value without bytes can be made from its type all the same, and
/// the tokens that it may hold are warned of ([`Delegable`](crate::Delegable)).
#[inline(always)]
unsafe fn rebuild<F>(bytes: &[u8]) -> F {
    let mut closure = MaybeUninit::<F>::uninit();
    // SAFETY: `bytes` is exactly as long as `F` (split off so), and the caller vouches for them.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), closure.as_mut_ptr().cast(), bytes.len());
        closure.assume_init()
    }
}
