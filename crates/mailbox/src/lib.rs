//! Reactive mailboxes: banks of frames in memory that a receiver exports, into which any host of the
//! rack writes messages one-sidedly.
//!
//! A frame is a header (kind, id, reply token, lengths) and three runs of bytes: arguments, a payload,
//! and an attachment such as code. A mailbox moves frames; a layer above defines what they mean
//! (`jam::mailbox` runs jams with them). These are the mailboxes of Grodowitz et al. 2021, "Two-Chains: High Performance Framework for
//! Function Injection and Execution", sections III.A and VI.A.
//!
//! ```
//! # let hosts = transport_shm::ShmTransport::in_process(1, 1)?;
//! # let segments = gossamer_segment::Segments::new(hosts[0].clone());
//! # let _attached = segments.attach(0)?;
//! use mailbox::{FrameHeader, Mailbox, Parts, Sender};
//!
//! let mut inbox = Mailbox::builder("orders").banks(4).frames(8).frame_bytes(256).export(&segments)?;
//!
//! // Any host:
//! let mut sender = Sender::open(&segments, "orders")?;
//! let header = FrameHeader { kind: 1, reply: 7, ..FrameHeader::default() };
//! sender.send(&header, Parts { payload: b"ten of the best", ..Parts::default() })?;
//!
//! let frame = inbox.next()?;
//! assert_eq!(frame.header().reply, 7);
//! let mut payload = vec![0; frame.payload_len()];
//! frame.copy_payload(&mut payload);
//! assert_eq!(payload, b"ten of the best");
//! # drop(frame);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it works
//! ```text
//!   receiver's segment                                           sender's segment
//!   | geometry | sleeps? | claims | bank set 0 | bank set 1 | ..  | waits? | flag of bank 0 | flag 1 | ..
//!                             ^         ^                                        ^
//!     a sender claims a set --+         +-- and writes frames into its banks     +-- the receiver: emptied
//! ```
//!
//! 1. A sender claims a *bank set* by a compare-and-swap, and exports a small segment for the flags of
//!    its banks. It has banks × frames to write before it needs a flag.
//! 2. Where the receiver's memory is mapped, a frame is stored in place: first the body, then the line of
//!    the header, and of that the tag last, with release. Over a stream, such as TCP, a frame is one message,
//!    whose tag the transport stores behind the rest. Elsewhere a frame is written at once, with a
//!    checksum behind it ([`transport_api::integrity`]), because the bytes of a write have no order.
//! 3. The receiver polls the tag of the next frame of each sender, round robin. A [`Frame`] is a view:
//!    copy its bytes out, because its sender may change them at any time.
//! 4. When the receiver has emptied a bank, it writes that bank's flag at the sender: how often the bank
//!    was emptied. The sender writes to a bank again only after that. No frame costs a credit. The sender
//!    looks at a flag one bank before it needs it, behind a frame, so that neither side waits for the
//!    line of the flags in front of one. Where memory is not mapped, fewer than half of the
//!    banks' flags wait at a time, and leave with the receiver's next message to that host or when it
//!    finds no frame; the next one is sent at once, so that the sender always has a bank to write.
//! 5. Before it sleeps, a receiver sets a word that senders on mapped memory read; only then do they
//!    notify. Elsewhere a notification travels with each frame, unless the mailbox
//!    [never sleeps](MailboxBuilder::never_sleeps). A sender sets such a word, too; where memory is not
//!    mapped, it writes to its claim which frame it sleeps for, and the receiver notifies it once.
//!
//! # Reading order
//! 1. `layout.rs` (what is where), `frame.rs` (the frame's format), `claim.rs` (claims), `error.rs`: pure.
//! 2. `target.rs` (the receiver's memory, as a sender writes to it), `outgoing.rs` and `incoming.rs`: the two
//!    sides of one bank set, on any memory; modelled by loom and fuzzed.
//! 3. `wait.rs` (how a processor waits for a word), `sleep.rs` (how sides sleep and wake each other).
//! 4. The receiver: `peer_flags.rs` (a sender's flags), `active.rs` (a sender), `senders.rs` (which senders
//!    there are), `view.rs` ([`Frame`]), `receiver.rs` ([`Mailbox`]), `builder.rs` ([`MailboxBuilder`]).
//! 5. The sender: `flags.rs` (what it exports), `number.rs` (in whose name is a number), `sender.rs`
//!    ([`Sender`]), `open.rs` ([`SenderOptions`]).

#![deny(unsafe_code)]

mod active;
mod builder;
mod claim;
#[cfg(all(feature = "testing", not(loom)))]
pub mod conformance;
mod error;
mod flags;
#[allow(unreachable_pub, reason = "reachable for loom")]
mod frame;
#[cfg(all(any(test, fuzzing), not(loom)))]
pub mod fuzzing;
#[allow(unreachable_pub, reason = "reachable for loom")]
mod incoming;
#[allow(unreachable_pub, reason = "reachable for loom")]
mod layout;
mod number;
mod open;
#[allow(unreachable_pub, reason = "reachable for loom")]
mod outgoing;
mod peer_flags;
mod receiver;
mod sender;
mod senders;
#[allow(unreachable_pub, reason = "reachable for loom")]
mod sleep;
#[allow(unreachable_pub, reason = "reachable for loom")]
mod target;
mod view;
#[allow(unsafe_code)]
mod wait;

#[cfg(all(test, not(loom)))]
mod prefetch_tests;
#[cfg(all(test, not(loom)))]
mod private_tests;
#[cfg(all(test, not(loom)))]
mod scarce_tests;
#[cfg(all(test, not(loom)))]
mod streamed_tests;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, not(loom)))]
mod turns_tests;

/// The two sides of a bank set, for models.
#[cfg(loom)]
#[doc(hidden)]
pub mod testing {
    pub use crate::frame::Mode;
    pub use crate::incoming::{Arrival, Incoming};
    pub use crate::layout::{FrameKind, Geometry};
    pub use crate::outgoing::{Outgoing, flag_at};
    pub use crate::sleep::{announce, must_wake};
    pub use crate::target::Target;
}

pub use self::builder::MailboxBuilder;
pub use self::error::MailboxError;
pub use self::frame::{FrameHeader, Malformed, Parts};
pub use self::layout::{FRAME_OVERHEAD, FrameKind, InvalidGeometry, MAX_FRAME_BYTES};
#[doc(hidden)]
pub use self::number::Number;
pub use self::open::SenderOptions;
pub use self::receiver::Mailbox;
pub use self::sender::Sender;
pub use self::view::Frame;
pub use self::wait::CpuWait;
