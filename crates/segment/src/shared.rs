//! [`Shared`]: the state that all threads of a process share for the segments of one rack.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use foldhash::HashMap;
use parking_lot::Mutex;
use transport_api::{Access, HostId, Namespace, RegionKey, Transport};

use crate::clerk::Clerk;
use crate::name::Name;
use crate::notification::queue::{Queue, Turn};
use crate::table::Notify;

/// An operation of a thread that is not attached, which an attached thread executes.
#[doc(hidden)]
pub type Job = Box<dyn FnOnce() + Send>;

/// Runs a job on an attached thread of the process, where it may wait.
#[doc(hidden)]
pub type Spawn = Box<dyn Fn(Job) + Send + Sync>;

/// What a runtime thread needs to accept notifications for an exported segment.
pub(crate) struct Exported {
    pub(crate) len: usize,
    pub(crate) notify: Notify,
    /// The access of the first export: no later access allows a host more.
    pub(crate) access: Access,
    pub(crate) queue: Arc<Queue>,
}

/// The segments that this process exports.
///
/// Until the process ends this keeps some 100 bytes for each name that was ever exported, so a program
/// whose segments come and go should reuse names.
#[derive(Default)]
pub(crate) struct Exports {
    /// By name: the number of its key, and how often it was exported. Never forgotten: a peer may
    /// still hold a handle of any earlier export, which must not match the generation of a later one. A
    /// fresh key for each export would only move the growth to the transport, which remembers every key.
    numbers: HashMap<Name, (u64, u32)>,
    /// By the number of their key: the bytes of the longest segment that had it. Never forgotten: a
    /// notification may arrive long after its segment was revoked, and this tells a late one from a forged one.
    longest: HashMap<u64, usize>,
    /// By the number of their key.
    live: HashMap<u64, Weak<Exported>>,
}

impl Exports {
    /// The key under which `name` is exported, and which export of the name this is, from zero.
    pub(crate) fn number(&mut self, name: &Name) -> (RegionKey, u32) {
        // Number 0 is the registry.
        let next = self.numbers.len() as u64 + 1;
        let (number, times) = self.numbers.entry(*name).or_insert((next, 0));
        let generation = *times;
        *times = times.wrapping_add(1);
        (RegionKey::new(Namespace::SEGMENTS, *number), generation)
    }

    pub(crate) fn add(&mut self, key: RegionKey, exported: &Arc<Exported>) {
        let longest = self.longest.entry(key.number()).or_default();
        *longest = exported.len.max(*longest);
        self.live.insert(key.number(), Arc::downgrade(exported));
    }

    /// Those that are exported now.
    fn all(&self) -> Vec<Arc<Exported>> {
        self.live.values().filter_map(Weak::upgrade).collect()
    }

    /// Takes a segment out, unless another one has its key now.
    pub(crate) fn remove(&mut self, key: RegionKey, exported: &Arc<Exported>) {
        let is_it = |now: &Weak<Exported>| now.as_ptr() == Arc::as_ptr(exported);
        if self.live.get(&key.number()).is_some_and(is_it) {
            self.live.remove(&key.number());
        }
    }

    /// The segment with this key, if it is exported now, and the bytes of the longest one that ever
    /// had the key; `None` if none ever had it.
    pub(crate) fn find(&self, key: RegionKey) -> Option<(Option<Arc<Exported>>, usize)> {
        let longest = self.longest.get(&key.number())?;
        let live = self.live.get(&key.number()).and_then(Weak::upgrade);
        Some((live, *longest))
    }
}

/// Counts the operations on a region that were refused as revoked and that no caller waits for, such
/// as writes. Clones share the count.
#[derive(Clone, Default)]
pub(crate) struct RefusalCount(Arc<AtomicU32>);

impl RefusalCount {
    #[inline]
    pub(crate) fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A region of some host that was opened.
struct Opened {
    name: Name,
    /// The segment's generation.
    generation: u32,
    refusals: RefusalCount,
}

/// The regions that were opened. Regions that no [`RemoteSegment`](crate::RemoteSegment) uses any
/// more are dropped whenever the number has doubled since the last time.
#[derive(Default)]
struct Openings {
    regions: HashMap<(HostId, RegionKey), Opened>,
    left: usize,
}

impl Openings {
    /// The smallest number of regions that is cleaned up.
    const FEW: usize = 64;

    fn forget_unused(&mut self) {
        if self.regions.len() >= 2 * self.left.max(Self::FEW) {
            self.regions.retain(|_, opened| Arc::strong_count(&opened.refusals.0) > 1);
            self.left = self.regions.len();
        }
    }
}

/// The state that all threads of a process share for the segments of one rack.
pub(crate) struct Shared {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) clerk: Clerk,
    pub(crate) exports: Mutex<Exports>,
    /// How often the segments that are exported have changed.
    changes: AtomicU64,
    opened: Mutex<Openings>,
    /// Hands the operations of threads that are not attached to one that is.
    pub(crate) spawn: OnceLock<Spawn>,
    pub(crate) has_ended: AtomicBool,
    /// Queues whose callbacks wait for their next turn, if no job can give it to them.
    turns: Mutex<Vec<Arc<Queue>>>,
    has_turns: AtomicBool,
}

impl Shared {
    pub(crate) fn new(transport: Arc<dyn Transport>) -> Arc<Shared> {
        Arc::new(Shared {
            transport,
            clerk: Clerk::default(),
            exports: Mutex::default(),
            changes: AtomicU64::new(0),
            opened: Mutex::default(),
            spawn: OnceLock::new(),
            has_ended: AtomicBool::new(false),
            turns: Mutex::default(),
            has_turns: AtomicBool::new(false),
        })
    }

    /// A region was opened under this name, with this generation of the segment.
    pub(crate) fn note_opened(
        &self,
        region: (HostId, RegionKey),
        name: Name,
        generation: u32,
    ) -> RefusalCount {
        let mut opened = self.opened.lock();
        opened.forget_unused();
        let fresh = || Opened { name, generation, refusals: RefusalCount::default() };
        let entry = opened.regions.entry(region).or_insert_with(fresh);
        (entry.name, entry.generation) = (name, generation);
        entry.refusals.clone()
    }

    /// The name of a region that was opened, and the segment's generation.
    pub(crate) fn opened(&self, region: (HostId, RegionKey)) -> Option<(Name, u32)> {
        self.opened.lock().regions.get(&region).map(|opened| (opened.name, opened.generation))
    }

    /// An operation on a region was refused as revoked: the next one imports it again.
    pub(crate) fn count_refusal(&self, region: (HostId, RegionKey)) {
        if let Some(opened) = self.opened.lock().regions.get(&region) {
            opened.refusals.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn local(&self) -> HostId {
        self.transport.local()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    /// The rack has ended: no more jobs run, and threads that rely on others to bring their
    /// notifications stop waiting.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
        // Without the lock, because waking runs the program's code.
        let exported = self.exports.lock().all();
        exported.iter().for_each(|exported| exported.queue.end());
    }

    /// A segment is exported now.
    pub(crate) fn add(&self, key: RegionKey, exported: &Arc<Exported>) {
        self.exports.lock().add(key, exported);
        self.changes.fetch_add(1, Ordering::Release);
        // If the lock came before that of `end`, that finds the segment; otherwise this sees it.
        if self.has_ended() {
            exported.queue.end();
        }
    }

    /// A segment is not exported any more.
    pub(crate) fn remove(&self, key: RegionKey, exported: &Arc<Exported>) {
        self.exports.lock().remove(key, exported);
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// How often the segments that are exported have changed: what [`Exports::find`] returned after
    /// this still holds while this returns the same.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }
}

/// The next turn of a queue's callback. A job that is dropped before it has run loses it, and the
/// next notification calls the callback again.
struct NextTurn(Option<Arc<Queue>>);

impl NextTurn {
    /// Takes the turn; returns the queue if there is another one.
    fn take(mut self) -> Option<Arc<Queue>> {
        self.0.take().filter(|queue| queue.next_turn() == Turn::Next)
    }
}

impl Drop for NextTurn {
    fn drop(&mut self) {
        if let Some(queue) = &self.0 {
            queue.lose_turn();
        }
    }
}

/// Turns of callbacks of notifications.
impl Shared {
    /// Has an attached thread give the callback of a queue its next turn: a job, or, if none serves
    /// this process, a thread that polls, such as `thread`.
    pub(crate) fn arrange_turn(self: &Arc<Self>, queue: Arc<Queue>, thread: u32) {
        let Some(spawn) = self.spawn.get() else {
            self.turns.lock().push(queue);
            self.has_turns.store(true, Ordering::Release);
            return self.transport.unpark(thread);
        };
        let (shared, turn) = (self.clone(), NextTurn(Some(queue)));
        spawn(Box::new(move || {
            if let Some(queue) = turn.take() {
                shared.arrange_turn(queue, thread);
            }
        }));
    }

    /// Whether callbacks wait for their turns.
    #[inline]
    pub(crate) fn has_turns(&self) -> bool {
        self.has_turns.load(Ordering::Relaxed)
    }

    /// For a thread that polls, with this number: gives the callbacks their turns that wait for them;
    /// true if there were any.
    #[inline]
    pub(crate) fn take_turns(self: &Arc<Self>, thread: u32) -> bool {
        self.has_turns() && self.take_all_turns(thread)
    }

    #[cold]
    fn take_all_turns(self: &Arc<Self>, thread: u32) -> bool {
        if !self.has_turns.swap(false, Ordering::Acquire) {
            return false;
        }
        let turns = std::mem::take(&mut *self.turns.lock());
        for queue in turns {
            if queue.next_turn() == Turn::Next {
                self.arrange_turn(queue, thread);
            }
        }
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::time::{Duration, Instant};

    use transport_shm::ShmTransport;

    use super::*;
    use crate::engine::Server;
    use crate::notification::Notification;
    use crate::notification::queue::CAPACITY;

    fn shared() -> Arc<Shared> {
        let transport = ShmTransport::in_process(1, 1).expect("a rack").remove(0);
        Shared::new(transport)
    }

    fn note() -> Notification {
        Notification { from: HostId(0), offset: 0, len: 8, missed: 0 }
    }

    /// A queue with a callback that wants one more turn than the first, and how often it was called.
    fn busy() -> (Arc<Queue>, Arc<AtomicUsize>) {
        let (queue, calls) = (Arc::new(Queue::new()), Arc::new(AtomicUsize::new(0)));
        let (there, called) = (Arc::downgrade(&queue), calls.clone());
        let callback = move |_| {
            if called.fetch_add(1, Ordering::Relaxed) < CAPACITY {
                let _ = there.upgrade().expect("a queue").push(note());
            }
        };
        assert_eq!(queue.set_callback(Box::new(callback)), Turn::Over);
        assert_eq!(queue.push(note()), Turn::Next);
        assert_eq!(calls.load(Ordering::Relaxed), CAPACITY);
        (queue, calls)
    }

    #[test]
    fn a_job_that_never_runs_loses_no_callback() {
        let shared = shared();
        assert!(shared.spawn.set(Box::new(drop)).is_ok());
        let (queue, calls) = busy();
        shared.arrange_turn(queue.clone(), 0);
        assert_eq!(queue.push(note()), Turn::Over);
        assert_eq!(calls.load(Ordering::Relaxed), CAPACITY + 2, "what was left, and the new one");
    }

    #[test]
    fn a_server_gives_the_turns_that_were_arranged_before() {
        let shared = shared();
        let (queue, calls) = busy();
        shared.arrange_turn(queue, 0);
        let _server = Server::start(&shared, 0).expect("a server");
        let start = Instant::now();
        while calls.load(Ordering::Relaxed) == CAPACITY {
            assert!(start.elapsed() < Duration::from_secs(20), "the turn is lost");
            std::thread::yield_now();
        }
    }
}
