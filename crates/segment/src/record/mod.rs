//! [`Record`]: a value larger than a word in shared memory, with one writer and any number of
//! readers, which never see it torn.
//!
//! Reading order: [`Record`] and [`Torn`] in `layout.rs` (the layout, encoding and decoding),
//! [`RecordWriter`] (the owner's side), and the retries of a reader of mapped memory in `reader.rs`.
//!
//! # Layout
//! ```text
//!   at (8-aligned)                                                      at + BYTES
//!   | version | payload: size_of::<T>() bytes, padded to words | checksum of all before |
//! ```
//!
//! 1. Version 0 is "never written": such a record is all zero, as fresh memory is. Each write has a
//!    version above the last.
//! 2. The checksum covers the version and the payload ([`transport_api::integrity`]). The padding
//!    behind the payload is zero, and readers ignore it.
//! 3. Only the writer writes. If there are two at the same time, a reader gets a value of one of
//!    them or [`Torn`], never a mixture.
//!
//! # Why a checksum
//! On mapped memory a version in front of the data and one behind it would do (a seqlock). The same
//! record is also read by a READ and written by a WRITE of a device, whose bytes have no order:
//! both versions may be new while the payload is old. The checksum makes one READ enough for a
//! reader, and one WRITE for a writer, and no reader has to know how a record was written. A
//! mixture of two writes passes with the probability that two random words are equal. This is no
//! protection against a malicious peer.
//!
//! # Memory ordering
//! | Who | How | What it gives |
//! |---|---|---|
//! | writer, mapped | version and payload relaxed, then the checksum with release | a reader that gets version n sees all that the writer did before it wrote version n |
//! | reader, mapped | all words relaxed, then an acquire fence if the checksum is right | the same, and versions that never go back: what is read later is of version n or above |
//! | writer, one WRITE | the bytes have no order; earlier operations of the same lane take effect first | a reader of version n sees the earlier writes of the same lane, because a lane takes effect in order |
//! | reader, one READ | the copy has no order; [`Record::decode`] once the READ has completed | READs that start later on the same lane see version n or above |
//!
//! The release store of the checksum is what the acquire fence pairs with: a reader accepts only a
//! checksum that it has loaded, and only the write of version n stores the checksum of version n.

mod layout;
mod reader;
mod writer;

#[cfg(all(test, not(loom)))]
mod tests;

pub use self::layout::{Record, Torn};
pub use self::writer::RecordWriter;
