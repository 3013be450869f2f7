//! [`Alarm`]: how a thread is woken that waits for other machines, too.
//!
//! A thread of a rack with hosts on other machines sleeps where its connections are, on an epoll,
//! and no futex wakes it there. So each thread has a pair of datagram sockets: it waits for one end,
//! and its host and all neighbours hold the other, and ring by sending on it. The protocol of the
//! park word is the same: the thread announces its sleep, looks once more, and only then sleeps; a
//! waker that finds the announcement must ring.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use crate::control::host::Host;
use crate::memory::alarm_sockets::take;

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
    /// [`cancel`](Self::cancel) when it is awake. It does not go on polling in between: a thread that polls
    /// for long says that it is busy.
    pub fn announce(&self) {
        self.host.announce(self.thread);
    }

    /// Whether a lane of the thread has something to report, or the thread has been woken since it
    /// [announced](Self::announce) its sleep: it must not sleep then. Ask this last, since a poll may consume the
    /// edge of a ring. Without an announcement it is always true.
    pub fn has_events(&self) -> bool {
        self.host.has_events(self.thread) || !self.host.own().park_word(self.thread).is_parked()
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

#[cfg(test)]
mod tests {
    use std::thread;

    use transport_api::{HostId, Transport};

    use crate::{Neighbours, ShmTransport};

    #[test]
    fn a_ring_during_the_last_look_keeps_the_thread_awake() {
        let members = [HostId(0), HostId(1)];
        let mut secret = [7; 32];
        secret[..4].copy_from_slice(&std::process::id().to_ne_bytes());
        let join = |host| {
            let members = members.to_vec();
            let near = Neighbours { host, members, hosts: 3, threads: 1, secret, build: [7; 32] };
            thread::spawn(move || ShmTransport::join_neighbours(&near).expect("neighbours"))
        };
        let [(first, alarms), (second, _)] =
            members.map(join).map(|joining| joining.join().expect("no panic"));
        let alarm = alarms.into_iter().next().expect("a thread");
        let mut lane = second.lane(0, first.local()).expect("a lane");
        alarm.announce();
        assert!(!alarm.has_events());
        // Whatever the thread polls from here on may take the edge of the ring, but not the word.
        lane.wake(0);
        assert!(alarm.has_events(), "it would sleep through the wake");
        alarm.cancel();
    }
}
