//! [`Runs`]: from a frame that has come to a jam that has run.
//!
//! Arguments and payload are copied out first: their sender may change them at any time. A frame names
//! its jam by digest; if that is linked here, nothing else of the code is looked at. If not, the code is
//! taken from the frame or read at the sender, then parsed, verified and linked (`frame.rs`). Code that was
//! read and refused is not read again for a while (`refused.rs`).

use std::any::Any;
use std::panic::Location;
use std::time::Instant;

use ::mailbox::Frame;
use gossamer_segment::Segments;
use jam_abi::Call;
use jam_format::{Digest, MAX_PROVEN_BYTES, MAX_REPLY_BYTES};
use trust_core::in_delegated_context;

use crate::error::Refusal;
use crate::mailbox::failure::{FrameError, FrameFailure};
use crate::mailbox::form::Form;
use crate::mailbox::peers::Peers;
use crate::mailbox::refused::{Refused, Source, Standing};
use crate::mailbox::stats::MailboxStats;
use crate::policy::Policy;
use crate::receiver::{Failure, Receiver, receiver};
use crate::shape::Shape;
use crate::symbols::export::Open;

/// How often the code of one frame is linked at most: others may evict it before it runs.
const MAX_LINKS: u32 = 4;

/// A property of a mailbox.
struct OwnedProperty {
    name: &'static str,
    value: Box<dyn Any + Send>,
}

/// What the frames of a mailbox run with.
pub(super) struct Runs {
    segments: Segments,
    properties: Vec<OwnedProperty>,
    /// `None` for that of the process.
    pub(super) policy: Option<Policy>,
    /// Where arguments and payload are copied to.
    scratch: Box<[u8]>,
    reply: Box<Reply>,
    pub(super) peers: Peers,
    refused: Refused,
    pub(super) stats: MailboxStats,
}

/// Where results go, which nobody gets.
#[repr(C, align(16))]
struct Reply([u8; MAX_REPLY_BYTES]);

impl Runs {
    /// For frames of up to `frame_bytes` bytes.
    pub(super) fn new(segments: Segments, frame_bytes: usize) -> Self {
        Runs {
            segments,
            properties: Vec::new(),
            policy: None,
            // Room to align the arguments, and the payload after them.
            scratch: vec![0; frame_bytes + 2 * Call::ALIGNMENT].into(),
            reply: Box::new(Reply([0; MAX_REPLY_BYTES])),
            peers: Peers::new(),
            refused: Refused::new(standing(receiver(), None)),
            stats: MailboxStats::default(),
        }
    }

    // ---- properties ----------------------------------------------------------------------------

    pub(super) fn put<T: Open + Send>(&mut self, value: T) -> Option<T> {
        let before = self.take();
        self.properties.push(OwnedProperty { name: T::NAME, value: Box::new(value) });
        before
    }

    pub(super) fn get<T: Open>(&self) -> Option<&T> {
        self.properties.iter().find_map(|property| property.value.downcast_ref())
    }

    pub(super) fn get_mut<T: Open>(&mut self) -> Option<&mut T> {
        self.properties.iter_mut().find_map(|property| property.value.downcast_mut())
    }

    pub(super) fn take<T: Open>(&mut self) -> Option<T> {
        let at = self.properties.iter().position(|property| property.value.is::<T>())?;
        let value = self.properties.remove(at).value;
        value.downcast().ok().map(|value| *value)
    }

    // ---- frames --------------------------------------------------------------------------------

    /// Runs the jam of a frame, and counts it.
    #[inline]
    #[track_caller]
    pub(super) fn run(&mut self, frame: &Frame<'_>) -> Result<(), Box<FrameFailure>> {
        let ended = self.try_run(frame);
        let kind = ended.as_ref().err().map(FrameError::kind);
        let number = self.peers.count(frame.sender(), frame.header().reply, kind);
        match ended {
            Ok(()) => {
                self.stats.ran += 1;
                Ok(())
            }
            Err(reason) => Err(self.failed(frame, number, reason)),
        }
    }

    #[cold]
    fn failed(&mut self, frame: &Frame<'_>, number: u64, reason: FrameError) -> Box<FrameFailure> {
        let jam = Digest::from_bytes(frame.header().id);
        let failure = FrameFailure { sender: frame.sender(), number, jam, reason };
        self.stats.note(failure.clone());
        Box::new(failure)
    }

    #[inline]
    #[track_caller]
    fn try_run(&mut self, frame: &Frame<'_>) -> Result<(), FrameError> {
        let header = frame.header();
        let Some(form) = Form::decode(header.kind) else {
            return Err(FrameError::Kind(header.kind));
        };
        let digest = Digest::from_bytes(header.id);
        let (args_len, payload_len) = (frame.args_len(), frame.payload_len());
        let start = self.scratch.as_ptr().align_offset(Call::ALIGNMENT);
        let payload_at = start + args_len.next_multiple_of(Call::ALIGNMENT);
        // A frame has room for both, so this has.
        frame.copy_args(&mut self.scratch[start..start + args_len]);
        frame.copy_payload(&mut self.scratch[payload_at..payload_at + payload_len]);

        let receiver = receiver();
        let context = receiver.context(frame.sender().0);
        let mut call = Call {
            property: std::ptr::null_mut(),
            args: self.scratch[start..].as_ptr(),
            args_len,
            payload: self.scratch[payload_at..].as_ptr(),
            payload_len,
            reply: (&raw mut *self.reply).cast(),
            reply_capacity: MAX_REPLY_BYTES,
            reply_len: 0,
            context: &raw const context,
            count: 1,
            done: 0,
            step: 0,
        };
        let (mut ended, mut bytes) = (self.enter(receiver, form, &digest, &mut call), 0);
        if let Err(Failure::NeedCode) = ended {
            // Where nothing runs, no sender's host is asked for code.
            receiver.gate(self.policy).check_local().map_err(FrameError::Refused)?;
            let (host, mut code) = (Some(context.sender), None);
            for _ in 0..MAX_LINKS {
                let linked = receiver.link_arrived(self.policy, host, &digest);
                if let Some(arrived) = linked.map_err(FrameError::Refused)? {
                    bytes = arrived;
                } else {
                    let code = match code {
                        Some(ref code) => code,
                        None => code.insert(self.code(receiver, frame, form, &digest)?),
                    };
                    let linked = receiver.receive_under(self.policy, host, &code.bytes, digest);
                    bytes = linked.map_err(|refusal| self.refuse(code, refusal))?;
                }
                ended = self.enter(receiver, form, &digest, &mut call);
                if ended != Err(Failure::NeedCode) {
                    break;
                }
            }
        }
        ended.map_err(|failure| match failure {
            Failure::Panicked(panicked) => FrameError::Panicked(panicked),
            Failure::Refused(refusal) => FrameError::Refused(refusal),
            // Others take its place as fast as it is linked.
            Failure::NeedCode => FrameError::Refused(Refusal::NoRoom { bytes }),
        })
    }

    /// Runs a jam that is linked here, or a Local Function.
    #[inline]
    #[track_caller]
    fn enter(
        &mut self,
        receiver: &Receiver,
        form: Form,
        digest: &Digest,
        call: &mut Call,
    ) -> Result<(), Failure> {
        let Runs { properties, policy, .. } = self;
        let check = |shape: &Shape, call: &mut Call| {
            if !shape.property.is_empty() {
                call.property = property_of(properties, &shape.property)?;
            }
            shape.check_lengths(call).map_err(Failure::from)
        };
        let gate = receiver.gate(*policy);
        in_delegated_context(Location::caller(), || {
            // SAFETY: the property is of the type that has the name which the jam's signature covers,
            // and the caller has all of them for itself until this returns; the lengths are those of
            // the jam's types; arguments, payload and reply are in memory of the caller, aligned, and
            // the context is on its stack. Delegated context does not wait, so that no other fiber of
            // the thread runs; a thread without fibers has none.
            unsafe {
                if form.is_local {
                    receiver.run_local_checked(digest, gate, call, check)
                } else {
                    receiver.run_checked(digest, gate, call, check)
                }
            }
        })
    }

    /// Tells senders what became of their frames, as far as they take it.
    #[cold]
    #[inline(never)]
    #[track_caller]
    pub(super) fn report(&mut self) {
        self.peers.report(&self.segments);
    }

    /// The code of a frame's jam, from the frame or from its sender, unless that was refused before.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn code(
        &mut self,
        receiver: &Receiver,
        frame: &Frame<'_>,
        form: Form,
        digest: &Digest,
    ) -> Result<Code, FrameError> {
        if (1..=MAX_PROVEN_BYTES).contains(&frame.attachment_len()) {
            let mut bytes = vec![0; frame.attachment_len()];
            frame.copy_attachment(&mut bytes);
            self.stats.arrived += 1;
            return Ok(Code { bytes, read: None });
        }
        let (host, token, place) = (frame.sender(), frame.header().reply, form.place);
        let (source, now) = (Source { host, token, place, digest: *digest }, Instant::now());
        if let Some(refusal) = self.refused.find(now, standing(receiver, self.policy), &source) {
            return Err(FrameError::Refused(refusal));
        }
        let bytes = self.peers.fetch(&self.segments, (host, token), place, digest);
        let bytes = bytes.ok_or(FrameError::NoCode)?;
        self.stats.fetched += 1;
        Ok(Code { bytes, read: Some((now, source)) })
    }

    /// Remembers that code was refused, if it was read at its sender: what a frame carries is here already.
    #[cold]
    fn refuse(&mut self, code: &Code, refusal: Refusal) -> FrameError {
        if let Some((time, source)) = code.read {
            self.refused.note(time, source, &refusal);
        }
        FrameError::Refused(refusal)
    }
}

/// The code of a frame's jam.
struct Code {
    bytes: Vec<u8>,
    /// When it was read at its sender, and where; `None` if the frame carried it.
    read: Option<(Instant, Source)>,
}

/// What judgements on code depend on at this moment.
fn standing(receiver: &Receiver, policy: Option<Policy>) -> Standing {
    let (admissions, symbols) = receiver.changes();
    Standing { policy, admissions, symbols }
}

/// The address of the property of this name.
#[inline]
fn property_of(properties: &mut [OwnedProperty], name: &str) -> Result<*mut u8, Failure> {
    for property in &mut *properties {
        if property.name == name {
            return Ok((&raw mut *property.value).cast());
        }
    }
    Err(no_property(properties, name))
}

#[cold]
fn no_property(properties: &[OwnedProperty], name: &str) -> Failure {
    let names: Vec<_> = properties.iter().map(|property| property.name).collect();
    Refusal::WrongProperty { wanted: name.to_owned(), found: names.join(", ") }.into()
}
