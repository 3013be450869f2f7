//! [`HostMemory`]: what every peer of a host maps to wake its threads and to send them bulk payloads
//! and notifications.
//!
//! ```text
//!   thread 0 | thread 1 | ...   | ring (0, host 0, 0) | ring (0, host 0, 1) | ...
//!   \ THREAD_BYTES each         \ one per (receiving thread, sending host, sending thread), on a page
//!
//!   thread:  +0    parker        u32, a park word (`transport_api::park_word`), the futex
//!            +128  attention   one bit per host: "look at the rings from there, and whether it has ended"
//! ```
//!
//! A thread polls the notice slots of a few senders by itself (`memory/polled.rs`); those need not set
//! its attention bit.
//!
//! Rings are address space until they are used: a pair of threads that never exchanges a payload
//! costs no memory.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use primitive::SharedBytes;
use primitive::limits::HOSTS;
use primitive::sync::{AtomicU32, Ordering, light_fence};
use rustix::thread::futex;
use transport_api::HostId;
use transport_api::park_word::{ParkWord, PeerParkWord};

use crate::memory::alarm_sockets;
use crate::memory::barrier::{Barrier, BusyTracker};
use crate::wire::socket::timespec;

const THREAD_BYTES: usize = 256;
const ATTENTION: usize = 128;

/// Bytes before a ring's data (`ring.rs` says what is in them): a page, which a pair of threads that
/// exchanges only notifications makes do with.
pub(crate) const RING_HEADER: usize = 4096;

/// Bytes of data of a ring, at most.
const RING_BYTES: usize = 1 << 20;

/// Bytes of data of a ring, at least.
const RING_BYTES_LEAST: usize = 16 << 10;

/// Address space of all rings of a host, unless rings of the least size need more.
const RINGS_BYTES: usize = 64 << 30;

/// Words of attention bits.
const ATTENTION_WORDS: usize = HOSTS / 64;

/// Where things are in a host's memory: the same on every host of a rack.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    hosts: usize,
    threads: usize,
    ring_bytes: usize,
}

impl Layout {
    pub(crate) fn new(hosts: u32, threads: u32) -> Self {
        let (hosts, threads) = (hosts as usize, threads as usize);
        let mut ring_bytes = RING_BYTES;
        while ring_bytes > RING_BYTES_LEAST && threads * threads * hosts * ring_bytes > RINGS_BYTES
        {
            ring_bytes /= 2;
        }
        Self { hosts, threads, ring_bytes }
    }

    /// Bytes of data of every ring: a power of two.
    pub(crate) fn ring_bytes(self) -> usize {
        self.ring_bytes
    }

    /// Where the ring begins through which `from` of host `host` sends to thread `to`.
    pub(crate) fn ring(self, to: u32, host: HostId, from: u32) -> usize {
        self.ring_of_sender(to, self.sender(host, from))
    }

    /// The number of a sending thread among all of the rack.
    pub(crate) fn sender(self, host: HostId, from: u32) -> u32 {
        host.0 * self.threads as u32 + from
    }

    /// The host of the sending thread with this number, and its number there.
    pub(crate) fn thread(self, sender: u32) -> (HostId, u32) {
        let threads = self.threads as u32;
        (HostId(sender / threads), sender % threads)
    }

    /// As [`ring`](Self::ring), by the number of the sending thread.
    pub(crate) fn ring_of_sender(self, to: u32, sender: u32) -> usize {
        let index = to as usize * self.hosts * self.threads + sender as usize;
        self.first_ring() + index * (RING_HEADER + self.ring_bytes)
    }

    fn first_ring(self) -> usize {
        (self.threads * THREAD_BYTES).next_multiple_of(RING_HEADER)
    }

    /// Bytes of the whole memory.
    pub(crate) fn bytes(self) -> usize {
        let rings = self.threads * self.hosts * self.threads;
        self.first_ring() + rings * (RING_HEADER + self.ring_bytes)
    }
}

/// How the threads of a host are woken.
#[derive(Clone)]
pub(crate) enum Waking {
    /// They sleep on the word of their parker.
    Futex(futex::Flags),
    /// They sleep elsewhere, and are rung at `ringing`, one for each. The host itself has the other
    /// ends in `waiting`, which is empty for a peer.
    Alarms { ringing: Arc<[OwnedFd]>, waiting: Arc<[OwnedFd]> },
}

impl Waking {
    /// By this process alone.
    pub(crate) const PRIVATE: Self = Self::Futex(futex::Flags::PRIVATE);
    /// By other processes, too.
    pub(crate) const SHARED: Self = Self::Futex(futex::Flags::empty());
}

/// One host's memory, as its owner and its peers see it.
#[derive(Clone)]
pub(crate) struct HostMemory {
    memory: SharedBytes,
    waking: Waking,
    /// This host's barrier.
    barrier: Barrier,
}

impl HostMemory {
    /// The memory of this host or of a peer, as this host sees it, whose barrier is given.
    pub(crate) fn new(memory: SharedBytes, waking: Waking, barrier: Barrier) -> Self {
        Self { memory, waking, barrier }
    }

    pub(crate) fn memory(&self) -> &SharedBytes {
        &self.memory
    }

    #[inline]
    fn parker(&self, thread: u32) -> &AtomicU32 {
        self.memory.word32(thread as usize * THREAD_BYTES)
    }

    /// The memory of the park word of `thread`.
    pub(crate) fn park_word_memory(&self, thread: u32) -> SharedBytes {
        self.memory.slice(thread as usize * THREAD_BYTES, size_of::<u64>())
    }

    /// The park word of `thread`.
    pub(crate) fn park_word(&self, thread: u32) -> ParkWord<'_> {
        ParkWord::new(self.parker(thread))
    }

    /// The park word of `thread` for those who look whether it is busy, if that tells them anything.
    pub(crate) fn peer_park_word(&self, thread: u32) -> Option<PeerParkWord> {
        let has_barrier = self.barrier.reaches_this_process();
        has_barrier.then(|| PeerParkWord::new(&self.park_word_memory(thread)))
    }

    /// Where `thread` of this host waits to be woken, if it does not sleep on its parker.
    pub(crate) fn alarm(&self, thread: u32) -> Option<&OwnedFd> {
        match &self.waking {
            Waking::Alarms { waiting, .. } => waiting.get(thread as usize),
            Waking::Futex(_) => None,
        }
    }

    /// Wakes `thread` if it sleeps: a load if it is busy, and a fence more if it is awake.
    #[inline]
    pub(crate) fn wake(&self, thread: u32) {
        let word = self.park_word(thread);
        light_fence();
        if self.barrier.reaches_this_process() && word.is_busy() {
            return;
        }
        if word.must_wake() {
            self.wake_now(thread);
        }
    }

    /// Wakes `thread` whatever its parker says: a process that owed it a wake may have died.
    #[cold]
    pub(crate) fn wake_now(&self, thread: u32) {
        self.park_word(thread).cancel();
        match &self.waking {
            // The only failure is a bad address, and the mapping is ours.
            Waking::Futex(flags) => drop(futex::wake(self.parker(thread), *flags, 1)),
            Waking::Alarms { ringing, .. } => alarm_sockets::ring(&ringing[thread as usize]),
        }
    }

    /// Says that `thread`, whose tracker is given, is about to sleep elsewhere than on its parker. It must
    /// look for work once more afterwards.
    pub(crate) fn announce(&self, thread: u32, busy: &BusyTracker) {
        self.park_word(thread).announce();
        if !busy.end(self.barrier) {
            // It must not sleep, and looks again.
            self.wake_now(thread);
        }
    }

    /// Sleeps as `thread`, whose tracker is given, on its parker until woken, unless `ready`.
    pub(crate) fn park(
        &self,
        (thread, busy): (u32, &BusyTracker),
        timeout: std::time::Duration,
        ready: impl FnOnce() -> bool,
    ) {
        // A thread that is woken by an alarm does not sleep here.
        let Waking::Futex(flags) = self.waking else { return };
        let timeout = timespec(timeout);
        let ready = || !busy.end(self.barrier) || ready();
        self.park_word(thread).park(ready, |parker, expected| {
            // Woken, timed out, interrupted or too late to sleep: the caller looks again anyway.
            let _ = futex::wait(parker, flags, expected, Some(&timeout));
        });
    }

    /// `thread`, whose tracker is given, polls.
    #[inline]
    pub(crate) fn polled(&self, thread: u32, busy: &BusyTracker) {
        if busy.polled(self.barrier) {
            self.park_word(thread).set_busy();
        }
    }

    /// The word, and the bit in it, that ask `thread` to look after its lane to `host`.
    pub(crate) fn attention(thread: u32, host: HostId) -> (usize, u64) {
        let word = thread as usize * THREAD_BYTES + ATTENTION + host.0 as usize / 64 * 8;
        (word, 1 << (host.0 % 64))
    }

    /// Asks `thread` to look after its lane to `host`. What it is to see must have been written
    /// before; the thread that clears the bit sees it.
    pub(crate) fn ask(&self, thread: u32, host: HostId) {
        let (word, bit) = Self::attention(thread, host);
        self.memory.word(word).fetch_or(bit, Ordering::AcqRel);
    }

    /// Takes the request of [`ask`](Self::ask) back, before following it.
    pub(crate) fn take(&self, thread: u32, host: HostId) {
        let (word, bit) = Self::attention(thread, host);
        self.memory.word(word).fetch_and(!bit, Ordering::AcqRel);
    }

    /// Whether `thread` has been asked to look after any lane among `open`.
    pub(crate) fn asked_any(&self, thread: u32, open: &HostSet) -> bool {
        let first = thread as usize * THREAD_BYTES + ATTENTION;
        (0..ATTENTION_WORDS).any(|i| {
            let open = open.0[i].load(Ordering::Relaxed);
            self.memory.load(first + i * 8, Ordering::Relaxed) & open != 0
        })
    }
}

/// A set of hosts that threads change without a lock.
#[derive(Default)]
pub(crate) struct HostSet([primitive::sync::AtomicU64; ATTENTION_WORDS]);

impl HostSet {
    /// Adds `host`.
    pub(crate) fn add(&self, host: HostId) {
        let bit = 1 << (host.0 % 64);
        self.0[host.0 as usize / 64].fetch_or(bit, Ordering::AcqRel);
    }

    /// The hosts in the set, of a rack of `hosts`.
    pub(crate) fn iter(&self, hosts: u32) -> impl Iterator<Item = HostId> {
        let is_in = |host: &HostId| {
            self.0[host.0 as usize / 64].load(Ordering::Acquire) & (1 << (host.0 % 64)) != 0
        };
        (0..hosts).map(HostId).filter(is_in)
    }

    /// Takes `host` out.
    pub(crate) fn remove(&self, host: HostId) {
        let bit = 1u64 << (host.0 % 64);
        self.0[host.0 as usize / 64].fetch_and(!bit, Ordering::AcqRel);
    }
}
