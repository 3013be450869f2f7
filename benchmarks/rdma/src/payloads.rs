//! Payloads that do not fit a slot, between lanes alone: the carrier sends them, or the device of
//! the other side reads them.

use std::thread;
use std::time::Instant;

use bench_kit::measure::cores::pin;
use bench_kit::measure::sampling::{CaseError, Sampler};
use transport_api::{Event, HostId, Lane, Tag, Transport};
use transport_rdma::RdmaConfig;

use crate::Host;
use crate::lanes::{Joining, TIMEOUT, failed, joined};

/// A payload.
const PAYLOAD: u64 = 0;
/// The payload is there.
const ARRIVED: u64 = 1;
/// No more payloads follow.
const OVER: u64 = 2;

/// The median of the microseconds from sending a payload of `bytes` to the acknowledgement of the
/// other side. Its device reads the payload if `is_read`; else the carrier sends it.
pub(crate) fn trip_us(
    sampler: &Sampler,
    hosts: &[Host; 2],
    (joining, is_read): (Joining, bool),
    bytes: usize,
) -> Result<f64, CaseError> {
    let config = RdmaConfig { reads_payloads: is_read, ..RdmaConfig::default() };
    let [first, second] = joined(hosts, 1, &config, joining)?;
    let mut client = first.lane(0, HostId(1)).map_err(failed)?;
    let mut server = second.lane(0, HostId(0)).map_err(failed)?;
    thread::scope(|scope| {
        let server = scope.spawn(move || {
            pin(sampler.cores.second)?;
            loop {
                let (tag, payload) = arrival(&mut *server)?;
                if tag == OVER {
                    return Ok(());
                }
                if payload.len() != bytes || payload.last() != Some(&7) {
                    return Err(failed("received payload differs from the sent one"));
                }
                give(&mut *server, ARRIVED, Vec::new())?;
            }
        });
        let client = scope.spawn(move || {
            pin(sampler.cores.first)?;
            let (start, mut trips) = (Instant::now(), Vec::new());
            while start.elapsed() < sampler.time {
                let payload = vec![7; bytes];
                let began = Instant::now();
                give(&mut *client, PAYLOAD, payload)?;
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
    lane.bulk(0, Tag(tag), payload).map_err(failed)?;
    lane.flush().map_err(failed)
}

/// The next payload that arrives, with its tag.
fn arrival(lane: &mut dyn Lane) -> Result<(u64, Vec<u8>), CaseError> {
    let start = Instant::now();
    for round in 0u64.. {
        let mut found = None;
        lane.poll(&mut |event| {
            if let Event::Bulk { tag, payload, .. } = event {
                found = Some((tag.0, payload));
            }
        });
        if let Some(found) = found {
            return Ok(found);
        }
        if round.is_multiple_of(1 << 12) && start.elapsed() > TIMEOUT {
            break;
        }
    }
    Err(failed("the other side did not answer in time"))
}
