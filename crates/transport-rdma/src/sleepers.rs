//! [`Sleepers`]: which threads of the other hosts sleep, so that only those are woken.
//!
//! To wake a thread uses up a receive of its queue pair and costs it a completion, which a small
//! request notices (`docs/decisions/0024-sleep-flags.md`). Whoever looks for work anyhow needs
//! neither. So a thread says that it sleeps, and that it no longer does, by a word in the memory of
//! every other host, which its device writes and nobody there is disturbed by. Whoever has something
//! for a thread that seems to be awake remembers it, and looks at its word again:
//!
//! ```text
//!   writer                                    target
//!   writes                                    word: asleep
//!   asleep? then wakes it; else remembers it  looks for work once more
//!   at polls: asleep? then wakes it           sleeps
//!   about to sleep: wakes all it remembers
//! ```
//!
//! If the target's last look came too early for the write, its word was on its way before, and the
//! writer finds it at some poll. A poll looks at the word of one thread, and the next poll at that of
//! the next, so that many of them cost no more than one. For a writer that does not poll, the service
//! thread looks at all ([`seat`](crate::seat)); one that sleeps remembers nobody.

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
use transport_api::{HostId, Rights, ThreadId};

#[cfg(test)]
mod tests;

/// Bytes of what is said of a thread.
const WORD: usize = 8;

/// What threads of other hosts say of themselves, and where those of this host say it.
pub(crate) struct Sleepers {
    /// By host: a word for each of its threads, not zero while it sleeps. Each row is registered by
    /// itself, so that a peer is told the key of no other.
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
        let len = threads as usize * WORD;
        let words = memory.take(hosts * len)?;
        let heard = |host| Mr::new(pd, &words.slice(host * len, len), Rights::WRITE);
        let heard = (0..hosts).map(heard).collect::<Result<_, _>>()?;
        Ok(Self { heard, rows: (0..hosts).map(|_| OnceLock::new()).collect() })
    }

    /// Where the threads of `peer` say it to this host.
    pub(crate) fn row(&self, peer: HostId) -> Told {
        Told::of(&self.heard[peer.0 as usize], Rights::WRITE)
    }

    /// `peer` has said that `row` is where this host's threads say it.
    pub(crate) fn say_at(&self, peer: HostId, issuer: u64, row: &Told) {
        let remote = Remote::for_good(issuer, row.address, row.remote_key);
        // A peer greets once.
        let _ = self.rows[peer.0 as usize].set(Arc::new(remote));
    }

    /// What is wrong with a row of a peer for so many threads, in words.
    pub(crate) fn objection(row: &Told, threads: usize) -> Option<String> {
        let fits = row.len == (threads * WORD) as u64 && row.address.is_multiple_of(WORD as u64);
        let is_row = fits && row.rights.allow(Rights::WRITE);
        (!is_row).then(|| format!("{row:?}, where {threads} threads are to say that they sleep"))
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
        let seat = self.seat(thread);
        let mut desk = seat.desk();
        if self.sleepers.is_asleep(target) || seat.is_asleep.load(Ordering::Relaxed) {
            desk.unwoken.retain(|other| *other != target);
            self.with_desk(thread, &mut desk, target.host, |link, note| {
                if !link.wake(target.thread) {
                    link.post(note);
                }
            });
        } else if !desk.unwoken.contains(&target) {
            desk.unwoken.push(target);
        }
    }

    /// Looks at the next of those whom `thread` has something for, and wakes it if it sleeps by now.
    pub(crate) fn wake_next(&self, thread: u32, desk: &mut Desk) {
        let count = desk.unwoken.len();
        if count > 0 {
            desk.looked_at = (desk.looked_at + 1) % count;
            if self.sleepers.is_asleep(desk.unwoken[desk.looked_at]) {
                self.wake_at(thread, desk, desk.looked_at);
            }
        }
    }

    /// Wakes all those whom `thread` has something for and who sleep by now.
    pub(crate) fn wake_sleepers(&self, thread: u32) {
        let mut desk = self.seat(thread).desk();
        for index in (0..desk.unwoken.len()).rev() {
            if self.sleepers.is_asleep(desk.unwoken[index]) {
                self.wake_at(thread, &mut desk, index);
            }
        }
    }

    /// `thread`, which calls this, is about to sleep: it says so, and wakes all whom it has
    /// something for.
    pub(crate) fn fall_asleep(&self, thread: u32) {
        let mut desk = self.seat(thread).desk();
        while let Some(last) = desk.unwoken.len().checked_sub(1) {
            self.wake_at(thread, &mut desk, last);
        }
        self.say(thread, &mut desk, 1);
    }

    /// `thread`, which calls this, sleeps no longer.
    pub(crate) fn wake_up(&self, thread: u32) {
        self.say(thread, &mut self.seat(thread).desk(), 0);
    }

    fn wake_at(&self, thread: u32, desk: &mut Desk, index: usize) {
        let ThreadId { host, thread: target } = desk.unwoken.swap_remove(index);
        self.with_desk(thread, desk, host, |link, note| {
            link.wake(target);
            link.post(note);
        });
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
