//! [`Flags`]: the flags of a sender, as the receiver of its frames sets them.

use std::sync::Arc;
use std::time::Duration;

use gossamer_segment::{HostId, RemoteSegment, SegmentError, Segments};
use parking_lot::Mutex;

use crate::claim::flags_name;
use crate::layout::{IDENTITY, WAITING, WORD, flag_at};
use crate::sleep;

/// How long to wait before one more try to map the flags of a sender.
pub(crate) const AGAIN: Duration = Duration::from_millis(10);

/// What a fiber has opened, which keeps this until it ends.
pub(crate) type Opened = Arc<Mutex<Option<Flags>>>;

/// The flags of a sender.
pub(crate) enum Flags {
    /// A fiber opens them.
    Opening(Opened),
    Open(RemoteSegment),
    /// The sender has gone, or says that they are where they are not.
    Gone,
}

impl Flags {
    /// Opens the flags of a sender, which is an exchange with its host: in a fiber of its own, if the
    /// caller is one; `None` if there is no stack for it, or no memory for a mapping: try again.
    #[track_caller]
    pub(crate) fn begin_open(
        segments: &Segments,
        (host, number): (HostId, u64),
        len: usize,
        identity: u64,
    ) -> Option<Flags> {
        let segments = segments.clone();
        let open = move || {
            let opened =
                segments.options().host(host).open(&flags_name(number)).and_then(|flags| {
                    let is_it =
                        flags.len() >= len && flags.at_byte::<u64>(IDENTITY).read()? == identity;
                    Ok(if is_it { Flags::Open(flags) } else { Flags::Gone })
                });
            match opened {
                Err(error) if error.is_no_memory() => None,
                opened => Some(opened.unwrap_or(Flags::Gone)),
            }
        };
        if !fiber::in_fiber() {
            return open();
        }
        let opened = Opened::default();
        let there = opened.clone();
        let opening = fiber::Builder::new().spawn_local(move || {
            // As long as the receiver wants them.
            while Arc::strong_count(&there) > 1 {
                if let Some(flags) = open() {
                    *there.lock() = Some(flags);
                    return;
                }
                fiber::sleep(AGAIN);
            }
        });
        opening.ok().map(|_detached| Flags::Opening(opened))
    }

    pub(crate) fn take_opened(&mut self) {
        let Flags::Opening(opened) = self else { return };
        let opened = opened.lock().take();
        if let Some(opened) = opened {
            *self = opened;
        }
    }

    /// Asks the processor for the line of the flag of a bank.
    #[inline(never)]
    pub(crate) fn prefetch(&self, bank: u32) {
        if let Flags::Open(flags) = self {
            flags.prefetch_write(flag_at(bank));
        }
    }

    /// Sets the flag of a bank; the sender is then to be woken. Where memory is not mapped, a flag that is not
    /// urgent is no message of its own: it leaves with the next one, or the next poll. A sender that takes
    /// nothing must not stop the receiver of all others: false if the flag was not written because this
    /// would have to wait.
    #[track_caller]
    pub(crate) fn set(&mut self, bank: u32, emptied: u64, is_urgent: bool) -> bool {
        let mut is_set = true;
        self.with_open(|flags| {
            is_set = flags.try_signal(flag_at(bank), emptied, is_urgent)?;
            Ok(())
        });
        is_set
    }

    /// Whether a flag that was not urgent may still wait for the next message.
    #[track_caller]
    pub(crate) fn have_unsent(&self) -> bool {
        matches!(self, Flags::Open(flags) if !flags.is_mapped() && flags.has_unsent())
    }

    /// Sets a word that the sender waits for, and wakes it, unless this would have to wait.
    #[track_caller]
    pub(crate) fn set_and_wake(&mut self, at: usize, word: u64) {
        self.with_open(|flags| match flags.is_mapped() {
            true => flags.signal(at, word),
            false => flags.try_write_notify(at, &word.to_ne_bytes()).map(drop),
        });
        self.wake();
    }

    /// Notifies the sender, if its memory is not mapped; false if this would have to wait.
    #[track_caller]
    pub(crate) fn notify_unmapped(&mut self) -> bool {
        let mut is_notified = true;
        self.with_open(|flags| {
            // In mapped memory `wake` reads whether it sleeps; the claim is not trusted.
            if !flags.is_mapped() {
                is_notified = flags.try_write_notify(0, &[])?;
            }
            Ok(())
        });
        is_notified
    }

    /// Whether [`set_and_wake`](Self::set_and_wake) would write, or never will.
    #[track_caller]
    pub(crate) fn can_set(&self) -> bool {
        match self {
            Flags::Opening(_) => false,
            Flags::Open(flags) => flags.is_mapped() || flags.can_notify(WORD),
            Flags::Gone => true,
        }
    }

    /// Wakes the sender, if its memory is mapped and it sleeps.
    #[track_caller]
    pub(crate) fn wake(&mut self) {
        self.with_open(|flags| match flags.is_mapped() {
            true => sleep::wake(flags, WAITING),
            false => Ok(()),
        });
    }

    #[inline]
    fn with_open(&mut self, operation: impl FnOnce(&RemoteSegment) -> Result<(), SegmentError>) {
        let Flags::Open(flags) = self else { return };
        if operation(flags).is_err() {
            // The sender has dropped them, or its host is lost.
            *self = Flags::Gone;
        }
    }
}
