//! One delegated call, seen from the trustee: take the arguments out of the slot, run the closure
//! on the property, put the reply where the request was.
//!
//! A closure is named, not sent, so it must capture nothing; then it has no bytes, and an instance
//! of it can be made from its type alone. With the `nightly` feature a closure may capture values
//! that hold no reference ([`NoRef`](crate::NoRef)); their bytes travel in front of the arguments.

use crate::{
    codec,
    error::{CodecError, PanicReport},
    invoke::Invoke,
    registry::{Delegated, Description},
    wire::{ReplyHead, Status, WORD},
};
use primitive::{SharedBytes, limits::SLOT_BYTES, sync::Ordering};
use serde::{Serialize, de::DeserializeOwned};
use std::{any::TypeId, marker::PhantomData, mem::MaybeUninit};

/// The bytes of a small value: two words, which compilers keep in registers.
pub(crate) const SMALL: usize = 16;
/// The bytes of a middling value, kept on the stack.
pub(crate) const MIDDLING: usize = 128;

/// Where a call's request stands and where its reply may go.
pub(crate) struct Call<'a> {
    pub(crate) buffer: &'a SharedBytes,
    /// First byte of the request's payload, and its words.
    pub(crate) at: usize,
    pub(crate) words: usize,
    /// First byte behind all requests and the replies that outgrew theirs.
    pub(crate) tail: usize,
    /// The payload, where it came by the bulk path.
    pub(crate) bulk: Option<Vec<u8>>,
    /// A reply that must go by the bulk path.
    pub(crate) outsized: Option<Vec<u8>>,
}

impl Call<'_> {
    /// Hands the payload to `read` as bytes of this thread's own.
    #[inline(always)]
    fn payload<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> R {
        if let Some(bytes) = self.bulk.take() {
            return read(&bytes);
        }
        copied_out(self.buffer, self.at, self.words * WORD, read)
    }

    /// Writes the reply `value` and returns its head.
    #[inline(always)]
    pub(crate) fn reply<U: Serialize>(&mut self, status: Status, value: &U) -> u64 {
        if const { size_of::<U>() <= WORD } {
            self.reply_encoded::<SMALL>(status, codec::encode(value))
        } else {
            self.reply_encoded::<MIDDLING>(status, codec::encode(value))
        }
    }

    #[inline(always)]
    fn reply_encoded<const N: usize>(
        &mut self,
        status: Status,
        encoded: Result<codec::Encoded<N>, CodecError>,
    ) -> u64 {
        match encoded {
            Ok(encoded) => {
                let len = encoded.bytes().len();
                if len <= self.words * WORD {
                    put(self.buffer, self.at, encoded.bytes());
                    return ReplyHead { status, bulk: false, at: self.at, len }.pack();
                }
                self.reply_long(status, encoded.bytes())
            }
            Err(error) => self.refuse(&format!("the result cannot be encoded: {error}")),
        }
    }

    /// A reply that does not fit where the request was: behind the requests, or by the bulk path.
    #[inline(never)]
    fn reply_long(&mut self, status: Status, bytes: &[u8]) -> u64 {
        let (at, len) = (self.tail, bytes.len());
        if len <= SLOT_BYTES - at {
            self.buffer.write_from(at, bytes);
            self.tail = (at + len).next_multiple_of(WORD);
            return ReplyHead { status, bulk: false, at, len }.pack();
        }
        self.outsized = Some(bytes.to_vec());
        ReplyHead { status, bulk: true, at: 0, len }.pack()
    }

    /// Says that nothing ran, and why.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse(&mut self, reason: &str) -> u64 {
        self.reply(Status::Refused, &reason)
    }

    /// Says that the closure panicked.
    #[cold]
    pub(crate) fn panicked(&mut self, report: &PanicReport) -> u64 {
        self.reply(Status::Panicked, report)
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
    if len <= SMALL {
        let mut bytes = [0; SMALL];
        if len > 0 {
            bytes[..WORD].copy_from_slice(&buffer.load(at, Ordering::Relaxed).to_le_bytes());
        }
        if len > WORD {
            let word = buffer.load(at + WORD, Ordering::Relaxed);
            bytes[WORD..].copy_from_slice(&word.to_le_bytes());
        }
        read(&bytes[..len])
    } else if len <= MIDDLING {
        let mut bytes = [0; MIDDLING];
        buffer.read_into(at, &mut bytes[..len]);
        read(&bytes[..len])
    } else {
        let mut bytes = vec![0; len];
        buffer.read_into(at, &mut bytes);
        read(&bytes)
    }
}

/// Writes `bytes` to byte `at`, which is a multiple of eight; the rest of the last word is free.
#[inline(always)]
pub(crate) fn put(buffer: &SharedBytes, at: usize, bytes: &[u8]) {
    if bytes.len() <= SMALL {
        let mut words = [0; SMALL];
        words[..bytes.len()].copy_from_slice(bytes);
        let (first, second) = words.split_at(WORD);
        if !bytes.is_empty() {
            buffer.store(at, word(first), Ordering::Relaxed);
        }
        if bytes.len() > WORD {
            buffer.store(at + WORD, word(second), Ordering::Relaxed);
        }
    } else {
        buffer.write_from(at, bytes);
    }
}

#[inline(always)]
fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

/// The kind of call that `apply` and its relatives make.
pub(crate) struct Apply<T, V, I>(PhantomData<fn(T, V, I)>);

impl<T, V, I> Delegated for Apply<T, V, I>
where
    T: 'static,
    V: DeserializeOwned,
    I: Invoke<T, V>,
    I::Output: Serialize,
{
    #[inline(always)]
    unsafe fn run(property: *mut u8, call: &mut Call<'_>) -> u64 {
        let taken = call.payload(|bytes| {
            let (capture, arguments) = bytes.split_at_checked(size_of::<I>())?;
            // SAFETY: these are the bytes that `with_capture` took of a closure of this very type; the
            // sender forgot it, so this is a move.
            let closure = unsafe { rebuild::<I>(capture) };
            Some((closure, codec::decode::<V>(arguments)))
        });
        match taken {
            Some((closure, Ok(arguments))) => {
                // SAFETY: the caller promises a live property of type `T` to which nothing else
                // refers.
                let property = unsafe { &mut *property.cast::<T>() };
                let result = closure.invoke(property, arguments);
                call.reply(Status::Done, &result)
            }
            Some((_, Err(error))) => {
                call.refuse(&format!("the arguments cannot be decoded: {error}"))
            }
            None => call.refuse("the request is shorter than what its closure captures"),
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
/// `bytes` are all the bytes of one closure of type `F`, made by [`with_capture`], of which no other
/// instance is made. With no bytes this needs nothing: the sender held such a closure, and a value
/// without bytes can be made from its type.
#[inline(always)]
unsafe fn rebuild<F>(bytes: &[u8]) -> F {
    let mut closure = MaybeUninit::<F>::uninit();
    // SAFETY: `bytes` is exactly as long as `F` (split off so), and the caller vouches for them.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), closure.as_mut_ptr().cast(), bytes.len());
        closure.assume_init()
    }
}
