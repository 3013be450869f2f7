//! [`JamSender`]: sends calls of jams to a mailbox that runs them.

use std::fmt;
use std::time::{Duration, Instant};

use ::mailbox::{FrameHeader, MailboxError, Parts, Sender};
use gossamer_segment::{HostId, Segments};
use jam_format::Digest;

use crate::mailbox::failure::SendError;
use crate::mailbox::form::{Form, SenderReport};
use crate::mailbox::store::Store;
use crate::plain_bytes::{Value, bytes_of};
use crate::sender::{Code, Mode, Sendable};

/// Bytes of code that a sender keeps for its receiver if it is not told otherwise.
const DEFAULT_CODE_BYTES: usize = 256 << 10;

/// How long a sender that waits for a report looks without pause, and how long its pauses are.
const AWAKE: Duration = Duration::from_micros(50);
const PAUSE: Duration = Duration::from_micros(100);

/// Pauses between two looks whether the receiver is there.
const LOOK_EVERY: u32 = 100;

/// Sends calls of jams to a [`ReactiveMailbox`](super::ReactiveMailbox).
///
/// | Mode | A frame has |
/// |---|---|
/// | [`Mode::Automatic`] (default) | the code, if this sender has not sent it before and it fits; the digest in any case |
/// | [`Mode::Injected`] | the code, always |
/// | [`Mode::Cached`] | the digest |
/// | [`Mode::Local`] | the digest, and that the Local Function is meant |
///
/// A receiver that has not linked the code, or has evicted it, reads it from a segment of this sender,
/// which keeps the code that it sends by digest. So no call is lost or sent again, and calls run in the
/// order in which they were sent. Dropping the sender withdraws that segment: calls in flight then run
/// only if the receiver has their code. [`close`](Self::close) waits for them.
pub struct JamSender {
    sender: Sender,
    store: Store,
    mode: Mode,
    known: Vec<Known>,
    /// The one that was sent last.
    last: usize,
    report: SenderReport,
}

/// Code that this sender has sent.
struct Known {
    /// Of the code with its proof: a jam that is signed later, or by another signer, has the digest that it
    /// had, but what was sent and kept of it before proves nothing of that.
    wire_digest: Digest,
    /// Where the store has it, in units; 0 if it has not.
    place: u32,
    /// Whether a frame had it along.
    was_sent: bool,
}

/// How a call is sent.
struct Plan {
    header: FrameHeader,
    /// Of the code among those that are known.
    number: usize,
    with_code: bool,
}

impl JamSender {
    /// Opens the mailbox that some host exports under `name`; waits up to `timeout` for it to be exported,
    /// and to have room for one more sender. For one host's mailbox, use [`Sender::options`] and
    /// [`new`](Self::new).
    ///
    /// # Errors
    /// As [`Sender::open`].
    #[track_caller]
    pub fn open(
        segments: &Segments,
        name: &str,
        timeout: Duration,
    ) -> Result<JamSender, MailboxError> {
        JamSender::new(Sender::options(segments).timeout(timeout).open(name)?)
    }

    /// Sends through `sender`, which no other layer may use.
    ///
    /// # Errors
    /// As [`SegmentBuilder::export`](gossamer_segment::SegmentBuilder::export).
    #[track_caller]
    pub fn new(sender: Sender) -> Result<JamSender, MailboxError> {
        JamSender::with_code_bytes(sender, DEFAULT_CODE_BYTES)
    }

    /// As [`new`](Self::new), and keeps up to `code_bytes` bytes of code for the receiver; the default is
    /// 256 KiB.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    #[track_caller]
    pub fn with_code_bytes(sender: Sender, code_bytes: usize) -> Result<JamSender, MailboxError> {
        let store = Store::export(sender.segments(), sender.receiver(), code_bytes)?;
        Ok(JamSender {
            sender,
            store,
            mode: Mode::Automatic,
            known: Vec::new(),
            last: 0,
            report: SenderReport::default(),
        })
    }

    /// Sets the mode of calls that have no [mode of their own](Sendable::in_mode). A single call can have
    /// any: `jam.in_mode(Mode::Automatic)` is [`Mode::Automatic`], whatever is set here.
    pub fn set_mode(&mut self, mode: Mode) {
        self.mode = mode;
    }

    /// The host that has the mailbox.
    pub fn receiver(&self) -> HostId {
        self.sender.receiver()
    }

    /// Bytes that a frame has for arguments, payload and code, each of which takes a multiple of eight.
    pub fn frame_bytes(&self) -> usize {
        self.sender.frame_bytes()
    }

    /// The underlying sender.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Frames that were sent.
    pub fn sent(&self) -> u64 {
        self.sender.sent()
    }

    // ---- sending -------------------------------------------------------------------------------

    /// Sends a call of `jam`, which is on its way when this returns. Waits while the receiver has not
    /// emptied the bank that its frame is for. The call has no result here: what the jam does is what it
    /// writes.
    ///
    /// # Errors
    /// [`SendError::TooLarge`]; [`SendError::NoRoom`]; [`SendError::Jam`] with
    /// [`JamError::NoCode`](crate::JamError::NoCode); [`SendError::Mailbox`], as [`Sender::send`].
    ///
    /// # Panics
    /// If it would wait where that is impossible: in a delegated closure or a callback.
    #[inline]
    #[track_caller]
    pub fn send<J: Sendable>(
        &mut self,
        jam: &J,
        args: J::Args,
        payload: &[J::Element],
    ) -> Result<(), SendError> {
        let args = Value::new(args);
        let (args, payload) = (args.bytes(), bytes_of(payload));
        let code = jam.code()?;
        let plan = self.plan(code, jam.own_mode(), args.len() + payload.len())?;
        let sent = self.sender.send(&plan.header, plan.parts(args, payload, code));
        self.note(&plan, sent).map_err(|error| explain(error, code, &plan, args, payload))
    }

    /// As [`send`](Self::send), without waiting for the receiver: false if the call was not sent because
    /// that has not emptied its bank.
    ///
    /// # Errors
    /// As [`send`](Self::send), as far as [`Sender::try_send`] finds out.
    #[inline]
    #[track_caller]
    pub fn try_send<J: Sendable>(
        &mut self,
        jam: &J,
        args: J::Args,
        payload: &[J::Element],
    ) -> Result<bool, SendError> {
        let args = Value::new(args);
        let (args, payload) = (args.bytes(), bytes_of(payload));
        let code = jam.code()?;
        let plan = self.plan(code, jam.own_mode(), args.len() + payload.len())?;
        match self.sender.try_send(&plan.header, plan.parts(args, payload, code)) {
            Ok(false) => Ok(false),
            sent => self
                .note(&plan, sent.map(drop))
                .map(|()| true)
                .map_err(|error| explain(error, code, &plan, args, payload)),
        }
    }

    /// How a call with `bytes` bytes of arguments and payload is sent.
    #[inline]
    fn plan(&mut self, code: &Code, mode: Option<Mode>, bytes: usize) -> Result<Plan, SendError> {
        let mode = mode.unwrap_or(self.mode);
        let number = self.number_of(code);
        let known = &mut self.known[number];
        let is_by_digest = matches!(mode, Mode::Automatic | Mode::Cached);
        if is_by_digest && known.place == 0 {
            keep(&mut self.store, known, code);
        }
        let (place, is_kept) = (known.place, known.place != 0);
        let with_code = match mode {
            Mode::Injected => true,
            Mode::Local => false,
            // What is not kept cannot be found later.
            Mode::Automatic if !is_kept => true,
            Mode::Automatic => {
                // Three parts are rounded up by less than 32 bytes.
                !known.was_sent && bytes + code.wire().len() + 32 <= self.sender.frame_bytes()
            }
            Mode::Cached if !is_kept => return Err(no_room(code)),
            Mode::Cached => false,
        };
        let form = Form { is_local: mode == Mode::Local, place };
        let header = form.header(code.digest(), self.store.token());
        Ok(Plan { header, number, with_code })
    }

    #[inline]
    fn number_of(&mut self, code: &Code) -> usize {
        let is_it = |known: &Known| known.wire_digest == *code.wire_digest();
        if !self.known.get(self.last).is_some_and(is_it) {
            self.last = self.known.iter().position(is_it).unwrap_or_else(|| {
                let wire_digest = *code.wire_digest();
                self.known.push(Known { wire_digest, place: 0, was_sent: false });
                self.known.len() - 1
            });
        }
        self.last
    }

    #[inline]
    fn note(&mut self, plan: &Plan, sent: Result<(), MailboxError>) -> Result<(), MailboxError> {
        sent.map(|()| self.known[plan.number].was_sent |= plan.with_code)
    }

    // ---- what has become of calls --------------------------------------------------------------

    /// The receiver's report on this sender's frames: how many it has handled, how many of those
    /// failed, and the last reason. It says so once it finds no frame, or after some 1,000.
    pub fn report(&mut self) -> SenderReport {
        if let Some(report) = self.store.report() {
            self.report = report;
        }
        self.report
    }

    /// Waits up to `timeout` until the receiver has handled every frame that was sent: until each jam has
    /// run or failed.
    ///
    /// # Errors
    /// [`SendError::NotHandled`]; [`SendError::Mailbox`] if the receiver's host is gone, or the receiver
    /// has dropped the mailbox.
    ///
    /// # Panics
    /// If it would wait where that is impossible: in a delegated closure or a callback.
    #[track_caller]
    pub fn flush(&mut self, timeout: Duration) -> Result<SenderReport, SendError> {
        let (start, mut pauses) = (Instant::now(), 0_u32);
        loop {
            let (report, sent) = (self.report(), self.sent());
            if report.handled >= sent {
                return Ok(report);
            }
            let waited = start.elapsed();
            if waited >= timeout {
                return Err(SendError::NotHandled { handled: report.handled, sent });
            }
            pauses += u32::from(waited >= AWAKE);
            if pauses % LOOK_EVERY == LOOK_EVERY - 1 {
                let is_there = self.sender.check_claim();
                // It may have said so last.
                if self.report().handled < sent {
                    is_there?;
                }
            }
            let segments = self.sender.segments();
            if fiber::in_fiber() {
                if waited < AWAKE { fiber::yield_now() } else { fiber::sleep(PAUSE) }
            } else {
                segments.poll();
                if waited >= AWAKE {
                    std::thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Waits up to `timeout` until the receiver has handled every frame, and releases the banks.
    ///
    /// # Errors
    /// As [`flush`](Self::flush); [`MailboxError::NotTaken`] if the receiver has not released the banks
    /// in time.
    #[track_caller]
    pub fn close(mut self, timeout: Duration) -> Result<SenderReport, SendError> {
        let start = Instant::now();
        let report = self.flush(timeout)?;
        match self.sender.close(timeout.saturating_sub(start.elapsed())) {
            // A mailbox that has ended after the last frame takes no banks back.
            Err(error) if !matches!(error, MailboxError::Closed(_)) && !error.is_peer_lost() => {
                Err(error.into())
            }
            _ => Ok(report),
        }
    }
}

/// Keeps code for the receiver, if there is room.
#[cold]
fn keep(store: &mut Store, known: &mut Known, code: &Code) {
    known.place = store.keep(code).unwrap_or(0);
}

impl Plan {
    #[inline]
    fn parts<'a>(&self, args: &'a [u8], payload: &'a [u8], code: &'a Code) -> Parts<'a> {
        Parts { args, payload, attachment: if self.with_code { code.wire() } else { &[] } }
    }
}

#[cold]
fn no_room(code: &Code) -> SendError {
    SendError::NoRoom { jam: code.name().to_owned(), bytes: code.wire().len() }
}

/// A frame that is too large, by its parts.
#[cold]
fn explain(
    error: MailboxError,
    code: &Code,
    plan: &Plan,
    args: &[u8],
    payload: &[u8],
) -> SendError {
    let MailboxError::TooLarge { max, .. } = error else { return error.into() };
    let (jam, args, payload) = (code.name().to_owned(), args.len(), payload.len());
    let code = if plan.with_code { code.wire().len() } else { 0 };
    SendError::TooLarge { jam, args, payload, code, max }
}

impl fmt::Debug for JamSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JamSender")
            .field("sender", &self.sender)
            .field("mode", &self.mode)
            .field("report", &self.report)
            .finish_non_exhaustive()
    }
}
