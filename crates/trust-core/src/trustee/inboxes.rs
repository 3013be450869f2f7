//! [`Inboxes`]: a thread's inboxes, and how a poll finds those with a batch. With few clients, what a
//! poll compares stands side by side: where the signal of each client's next batch will be, and the number
//! that it will have. So a poll that finds nothing loads the signals, and nothing of an inbox. With many,
//! the arrival words say which signals to look at ([`Arrivals`]).

use crate::trustee::inbox::{Inbox, Server};
use crate::wire::arrivals::{Arrivals, Visit};
use crate::wire::expected::Expected;

/// The inboxes of a thread.
pub(crate) struct Inboxes {
    /// By the number of the client. Never changed.
    all: Box<[Option<Inbox>]>,
    /// The batch that is next from each of them, in their order.
    expected: Box<[Expected]>,
    arrivals: Option<Arrivals>,
}

impl Inboxes {
    /// `all` is indexed by the client's number, with `None` for the thread itself.
    pub(crate) fn new(all: Box<[Option<Inbox>]>, arrivals: Option<Arrivals>) -> Self {
        let inboxes = all.iter().enumerate();
        let expected = inboxes
            .filter_map(|(client, inbox)| Some(Expected::of(client as u32, inbox.as_ref()?.slot())))
            .collect();
        Inboxes { all, expected, arrivals }
    }

    /// The inbox of this client, if there is one.
    pub(crate) fn get(&self, client: usize) -> Option<&Inbox> {
        self.all.get(client)?.as_ref()
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Inbox> {
        self.all.iter().flatten()
    }

    /// Serves a batch of each client that has sent one; true if any request was served.
    #[inline(always)]
    pub(crate) fn serve(&self, server: &impl Server) -> bool {
        if let Some(arrivals) = &self.arrivals {
            return self.serve_arrivals(arrivals, server);
        }
        let mut any = false;
        for expected in &self.expected {
            if let Some(signal) = self.signal(expected) {
                any |= self.serve_one(expected, signal, server);
            }
        }
        any
    }

    /// The signal of a batch of `expected`, if it is there.
    #[inline(always)]
    fn signal(&self, expected: &Expected) -> Option<u64> {
        // SAFETY: made of the slot of an inbox in `all`, and renewed of the same one. No inbox there is
        // ever replaced, so the slot is alive while `self` is.
        unsafe { expected.signal() }
    }

    /// Serves the batch that this signal is of, and which was expected.
    #[inline(never)]
    fn serve_one(&self, expected: &Expected, signal: u64, server: &impl Server) -> bool {
        let Some(inbox) = self.get(expected.client as usize) else { return false };
        let served = inbox.serve(server, signal);
        expected.renew(inbox.slot());
        served
    }

    #[inline(never)]
    fn serve_arrivals(&self, arrivals: &Arrivals, server: &impl Server) -> bool {
        arrivals.serve(|client| {
            let Some((expected, inbox)) = self.expected_from(client) else {
                return Visit::default();
            };
            let signal = self.signal(expected);
            let served = signal.is_some_and(|signal| self.serve_one(expected, signal, server));
            Visit { served, again: inbox.is_ready() || inbox.is_paused() }
        })
    }

    /// The batch that is next from the client with this number, if it has an inbox.
    fn expected_from(&self, client: usize) -> Option<(&Expected, &Inbox)> {
        let inbox = self.get(client)?;
        // The thread itself, which has none, is left out.
        let place = self.expected.binary_search_by_key(&(client as u32), |next| next.client);
        Some((self.expected.get(place.ok()?)?, inbox))
    }

    /// Whether `found` holds for an inbox that may have a batch: with many clients, those whose arrival
    /// words say so, so that the signal words of the others are not loaded.
    pub(crate) fn any(&self, found: impl FnMut(&Inbox) -> bool) -> bool {
        match &self.arrivals {
            None => self.iter().any(found),
            Some(arrivals) => {
                let pending = arrivals.pending().into_iter();
                pending.filter_map(|client| self.get(client)).any(found)
            }
        }
    }
}
