//! [`Bare`]: a lane for the loom models, so that they give buffers away with the crate's own
//! [`Link`]. Memory that is mapped needs nothing of it but `wake`; to a copy it writes as a
//! transport may.

use std::cell::RefCell;
use std::sync::Arc;

use gossamer_trust_core::link::Link;
use primitive::SharedBytes;
use primitive::sync::Ordering;
use transport_api::{
    Event, HostId, Lane, Namespace, OpError, RegionKey, RemoteRegion, Rights, Tag, ThreadId, Window,
};

/// The thread at the other end of every link.
const PEER: ThreadId = ThreadId { host: HostId(1), thread: 0 };

/// A region that both sides map.
pub(crate) fn mapped(memory: &SharedBytes) -> RemoteRegion {
    let live = SharedBytes::heap(8);
    let window = Window::new((0, PEER.host), (RegionKey(1), Rights::ALL, 0), memory.clone(), live);
    RemoteRegion::mapping(Arc::new(window))
}

/// A region that only lanes reach.
pub(crate) fn copied(memory: &SharedBytes) -> RemoteRegion {
    let handle = Arc::new(memory.clone());
    RemoteRegion::remote((0, PEER.host), (RegionKey(1), Rights::ALL, 0), memory.len(), handle)
}

/// The crate's link to the pair that begins at byte `pair` of `region`.
pub(crate) fn link(
    region: RemoteRegion,
    pair: usize,
    arrival: Option<usize>,
    is_stream: bool,
) -> Link {
    Link::new(PEER, region, pair, arrival, is_stream)
}

/// A [`Bare`] lane.
pub(crate) fn lane() -> RefCell<Box<dyn Lane>> {
    RefCell::new(Box::new(Bare))
}

/// Writes to regions made by [`copied`].
struct Bare;

impl Bare {
    fn memory(region: &RemoteRegion) -> &SharedBytes {
        region.handle().expect("a region made by `copied`")
    }
}

impl Lane for Bare {
    fn peer(&self) -> HostId {
        PEER.host
    }

    /// In no order.
    fn write(&mut self, to: &RemoteRegion, at: usize, from: &SharedBytes) -> Result<(), OpError> {
        Self::memory(to).copy_from(at, from);
        Ok(())
    }

    fn signal(&mut self, to: &RemoteRegion, at: usize, word: u64) -> Result<(), OpError> {
        Self::memory(to).store(at, word, Ordering::Release);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), OpError> {
        Ok(())
    }

    /// No thread sleeps in these models.
    fn wake(&mut self, _: u32) {}

    fn poll(&mut self, _: &mut dyn FnMut(Event)) -> bool {
        false
    }

    fn read(&mut self, _: &RemoteRegion, _: usize, _: &SharedBytes, _: u64) -> Result<(), OpError> {
        unreachable!("a link never reads")
    }

    fn compare_swap(
        &mut self,
        _: &RemoteRegion,
        _: usize,
        _: u64,
        _: u64,
        _: u64,
    ) -> Result<(), OpError> {
        unreachable!("a link never swaps")
    }

    fn fetch_add(&mut self, _: &RemoteRegion, _: usize, _: u64, _: u64) -> Result<(), OpError> {
        unreachable!("a link never adds")
    }

    fn write_notify(
        &mut self,
        _: &RemoteRegion,
        _: usize,
        _: &SharedBytes,
        _: u32,
        _: u32,
    ) -> Result<(), OpError> {
        unreachable!("a link never notifies")
    }

    fn notify(
        &mut self,
        _: &RemoteRegion,
        _: usize,
        _: usize,
        _: u32,
        _: u32,
    ) -> Result<(), OpError> {
        unreachable!("a link never notifies")
    }

    fn fence(&mut self, _: u64) -> Result<(), OpError> {
        unreachable!("a link needs no fence")
    }

    fn bulk(&mut self, _: u32, _: Tag, _: Vec<u8>) -> Result<(), OpError> {
        unreachable!("a link sends no payloads")
    }

    fn waiting_notifications(&self, _: u32) -> usize {
        0
    }

    fn waiting_bulk(&self, _: Namespace) -> usize {
        0
    }
}
