//! [`LocalLane`]: a thread's lane to its own host, which no connection is needed for.
//!
//! The threads of a process share its memory, so every operation is done when the call returns;
//! what is left for [`poll`](Lane::poll) are completions, and what other threads have left for this
//! one.

use std::sync::Arc;

use primitive::SharedBytes;
use primitive::sync::{Ordering, fence};
use transport_api::{
    Event, EventQueue, HostId, Lane, Namespace, OpError, RemoteRegion, Rights, Tag, ThreadId,
    Window,
};

use crate::host::Host;

/// A lane within a process.
pub(crate) struct LocalLane {
    host: Arc<Host>,
    event_queue: EventQueue,
    /// Events that the next poll reports.
    done: Vec<Event>,
}

impl LocalLane {
    /// The lane to this host that `event_queue` is for.
    pub(crate) fn new(host: Arc<Host>, event_queue: EventQueue) -> Self {
        host.quiet_points.enter(event_queue.thread());
        Self { host, event_queue, done: Vec::new() }
    }

    /// What this lane holds of `region`, if the region is one of this host.
    #[inline]
    fn window<'r>(&self, region: &'r RemoteRegion) -> Result<&'r Window, OpError> {
        let ours = |window: &&Window| window.issuer() == self.host.id;
        region.window().filter(ours).ok_or(OpError::Foreign(region.key()))
    }

    /// Delivers a notification to `thread` of this host.
    fn announce(&self, thread: u32, event: Event) {
        self.host.untaken(self.event_queue.thread())[thread as usize].add_notification();
        self.host.deliver(thread, self.host.local, event);
    }

    fn me(&self) -> ThreadId {
        ThreadId { host: self.host.local, thread: self.event_queue.thread() }
    }
}

impl Drop for LocalLane {
    /// Without this lane, its thread uses no region of this host.
    fn drop(&mut self) {
        self.host.quiet_points.leave(self.event_queue.thread());
        self.host.report_quiet();
    }
}

impl Lane for LocalLane {
    fn peer(&self) -> HostId {
        self.host.local
    }

    fn write(&mut self, to: &RemoteRegion, at: usize, from: &SharedBytes) -> Result<(), OpError> {
        self.window(to)?.write(at, from)
    }

    fn signal(&mut self, to: &RemoteRegion, at: usize, word: u64) -> Result<(), OpError> {
        self.window(to)?.signal(at, word)
    }

    fn read(
        &mut self,
        from: &RemoteRegion,
        at: usize,
        into: &SharedBytes,
        token: u64,
    ) -> Result<(), OpError> {
        let value = self.window(from)?.read(at, into)?;
        self.done.push(Event::Completed { token, value });
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
        let value = self.window(on)?.compare_swap(at, expected, new)?;
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
        let value = self.window(on)?.fetch_add(at, addend)?;
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
        self.event_queue.check_thread(thread)?;
        self.write(to, at, from)?;
        let (key, at, len) = (to.key(), at as u64, from.len() as u64);
        self.announce(thread, Event::Notified { from: self.me(), key, at, len, value });
        Ok(())
    }

    fn notify(
        &mut self,
        on: &RemoteRegion,
        at: usize,
        len: usize,
        thread: u32,
        value: u32,
    ) -> Result<(), OpError> {
        self.event_queue.check_thread(thread)?;
        self.window(on)?;
        on.check(at, len, Rights::WRITE)?;
        let (key, at, len) = (on.key(), at as u64, len as u64);
        self.announce(thread, Event::Notified { from: self.me(), key, at, len, value });
        Ok(())
    }

    fn fence(&mut self, token: u64) -> Result<(), OpError> {
        // Operations are done, and refused, while they are called; but the processor may still read
        // before it has written. Not behind a fence.
        fence(Ordering::SeqCst);
        self.done.push(Event::Completed { token, value: 0 });
        Ok(())
    }

    fn bulk(&mut self, thread: u32, tag: Tag, payload: Vec<u8>) -> Result<(), OpError> {
        self.event_queue.check_thread(thread)?;
        OpError::check_payload(payload.len())?;
        self.host.untaken(self.event_queue.thread())[thread as usize].add_bulk(tag, payload.len());
        let event = Event::Bulk { from: self.me(), tag, payload };
        self.host.deliver(thread, self.host.local, event);
        Ok(())
    }

    fn waiting_notifications(&self, thread: u32) -> usize {
        let untaken = self.host.untaken(self.event_queue.thread());
        untaken.get(thread as usize).map_or(0, |waiting| waiting.notifications())
    }

    fn waiting_bulk(&self, namespace: Namespace) -> usize {
        let untaken = self.host.untaken(self.event_queue.thread());
        untaken.iter().map(|waiting| waiting.bulk_bytes(namespace)).sum()
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
        if self.host.quiet_points.pass(self.event_queue.thread()) {
            self.host.report_quiet();
        }
        let is_idle = self.done.is_empty() && !self.event_queue.has_any();
        !is_idle && self.report(sink)
    }
}

impl LocalLane {
    /// Reports what is done, and what other threads have left here; true if there was anything.
    #[inline(never)]
    fn report(&mut self, sink: &mut dyn FnMut(Event)) -> bool {
        let done = !self.done.is_empty();
        self.done.drain(..).for_each(&mut *sink);
        let Self { host, event_queue, .. } = self;
        let own = event_queue.thread() as usize;
        let taken = event_queue.take(&mut |event| {
            match &event {
                Event::Notified { from, .. } => {
                    host.untaken(from.thread)[own].remove_notification();
                }
                Event::Bulk { from, tag, payload } => {
                    host.untaken(from.thread)[own].remove_bulk(*tag, payload.len());
                }
                _ => {}
            }
            sink(event);
        });
        taken || done
    }
}
