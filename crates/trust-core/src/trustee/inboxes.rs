//! [`Inboxes`]: a thread's inboxes, and how a poll finds those with a batch. With few clients, what a
//! poll compares stands side by side: where the signal of each client's next batch will be, and the number
//! that it will have. So a poll that finds nothing loads the signals, and nothing of an inbox. With many,
//! the arrival words say which signals to look at ([`Arrivals`]).

use std::cell::Cell;
use std::ptr::NonNull;

use primitive::sync::{AtomicU64, Ordering};

use crate::trustee::inbox::{Inbox, Server};
use crate::wire::arrivals::{Arrivals, Visit};
use crate::wire::words::Signal;

/// The inboxes of a thread.
pub(crate) struct Inboxes {
    /// By the number of the client. Never changed.
    all: Box<[Option<Inbox>]>,
    /// One for each of them, in their order.
    awaited: Box<[Awaited]>,
    arrivals: Option<Arrivals>,
}

/// The batch that is next from a client.
struct Awaited {
    /// Its signal, in memory that the client's inbox keeps.
    signal: Cell<NonNull<AtomicU64>>,
    sequence: Cell<u32>,
    client: u32,
}

impl Awaited {
    fn of(client: usize, inbox: &Inbox) -> Self {
        let (signal, sequence) = inbox.awaited();
        Awaited {
            signal: Cell::new(NonNull::from(signal)),
            sequence: Cell::new(sequence),
            client: client as u32,
        }
    }

    /// Its signal, if that is there.
    #[inline(always)]
    fn signal(&self) -> Option<u64> {
        // SAFETY: the pointer is into memory that the inbox of this client keeps; both belong to the same
        // `Inboxes`, which never replaces an inbox. Peers write signals as atomics.
        let signal = unsafe { self.signal.get().as_ref() }.load(Ordering::Acquire);
        Signal::is_request(signal, self.sequence.get()).then_some(signal)
    }

    /// Updates this after `inbox`, which is the client's, was served.
    #[inline(always)]
    fn renew(&self, inbox: &Inbox) {
        let (signal, sequence) = inbox.awaited();
        self.signal.set(NonNull::from(signal));
        self.sequence.set(sequence);
    }
}

impl Inboxes {
    /// `all` is indexed by the client's number, with `None` for the thread itself.
    pub(crate) fn new(all: Box<[Option<Inbox>]>, arrivals: Option<Arrivals>) -> Self {
        let inboxes = all.iter().enumerate();
        let awaited = inboxes
            .filter_map(|(client, inbox)| Some(Awaited::of(client, inbox.as_ref()?)))
            .collect();
        Inboxes { all, awaited, arrivals }
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
        for awaited in &self.awaited {
            if let Some(signal) = awaited.signal() {
                any |= self.serve_one(awaited, signal, server);
            }
        }
        any
    }

    /// Serves the batch that this signal is of, and which was awaited.
    #[inline(never)]
    fn serve_one(&self, awaited: &Awaited, signal: u64, server: &impl Server) -> bool {
        let Some(inbox) = self.get(awaited.client as usize) else { return false };
        let served = inbox.serve(server, signal);
        awaited.renew(inbox);
        served
    }

    #[inline(never)]
    fn serve_arrivals(&self, arrivals: &Arrivals, server: &impl Server) -> bool {
        arrivals.serve(|client| {
            let Some((awaited, inbox)) = self.awaited_from(client) else { return Visit::default() };
            let signal = awaited.signal();
            let served = signal.is_some_and(|signal| self.serve_one(awaited, signal, server));
            Visit { served, again: inbox.is_ready() || inbox.is_paused() }
        })
    }

    /// The batch that is next from the client with this number, if it has an inbox.
    fn awaited_from(&self, client: usize) -> Option<(&Awaited, &Inbox)> {
        let inbox = self.get(client)?;
        // The thread itself, which has none, is left out.
        let place = self.awaited.binary_search_by_key(&(client as u32), |awaited| awaited.client);
        Some((self.awaited.get(place.ok()?)?, inbox))
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
