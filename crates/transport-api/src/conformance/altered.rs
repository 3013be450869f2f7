//! [`Altered`]: a transport for tests of the layers above, which does what another transport does,
//! except for what a test alters.
//!
//! | Alteration | What differs |
//! |---|---|
//! | [`Altered::unmapped`] | no region is mapped; writes arrive at a flush, piece by piece, in no order |
//! | [`Altered::faulty`] | while a test says so, re-exports or imports fail, or lanes withhold their events |

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use primitive::SharedBytes;

use crate::{
    Access, Event, HostId, Lane, LaneError, Namespace, OpError, Parker, Region, RegionError,
    RegionKey, RemoteRegion, Rights, Tag, Transport,
};

/// A transport that forwards every call to another one, except for what a test alters.
pub struct Altered {
    inner: Arc<dyn Transport>,
    /// Whether regions are mapped where `inner` maps them.
    is_mapped: bool,
    faults: Faults,
}

/// What fails at a host for as long as its flag is set. Clones share their flags.
#[derive(Clone, Default)]
pub struct Faults {
    /// [`Transport::reexport`] fails with [`RegionError::NoMemory`].
    pub no_reexport: Arc<AtomicBool>,
    /// [`Transport::begin_import`] fails in the same way.
    pub no_import: Arc<AtomicBool>,
    /// Lanes withhold what they have to report, until the first poll after the flag is cleared.
    pub no_events: Arc<AtomicBool>,
    /// [`Transport::maps_atomics`] is false, as with a device that carries out those of others.
    pub no_mapped_atomics: Arc<AtomicBool>,
    /// No fault, but a figure: the most notifications that a lane of the host has held back.
    pub most_waiting: Arc<AtomicUsize>,
    /// The atomics that lanes have begun.
    pub atomics: Arc<AtomicUsize>,
}

impl Altered {
    /// `inner` without mapped memory: lanes know every region by a handle only, and what they write
    /// reaches the peer when they are flushed, at the earliest. A write then arrives piece by piece,
    /// in no order, with time for the peer to look in between. It stands for TCP and RDMA where those
    /// would be too slow or need a device.
    ///
    /// ```
    /// use gossamer_transport_api::conformance::Altered;
    /// use gossamer_transport_api::{HostId, Transport};
    /// use std::sync::Arc;
    ///
    /// fn unmapped(hosts: Vec<Arc<dyn Transport>>) -> Vec<Arc<dyn Transport>> {
    ///     let hosts: Vec<_> = hosts.into_iter().map(Altered::unmapped).collect();
    ///     assert!(hosts.iter().all(|host| !host.maps(HostId(0))));
    ///     hosts
    /// }
    /// ```
    pub fn unmapped(inner: Arc<dyn Transport>) -> Arc<dyn Transport> {
        Arc::new(Altered { inner, is_mapped: false, faults: Faults::default() })
    }

    /// `inner` with faults, which the test sets and clears by the flags that it gets as well.
    pub fn faulty(inner: Arc<dyn Transport>) -> (Arc<dyn Transport>, Faults) {
        let faults = Faults::default();
        (Arc::new(Altered { inner, is_mapped: true, faults: faults.clone() }), faults)
    }
}

fn no_memory(len: usize) -> RegionError {
    RegionError::NoMemory { len, source: std::io::ErrorKind::OutOfMemory.into() }
}

impl Transport for Altered {
    fn local(&self) -> HostId {
        self.inner.local()
    }
    fn hosts(&self) -> u32 {
        self.inner.hosts()
    }
    fn threads(&self) -> u32 {
        self.inner.threads()
    }
    fn maps(&self, peer: HostId) -> bool {
        self.is_mapped && self.inner.maps(peer)
    }
    fn maps_atomics(&self, peer: HostId) -> bool {
        let is_altered = !self.is_mapped || self.faults.no_mapped_atomics.load(Ordering::Relaxed);
        !is_altered && self.inner.maps_atomics(peer)
    }
    fn streams(&self, peer: HostId) -> bool {
        self.is_mapped && self.inner.streams(peer)
    }

    fn is_authenticated(&self) -> bool {
        self.inner.is_authenticated()
    }
    fn export(&self, key: RegionKey, len: usize, access: Access) -> Result<Region, RegionError> {
        self.inner.export(key, len, access)
    }
    fn revoke(&self, key: RegionKey) -> Result<(), RegionError> {
        self.inner.revoke(key)
    }
    fn begin_revoke(&self, thread: u32, key: RegionKey, token: u64) -> Result<(), RegionError> {
        self.inner.begin_revoke(thread, key, token)
    }
    fn reexport(&self, region: &Region, access: Access) -> Result<Region, RegionError> {
        if self.faults.no_reexport.load(Ordering::Relaxed) {
            return Err(no_memory(region.memory().len()));
        }
        self.inner.reexport(region, access)
    }
    fn import(
        &self,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
    ) -> Result<RemoteRegion, RegionError> {
        let region = self.inner.import(owner, key, timeout)?;
        Ok(if self.is_mapped { region } else { behind_handle(region) })
    }
    fn begin_import(
        &self,
        thread: u32,
        owner: HostId,
        key: RegionKey,
        timeout: Duration,
        token: u64,
    ) -> Result<(), RegionError> {
        if self.faults.no_import.load(Ordering::Relaxed) {
            return Err(no_memory(0));
        }
        self.inner.begin_import(thread, owner, key, timeout, token)
    }
    fn lane(&self, thread: u32, peer: HostId) -> Result<Box<dyn Lane>, LaneError> {
        Ok(Box::new(AlteredLane {
            inner: self.inner.lane(thread, peer)?,
            threads: self.threads(),
            is_mapped: self.is_mapped,
            faults: self.faults.clone(),
            started: Vec::new(),
            refused: None,
            writes: 0,
            held: Vec::new(),
        }))
    }
    fn parker(&self, thread: u32) -> Result<Box<dyn Parker>, LaneError> {
        self.inner.parker(thread)
    }
    fn unpark(&self, thread: u32) {
        self.inner.unpark(thread);
    }
    fn queue_pairs(&self) -> u32 {
        self.inner.queue_pairs()
    }
    fn leave(&self) {
        self.inner.leave();
    }
}

/// An operation of an unmapped lane that waits for the next flush.
enum Started {
    Write(RemoteRegion, usize, SharedBytes),
    Signal(RemoteRegion, usize, u64),
    Notify(RemoteRegion, usize, SharedBytes, u32, u32),
    Announce(RemoteRegion, usize, usize, u32, u32),
    Fence(u64),
    Wake(u32),
}

/// A lane of an [`Altered`] transport.
struct AlteredLane {
    inner: Box<dyn Lane>,
    /// Runtime threads of the peer.
    threads: u32,
    is_mapped: bool,
    faults: Faults,
    /// Of an unmapped lane: what has been started since the last flush.
    started: Vec<Started>,
    /// What the next fence reports: the first refusal since the last one.
    refused: Option<OpError>,
    /// How many writes have been delivered in pieces.
    writes: usize,
    /// Events that the next poll reports, unless events are withheld.
    held: Vec<Event>,
}

impl AlteredLane {
    /// Starts an operation of an unmapped lane.
    fn start(&mut self, operation: Started) -> Result<(), OpError> {
        // The inner lane has nothing to flush here, and fails once the peer is gone.
        self.inner.flush()?;
        self.started.push(operation);
        Ok(())
    }

    /// Hands what was started to the inner lane: a write in pieces, everything else as it is.
    fn deliver(&mut self) -> Result<(), OpError> {
        for operation in std::mem::take(&mut self.started) {
            let delivered = match operation {
                Started::Write(to, at, from) => self.deliver_in_pieces(&to, at, &from),
                Started::Signal(to, at, word) => self.inner.signal(&to, at, word),
                Started::Notify(to, at, from, thread, value) => {
                    self.inner.write_notify(&to, at, &from, thread, value)
                }
                Started::Announce(on, at, len, thread, value) => {
                    self.inner.notify(&on, at, len, thread, value)
                }
                Started::Fence(token) => match self.refused.take() {
                    Some(error) => {
                        self.held.push(Event::Failed { token: Some(token), error });
                        Ok(())
                    }
                    None => self.inner.fence(token),
                },
                Started::Wake(thread) => {
                    self.inner.wake(thread);
                    Ok(())
                }
            };
            match delivered {
                Ok(()) => {}
                Err(lost @ OpError::PeerLost(..)) => return Err(lost),
                Err(error) => {
                    self.held.push(Event::Failed { token: None, error: error.clone() });
                    self.refused.get_or_insert(error);
                }
            }
        }
        Ok(())
    }

    fn deliver_in_pieces(
        &mut self,
        to: &RemoteRegion,
        at: usize,
        from: &SharedBytes,
    ) -> Result<(), OpError> {
        self.writes += 1;
        for (begin, end) in pieces(from.len(), self.writes) {
            self.inner.write(to, at + begin, &from.slice(begin, end - begin))?;
            thread::yield_now();
        }
        Ok(())
    }

    /// The inner lane, behind everything that was started before, and its name for `region`.
    fn next<'a>(
        &'a mut self,
        region: &'a RemoteRegion,
    ) -> Result<(&'a mut dyn Lane, &'a RemoteRegion), OpError> {
        let region = self.inner_region(region)?;
        self.deliver()?;
        Ok((&mut *self.inner, region))
    }

    /// What the inner transport imported as `region`.
    fn inner_region<'r>(&self, region: &'r RemoteRegion) -> Result<&'r RemoteRegion, OpError> {
        if self.is_mapped {
            return Ok(region);
        }
        // Lanes to hosts that are not mapped take no regions of this host.
        region.check_origin(0, self.peer())?;
        region.handle::<RemoteRegion>().ok_or(OpError::Foreign(region.key()))
    }
}

impl Lane for AlteredLane {
    fn peer(&self) -> HostId {
        self.inner.peer()
    }
    fn write(&mut self, to: &RemoteRegion, at: usize, from: &SharedBytes) -> Result<(), OpError> {
        let to = self.inner_region(to)?;
        if self.is_mapped {
            return self.inner.write(to, at, from);
        }
        to.check(at, from.len(), Rights::WRITE)?;
        self.start(Started::Write(to.clone(), at, from.clone()))
    }
    fn signal(&mut self, to: &RemoteRegion, at: usize, word: u64) -> Result<(), OpError> {
        let to = self.inner_region(to)?;
        if self.is_mapped {
            return self.inner.signal(to, at, word);
        }
        to.check_word(at, Rights::WRITE)?;
        self.start(Started::Signal(to.clone(), at, word))
    }
    fn read(
        &mut self,
        from: &RemoteRegion,
        at: usize,
        into: &SharedBytes,
        token: u64,
    ) -> Result<(), OpError> {
        let (lane, from) = self.next(from)?;
        lane.read(from, at, into, token)
    }
    fn compare_swap(
        &mut self,
        on: &RemoteRegion,
        at: usize,
        expected: u64,
        new: u64,
        token: u64,
    ) -> Result<(), OpError> {
        self.faults.atomics.fetch_add(1, Ordering::Relaxed);
        let (lane, on) = self.next(on)?;
        lane.compare_swap(on, at, expected, new, token)
    }
    fn fetch_add(
        &mut self,
        on: &RemoteRegion,
        at: usize,
        addend: u64,
        token: u64,
    ) -> Result<(), OpError> {
        self.faults.atomics.fetch_add(1, Ordering::Relaxed);
        let (lane, on) = self.next(on)?;
        lane.fetch_add(on, at, addend, token)
    }
    fn write_notify(
        &mut self,
        to: &RemoteRegion,
        at: usize,
        from: &SharedBytes,
        thread: u32,
        value: u32,
    ) -> Result<(), OpError> {
        let to = self.inner_region(to)?;
        if self.is_mapped {
            let started = self.inner.write_notify(to, at, from, thread, value);
            let waiting = self.inner.waiting_notifications(thread);
            self.faults.most_waiting.fetch_max(waiting, Ordering::Relaxed);
            return started;
        }
        OpError::check_thread(thread, self.threads, self.peer())?;
        to.check(at, from.len(), Rights::WRITE)?;
        self.start(Started::Notify(to.clone(), at, from.clone(), thread, value))
    }
    fn notify(
        &mut self,
        on: &RemoteRegion,
        at: usize,
        len: usize,
        thread: u32,
        value: u32,
    ) -> Result<(), OpError> {
        let on = self.inner_region(on)?;
        if self.is_mapped {
            let started = self.inner.notify(on, at, len, thread, value);
            let waiting = self.inner.waiting_notifications(thread);
            self.faults.most_waiting.fetch_max(waiting, Ordering::Relaxed);
            return started;
        }
        OpError::check_thread(thread, self.threads, self.peer())?;
        on.check(at, len, Rights::WRITE)?;
        self.start(Started::Announce(on.clone(), at, len, thread, value))
    }
    fn fence(&mut self, token: u64) -> Result<(), OpError> {
        if self.is_mapped {
            return self.inner.fence(token);
        }
        self.start(Started::Fence(token))
    }
    fn bulk(&mut self, thread: u32, tag: Tag, payload: Vec<u8>) -> Result<(), OpError> {
        self.inner.bulk(thread, tag, payload)
    }
    fn waiting_notifications(&self, thread: u32) -> usize {
        self.inner.waiting_notifications(thread)
    }
    fn waiting_bulk(&self, namespace: Namespace) -> usize {
        self.inner.waiting_bulk(namespace)
    }
    fn flush(&mut self) -> Result<(), OpError> {
        self.deliver()?;
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
        let (held, is_mapped) = (&mut self.held, self.is_mapped);
        let moved = self.inner.poll(&mut |event| {
            held.push(match event {
                Event::Imported { token, result } if !is_mapped => {
                    Event::Imported { token, result: result.map(behind_handle) }
                }
                event => event,
            });
        });
        if self.faults.no_events.load(Ordering::Relaxed) {
            return moved;
        }
        let any = !self.held.is_empty();
        self.held.drain(..).for_each(sink);
        moved || any
    }
}

/// `inner`, which may be mapped, as a region that only lanes reach.
fn behind_handle(inner: RemoteRegion) -> RemoteRegion {
    let region = (inner.key(), inner.rights(), inner.generation());
    // The inner lane checks which transport has imported it.
    RemoteRegion::remote((0, inner.owner()), region, inner.len(), Arc::new(inner))
}

/// How write number `number`, of `len` bytes, is cut into pieces (first byte, end), in the order of
/// their arrival, which differs from write to write.
fn pieces(len: usize, number: usize) -> Vec<(usize, usize)> {
    const WORD: usize = 8;
    let mut cuts = vec![0, WORD.min(len), len / 3 / WORD * WORD, len * 2 / 3 / WORD * WORD, len];
    cuts.sort_unstable();
    cuts.dedup();
    let mut pieces: Vec<_> = cuts.windows(2).map(|cut| (cut[0], cut[1])).collect();
    let count = pieces.len();
    pieces.rotate_left(number % count.max(1));
    if number / 4 % 2 == 1 {
        pieces.reverse();
    }
    pieces
}
