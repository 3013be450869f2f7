//! [`Work`]: a work request, and a [`Receive`], without the device.

/// Bytes of registered memory of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Local {
    pub(crate) at: usize,
    pub(crate) len: usize,
}

/// The operation of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Writes; with immediate data, which uses up a receive of the peer.
    Write(Option<u32>),
    /// Sends a message into a receive of the peer.
    Send,
    /// Sends immediate data into a receive of the peer, in a message without bytes.
    Immediate(u32),
    /// Reads.
    Read,
    /// Compares the word with the first, and swaps in the second.
    Swap(u64, u64),
    /// Adds to the word.
    Add(u64),
}

/// A work request of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    /// The number that its completion carries.
    pub(crate) id: u64,
    pub(crate) verb: Verb,
    /// The bytes to send, or the memory to read into.
    pub(crate) local: Local,
    /// The peer's memory: address and key. Meaningless for a message or without bytes.
    pub(crate) remote: (u64, u32),
    /// Whether it is signalled.
    pub(crate) is_signalled: bool,
    /// Whether it waits for the READs before it.
    pub(crate) is_fenced: bool,
}

/// A receive: where a message may go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receive {
    pub(crate) id: u64,
    pub(crate) local: Local,
}
