//! [`Readiness`]: which connections of a thread are worth a read, asked of the system once for all of
//! them in a round of polls.
//!
//! A read of a connection on which nothing has come is a system call for nothing. So a thread with
//! several connections asks its epoll, where all of them are registered, and reads those that it
//! names:
//!
//! ```text
//!   lane to host 1: polled a second time since the epoll was asked -> asks it: hosts 1 and 4
//!                   reads
//!   lane to host 2: not named
//!   lane to host 3: not named
//!   lane to host 4: reads
//!   lane to host 1: polled a second time ..
//! ```
//!
//! A thread with a few connections reads each of them at every poll. For one connection the epoll would
//! only be another call in front of the read; and while no epoll watches a connection, its messages
//! arrive faster.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use primitive::sync::{AtomicBool, AtomicU64, Ordering};
use rustix::event::epoll;
use transport_api::HostId;

use crate::service_queue::{clear, timespec};

/// What the epoll of a thread calls its eventfd, and the alarm of another transport; connections have
/// the number of their peer.
pub(crate) const WAKEUP: u64 = u64::MAX;
pub(crate) const ALARM: u64 = u64::MAX - 1;

/// Connections of a thread that reads each of them at every poll, at most; *measured*: a read without
/// result takes 320 ns, to ask the epoll in vain 150 ns, and a message 200 ns longer to a connection
/// that an epoll watches.
const FEW: usize = 2;

/// Connections that one look names, at most; the others are named by the next.
const NAMED: usize = 64;

/// Whether a thread with so many connections asks its epoll which to read.
pub(crate) fn asks(connections: usize) -> bool {
    connections > FEW
}

/// What one thread knows of its connections. Only the thread itself uses it.
pub(crate) struct Readiness {
    /// How often the epoll was asked.
    looks: AtomicU64,
    /// By host: whether it was named, and not read since.
    named: Box<[AtomicBool]>,
    /// Whether the epoll is asked at all.
    asks: bool,
}

impl Readiness {
    /// Of a thread of a rack of so many hosts, which asks its epoll (see [`asks`]) or does not.
    pub(crate) fn new(hosts: usize, asks: bool) -> Self {
        let named = (0..hosts).map(|_| AtomicBool::new(false)).collect();
        Self { looks: AtomicU64::new(0), named, asks }
    }

    /// Whether the thread asks its epoll.
    pub(crate) fn asks(&self) -> bool {
        self.asks
    }

    /// Whether a poll of the lane to `peer` is to read. `last` belongs to the lane: the look that its
    /// last poll knew.
    #[inline]
    pub(crate) fn must_read(
        &self,
        peer: HostId,
        last: &mut u64,
        epoll: &OwnedFd,
        wakeup: &OwnedFd,
    ) -> bool {
        if !self.asks {
            return true;
        }
        let mut looks = self.looks.load(Ordering::Relaxed);
        if *last == looks {
            self.look(epoll, wakeup);
            looks += 1;
            self.looks.store(looks, Ordering::Relaxed);
        }
        *last = looks;
        let named = &self.named[peer.0 as usize];
        let is_named = named.load(Ordering::Relaxed);
        if is_named {
            named.store(false, Ordering::Relaxed);
        }
        is_named
    }

    #[inline(never)]
    fn look(&self, epoll: &OwnedFd, wakeup: &OwnedFd) {
        let mut events = [MaybeUninit::uninit(); NAMED];
        let at_once = timespec(std::time::Duration::ZERO);
        let Ok((events, _)) = epoll::wait(epoll, &mut events, Some(&at_once)) else {
            // Reads say what is wrong.
            self.named.iter().for_each(|named| named.store(true, Ordering::Relaxed));
            return;
        };
        for event in events {
            match event.data.u64() {
                // The thread is awake, or its park word says that it must not sleep.
                WAKEUP => clear(wakeup),
                host => {
                    if let Some(named) = self.named.get(host as usize) {
                        named.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use rustix::event::epoll::{EventData, EventFlags};

    use super::*;
    use crate::service_queue::{eventfd, notify};

    #[test]
    fn a_round_of_polls_reads_what_has_come_and_nothing_else() {
        let (epoll, wakeup) =
            (epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll"), eventfd());
        let wakeup = wakeup.expect("an eventfd");
        epoll::add(&epoll, &wakeup, EventData::new_u64(WAKEUP), EventFlags::IN).expect("room");
        let mut pairs = Vec::new();
        for host in 0..4u64 {
            let pair = UnixStream::pair().expect("sockets");
            epoll::add(&epoll, &pair.0, EventData::new_u64(host), EventFlags::IN).expect("room");
            pairs.push(pair);
        }
        let readiness = Readiness::new(4, true);
        let mut last = [0; 4];
        let mut round = || -> Vec<u32> {
            let hosts = (0..4).zip(&mut last);
            let named = hosts.filter_map(|(host, last)| {
                readiness.must_read(HostId(host), last, &epoll, &wakeup).then_some(host)
            });
            named.collect()
        };
        assert!(round().is_empty());
        for host in [1, 3] {
            pairs[host].1.write_all(b"word").expect("room");
        }
        assert_eq!(round(), [1, 3]);
        assert_eq!(round(), [1, 3], "as long as something is left");
        pairs[1].0.read_exact(&mut [0; 4]).expect("a word");
        assert_eq!(round(), [3]);
        pairs[3].0.read_exact(&mut [0; 4]).expect("a word");
        notify(&wakeup);
        assert!(round().is_empty());
        assert!(rustix::io::read(&wakeup, &mut [0; 8]).is_err(), "it was cleared");
        drop(pairs);
        let few = Readiness::new(4, false);
        assert!(few.must_read(HostId(2), &mut 0, &epoll, &wakeup), "it does not ask");
    }
}
