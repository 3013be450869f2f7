//! What two hosts send to each other's mailboxes: jams, empty frames, or writes in their place.

use serde::{Deserialize, Serialize};

use super::{Form, Function, size};

/// Banks of a mailbox, and frames of a bank, as the paper's benchmark of rates has them.
pub const BANKS: u32 = 4;
/// Frames of a bank.
pub const FRAMES: u32 = 8;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// The transport's own write of as many bytes as a frame has, one word of which becomes visible last; the
    /// other host polls for that word.
    Write,
    /// One write of as many bytes; the other host polls for its last word, although nothing orders the bytes
    /// of a write. Only for memory that is not mapped.
    BareWrite,
    /// A frame that runs nothing.
    Empty,
    /// A call of a jam.
    Jam(Function, Form),
}

/// How messages follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    /// One goes there, and one back: half of that in nanoseconds.
    PingPong,
    /// As `PingPong`, with a millisecond between two round trips.
    Paced,
    /// As many as banks have room for go one way: nanoseconds a message.
    Stream,
}

/// How a host waits for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waiting {
    /// It polls without pause.
    Spins,
    /// As its processor does best, and by sleep if that takes long.
    Waits,
}

/// What two hosts do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FramePlan {
    /// What they send.
    pub message: Message,
    /// Bytes of its payload.
    pub bytes: usize,
    /// In which order.
    pub shape: Shape,
    /// How they wait for it.
    pub waiting: Waiting,
}

impl FramePlan {
    /// Messages of `bytes` bytes that go there and back.
    pub fn ping_pong(message: Message, bytes: usize) -> FramePlan {
        FramePlan { message, bytes, shape: Shape::PingPong, waiting: Waiting::Spins }
    }

    /// Messages of `bytes` bytes that go one way.
    pub fn stream(message: Message, bytes: usize) -> FramePlan {
        FramePlan { shape: Shape::Stream, ..FramePlan::ping_pong(message, bytes) }
    }

    /// Its name in the report.
    pub fn text(self) -> String {
        let size = size(self.bytes);
        match self.message {
            Message::Write => format!("gossamer/write, {size}"),
            Message::BareWrite => format!("gossamer/bare write, {size}"),
            Message::Empty => format!("gossamer/empty frame, {size}"),
            Message::Jam(function, form) => {
                format!("gossamer/{}, {}, {size}", function.text(), form.text())
            }
        }
    }

    /// Bytes of a frame with this payload, and of the write in its place.
    pub fn message_bytes(self) -> usize {
        (self.bytes + mailbox::FRAME_OVERHEAD).next_multiple_of(64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_has_as_many_bytes_as_a_frame() {
        let bytes = |bytes| FramePlan::stream(Message::Write, bytes).message_bytes();
        assert_eq!([4, 8, 64, 4096].map(bytes), [64, 64, 128, 4160]);
    }

    #[test]
    fn names_tell_what_is_sent() {
        let jam = Message::Jam(Function::Put, Form::Cached);
        assert_eq!(FramePlan::ping_pong(jam, 4096).text(), "gossamer/Indirect Put, Cached, 4 KiB");
        assert_eq!(FramePlan::stream(Message::Empty, 4).text(), "gossamer/empty frame, 4 bytes");
    }
}
