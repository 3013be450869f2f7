//! A call, as the receiver hands it to a jam's entry.

use core::marker::PhantomData;

/// The entry of a jam: returns one of the [codes](code). Its property, arguments, payload and reply
/// must be as the jam's signature says.
pub type Entry = unsafe extern "C" fn(call: *mut Call) -> u32;

/// What an entry returns.
pub mod code {
    /// The jam ran; its result is in the reply.
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
/// Arguments, payload and reply are aligned to [`Call::ALIGNMENT`]; where one is empty, its pointer
/// is not null either. The jam sets `reply_len`, and changes nothing else here.
#[derive(Debug)]
#[repr(C)]
pub struct Call {
    /// The property; null if the jam takes none.
    pub property: *mut u8,
    /// The arguments.
    pub args: *const u8,
    /// Their length in bytes.
    pub args_len: usize,
    /// The payload.
    pub payload: *const u8,
    /// Its length in bytes.
    pub payload_len: usize,
    /// Where the result goes.
    pub reply: *mut u8,
    /// How many bytes of it are writable.
    pub reply_capacity: usize,
    /// How many of them the jam has written.
    pub reply_len: usize,
    /// What [`Context`] shows the jam; never null.
    pub context: *const ContextData,
}

impl Call {
    /// The alignment of arguments, payload and reply, in bytes.
    pub const ALIGNMENT: usize = 16;
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
