//! [`Sleepers`]: which threads of the other hosts sleep, so that only those are woken.
//!
//! To wake a thread uses up a receive of its queue pair and costs it a completion: together about a
//! fifth of what a small request takes. Whoever looks for work anyhow needs neither. So a thread
//! says that it sleeps, and that it no longer does, by a word in the memory of every other host,
//! which its device writes and nobody there is disturbed by. Whoever has something for a thread that
//! seems to be awake remembers it, and looks at its word again:
//!
//! ```text
//!   writer                                    target
//!   writes                                    word: asleep
//!   asleep? then wakes it; else remembers it  looks for work once more
//!   at every poll: asleep? then wakes it      sleeps
//!   about to sleep: wakes all it remembers
//! ```
//!
//! If the target's last look came too early for the write, its word was on its way before, and the
//! writer finds it at some poll. For a writer that does not poll, the service thread does
//! ([`seat`](crate::seat)); one that sleeps remembers nobody.

use crate::{
    host::Host,
    imports::Remote,
    memory::Memory,
    message::Told,
    seat::Desk,
    verbs::{Mr, Pd},
};
use primitive::sync::Ordering;
use std::{
    io,
    sync::{Arc, OnceLock},
};
use transport_api::{HostId, RegionKey, Rights, ThreadId};

#[cfg(test)]
mod tests;

/// Bytes of what is said of a thread.
const WORD: usize = 8;

/// What threads of other hosts say of themselves, and where those of this host say it.
pub(crate) struct Sleepers {
    /// By host, which can write there and nowhere else: a word for each of its threads, not zero
    /// while it sleeps.
    heard: Vec<Mr>,
    /// The rows of this host in the memory of the others.
    rows: Vec<OnceLock<Arc<Remote>>>,
}

impl Sleepers {
    /// For so many hosts with so many threads each, all of which are awake.
    pub(crate) fn new(
        pd: &Arc<Pd>,
        memory: &Memory,
        hosts: usize,
        threads: u32,
    ) -> io::Result<Self> {
        let len = Self::row_bytes(threads);
        let words = memory.take(hosts * len)?;
        let heard = |host| Mr::new(pd, &words.slice(host * len, len), Rights::WRITE);
        let heard = (0..hosts).map(heard).collect::<Result<_, _>>()?;
        Ok(Self { heard, rows: (0..hosts).map(|_| OnceLock::new()).collect() })
    }

    /// Bytes of the row of a host.
    pub(crate) fn row_bytes(threads: u32) -> usize {
        threads as usize * WORD
    }

    /// Where the threads of `peer` say it to this host.
    pub(crate) fn row(&self, peer: HostId) -> Told {
        let row = &self.heard[peer.0 as usize];
        let (address, remote_key, len) = (row.address(), row.remote_key(), row.memory().len());
        Told { rights: Rights::WRITE, generation: 0, len: len as u64, address, remote_key }
    }

    /// `peer` has said that `row` is where this host's threads say it.
    pub(crate) fn say_at(&self, peer: HostId, issuer: u64, row: &Told) {
        // It is no region that anybody could import or withdraw.
        let remote = Remote::new(issuer, RegionKey(u64::MAX), row.address, row.remote_key);
        // A peer greets once.
        let _ = self.rows[peer.0 as usize].set(Arc::new(remote));
    }

    fn is_asleep(&self, thread: ThreadId) -> bool {
        let row = self.heard[thread.host.0 as usize].memory();
        row.load(thread.thread as usize * WORD, Ordering::Acquire) != 0
    }
}

impl Host {
    /// Sees to it that `target` does not sleep through what `thread`, which calls this, has started
    /// for it.
    pub(crate) fn wake(&self, thread: u32, target: ThreadId) {
        let mut desk = self.seat(thread).desk();
        if self.sleepers.is_asleep(target) {
            self.with_desk(thread, &mut desk, target.host, |link, note| {
                if !link.wake(target.thread) {
                    link.post(note);
                }
            });
        } else if !desk.unwoken.contains(&target) {
            desk.unwoken.push(target);
        }
    }

    /// Wakes those whom `thread` has something for and who sleep by now.
    pub(crate) fn wake_sleepers(&self, thread: u32, desk: &mut Desk) {
        self.wake_those(thread, desk, |target| self.sleepers.is_asleep(target));
    }

    /// `thread`, which calls this, is about to sleep: it says so, and wakes all whom it has
    /// something for.
    pub(crate) fn fall_asleep(&self, thread: u32) {
        let mut desk = self.seat(thread).desk();
        self.wake_those(thread, &mut desk, |_| true);
        self.say(thread, &mut desk, 1);
    }

    /// `thread`, which calls this, sleeps no longer.
    pub(crate) fn wake_up(&self, thread: u32) {
        self.say(thread, &mut self.seat(thread).desk(), 0);
    }

    fn wake_those(&self, thread: u32, desk: &mut Desk, which: impl Fn(ThreadId) -> bool) {
        for index in (0..desk.unwoken.len()).rev() {
            if which(desk.unwoken[index]) {
                let ThreadId { host, thread: target } = desk.unwoken.swap_remove(index);
                self.with_desk(thread, desk, host, |link, note| {
                    link.wake(target);
                    link.post(note);
                });
            }
        }
    }

    fn say(&self, thread: u32, desk: &mut Desk, word: u64) {
        for peer in self.peers() {
            let Some(row) = self.sleepers.rows[peer.0 as usize].get() else { continue };
            self.with_desk(thread, desk, peer, |link, note| {
                link.signal(row, thread as usize * WORD, word);
                link.post(note);
            });
        }
    }
}
