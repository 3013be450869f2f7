//! A transport that does not map memory, over one that does: every region is known by handle only,
//! and what is written reaches the peer when the lane is flushed, not before, and in no order: a
//! write arrives piece by piece, with time to look in between. It stands for TCP and RDMA, so that
//! what delegation does on those runs in every test.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use primitive::SharedBytes;
use transport_api::{
    Access, Event, HostId, Lane, LaneError, Namespace, OpError, Parker, Region, RegionError,
    RegionKey, RemoteRegion, Tag, Transport,
};

pub(super) struct Copying(Arc<dyn Transport>);

impl Copying {
    pub(super) fn over(transport: Arc<dyn Transport>) -> Arc<dyn Transport> {
        Arc::new(Copying(transport))
    }
}

impl Transport for Copying {
    fn local(&self) -> HostId {
        self.0.local()
    }
    fn hosts(&self) -> u32 {
        self.0.hosts()
    }
    fn threads(&self) -> u32 {
        self.0.threads()
    }
    fn maps(&self, _: HostId) -> bool {
        false
    }
    fn export(&self, key: RegionKey, len: usize, access: Access) -> Result<Region, RegionError> {
        self.0.export(key, len, access)
    }
    fn revoke(&self, key: RegionKey) -> Result<(), RegionError> {
        self.0.revoke(key)
    }
    fn begin_revoke(&self, thread: u32, key: RegionKey, token: u64) -> Result<(), RegionError> {
        self.0.begin_revoke(thread, key, token)
    }
    fn reexport(&self, region: &Region, access: Access) -> Result<Region, RegionError> {
        self.0.reexport(region, access)
    }
    fn begin_import(
        &self,
        thread: u32,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
        token: u64,
    ) -> Result<(), RegionError> {
        self.0.begin_import(thread, owner, key, timeout, token)
    }
    fn import(
        &self,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
    ) -> Result<RemoteRegion, RegionError> {
        let inner = self.0.import(owner, key, timeout)?;
        Ok(copied(inner))
    }
    fn lane(&self, thread: u32, peer: HostId) -> Result<Box<dyn Lane>, LaneError> {
        let inner = self.0.lane(thread, peer)?;
        Ok(Box::new(CopyingLane { inner, started: Vec::new(), writes: 0 }))
    }
    fn parker(&self, thread: u32) -> Result<Box<dyn Parker>, LaneError> {
        self.0.parker(thread)
    }
    fn unpark(&self, thread: u32) {
        self.0.unpark(thread);
    }
    fn leave(&self) {
        self.0.leave();
    }
}

/// What was started and not flushed.
enum Started {
    Write(RemoteRegion, usize, SharedBytes),
    Signal(RemoteRegion, usize, u64),
    Fence(u64),
    Wake(u32),
}

struct CopyingLane {
    inner: Box<dyn Lane>,
    started: Vec<Started>,
    /// How many there have been.
    writes: usize,
}

/// How `len` bytes are cut into pieces, and in which order they arrive: another one each time.
fn pieces(len: usize, time: usize) -> Vec<(usize, usize)> {
    const WORD: usize = 8;
    let mut cuts = vec![0, WORD.min(len), len / 3 / WORD * WORD, len * 2 / 3 / WORD * WORD, len];
    cuts.sort_unstable();
    cuts.dedup();
    let mut pieces: Vec<_> = cuts.windows(2).map(|cut| (cut[0], cut[1])).collect();
    let count = pieces.len();
    pieces.rotate_left(time % count.max(1));
    if time / 4 % 2 == 1 {
        pieces.reverse();
    }
    pieces
}

/// A region that is mapped, as one that is not.
fn copied(inner: RemoteRegion) -> RemoteRegion {
    let known = (inner.key(), inner.rights(), inner.generation());
    RemoteRegion::remote(inner.owner(), known, inner.len(), Arc::new(inner))
}

fn known(region: &RemoteRegion) -> Result<&RemoteRegion, OpError> {
    region.handle::<RemoteRegion>().ok_or(OpError::Foreign(region.key()))
}

impl Lane for CopyingLane {
    fn peer(&self) -> HostId {
        self.inner.peer()
    }
    fn write(&mut self, to: &RemoteRegion, at: usize, from: &SharedBytes) -> Result<(), OpError> {
        self.started.push(Started::Write(known(to)?.clone(), at, from.clone()));
        Ok(())
    }
    fn signal(&mut self, to: &RemoteRegion, at: usize, word: u64) -> Result<(), OpError> {
        self.started.push(Started::Signal(known(to)?.clone(), at, word));
        Ok(())
    }
    fn read(
        &mut self,
        from: &RemoteRegion,
        at: usize,
        into: &SharedBytes,
        token: u64,
    ) -> Result<(), OpError> {
        self.inner.read(known(from)?, at, into, token)
    }
    fn compare_swap(
        &mut self,
        on: &RemoteRegion,
        at: usize,
        expected: u64,
        new: u64,
        token: u64,
    ) -> Result<(), OpError> {
        self.inner.compare_swap(known(on)?, at, expected, new, token)
    }
    fn fetch_add(
        &mut self,
        on: &RemoteRegion,
        at: usize,
        addend: u64,
        token: u64,
    ) -> Result<(), OpError> {
        self.inner.fetch_add(known(on)?, at, addend, token)
    }
    fn write_notify(
        &mut self,
        to: &RemoteRegion,
        at: usize,
        from: &SharedBytes,
        thread: u32,
        value: u32,
    ) -> Result<(), OpError> {
        self.inner.write_notify(known(to)?, at, from, thread, value)
    }
    fn fence(&mut self, token: u64) -> Result<(), OpError> {
        self.started.push(Started::Fence(token));
        Ok(())
    }
    fn bulk(&mut self, thread: u32, tag: Tag, payload: Vec<u8>) -> Result<(), OpError> {
        self.inner.bulk(thread, tag, payload)
    }
    fn waiting_notifications(&self) -> usize {
        self.inner.waiting_notifications()
    }
    fn waiting_bulk(&self, namespace: Namespace) -> usize {
        self.inner.waiting_bulk(namespace)
    }
    fn flush(&mut self) -> Result<(), OpError> {
        for started in self.started.drain(..) {
            match started {
                Started::Write(to, at, from) => {
                    self.writes += 1;
                    for (begin, end) in pieces(from.len(), self.writes) {
                        let piece = from.slice(begin, end - begin);
                        self.inner.write(&to, at + begin, &piece)?;
                        thread::yield_now();
                    }
                }
                Started::Signal(to, at, word) => self.inner.signal(&to, at, word)?,
                Started::Fence(token) => self.inner.fence(token)?,
                Started::Wake(thread) => self.inner.wake(thread),
            }
        }
        self.inner.flush()
    }
    fn wake(&mut self, thread: u32) {
        // In front of a flush it travels with what is flushed, and no faster.
        match self.started.is_empty() {
            true => self.inner.wake(thread),
            false => self.started.push(Started::Wake(thread)),
        }
    }
    fn poll(&mut self, sink: &mut dyn FnMut(Event)) -> bool {
        self.inner.poll(&mut |event| {
            sink(match event {
                Event::Imported { token, result } => {
                    Event::Imported { token, result: result.map(copied) }
                }
                other => other,
            });
        })
    }
}
