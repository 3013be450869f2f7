//! [`Alarm`]: how a thread is woken that waits for more than memory brings.
//!
//! A thread of a rack with hosts on other machines sleeps where its connections are, on an epoll,
//! and no futex wakes it there. So each thread has a pair of datagram sockets: it waits for one end,
//! and its host and all neighbours hold the other, and ring by sending on it. The protocol of the
//! park word is the same: the thread announces its sleep, looks once more, and only then sleeps; a
//! waker that finds the announcement owes the ring.
//!
//! The sending end is one open file in many processes, of which any may change its flags. So a ring
//! asks for each send by itself not to block (`MSG_DONTWAIT`), which no other process can undo; an
//! eventfd or a pipe has only the flag that all share.

use crate::host::Host;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

/// Rings that one [`Alarm::cancel`] takes, at most: more than wait unless a peer floods the alarm.
const RINGS: usize = 64;

/// The alarms of a host's threads.
pub(crate) struct Alarms {
    /// Where the threads wait. Never handed to a peer.
    pub(crate) waiting: Vec<OwnedFd>,
    /// Where they are rung, by this host and by its neighbours.
    pub(crate) ringing: Vec<OwnedFd>,
}

impl Alarms {
    /// Alarms for this many threads.
    pub(crate) fn new(threads: u32) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = |_| Ok(socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?);
        let pairs: Vec<_> = (0..threads).map(pair).collect::<io::Result<_>>()?;
        let (waiting, ringing) = pairs.into_iter().unzip();
        Ok(Self { waiting, ringing })
    }
}

/// Rings. Never blocks, even on a descriptor that a malicious peer sent or changed.
pub(crate) fn ring(alarm: &OwnedFd) {
    // It fails when rings wait already, each of which wakes the thread; when the host is gone; or
    // when a peer has broken the alarm, which then wakes no thread of that peer's.
    let _ = send(alarm, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Takes the rings that wait, so that there is room for the next one.
fn take(alarm: impl AsFd) {
    let mut byte = [0];
    for _ in 0..RINGS {
        if recv(&alarm, &mut byte[..], RecvFlags::DONTWAIT).is_err() {
            return;
        }
    }
}

/// What one thread needs to be woken by its neighbours wherever it sleeps: a descriptor that becomes
/// readable anew with each ring. Wait for it edge-triggered, and read nothing from it: a ring stays
/// until [`cancel`](Self::cancel) takes it, and one that came after the thread was awake, longer.
///
/// ```text
///   alarm.announce();
///   if !ready() && !alarm.has_events() {
///       // wait for the descriptor, and for whatever else there is
///   }
///   alarm.cancel();
/// ```
pub struct Alarm {
    host: Arc<Host>,
    thread: u32,
}

impl Alarm {
    /// The alarm of a thread that is not woken by futex.
    pub(crate) fn new(host: Arc<Host>, thread: u32) -> Self {
        Self { host, thread }
    }

    /// Says that the thread is about to sleep. It must look for work once more afterwards, and
    /// [`cancel`](Self::cancel) when it is awake.
    pub fn announce(&self) {
        self.host.own().park_word(self.thread).announce();
    }

    /// Whether a lane that the thread holds has something to report: it must not sleep over that.
    pub fn has_events(&self) -> bool {
        self.host.own().asked_any(self.thread)
    }

    /// Says that the thread is awake, and takes the rings that have woken it.
    pub fn cancel(&self) {
        self.host.own().park_word(self.thread).cancel();
        take(self);
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.host.own().alarm(self.thread).expect("a thread that is woken by an alarm").as_fd()
    }
}
