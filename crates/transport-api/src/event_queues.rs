//! [`EventQueues`]: what has arrived for the runtime threads of a process, until their lanes take it.
//!
//! The thread that reads what arrives is not always the thread that it is for, nor may it call that
//! thread's lane. So there is an event queue for each thread and host, and one record of the end of
//! each host for all threads:
//!
//! ```text
//!   the thread that reads                   the thread that it is for
//!   deliver, or end     (becomes visible)   announce sleep     (its park word)
//!   look at its park word: wake it          has_events?        then it does not sleep
//! ```
//!
//! Rules:
//! 1. An event, or an end, is visible before the waker looks at the thread's park word; and a parker
//!    asks [`has_events`](EventQueues::has_events) after its announcement. So no thread sleeps over
//!    events, nor over the end of a host to which it has a lane.
//! 2. A lane looks for the end of its host before it takes its events. So what was delivered before
//!    the end is reported before it.
//! 3. The receiver clears the flag before it takes events, and the sender sets it after it delivers;
//!    the lock between orders the two. So what comes meanwhile sets the flag again.

use std::mem;
use std::sync::{Arc, PoisonError};

use primitive::sync::{AtomicBool, Mutex, MutexGuard, OnceLock, Ordering};

use crate::{Event, HostId, LaneError, LossReason, OpError, PeerEvent};

/// Events beyond which failures without a token are no longer delivered. Everything else that
/// waits is bounded by what this host has asked for, or by the windows of its peers.
const REPORTS: usize = 1024;

/// For backends: what has arrived for the runtime threads of a process and waits for their lanes,
/// which lanes and parkers they have opened, and how each host has ended.
///
/// ```
/// use gossamer_transport_api::{Event, HostId, EventQueues, PeerEvent};
///
/// let all = EventQueues::new(HostId(0), 2, 1);
/// let mut event_queue = all.open(0, HostId(1)).unwrap();
/// assert!(all.open(0, HostId(1)).is_err(), "a thread has one lane to each host");
/// all.deliver(0, HostId(1), Event::Completed { token: 7, value: 0 });
/// assert!(all.has_events(0), "its parker does not sleep");
/// let mut tokens = Vec::new();
/// event_queue.take(&mut |event| {
///     if let Event::Completed { token, .. } = event {
///         tokens.push(token);
///     }
/// });
/// assert_eq!(tokens, [7]);
/// assert!(!all.has_events(0));
///
/// assert!(all.end(&PeerEvent::Left(HostId(1))));
/// assert!(all.has_events(0), "until its lane has reported it");
/// event_queue.report(all.end_of(HostId(1)).unwrap(), &mut |_| ());
/// assert!(!all.has_events(0) && event_queue.is_over());
/// ```
pub struct EventQueues {
    local: HostId,
    /// By host: how it has ended, if it has.
    ends: Vec<OnceLock<PeerEvent>>,
    /// By thread.
    thread_states: Vec<ThreadState>,
}

/// One runtime thread.
struct ThreadState {
    is_parker_taken: AtomicBool,
    /// By host.
    slots: Vec<Arc<Slot>>,
}

/// What has arrived for one thread from one host.
#[derive(Default)]
struct Slot {
    /// Whether the thread has ever opened a lane there.
    was_opened: AtomicBool,
    /// Whether it has a lane there that has more to report.
    is_open: AtomicBool,
    has_any: AtomicBool,
    events: Mutex<Vec<Event>>,
}

impl Slot {
    fn events(&self) -> MutexGuard<'_, Vec<Event>> {
        // A list of events is complete even if a thread panicked with the lock.
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventQueues {
    /// Those of host `local`, of a rack of this many hosts with this many threads each.
    pub fn new(local: HostId, hosts: u32, threads: u32) -> Arc<Self> {
        let slots = || (0..hosts).map(|_| Arc::default()).collect();
        let state = |_| ThreadState { is_parker_taken: AtomicBool::new(false), slots: slots() };
        Arc::new(Self {
            local,
            ends: (0..hosts).map(|_| OnceLock::new()).collect(),
            thread_states: (0..threads).map(state).collect(),
        })
    }

    /// Hosts of the rack.
    pub fn hosts(&self) -> u32 {
        self.ends.len() as u32
    }

    /// Threads of each.
    pub fn threads(&self) -> u32 {
        self.thread_states.len() as u32
    }

    fn slot(&self, thread: u32, from: HostId) -> &Arc<Slot> {
        &self.thread_states[thread as usize].slots[from.0 as usize]
    }

    /// The event queue for the lane of `thread` to `peer`, which a thread has once and for all.
    ///
    /// # Errors
    /// As [`Transport::lane`](crate::Transport::lane).
    pub fn open(self: &Arc<Self>, thread: u32, peer: HostId) -> Result<EventQueue, LaneError> {
        LaneError::check_thread(thread, self.threads())?;
        if peer.0 >= self.hosts() {
            return Err(LaneError::NoSuchHost(peer));
        }
        let slot = self.slot(thread, peer);
        if slot.was_opened.swap(true, Ordering::AcqRel) {
            return Err(LaneError::AlreadyOpen(thread, peer));
        }
        slot.is_open.store(true, Ordering::Relaxed);
        let (threads, slot) = (self.threads(), slot.clone());
        Ok(EventQueue { threads, slot, thread, peer, gone: None, spare: Vec::new() })
    }

    /// Takes the parker of `thread`, which there is once.
    ///
    /// # Errors
    /// As [`Transport::parker`](crate::Transport::parker).
    pub fn take_parker(&self, thread: u32) -> Result<(), LaneError> {
        LaneError::check_thread(thread, self.threads())?;
        match self.thread_states[thread as usize].is_parker_taken.swap(true, Ordering::AcqRel) {
            false => Ok(()),
            true => Err(LaneError::AlreadyOpen(thread, self.local)),
        }
    }

    /// Leaves something for the lane of `thread` to `from`, both of which exist; the caller then
    /// wakes the thread.
    pub fn deliver(&self, thread: u32, from: HostId, event: Event) {
        let slot = self.slot(thread, from);
        let mut events = slot.events();
        if matches!(event, Event::Failed { token: None, .. }) && events.len() >= REPORTS {
            return;
        }
        events.push(event);
        drop(events);
        slot.has_any.store(true, Ordering::Release);
    }

    /// Records how a host has ended, the first time; the caller then wakes all threads. False if it
    /// was noted before.
    pub fn end(&self, event: &PeerEvent) -> bool {
        let (PeerEvent::Lost(host, _) | PeerEvent::Left(host)) = event;
        self.ends[host.0 as usize].set(event.clone()).is_ok()
    }

    /// How `host` has ended, if it has.
    #[inline]
    pub fn end_of(&self, host: HostId) -> Option<&PeerEvent> {
        self.ends[host.0 as usize].get()
    }

    /// Whether a lane that `thread` has open has something to report.
    pub fn has_events(&self, thread: u32) -> bool {
        let mut slots = self.thread_states[thread as usize].slots.iter().zip(&self.ends);
        slots.any(|(slot, end)| {
            let has_more = || slot.has_any.load(Ordering::Acquire) || end.get().is_some();
            slot.is_open.load(Ordering::Relaxed) && has_more()
        })
    }
}

/// For backends: what a lane has of [`EventQueues`]: the events from its peer, and whether it has
/// reported the peer's end. When it is dropped, nothing of that keeps its thread awake any more.
pub struct EventQueue {
    /// Threads of each host.
    threads: u32,
    slot: Arc<Slot>,
    thread: u32,
    peer: HostId,
    /// Why operations fail, once the peer's end has been reported.
    gone: Option<LossReason>,
    /// Keeps [`take`](Self::take) from allocating.
    spare: Vec<Event>,
}

impl EventQueue {
    /// The thread whose lane it is.
    #[inline(always)]
    pub fn thread(&self) -> u32 {
        self.thread
    }

    /// The host at the other end.
    #[inline(always)]
    pub fn peer(&self) -> HostId {
        self.peer
    }

    /// Whether the peer has a thread of this number.
    ///
    /// # Errors
    /// [`OpError::NoSuchThread`], if it has not.
    pub fn check_thread(&self, thread: u32) -> Result<(), OpError> {
        OpError::check_thread(thread, self.threads, self.peer)
    }

    /// Whether the peer's end has not been reported.
    ///
    /// # Errors
    /// [`OpError::PeerLost`], if it has.
    #[inline]
    pub fn check_peer(&self) -> Result<(), OpError> {
        match &self.gone {
            None => Ok(()),
            Some(reason) => Err(self.lost(reason)),
        }
    }

    #[cold]
    fn lost(&self, reason: &LossReason) -> OpError {
        OpError::PeerLost(self.peer, reason.clone())
    }

    /// Whether the peer's end has been reported.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.gone.is_some()
    }

    /// Whether anything may have arrived.
    #[inline]
    pub fn has_any(&self) -> bool {
        self.slot.has_any.load(Ordering::Acquire)
    }

    /// Hands what has arrived to `sink`; whether that was anything.
    #[inline]
    pub fn take(&mut self, sink: &mut dyn FnMut(Event)) -> bool {
        self.has_any() && self.take_all(sink)
    }

    #[inline(never)]
    fn take_all(&mut self, sink: &mut dyn FnMut(Event)) -> bool {
        self.slot.has_any.store(false, Ordering::Relaxed);
        mem::swap(&mut *self.slot.events(), &mut self.spare);
        let any = !self.spare.is_empty();
        self.spare.drain(..).for_each(sink);
        any
    }

    /// Reports the peer's end: there is nothing more to come.
    pub fn report(&mut self, end: &PeerEvent, sink: &mut dyn FnMut(Event)) {
        self.gone = Some(end.reason());
        self.close();
        sink(Event::Peer(end.clone()));
    }

    /// Nothing more is to keep the thread awake.
    fn close(&self) {
        self.slot.is_open.store(false, Ordering::Relaxed);
    }
}

impl Drop for EventQueue {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::RegionKey;

    const PEER: HostId = HostId(1);

    fn completed(token: u64) -> Event {
        Event::Completed { token, value: 0 }
    }

    /// The tokens of what has arrived.
    fn tokens(event_queue: &mut EventQueue) -> Vec<u64> {
        let mut tokens = Vec::new();
        event_queue.take(&mut |event| match event {
            Event::Completed { token, .. } => tokens.push(token),
            other => panic!("{other:?}"),
        });
        tokens
    }

    #[test]
    fn lanes_and_parkers_are_opened_once() {
        let all = EventQueues::new(HostId(0), 2, 2);
        drop(all.open(1, PEER).expect("the first"));
        assert!(matches!(all.open(1, PEER), Err(LaneError::AlreadyOpen(1, PEER))));
        assert!(all.open(0, PEER).is_ok() && all.open(1, HostId(0)).is_ok());
        assert!(matches!(all.open(0, HostId(2)), Err(LaneError::NoSuchHost(HostId(2)))));
        assert!(matches!(all.open(2, PEER), Err(LaneError::NoSuchThread(2, 2))));
        all.take_parker(1).expect("the first");
        assert!(matches!(all.take_parker(1), Err(LaneError::AlreadyOpen(1, HostId(0)))));
        assert!(matches!(all.take_parker(2), Err(LaneError::NoSuchThread(2, 2))));
    }

    #[test]
    fn events_are_taken_once_in_order_by_the_lane_they_are_for() {
        let all = EventQueues::new(HostId(0), 2, 2);
        let [mut mine, mut other] = [0, 1].map(|thread| all.open(thread, PEER).expect("a lane"));
        (1..=3).for_each(|token| all.deliver(0, PEER, completed(token)));
        assert!(all.has_events(0) && !all.has_events(1));
        assert_eq!(tokens(&mut other), []);
        assert_eq!(tokens(&mut mine), [1, 2, 3]);
        assert_eq!(tokens(&mut mine), []);
        all.deliver(0, PEER, completed(4));
        assert_eq!(tokens(&mut mine), [4]);
    }

    #[test]
    fn what_comes_while_events_are_taken_is_reported_later() {
        let all = EventQueues::new(HostId(0), 2, 1);
        let mut event_queue = all.open(0, PEER).expect("a lane");
        all.deliver(0, PEER, completed(1));
        event_queue.take(&mut |_| all.deliver(0, PEER, completed(2)));
        assert!(all.has_events(0));
        assert_eq!(tokens(&mut event_queue), [2]);
    }

    #[test]
    fn failures_without_a_token_are_bounded() {
        let all = EventQueues::new(HostId(0), 2, 1);
        let mut event_queue = all.open(0, PEER).expect("a lane");
        let error = || OpError::Revoked { key: RegionKey(1), generation: 0 };
        for _ in 0..2 * REPORTS {
            all.deliver(0, PEER, Event::Failed { token: None, error: error() });
        }
        all.deliver(0, PEER, Event::Failed { token: Some(7), error: error() });
        all.deliver(0, PEER, completed(8));
        let mut count = 0;
        assert!(event_queue.take(&mut |_| count += 1));
        assert_eq!(count, REPORTS + 2);
    }

    #[test]
    fn an_end_keeps_every_thread_with_a_lane_awake_until_it_is_reported() {
        let all = EventQueues::new(HostId(0), 3, 3);
        let mut first = all.open(0, PEER).expect("a lane");
        let second = all.open(1, PEER).expect("a lane");
        let _elsewhere = all.open(2, HostId(2)).expect("a lane");
        let lost = PeerEvent::Lost(PEER, LossReason::Connection("it is gone".into()));
        assert!(all.end(&lost));
        assert!(!all.end(&PeerEvent::Left(PEER)), "the first counts");
        assert_eq!(all.end_of(PEER), Some(&lost));
        assert!([0, 1].into_iter().all(|thread| all.has_events(thread)) && !all.has_events(2));

        assert_eq!(first.check_peer(), Ok(()), "operations fail only after the report");
        let mut reported = Vec::new();
        first.report(&lost, &mut |event| reported.push(event));
        assert!(matches!(&reported[..], [Event::Peer(event)] if *event == lost));
        assert_eq!(first.check_peer(), Err(OpError::PeerLost(PEER, lost.reason())));
        assert!(first.is_over() && !second.is_over());
        assert!(!all.has_events(0) && all.has_events(1));
        drop(second);
        assert!(!all.has_events(1), "nor does a lane that is no longer there");
    }
}
