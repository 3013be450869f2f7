//! [`ParkWord`]: the sleep and wake protocol, without the sleeping itself.
//!
//! A thread that finds no work announces that it will sleep, looks once more, and only then sleeps.
//! A waker makes work visible, then looks for the announcement. One of the two sees the other,
//! because each puts a full fence between its store and its load:
//!
//! ```text
//!   sleeper                              waker
//!   word = PARKED                      work = visible          (the caller's stores)
//!   fence(SeqCst)                        fence(SeqCst)
//!   if work is visible: cancel           if word is PARKED: clear it, wake
//!   else: wait while word is PARKED
//! ```
//!
//! When the sleeper is awake, a waker pays the fence and one load: no read-modify-write and no
//! system call. It need not even pay the fence for a thread that has been awake for long, and says so
//! ([`ParkWord::set_busy`]): when that thread sleeps next, it has the system execute a fence in every
//! waker behind its own, which is dear, and so not worth it for a thread that sleeps often.
//!
//! ```text
//!   AWAKE --- awake for long --> BUSY --- announces, and has all wakers execute a fence --> PARKED
//!     \---------- announces; each waker executes a fence of its own -----------------------^ |
//!     ^--------------------------- woken, or gone on by itself -----------------------------+
//! ```
//!
//! The wait is handed in ([`ParkWord::park`]), so that a model checker, a futex and a simulator can each
//! supply theirs; it must be a compare-and-wait: return at once if the word is no longer [`PARKED`], as a
//! futex does.
//!
//! Rules for the word:
//! 1. Only the one thread whose parker it is writes [`PARKED`] and [`BUSY`].
//! 2. Any thread may write [`AWAKE`]; the one that changes the word from `PARKED` to `AWAKE` must
//!    wake the sleeper. So a thread that was busy notes that elsewhere.
//! 3. A waker that dies between the two leaves a sleeper that no other waker will wake: the
//!    thread that notices the death must wake every sleeper without looking at the word.

use primitive::SharedBytes;
use primitive::sync::{AtomicU32, Ordering, fence};

/// The word's value while its thread runs.
pub const AWAKE: u32 = 0;

/// The word's value from the announcement until a waker clears it.
pub const PARKED: u32 = 1;

/// The word's value while its thread runs, and has promised a fence in every waker when it sleeps next.
pub const BUSY: u32 = 2;

/// One thread's state word, seen by the thread itself or by those who wake it.
///
/// ```
/// use gossamer_transport_api::park_word::ParkWord;
/// use std::sync::atomic::AtomicU32;
/// let word = AtomicU32::new(0);
/// let parker = ParkWord::new(&word);
/// assert!(!parker.must_wake(), "the thread is awake");
/// parker.announce();
/// assert!(parker.must_wake(), "this caller must wake it");
/// assert!(!parker.must_wake(), "and no other caller does");
/// ```
#[derive(Clone, Copy)]
pub struct ParkWord<'a> {
    word: &'a AtomicU32,
}

impl<'a> ParkWord<'a> {
    /// The park word whose state is `word`.
    #[inline]
    pub fn new(word: &'a AtomicU32) -> Self {
        Self { word }
    }

    /// The sleeper says that it is about to sleep. It must look for work once more afterwards.
    #[inline]
    pub fn announce(self) {
        self.word.store(PARKED, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The sleeper says that it is awake.
    #[inline]
    pub fn cancel(self) {
        self.word.store(AWAKE, Ordering::Relaxed);
    }

    /// Whether the announcement still stands: no waker has cleared it.
    #[inline]
    pub fn is_parked(self) -> bool {
        self.word.load(Ordering::Acquire) == PARKED
    }

    /// The owner, awake, promises that behind its next announcement, and before it looks for work then, it
    /// has a full fence executed in every waker that asks [`is_busy`](Self::is_busy).
    #[inline]
    pub fn set_busy(self) {
        self.word.store(BUSY, Ordering::Relaxed);
    }

    /// The waker, after it made its work visible in program order, asks whether the owner is sure to
    /// see it. No fence is needed in front of this, if one of the owner's reaches this thread. If false,
    /// ask [`must_wake`](Self::must_wake).
    #[inline]
    pub fn is_busy(self) -> bool {
        self.word.load(Ordering::Relaxed) == BUSY
    }

    /// The waker, after it made its work visible, asks whether it must wake the sleeper. If
    /// true, it must: no other waker will.
    #[inline]
    pub fn must_wake(self) -> bool {
        fence(Ordering::SeqCst);
        self.must_wake_behind_fence()
    }

    /// As [`must_wake`](Self::must_wake), for a waker that has passed a sequentially consistent fence
    /// since it made its work visible.
    #[inline]
    pub fn must_wake_behind_fence(self) -> bool {
        self.word.load(Ordering::Relaxed) == PARKED && self.claim()
    }

    #[cold]
    fn claim(self) -> bool {
        self.word.swap(AWAKE, Ordering::AcqRel) == PARKED
    }

    /// The sleeper's whole turn: announces, asks `ready` once more, and if nothing is ready calls
    /// `wait` with the word and the value it waits on ([`PARKED`]). `wait` may return early.
    #[inline]
    pub fn park(self, ready: impl FnOnce() -> bool, wait: impl FnOnce(&AtomicU32, u32)) {
        self.announce();
        if !ready() {
            wait(self.word, PARKED);
        }
        self.cancel();
    }
}

/// The park word of a peer's thread, in mapped memory, for callers that hand it work often.
#[derive(Clone)]
pub struct PeerParkWord {
    #[cfg_attr(loom, allow(dead_code, reason = "models use `ParkWord` itself"))]
    word: SharedBytes,
}

impl PeerParkWord {
    /// For backends: the park word that `memory` begins with, of a thread whose fences, which it promises
    /// by being [busy](ParkWord::set_busy), reach all threads of this process.
    ///
    /// # Panics
    /// If `memory` has fewer than 8 bytes.
    pub fn new(memory: &SharedBytes) -> Self {
        Self { word: memory.slice(0, 8) }
    }

    /// As [`ParkWord::is_busy`]: if true, the thread is sure to see what the caller has made visible in
    /// program order, and need not be woken.
    #[cfg(not(loom))]
    #[inline(always)]
    pub fn is_busy(&self) -> bool {
        primitive::sync::light_fence();
        ParkWord::new(self.word.word32(0)).is_busy()
    }

    /// Models have park words of their own: shared bytes have words of 64 bits only under loom.
    #[cfg(loom)]
    pub fn is_busy(&self) -> bool {
        unreachable!("models use `ParkWord` itself")
    }
}

impl std::fmt::Debug for PeerParkWord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PeerParkWord")
    }
}
