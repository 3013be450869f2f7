//! [`ReactiveMailbox`]: a mailbox whose frames are run as they arrive.

use std::fmt;
use std::time::{Duration, Instant};

use ::mailbox::{Frame, Mailbox, MailboxError};
use jam_format::Digest;

use crate::mailbox::failure::{FrameError, FrameFailure};
use crate::mailbox::runs::Runs;
use crate::mailbox::stats::MailboxStats;
use crate::policy::Policy;
use crate::symbols::export::Open;

/// The longest time between two looks of [`ReactiveMailbox::run_while`] at its condition.
const TURN: Duration = Duration::from_millis(50);

/// How long a receiver that waits looks for a frame before it tells senders of earlier ones.
const MOMENT: Duration = Duration::from_micros(20);

/// The outcome of a frame.
#[derive(Clone, Debug)]
#[must_use = "a frame may have failed"]
pub enum Outcome {
    /// Its jam ran to its end.
    Ran,
    /// Its jam failed, or did not start. The mailbox and its properties continue.
    Failed(Box<FrameFailure>),
}

impl Outcome {
    /// Nothing if the jam ran.
    ///
    /// # Errors
    /// Why it did not.
    pub fn into_result(self) -> Result<(), Box<FrameFailure>> {
        match self {
            Outcome::Ran => Ok(()),
            Outcome::Failed(failure) => Err(failure),
        }
    }
}

/// A mailbox that runs the jams of its frames on properties of its own.
///
/// | Receiver | Calls |
/// |---|---|
/// | a thread or fiber with nothing else to do | [`run_while`](Self::run_while) |
/// | one that does something after each frame | [`next`](Self::next), [`next_timeout`](Self::next_timeout) |
/// | a loop of its own | [`poll`](Self::poll) |
/// | code between two frames | [`get`](Self::get), [`get_mut`](Self::get_mut), [`stats`](Self::stats) |
///
/// Jams run in the call that takes their frame, on its thread, in delegated context: they may not wait.
/// Frames of one sender run in the order in which it sent them, each at most once; senders take turns.
/// A jam has no result for its sender: it acts through what it writes. Its sender learns how many of its
/// frames ran and how many failed ([`JamSender::report`](super::JamSender::report)), once the
/// receiver finds no frame, or after some 1,000.
///
/// # What a sender can do
/// A jam that the policy admits can do everything that the process can. Under [`Policy::Signed`] and
/// [`Policy::Nothing`], a host that writes anything else into the mailbox only makes frames fail; see [`Mailbox`] for what it can do to frames of others.
pub struct ReactiveMailbox {
    mailbox: Mailbox,
    runs: Runs,
}

impl ReactiveMailbox {
    /// Runs the frames that arrive in `mailbox`, which no other layer may use.
    pub fn new(mailbox: Mailbox) -> Self {
        let runs = Runs::new(mailbox.segments().clone(), mailbox.frame_bytes());
        ReactiveMailbox { mailbox, runs }
    }

    // ---- settings and properties ---------------------------------------------------------------

    /// Sets the policy for its frames. The default is the policy of the process
    /// ([`Receiver::set_policy`](crate::Receiver::set_policy)).
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.runs.policy = Some(policy);
        self
    }

    /// As [`with_policy`](Self::with_policy), between two frames.
    pub fn set_policy(&mut self, policy: Policy) {
        self.runs.policy = Some(policy);
    }

    /// Adds a property that jams work on. They find it by the name under which its type was
    /// [opened](crate::open); it replaces an earlier one of the same type.
    #[must_use]
    pub fn with<T: Open + Send>(mut self, property: T) -> Self {
        let _before = self.runs.put(property);
        self
    }

    /// The property of this type.
    pub fn get<T: Open>(&self) -> Option<&T> {
        self.runs.get()
    }

    /// The property of this type.
    pub fn get_mut<T: Open>(&mut self) -> Option<&mut T> {
        self.runs.get_mut()
    }

    /// Takes the property of this type out. Jams that work on one fail from now on.
    pub fn take<T: Open>(&mut self) -> Option<T> {
        self.runs.take()
    }

    /// The underlying mailbox, for its name, dimensions and segment.
    pub fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    /// Counts of the frames that have arrived, by outcome.
    pub fn stats(&self) -> &MailboxStats {
        &self.runs.stats
    }

    // ---- running -------------------------------------------------------------------------------

    /// Runs the next frame, if one has come; `None` if there is none. As [`Mailbox::poll`], it never
    /// waits for a frame; to read code at a sender, or to find where to report to it, it waits for that
    /// sender's host.
    ///
    /// # Errors
    /// [`MailboxError::Segment`] once the rack has ended.
    #[inline]
    #[track_caller]
    pub fn poll(&mut self) -> Result<Option<Outcome>, MailboxError> {
        let ReactiveMailbox { mailbox, runs } = self;
        let outcome = match mailbox.poll() {
            Ok(Some(frame)) => outcome_of(runs, &frame),
            Ok(None) => {
                if runs.peers.note_idle() {
                    runs.report();
                }
                return Ok(None);
            }
            Err(error) => malformed(runs, error)?,
        };
        if runs.peers.is_overdue() {
            runs.report();
        }
        Ok(Some(outcome))
    }

    /// Runs the next frame, and waits for it: parks the fiber, or blocks the thread, as
    /// [`Mailbox::next`] does.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    #[allow(clippy::should_implement_trait, reason = "it is no iterator: its end is an error")]
    #[inline]
    #[track_caller]
    pub fn next(&mut self) -> Result<Outcome, MailboxError> {
        loop {
            if let Some(outcome) = self.wait(None)? {
                return Ok(outcome);
            }
        }
    }

    /// As [`next`](Self::next), for up to `timeout`: `None` if no frame has come by then.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    #[track_caller]
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Outcome>, MailboxError> {
        // A timeout beyond the range of the clock means no timeout.
        self.wait(Instant::now().checked_add(timeout))
    }

    /// Runs frames as they arrive while `goes_on` returns true. It is called after each frame, and about
    /// every 50 milliseconds.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    #[track_caller]
    pub fn run_while(
        &mut self,
        mut goes_on: impl FnMut(&ReactiveMailbox) -> bool,
    ) -> Result<(), MailboxError> {
        while goes_on(self) {
            let _counted = self.next_timeout(TURN)?;
        }
        self.tell_senders();
        Ok(())
    }

    /// Reports to senders on frames that they have had no report on, where this need not wait. A mailbox
    /// that finds no frame does this by itself; call it before you drop the mailbox.
    #[track_caller]
    pub fn tell_senders(&mut self) {
        while self.runs.peers.owes_soon() {
            self.runs.report();
        }
    }

    #[inline]
    #[track_caller]
    fn wait(&mut self, deadline: Option<Instant>) -> Result<Option<Outcome>, MailboxError> {
        loop {
            // Tells senders when there is nothing else to do.
            if let Some(outcome) = self.poll()? {
                return Ok(Some(outcome));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            let ReactiveMailbox { mailbox, runs } = self;
            let turn = if runs.peers.owes_soon() { MOMENT } else { TURN };
            match mailbox.next_timeout(left.map_or(turn, |left| left.min(turn))) {
                Ok(Some(frame)) => return Ok(Some(outcome_of(runs, &frame))),
                Ok(None) => runs.peers.skip_idle(),
                Err(error) => return malformed(runs, error).map(Some),
            }
        }
    }
}

#[inline]
#[track_caller]
fn outcome_of(runs: &mut Runs, frame: &Frame<'_>) -> Outcome {
    match runs.run(frame) {
        Ok(()) => Outcome::Ran,
        Err(failure) => Outcome::Failed(failure),
    }
}

/// Counts a frame that is malformed; any other error is the mailbox's end.
#[cold]
fn malformed(runs: &mut Runs, error: MailboxError) -> Result<Outcome, MailboxError> {
    let MailboxError::Malformed { host, reason } = error else { return Err(error) };
    let failure = FrameFailure {
        sender: host,
        number: reason.sequence,
        jam: Digest::from_bytes([0; 16]),
        reason: FrameError::Malformed(reason),
    };
    runs.stats.note(failure.clone());
    Ok(Outcome::Failed(Box::new(failure)))
}

impl Drop for ReactiveMailbox {
    /// Tells senders what they have not been told, as far as this need not wait.
    fn drop(&mut self) {
        if self.runs.peers.owes_reports() && !std::thread::panicking() {
            self.runs.peers.report_known();
        }
    }
}

impl fmt::Debug for ReactiveMailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReactiveMailbox")
            .field("mailbox", &self.mailbox)
            .field("stats", &self.runs.stats)
            .finish_non_exhaustive()
    }
}
