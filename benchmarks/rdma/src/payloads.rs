//! Payloads that have no room in a slot, between bare lanes: sent by the carrier, or put into
//! registered memory from which the other side reads them.

use std::thread;
use std::time::Instant;

use bench_kit::measure::cores::pin;
use bench_kit::measure::room::{CaseError, Room};
use primitive::SharedBytes;
use transport_api::{Event, HostId, Lane, RegionKey, RemoteRegion, Rights, Transport};
use transport_rdma::RdmaConfig;

use crate::Host;
use crate::lanes::{Joining, PATIENCE, failed, joined};

/// How a payload comes to the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The carrier has it.
    Carried(Joining),
    /// It is copied to registered memory, and read from there by the device of the other side, which
    /// is told so by the carrier.
    Fetched(Joining),
}

impl Way {
    fn joining(self) -> Joining {
        match self {
            Way::Carried(joining) | Way::Fetched(joining) => joining,
        }
    }
}

/// The payload itself follows.
const CARRIED: u64 = 0;
/// The payload is to be read.
const OFFERED: u64 = 1;
/// The payload is there.
const ARRIVED: u64 = 2;
/// There are no more.
const OVER: u64 = 3;
/// Where payloads are read from.
const KEY: RegionKey = RegionKey(1);

/// Microseconds from sending a payload of `bytes` to hearing that the other side has it: the median.
pub(crate) fn trip_us(
    room: &Room,
    hosts: &[Host; 2],
    way: Way,
    bytes: usize,
) -> Result<f64, CaseError> {
    let [first, second] = joined(hosts, 1, &RdmaConfig::default(), way.joining())?;
    let source = first.export(KEY, bytes, Rights::READ).map_err(failed)?;
    let remote = second.import(HostId(0), KEY, PATIENCE).map_err(failed)?;
    let mut client = first.lane(0, HostId(1)).map_err(failed)?;
    let mut server = second.lane(0, HostId(0)).map_err(failed)?;
    thread::scope(|scope| {
        let server = scope.spawn(move || {
            pin(room.cores.second)?;
            loop {
                let (tag, payload) = arrival(&mut *server)?;
                let payload = match tag {
                    CARRIED => payload,
                    OFFERED => fetched(&mut *server, &remote)?,
                    _ => return Ok(()),
                };
                if payload.len() != bytes || payload.last() != Some(&7) {
                    return Err(failed("another payload came than was sent"));
                }
                give(&mut *server, ARRIVED, Vec::new())?;
            }
        });
        let client = scope.spawn(move || {
            pin(room.cores.first)?;
            let (start, mut trips) = (Instant::now(), Vec::new());
            while start.elapsed() < room.time {
                let payload = vec![7; bytes];
                let began = Instant::now();
                match way {
                    Way::Carried(_) => give(&mut *client, CARRIED, payload)?,
                    Way::Fetched(_) => {
                        source.memory().write_from(0, &payload);
                        give(&mut *client, OFFERED, Vec::new())?;
                    }
                }
                arrival(&mut *client)?;
                trips.push(began.elapsed());
            }
            give(&mut *client, OVER, Vec::new())?;
            trips.sort_unstable();
            Ok(trips[trips.len() / 2].as_secs_f64() * 1e6)
        });
        let median = client.join().expect("no panic");
        let served: Result<(), CaseError> = server.join().expect("no panic");
        served.and(median)
    })
}

fn give(lane: &mut dyn Lane, tag: u64, payload: Vec<u8>) -> Result<(), CaseError> {
    lane.bulk(0, tag, payload).map_err(failed)?;
    lane.flush().map_err(failed)
}

/// The next payload that arrives, with its tag.
fn arrival(lane: &mut dyn Lane) -> Result<(u64, Vec<u8>), CaseError> {
    waited(lane, |event| match event {
        Event::Bulk { tag, payload, .. } => Some((tag, payload)),
        _ => None,
    })
}

/// The whole of a region.
fn fetched(lane: &mut dyn Lane, from: &RemoteRegion) -> Result<Vec<u8>, CaseError> {
    let into = SharedBytes::heap(from.len());
    lane.read(from, 0, &into, 0).map_err(failed)?;
    lane.flush().map_err(failed)?;
    waited(lane, |event| matches!(event, Event::Completed { .. }).then_some(()))?;
    let mut payload = vec![0; into.len()];
    into.read_into(0, &mut payload);
    Ok(payload)
}

/// Polls until `wanted` finds something.
fn waited<T>(lane: &mut dyn Lane, wanted: impl Fn(Event) -> Option<T>) -> Result<T, CaseError> {
    let start = Instant::now();
    for round in 0u64.. {
        let mut found = None;
        lane.poll(&mut |event| found = found.take().or_else(|| wanted(event)));
        if let Some(found) = found {
            return Ok(found);
        }
        if round.is_multiple_of(1 << 12) && start.elapsed() > PATIENCE {
            break;
        }
    }
    Err(failed("the other side says nothing"))
}
