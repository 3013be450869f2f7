//! [`Requester`], [`Importer`]: what waits for the end of a request, and how a transport answers it.

use std::sync::mpsc;
use std::time::Duration;

use transport_api::{Event, HostId, PeerEvent, RegionError, RegionKey, RemoteRegion};

use crate::config::ANSWER_GRACE;
use crate::output::ImportError;

/// What waits for the end of a request to the control plane.
#[derive(Debug)]
pub enum Requester {
    /// For an import.
    Import(Importer),
    /// For a revocation: the lane of a thread to this host, which reports that the region is quiet.
    Revoke {
        /// The thread.
        thread: u32,
        /// The token of the event.
        token: u64,
    },
    /// For the goodbye of this host: a thread that blocks.
    Leave(mpsc::Sender<()>),
}

/// What waits for an import. When a transport drops it unanswered, a blocked thread sees that its
/// channel is closed.
#[derive(Debug)]
pub enum Importer {
    /// A thread that blocks in [`Transport::import`](transport_api::Transport::import).
    Blocked(mpsc::Sender<Result<RemoteRegion, RegionError>>),
    /// The lane of a thread to the owner, by
    /// [`Transport::begin_import`](transport_api::Transport::begin_import).
    Lane {
        /// The thread.
        thread: u32,
        /// The token that the event carries.
        token: u64,
    },
}

impl Importer {
    /// Imports `owner`'s region `key`, and blocks until it is there or the import has failed.
    /// `begin` begins the import for the importer that it is given; `cancel` cancels what `begin` has
    /// returned, if there is no answer when the control plane should have given one. `lost` says how
    /// `owner` has ended, if the transport ends first.
    ///
    /// # Errors
    /// Those of [`Transport::import`](transport_api::Transport::import).
    pub fn block<I>(
        (owner, key, timeout): (HostId, RegionKey, Duration),
        begin: impl FnOnce(Importer) -> Result<I, RegionError>,
        cancel: impl FnOnce(I),
        lost: impl FnOnce() -> RegionError,
    ) -> Result<RemoteRegion, RegionError> {
        let (sender, receiver) = mpsc::channel();
        let import = begin(Importer::Blocked(sender))?;
        // The control plane ends it by then, unless the service thread has failed.
        match receiver.recv_timeout(timeout.saturating_add(2 * ANSWER_GRACE)) {
            Ok(result) => result,
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(lost()),
            Err(mpsc::RecvTimeoutError::Timeout) => {
                cancel(import);
                Err(RegionError::NoAnswer { owner, key })
            }
        }
    }

    /// Answers the import; `deliver` leaves an event for the lane of a thread to the owner.
    pub fn answer(
        self,
        result: Result<RemoteRegion, RegionError>,
        deliver: impl FnOnce(u32, Event),
    ) {
        match self {
            // It may have timed out.
            Importer::Blocked(answer) => drop(answer.send(result)),
            Importer::Lane { thread, token } => deliver(thread, Event::Imported { token, result }),
        }
    }

    /// Answers that the import of `owner`'s region `key` has failed. `end` is how `owner` has ended,
    /// if it has: then a lane reports that instead of the import.
    pub fn fail(
        self,
        (owner, key): (HostId, RegionKey),
        error: ImportError,
        end: Option<&PeerEvent>,
        deliver: impl FnOnce(u32, Event),
    ) {
        if end.is_none() || matches!(self, Importer::Blocked(_)) {
            self.answer(Err(error.for_region(owner, key)), deliver);
        }
    }
}

#[cfg(test)]
mod tests {
    use transport_api::LossReason;

    use super::*;

    #[test]
    fn a_lane_hears_of_a_failure_unless_it_reports_the_end_of_its_peer() {
        let failed = |end: Option<&PeerEvent>| {
            let mut delivered = None;
            let error = ImportError::PeerGone(LossReason::Connection("it has left".into()));
            Importer::Lane { thread: 3, token: 7 }.fail(
                (HostId(1), RegionKey(2)),
                error,
                end,
                |thread, event| delivered = Some((thread, event)),
            );
            delivered
        };
        assert!(matches!(
            failed(None),
            Some((
                3,
                Event::Imported { token: 7, result: Err(RegionError::PeerLost(HostId(1), _)) }
            ))
        ));
        assert!(failed(Some(&PeerEvent::Left(HostId(1)))).is_none());
    }

    #[test]
    fn a_blocked_thread_hears_of_every_failure() {
        let (answer, answered) = mpsc::channel();
        let end = PeerEvent::Left(HostId(1));
        let named = (HostId(1), RegionKey(2));
        Importer::Blocked(answer).fail(named, ImportError::TimedOut, Some(&end), |_, _| ());
        let answer = answered.recv().expect("an answer");
        assert!(matches!(answer, Err(RegionError::NoAnswer { key: RegionKey(2), .. })));
    }

    /// Takes as long as an import may, which is some seconds beyond its timeout.
    #[test]
    fn an_import_that_nothing_answers_is_cancelled() {
        let (mut kept, mut cancelled) = (None, None);
        let import = (HostId(1), RegionKey(2), Duration::ZERO);
        let result = Importer::block(
            import,
            |importer| {
                kept = Some(importer);
                Ok(7)
            },
            |begun| cancelled = Some(begun),
            || RegionError::NoSuchHost(HostId(1)),
        );
        assert!(
            matches!(result, Err(RegionError::NoAnswer { key: RegionKey(2), .. })),
            "{result:?}"
        );
        assert_eq!((cancelled, kept.is_some()), (Some(7), true));
        // The transport has ended: the importer is dropped.
        let lost = || RegionError::PeerLost(HostId(1), LossReason::Connection("gone".into()));
        let result = Importer::block(import, |_| Ok(()), |()| panic!("it has ended"), lost);
        assert!(matches!(result, Err(RegionError::PeerLost(HostId(1), _))), "{result:?}");
    }
}
