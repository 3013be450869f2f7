//! The handshake: each host sends every other the addresses of its queue pairs over the carrier, in
//! the lanes of the service threads, then connects its own and reports that they are ready.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use primitive::limits::PENDING_REQUESTS;
use rdma_protocol::{CONTROL_BYTES, Endpoint, MemoryDescriptor, Message, TAG};
use transport_api::{Carrier, Event, HostId, Lane, Parker, ThreadId};

use crate::control::device_selection::{SelectedDevice, refused};
use crate::control::host::Host;
use crate::control::sleep_flags::SleepFlags;
use crate::memory::remote::RemoteMemory;
use crate::qp::connection::Connection;
use crate::qp::thread::{ThreadState, completion_queue};
use crate::verbs::Pd;
use crate::{RdmaConfig, RdmaError};
use rdma_protocol::payloads;

/// How long the service thread sleeps between polls while hosts join.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A process whose queue pairs are all connected.
pub(crate) struct Joined {
    pub(crate) host: Arc<Host>,
    pub(crate) lanes: Vec<Box<dyn Lane>>,
    pub(crate) parker: Box<dyn Parker>,
    /// The service thread's lane to this host.
    pub(crate) local: Box<dyn Lane>,
    /// Messages of hosts that were ready earlier.
    pub(crate) early: Vec<(HostId, Message)>,
}

/// The number of the first packet of a connection: 24 bits, hard to guess.
fn first_packet() -> u32 {
    RandomState::new().hash_one(0) as u32 & 0xff_ffff
}

/// Connects the queue pair of `connection` to itself.
pub(crate) fn connect_loopback(
    connection: &mut Connection,
    selected: &SelectedDevice,
    config: &RdmaConfig,
) -> io::Result<()> {
    let end = selected.endpoint(connection.qp.number(), first_packet());
    connection.qp.connect(
        (end, selected.gid),
        end,
        selected.params(config, selected.responder_resources()),
    )
}

/// Joins the other hosts, whose processes `carrier` has joined already.
pub(crate) fn join(carrier: Arc<dyn Carrier>, config: RdmaConfig) -> Result<Joined, RdmaError> {
    if let Some(invalid) = config.invalid() {
        return Err(RdmaError::Config(invalid));
    }
    let threads = carrier.threads() - 1;
    if threads == 0 {
        let text = "the carrier must have one thread more than the rack, at least 2, got 1";
        return Err(RdmaError::Config(text.into()));
    }
    let selected = SelectedDevice::select(&config)?;
    let name = selected.device.name().to_owned();
    let refused = |what| {
        let name = name.clone();
        move |source| refused(&name, what, source)
    };
    let pd = Pd::new(&selected.device).map_err(refused("allocate a protection domain"))?;
    let hosts = carrier.hosts() as usize;
    let mut thread_states = Vec::new();
    for thread in 0..threads {
        let cq = completion_queue(&pd, &config, hosts, selected.capabilities.max_completions)
            .map_err(refused("create a completion queue"))?;
        carrier.watch(thread, &*cq)?;
        thread_states.push(ThreadState::new(hosts, cq));
    }
    let host = Host::new(carrier, pd, selected, config, thread_states)
        .map_err(refused("register memory"))?;
    let (lanes, local, parker) = service_lanes(&host)?;
    let mut joining = Joining::new(host, lanes, parker)?;
    joining.run().map_err(|failure| match failure {
        Failure::Refused(source) => refused("connect a queue pair")(source),
        Failure::Other(error) => error,
    })?;
    let Joining { host, lanes, parker, early, .. } = joining;
    Ok(Joined { host, lanes, local, parker, early })
}

/// To the other hosts, and to this one.
type ServiceLanes = (Vec<Box<dyn Lane>>, Box<dyn Lane>, Box<dyn Parker>);

fn service_lanes(host: &Host) -> Result<ServiceLanes, RdmaError> {
    let lane = |peer| host.carrier.lane(host.threads, peer);
    let lanes = host.peers().map(lane).collect::<Result<_, _>>()?;
    Ok((lanes, lane(host.local)?, host.carrier.parker(host.threads)?))
}

/// Why joining failed.
enum Failure {
    /// The device refused to connect a queue pair.
    Refused(io::Error),
    Other(RdmaError),
}

impl From<RdmaError> for Failure {
    fn from(error: RdmaError) -> Self {
        Failure::Other(error)
    }
}

/// Messages that a peer may send between its `Ready` and that of the last host: requests, which it holds
/// back beyond their limit, a cancellation of each import, and why it gives this host up.
const MOST_EARLY: usize = 2 * PENDING_REQUESTS + 1;

const _: () = assert!(CONTROL_BYTES >= transport_control::MESSAGE_BYTES);

/// How far the handshake with one peer has come.
struct Handshake {
    /// The addresses of this host's queue pairs to the peer, by thread.
    own: Vec<Endpoint>,
    /// Bytes that each of them reads at a time.
    max_request_bytes: usize,
    has_sent_hello: bool,
    is_ready: bool,
    /// Messages of the control plane that have come early.
    early: usize,
}

/// What to do about a message that a peer sent during the handshake.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Connect the queue pairs to its own, as [`Message::Hello`] describes them.
    Connect {
        responder_resources: u8,
        sleep_flags: MemoryDescriptor,
        payloads: Option<MemoryDescriptor>,
        endpoints: Vec<Endpoint>,
    },
    /// Nothing: it is ready.
    Ready,
    /// The service thread handles it later.
    Early(Message),
}

impl Handshake {
    /// Handles a message of the peer: one `Hello` with an endpoint for each thread, then one `Ready`,
    /// then anything else.
    ///
    /// # Errors
    /// The violation, if the peer sends anything else.
    fn receive(&mut self, message: Message) -> Result<Step, String> {
        match message {
            Message::Hello { responder_resources, sleep_flags, payloads, endpoints }
                if !self.has_sent_hello && endpoints.len() == self.own.len() =>
            {
                let threads = endpoints.len();
                SleepFlags::invalid(&sleep_flags, threads).map_or(Ok(()), Err)?;
                let blocks = payloads.as_ref();
                let invalid = blocks.and_then(|descriptor| {
                    payloads::invalid(descriptor, threads, self.max_request_bytes)
                });
                invalid.map_or(Ok(()), Err)?;
                self.has_sent_hello = true;
                Ok(Step::Connect { responder_resources, sleep_flags, payloads, endpoints })
            }
            Message::Hello { endpoints, .. } => Err(format!(
                "a second hello, or one with {} endpoints, expected {}",
                endpoints.len(),
                self.own.len()
            )),
            Message::Ready if self.has_sent_hello && !self.is_ready => {
                self.is_ready = true;
                Ok(Step::Ready)
            }
            message @ Message::Control(_) if self.is_ready && self.early < MOST_EARLY => {
                self.early += 1;
                Ok(Step::Early(message))
            }
            message => Err(format!("{message:?} during the handshake")),
        }
    }
}

struct Joining {
    host: Arc<Host>,
    lanes: Vec<Box<dyn Lane>>,
    parker: Box<dyn Parker>,
    /// In the order of the lanes.
    handshakes: Vec<Handshake>,
    early: Vec<(HostId, Message)>,
}

impl Joining {
    /// Creates the queue pairs.
    fn new(
        host: Arc<Host>,
        lanes: Vec<Box<dyn Lane>>,
        parker: Box<dyn Parker>,
    ) -> Result<Self, RdmaError> {
        let mut handshakes = Vec::new();
        let refused = |what, source| refused(host.selected.device.name(), what, source);
        let connections = host.peers().count() * host.threads as usize;
        // A single host has no connections.
        let memory = host
            .memory_for(connections.max(1))
            .map_err(|source| refused("register memory", source))?;
        let mut parts =
            (0..connections).map(|connection| memory.1.part(connection * memory.0, memory.0));
        for peer in host.peers() {
            let mut own = Vec::new();
            for thread in 0..host.threads {
                let state = host.thread_state(thread);
                let other = ThreadId { host: peer, thread };
                let memory = parts.next().expect("a part for each connection");
                let from = (&state.cq, &memory, host.blocks(thread, peer));
                let connection = Connection::new(from, &host.config, other, host.threads)
                    .map_err(|source| refused("create a queue pair", source))?;
                own.push(host.selected.endpoint(connection.qp.number(), first_packet()));
                state.connections().insert(peer, connection);
            }
            let max_request_bytes = host.config.max_request_bytes();
            handshakes.push(Handshake {
                own,
                max_request_bytes,
                has_sent_hello: false,
                is_ready: false,
                early: 0,
            });
        }
        Ok(Self { host, lanes, parker, handshakes, early: Vec::new() })
    }

    /// Connects the queue pairs to those of all peers.
    fn run(&mut self) -> Result<(), Failure> {
        let (start, timeout) = (Instant::now(), self.host.config.join_timeout);
        for index in 0..self.lanes.len() {
            let (responder_resources, endpoints) =
                (self.host.selected.responder_resources(), self.handshakes[index].own.clone());
            let peer = self.lanes[index].peer();
            let (sleep_flags, payloads) =
                (self.host.sleep_flags.descriptor(peer), self.host.describe_blocks(peer));
            self.send(
                index,
                &Message::Hello { responder_resources, sleep_flags, payloads, endpoints },
            );
        }
        loop {
            for index in 0..self.lanes.len() {
                self.receive(index)?;
            }
            let missing = self.lanes.iter().zip(&self.handshakes).filter(|(_, p)| !p.is_ready);
            let missing: Vec<_> = missing.map(|(lane, _)| lane.peer()).collect();
            if missing.is_empty() {
                return Ok(());
            }
            if start.elapsed() >= timeout {
                return Err(RdmaError::Missing { missing, waited: timeout }.into());
            }
            self.parker.park(POLL_INTERVAL, &mut || false);
        }
    }

    fn send(&mut self, index: usize, message: &Message) {
        let lane = &mut self.lanes[index];
        // If the peer is gone, the lane reports it.
        let _ = lane.bulk(self.host.threads, TAG, message.encode());
        let _ = lane.flush();
    }

    fn receive(&mut self, index: usize) -> Result<(), Failure> {
        let peer = self.lanes[index].peer();
        let (mut received, mut gone) = (Vec::new(), None);
        self.lanes[index].poll(&mut |event| match event {
            Event::Bulk { from, tag, payload } => received.push(((from, tag), payload)),
            Event::Peer(event) => gone = Some(event),
            _ => {}
        });
        for (from, bytes) in received {
            let decoded = Message::receive(from, self.host.threads, &bytes);
            let step = decoded.and_then(|message| self.handshakes[index].receive(message));
            match step.map_err(|what| RdmaError::Protocol(peer, what))? {
                Step::Connect { responder_resources, sleep_flags, payloads, endpoints } => {
                    self.host.sleep_flags.connect(peer, &sleep_flags);
                    if let Some(descriptor) = &payloads {
                        self.fetch_from(peer, descriptor);
                    }
                    self.connect(index, responder_resources, &endpoints)?;
                }
                Step::Ready => {}
                Step::Early(message) => self.early.push((peer, message)),
            }
        }
        gone.map_or(Ok(()), |event| Err(RdmaError::Gone(event).into()))
    }

    /// A peer has received where payloads are to be fetched from, a part by each thread.
    fn fetch_from(&self, peer: HostId, descriptor: &MemoryDescriptor) {
        let each = descriptor.len / u64::from(self.host.threads);
        for thread in 0..self.host.threads {
            let at = descriptor.address + u64::from(thread) * each;
            let blocks = RemoteMemory::permanent(at, descriptor.remote_key);
            self.host.with(thread, peer, |connection, _| {
                connection.fetch_from(Arc::new(blocks), each as usize)
            });
        }
    }

    /// A peer has received where its queue pairs are.
    fn connect(
        &mut self,
        index: usize,
        responder_resources: u8,
        endpoints: &[Endpoint],
    ) -> Result<(), Failure> {
        let Self { host, lanes, handshakes, .. } = self;
        let peer = lanes[index].peer();
        let params = host.selected.params(&host.config, responder_resources);
        for (thread, (own, peers)) in (0..).zip(handshakes[index].own.iter().zip(endpoints)) {
            let from = (*own, host.selected.gid);
            let connected = host
                .with(thread, peer, |connection, _| connection.qp.connect(from, *peers, params));
            connected.unwrap_or(Ok(())).map_err(Failure::Refused)?;
        }
        self.send(index, &Message::Ready);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdma_protocol::payloads::BLOCKS;

    const END: Endpoint = Endpoint { gid: [7; 16], lid: 0, mtu: 3, qp: 17, first: 1 };

    fn handshake() -> Handshake {
        Handshake {
            own: vec![END; 2],
            max_request_bytes: 64 << 10,
            has_sent_hello: false,
            is_ready: false,
            early: 0,
        }
    }

    /// Where a host with `threads` threads publishes which of them sleep.
    fn sleep_flags(threads: u32) -> MemoryDescriptor {
        use transport_api::Rights;
        let (rights, len) = (Rights::READ | Rights::WRITE, u64::from(threads) * 8);
        MemoryDescriptor { rights, len, address: 4096, remote_key: 1 }
    }

    fn hello(threads: u32) -> Message {
        let endpoints = vec![END; threads as usize];
        Message::Hello {
            responder_resources: 4,
            sleep_flags: sleep_flags(threads),
            payloads: blocks(2, 64 << 10),
            endpoints,
        }
    }

    /// Where peers fetch payloads from a host with `threads` threads, in blocks of `each` bytes.
    fn blocks(threads: usize, each: usize) -> Option<MemoryDescriptor> {
        let len = (threads * BLOCKS * each) as u64;
        let rights = transport_api::Rights::READ;
        Some(MemoryDescriptor { rights, len, address: 4096, remote_key: 1 })
    }

    #[test]
    fn a_peer_sends_hello_then_ready_then_anything() {
        let mut peer = handshake();
        let payloads = blocks(2, 64 << 10);
        let connect = Step::Connect {
            responder_resources: 4,
            sleep_flags: sleep_flags(2),
            payloads,
            endpoints: vec![END; 2],
        };
        assert_eq!(peer.receive(hello(2)), Ok(connect));
        assert_eq!(peer.receive(Message::Ready), Ok(Step::Ready));
        let early = Message::Control(vec![1]);
        for _ in 0..MOST_EARLY {
            assert_eq!(peer.receive(early.clone()), Ok(Step::Early(early.clone())));
        }
        let error = peer.receive(early).unwrap_err();
        assert_eq!(error, "Control of 1 bytes during the handshake");
    }

    #[test]
    fn a_message_out_of_order_is_a_violation() {
        let greets = |sleep_flags, payloads| Message::Hello {
            responder_resources: 4,
            sleep_flags,
            payloads,
            endpoints: vec![END; 2],
        };
        let revoke = || Message::Control(vec![6; 21]);
        let wrong = [
            vec![Message::Ready],
            vec![revoke()],
            vec![hello(1)],
            vec![hello(3)],
            vec![greets(sleep_flags(1), None)],
            vec![greets(sleep_flags(2), blocks(2, 128 << 10))],
            vec![greets(sleep_flags(2), Some(MemoryDescriptor { len: 8, ..sleep_flags(2) }))],
            vec![hello(2), hello(2)],
            vec![hello(2), revoke()],
            vec![hello(2), Message::Ready, Message::Ready],
            vec![hello(2), Message::Ready, hello(2)],
        ];
        for mut received in wrong {
            let (mut peer, last) = (handshake(), received.pop().expect("something"));
            received.into_iter().for_each(|message| drop(peer.receive(message).expect("in order")));
            let refused = peer.receive(last.clone()).expect_err("out of order");
            assert!(!refused.is_empty(), "{last:?}");
        }
    }
}
