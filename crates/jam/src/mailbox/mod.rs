//! Reactive mailboxes: any host writes calls of jams into memory that the receiver exports, and the
//! receiver runs them as they arrive.
//!
//! Use them where the receiver is not a trustee of the rack, or where code and data should arrive at the
//! cost of one write. The crate `gossamer-mailbox` moves the frames, and this layer runs them. Grodowitz et al. 2021, "Two-Chains", sections III and VI.A.
//!
//! ```no_run
//! use std::time::Duration;
//! use jam::Sendable;
//! use jam::mailbox::{JamSender, Mailbox, MailboxError, ReactiveMailbox, SendError};
//! use gossamer_segment::Segments;
//! # pub struct Table { slots: Vec<u64> }
//! # jam::open! { Table = "shop.Table@2"; }
//!
//! fn receive(segments: &Segments, table: Table) -> Result<(), MailboxError> {
//!     let frames = Mailbox::builder("puts").banks(4).frames(8).frame_bytes(4096).export(segments)?;
//!     let mut inbox = ReactiveMailbox::new(frames).with(table);
//!     inbox.run_while(|inbox| inbox.stats().handled() < 1_000_000)
//! }
//!
//! // `put` is a jam of the program's package.
//! fn send<J>(segments: &Segments, put: &J) -> Result<(), SendError>
//! where
//!     J: Sendable<Args = u64, Element = u8, Reply = i64>,
//! {
//!     // Waits until the receiver has exported the mailbox.
//!     let mut sender = JamSender::open(segments, "puts", Duration::from_secs(10))?;
//!     for key in 0..1_000_000 {
//!         sender.send(put, key, b"ten of the best")?;
//!     }
//!     let report = sender.close(Duration::from_secs(10))?;
//!     assert_eq!((report.handled, report.failed), (1_000_000, 0));
//!     Ok(())
//! }
//! ```
//!
//! # How it works
//! ```text
//!   sender                                              receiver
//!   first call of a jam: arguments, payload, code  -->  copy out; verify, link, run
//!   later ones: arguments, payload, digest         -->  copy out; run
//!                                                       it was evicted:
//!   segment of the sender: code                    <--    read the code; verify, link, run
//!   segment of the sender: report                  <--  now and then: frames handled, failed; last reason
//! ```
//!
//! 1. A frame names its jam by digest, in any mode. The code that it carries is used only if the jam is
//!    not linked, so a jam may be evicted at any time.
//! 2. A receiver that lacks the code reads the sender's segment, which involves no thread of the sender.
//!    Meanwhile the frame stays in its slot, and so do those after it. So frames of a sender run in
//!    order, and no frame is sent twice.
//! 3. A frame runs at most once: the mailbox accepts each slot once per sequence number, and ignores an
//!    earlier frame whose bytes are written again.
//! 4. The receiver copies each frame out before it examines it, in the steps of `frame.rs`: only linked
//!    jams run.
//! 5. There are no replies, as in the paper. A sender that needs a result has its jam write it where the
//!    sender finds it, or uses [`Inject`](crate::Inject).
//!
//! # Reading order
//! 1. `failure.rs` ([`FrameFailure`], [`SendError`]), `form.rs` (what frames say; [`SenderReport`]),
//!    `stats.rs`: pure.
//! 2. `store.rs` (what a sender keeps), `sender.rs` ([`JamSender`]).
//! 3. `peers.rs` (what a receiver knows of senders), `refused.rs` (what it remembers of refused code),
//!    `runs.rs` (running a frame), `reactive.rs` ([`ReactiveMailbox`]).

mod failure;
mod form;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod peers;
mod reactive;
mod refused;
#[allow(unsafe_code)]
mod runs;
mod sender;
mod stats;
mod store;

#[doc(no_inline)]
pub use ::mailbox::{Mailbox, MailboxBuilder, MailboxError, Sender, SenderOptions};

pub use self::failure::{FailureKind, FrameError, FrameFailure, SendError};
pub use self::form::SenderReport;
pub use self::reactive::{Outcome, ReactiveMailbox};
pub use self::sender::JamSender;
pub use self::stats::MailboxStats;
