//! [`LocalLane`]: a thread's lane to its own host, which no connection is needed for.
//!
//! The threads of a process share its memory, so every operation is done when the call returns;
//! what is left for [`poll`](Lane::poll) are completions, and what other threads have left for this
//! one.

use crate::host::Host;
use primitive::{SharedBytes, limits::MESSAGE_BYTES, sync::Ordering};
use std::sync::Arc;
use transport_api::{Event, HostId, Lane, OpError, RemoteRegion, Rights, ThreadId, Window};

/// A lane within a process.
pub(crate) struct LocalLane {
    host: Arc<Host>,
    thread: u32,
    /// Events that the next poll reports.
    done: Vec<Event>,
    spare: Vec<Event>,
}

impl LocalLane {
    /// The lane of `thread`, which exists, to this host.
    pub(crate) fn new(host: Arc<Host>, thread: u32) -> Self {
        host.seat(thread).listening[host.local.0 as usize].store(true, Ordering::Relaxed);
        Self { host, thread, done: Vec::new(), spare: Vec::new() }
    }

    /// The memory of `region`, if this lane may do to `count` bytes at `at` of it what needs
    /// `needs`.
    #[inline]
    fn check<'r>(
        &self,
        region: &'r RemoteRegion,
        at: usize,
        count: usize,
        needs: Rights,
    ) -> Result<&'r SharedBytes, OpError> {
        let key = region.key();
        let ours = |window: &&Window| window.issuer == self.host.id;
        let window = region.window().filter(ours).ok_or(OpError::Foreign(key))?;
        if !window.is_live() {
            return Err(OpError::Revoked(key));
        }
        if !window.rights.allow(needs) {
            return Err(OpError::Rights { key, has: window.rights, needs });
        }
        let len = window.memory.len();
        if count > len || at > len - count {
            return Err(OpError::OutOfBounds { key, at, count, len });
        }
        Ok(&window.memory)
    }

    #[inline]
    fn check_word<'r>(
        &self,
        region: &'r RemoteRegion,
        at: usize,
        needs: Rights,
    ) -> Result<&'r SharedBytes, OpError> {
        let memory = self.check(region, at, 8, needs)?;
        if at.is_multiple_of(8) { Ok(memory) } else { Err(OpError::Misaligned(at)) }
    }

    fn check_thread(&self, thread: u32) -> Result<(), OpError> {
        let there = thread < self.host.threads;
        if there { Ok(()) } else { Err(OpError::NoSuchThread(thread, self.host.local)) }
    }

    fn me(&self) -> ThreadId {
        ThreadId { host: self.host.local, thread: self.thread }
    }
}

impl Drop for LocalLane {
    fn drop(&mut self) {
        let seat = self.host.seat(self.thread);
        seat.listening[self.host.local.0 as usize].store(false, Ordering::Relaxed);
    }
}

impl Lane for LocalLane {
    fn peer(&self) -> HostId {
        self.host.local
    }

    fn write(&mut self, to: &RemoteRegion, at: usize, from: &SharedBytes) -> Result<(), OpError> {
        let memory = self.check(to, at, from.len(), Rights::WRITE)?;
        if !memory.begins_at(at, from) {
            memory.copy_from(at, from);
        }
        Ok(())
    }

    fn signal(&mut self, to: &RemoteRegion, at: usize, word: u64) -> Result<(), OpError> {
        self.check_word(to, at, Rights::WRITE)?.store(at, word, Ordering::Release);
        Ok(())
    }

    fn read(
        &mut self,
        from: &RemoteRegion,
        at: usize,
        into: &SharedBytes,
        token: u64,
    ) -> Result<(), OpError> {
        let memory = self.check(from, at, into.len(), Rights::READ)?;
        let mut chunk = [0; 4096];
        let mut done = 0;
        while done < into.len() {
            let count = chunk.len().min(into.len() - done);
            memory.read_into(at + done, &mut chunk[..count]);
            into.write_from(done, &chunk[..count]);
            done += count;
        }
        self.done.push(Event::Completed { token, value: done as u64 });
        Ok(())
    }

    fn compare_swap(
        &mut self,
        on: &RemoteRegion,
        at: usize,
        expected: u64,
        new: u64,
        token: u64,
    ) -> Result<(), OpError> {
        let word = self.check_word(on, at, Rights::ATOMIC)?.word(at);
        let swap = word.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire);
        let (Ok(value) | Err(value)) = swap;
        self.done.push(Event::Completed { token, value });
        Ok(())
    }

    fn fetch_add(
        &mut self,
        on: &RemoteRegion,
        at: usize,
        addend: u64,
        token: u64,
    ) -> Result<(), OpError> {
        let word = self.check_word(on, at, Rights::ATOMIC)?.word(at);
        let value = word.fetch_add(addend, Ordering::AcqRel);
        self.done.push(Event::Completed { token, value });
        Ok(())
    }

    fn write_notify(
        &mut self,
        to: &RemoteRegion,
        at: usize,
        from: &SharedBytes,
        thread: u32,
        value: u32,
    ) -> Result<(), OpError> {
        self.check_thread(thread)?;
        self.write(to, at, from)?;
        let event = Event::Notified { from: self.me(), key: to.key(), at: at as u64, value };
        self.host.deliver(thread, self.host.local, event);
        Ok(())
    }

    fn bulk(&mut self, thread: u32, tag: u64, payload: Vec<u8>) -> Result<(), OpError> {
        self.check_thread(thread)?;
        if payload.len() > MESSAGE_BYTES {
            return Err(OpError::TooLarge(payload.len(), MESSAGE_BYTES));
        }
        let event = Event::Bulk { from: self.me(), tag, payload };
        self.host.deliver(thread, self.host.local, event);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), OpError> {
        Ok(())
    }

    #[inline]
    fn wake(&mut self, thread: u32) {
        if thread < self.host.threads {
            self.host.wake(thread);
        }
    }

    fn poll(&mut self, sink: &mut dyn FnMut(Event)) -> bool {
        let done = !self.done.is_empty();
        self.done.drain(..).for_each(&mut *sink);
        let (any, _) = self.host.take((self.thread, self.host.local), &mut self.spare, sink);
        done || any
    }
}
