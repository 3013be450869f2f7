//! Lanes without a rack: two hosts in this process, with a device each, and what one write between
//! them costs, by itself and in numbers.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use bench_kit::measure::cores::pin;
use bench_kit::measure::sampling::{CaseError, Sampler};
use gossamer_job::{AuthorityError, JobAuthority, JobId, SecretPem};
use primitive::SharedBytes;
use primitive::sync::Ordering;
use transport_api::{Carrier, Cell, Event, HostId, Lane, RegionKey, Rights, Transport};
use transport_rdma::{RdmaConfig, RdmaTransport};
use transport_tcp::{Credentials, TcpConfig, TcpTransport};

use crate::Host;

/// The job of the carriers.
const JOB: JobId = JobId(1);
/// The timeout of one host that waits for the other.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);
/// Bytes of a word.
const WORD: usize = 8;
/// The value that ends a ping-pong.
const OVER: u64 = u64::MAX;
/// Bytes of a write when rates are measured.
const BYTES: usize = 256;
/// Writes on one lane per signalled write.
const BURST: u64 = 32;
/// Bursts in flight on one lane, at most.
const BURSTS: u64 = 2;

/// How the receiver recognises that bytes have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Telling {
    /// A second write, of one word, after the write of the bytes.
    SecondWrite,
    /// A word in front of the bytes and one after them, in the same write.
    SameWrite,
}

pub(crate) fn failed(error: impl std::fmt::Display) -> CaseError {
    CaseError::Failed(error.to_string())
}

/// The protection of the carriers' connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joining {
    /// With TLS, as those of jobs do.
    Encrypted,
    /// Without encryption.
    Open,
}

/// Two hosts with this number of lanes to each other.
pub(crate) fn joined(
    hosts: &[Host; 2],
    lanes: u32,
    config: &RdmaConfig,
    joining: Joining,
) -> Result<[Arc<RdmaTransport>; 2], CaseError> {
    let listen = || TcpListener::bind("127.0.0.1:0");
    let listeners = [listen()?, listen()?];
    let addresses = vec![listeners[0].local_addr()?, listeners[1].local_addr()?];
    let authority = JobAuthority::random(JOB).map_err(failed)?;
    let credentials = |host| match joining {
        Joining::Open => Ok(Credentials::InsecureLoopback),
        Joining::Encrypted => {
            let (certificate, SecretPem(key)) = authority.certificate(host)?;
            Ok(Credentials::Tls { certificate, key, ca: authority.ca() })
        }
    };
    let joining = [0, 1].into_iter().zip(listeners).map(|(host, listener)| {
        let device = Some(hosts[host as usize].device.clone());
        let rdma = RdmaConfig { device, ..config.clone() };
        let (host, addresses) = (HostId(host), addresses.clone());
        let names = (JOB, [0; 32]);
        // One thread more than there are lanes, for the transport itself.
        let threads = lanes + 1;
        let credentials = credentials(host).map_err(|error: AuthorityError| failed(error))?;
        let tcp = TcpConfig::new(names, host, addresses, listener, threads, credentials);
        let tcp = TcpConfig { loss_bound: TIMEOUT, ..tcp };
        Ok(thread::spawn(move || {
            let carrier = TcpTransport::join(tcp).map_err(failed)?;
            RdmaTransport::over(carrier as Arc<dyn Carrier>, rdma).map_err(failed)
        }))
    });
    let joining = joining.collect::<Result<Vec<_>, CaseError>>()?;
    let mut ends = joining.into_iter().map(|host| host.join().expect("no panic"));
    match (ends.next(), ends.next()) {
        (Some(first), Some(second)) => Ok([first?, second?]),
        _ => Err(failed("there are two hosts")),
    }
}

/// The median of half a round trip, in microseconds: one side writes `bytes`, and the other, once
/// they have arrived, writes as many back.
pub(crate) fn half_round_trip_us(
    sampler: &Sampler,
    hosts: &[Host; 2],
    telling: Telling,
    bytes: usize,
) -> Result<f64, CaseError> {
    const KEYS: [RegionKey; 2] = [RegionKey(1), RegionKey(2)];
    let [first, second] = joined(hosts, 1, &RdmaConfig::default(), Joining::Open)?;
    let offer = Cell::offer(&*second, KEYS[0], bytes + 2 * WORD).map_err(failed)?;
    let ours = Cell::join(&*first, HostId(1), KEYS[0], KEYS[1], TIMEOUT).map_err(failed)?;
    let theirs = offer.accept(&*second, HostId(0), KEYS[1], TIMEOUT).map_err(failed)?;
    let mut client = Side::new(first.lane(0, HostId(1)).map_err(failed)?, ours, telling);
    let mut server = Side::new(second.lane(0, HostId(0)).map_err(failed)?, theirs, telling);
    thread::scope(|scope| {
        let server = scope.spawn(move || {
            pin(sampler.cores.second)?;
            let mut number = 0;
            while number != OVER {
                number = server.hear(number)?;
                server.say(number)?;
            }
            Ok(())
        });
        let client = scope.spawn(move || {
            pin(sampler.cores.first)?;
            let (start, mut trips, mut number) = (Instant::now(), Vec::new(), 0);
            while start.elapsed() < sampler.time {
                let began = Instant::now();
                client.say(number + 1)?;
                number = client.hear(number)?;
                trips.push(began.elapsed());
            }
            client.say(OVER)?;
            client.hear(number)?;
            trips.sort_unstable();
            Ok(trips[trips.len() / 2].as_secs_f64() * 1e6 / 2.0)
        });
        let median = client.join().expect("no panic");
        let served: Result<(), CaseError> = server.join().expect("no panic");
        served.and(median)
    })
}

/// One side of a ping-pong.
struct Side {
    lane: Box<dyn Lane>,
    cell: Cell,
    /// The bytes to write.
    mine: SharedBytes,
    telling: Telling,
}

impl Side {
    fn new(lane: Box<dyn Lane>, cell: Cell, telling: Telling) -> Side {
        let mine = SharedBytes::heap(cell.local().len());
        Side { lane, cell, mine, telling }
    }

    fn say(&mut self, number: u64) -> Result<(), CaseError> {
        let Side { lane, cell, mine, telling } = self;
        let behind = mine.len() - WORD;
        mine.store(0, number, Ordering::Relaxed);
        mine.store(behind, number, Ordering::Relaxed);
        match telling {
            Telling::SecondWrite => {
                let written = mine.slice(WORD, behind - WORD);
                lane.write(cell.remote(), WORD, &written).map_err(failed)?;
                lane.signal(cell.remote(), 0, number).map_err(failed)?;
            }
            Telling::SameWrite => lane.write(cell.remote(), 0, mine).map_err(failed)?,
        }
        lane.flush().map_err(failed)
    }

    /// Waits for another number than `last`.
    fn hear(&mut self, last: u64) -> Result<u64, CaseError> {
        let start = Instant::now();
        for round in 0u64.. {
            let memory = self.cell.local();
            let number = memory.load(0, Ordering::Acquire);
            let is_there = match self.telling {
                Telling::SecondWrite => true,
                Telling::SameWrite => memory.load(memory.len() - WORD, Ordering::Acquire) == number,
            };
            if is_there && number != last {
                return Ok(number);
            }
            self.lane.poll(&mut |_| ());
            if round.is_multiple_of(1 << 16) && start.elapsed() > TIMEOUT {
                break;
            }
        }
        Err(failed("the other side did not answer in time"))
    }
}

/// Millions of 256-byte writes per second, by `threads` threads with `lanes` lanes each, on which a
/// thread writes in turn.
pub(crate) fn write_rate(
    sampler: &Sampler,
    hosts: &[Host; 2],
    threads: u32,
    lanes: u32,
) -> Result<f64, CaseError> {
    // So many lanes, on so few processors, are slow to acknowledge.
    let (staging_bytes, timeout_exponent, retries) = (128 << 10, 18, 7);
    let config = RdmaConfig { staging_bytes, timeout_exponent, retries, ..RdmaConfig::default() };
    let [first, second] = joined(hosts, threads * lanes, &config, Joining::Open)?;
    let each = BYTES + WORD;
    let size = (threads * lanes) as usize * each;
    let _region = second.export(RegionKey(1), size, Rights::ALL.into()).map_err(failed)?;
    let remote = first.import(HostId(1), RegionKey(1), TIMEOUT).map_err(failed)?;
    let (over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let write = &|thread: u32| {
        let (data, answer) = (SharedBytes::heap(BYTES), SharedBytes::heap(WORD));
        let lanes = (thread * lanes..(thread + 1) * lanes).map(|lane| {
            let at = lane as usize * each;
            Ok((first.lane(lane, HostId(1)).map_err(failed)?, at, 0u64))
        });
        let mut lanes = lanes.collect::<Result<Vec<_>, CaseError>>()?;
        while !over.load(Relaxed) {
            for (lane, at, bursts) in &mut lanes {
                let mut done = 0;
                lane.poll(&mut |event| done += u64::from(matches!(event, Event::Completed { .. })));
                *bursts -= done;
                written.fetch_add(done * BURST, Relaxed);
                if *bursts == BURSTS {
                    continue;
                }
                for _ in 0..BURST {
                    lane.write(&remote, *at, &data).map_err(failed)?;
                }
                // After the writes, so that it completes after them.
                lane.read(&remote, *at + BYTES, &answer, 0).map_err(failed)?;
                lane.flush().map_err(failed)?;
                *bursts += 1;
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let writers: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || write(thread))).collect();
        thread::sleep(sampler.time / 4);
        let (start, before) = (Instant::now(), written.load(Relaxed));
        thread::sleep(sampler.time);
        let (count, spent) = (written.load(Relaxed) - before, start.elapsed());
        over.store(true, Relaxed);
        for writer in writers {
            let written: Result<(), CaseError> = writer.join().expect("no panic");
            written?;
        }
        Ok(count as f64 / spent.as_secs_f64() / 1e6)
    })
}
