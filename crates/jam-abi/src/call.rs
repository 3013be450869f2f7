//! A call, as the receiver hands it to a jam's entry.

use core::marker::PhantomData;

/// The entry of a jam: returns one of the [codes](code). Its property, arguments, payload and reply
/// must be as the jam's signature says.
pub type Entry = unsafe extern "C" fn(call: *mut Call) -> u32;

/// What an entry returns.
pub mod code {
    /// The jam ran as often as it was to; its results are in the reply.
    pub const DONE: u32 = 0;
    /// The length of the arguments is not the size of their type; nothing ran.
    pub const ARGS_LENGTH: u32 = 1;
    /// The length of the payload is not a multiple of its elements' size; nothing ran.
    pub const PAYLOAD_LENGTH: u32 = 2;
    /// The reply has no room for the result; nothing ran.
    pub const REPLY_CAPACITY: u32 = 3;
}

/// What a jam is called with, and where its result goes.
///
/// An entry makes a *run* of calls: it calls the jam's function `count` times, each time with other
/// arguments. Checks, and what it takes to enter the jam, are once for all of them. Where the property or the
/// payload is changed by one call, the next one finds it changed.
///
/// Arguments and results may lie in memory that others write meanwhile, and the result of a call over its
/// arguments: for each call the entry reads the arguments once, then calls the function with what it has
/// read, then writes the result. Arguments of more than [`Call::SHARED_ARGS`] bytes are in memory of the
/// receiver.
///
/// Arguments, payload and reply are aligned to [`Call::ALIGNMENT`], but those of runs with a
/// [`step`](Self::step) to eight bytes only; where one is empty, its pointer is not null either. The entry
/// may write `args` and `reply`, writes `done` and `reply_len`, and changes nothing else here.
#[derive(Debug)]
#[repr(C)]
pub struct Call {
    /// The property; null if the jam takes none.
    pub property: *mut u8,
    /// The arguments of the first call.
    pub args: *const u8,
    /// The length of those of one call, in bytes.
    pub args_len: usize,
    /// The payload; a run of more than one call has none.
    pub payload: *const u8,
    /// Its length in bytes.
    pub payload_len: usize,
    /// Where the result of the first call goes.
    pub reply: *mut u8,
    /// How many bytes are writable for each result.
    pub reply_capacity: usize,
    /// How many bytes each result has: written by the entry.
    pub reply_len: usize,
    /// What [`Context`] shows the jam; never null.
    pub context: *const ContextData,
    /// How many calls the entry makes: at least one.
    pub count: usize,
    /// How many of them have ended: 0 at first. The entry counts them, so that the receiver knows which of
    /// them has panicked. Where the entry returns [`code::DONE`], all have ended, whatever is here.
    pub done: usize,
    /// Bytes from the arguments of a call to those of the next one, and from its result to the next one's.
    pub step: usize,
}

impl Call {
    /// The alignment of arguments, payload and reply, in bytes.
    pub const ALIGNMENT: usize = 16;
    /// Bytes of arguments, at most, that may lie in memory which others write.
    pub const SHARED_ARGS: usize = 128;
}

/// Writes a line to the log of the receiver. `context` is that of the call; `text` is UTF-8, and
/// `len` its length in bytes.
pub type LogFn = unsafe extern "C" fn(context: *const ContextData, text: *const u8, len: usize);

/// What the receiver tells a jam about the call, as both see it in memory.
///
/// It has function pointers, so that a jam needs no imports for what every receiver has.
#[derive(Debug)]
#[repr(C)]
pub struct ContextData {
    /// The host that sent the jam, as that host claims.
    pub sender: u32,
    /// 0.
    pub reserved: u32,
    /// Writes to the receiver's log.
    pub log: LogFn,
    /// The receiver's own: the jam does not look at it.
    pub receiver: *mut u8,
}

/// The context of a call: its sender, and the receiver's log.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Context<'a> {
    data: *const ContextData,
    call: PhantomData<&'a ContextData>,
}

impl<'a> Context<'a> {
    /// The context of the call with this data.
    ///
    /// # Safety
    /// `data` is as its receiver made it, for `'a`, and its functions may be called on this thread.
    pub const unsafe fn new(data: &'a ContextData) -> Self {
        Self { data, call: PhantomData }
    }

    /// The number of the host that sent the jam, as that host claims. It is not verified: use it for logs,
    /// not to authorise anything.
    pub fn sender(&self) -> u32 {
        // SAFETY: the data lives for 'a, as `new` requires.
        unsafe { (*self.data).sender }
    }

    /// Writes a line to the receiver's log.
    pub fn log(&self, text: &str) {
        // SAFETY: `new` requires that the data is of a receiver and its functions may be called;
        // the text is as long as it says.
        unsafe { ((*self.data).log)(self.data, text.as_ptr(), text.len()) }
    }
}
