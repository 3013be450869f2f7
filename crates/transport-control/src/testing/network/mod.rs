//! [`Network`]: the hosts, what is on its way between them, and what must always hold.

mod service;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use transport_api::{HostId, PeerEvent, RegionKey, Rights};

use crate::config::{Config, CutOff, Description, Export, Goodbye, Medium, Reach};
use crate::control::Control;
use crate::message::Opaque;
use crate::output::ImportError;
use crate::testing::random::Random;

/// Messages on their way from one host to another, at most.
const ROOM: usize = 8;

/// What the hosts of a network have in common.
#[derive(Clone, Copy, Debug)]
pub struct Rack {
    /// Hosts.
    pub hosts: u32,
    /// Runtime threads of each.
    pub threads: u32,
    /// After how much silence a peer counts as lost.
    pub loss_bound: Option<Duration>,
    /// How importers reach regions.
    pub reach: Reach,
    /// From when on a peer that is gone accesses no region. With [`CutOff::AtStop`] hosts learn when a
    /// process has ended.
    pub cut_off: CutOff,
    /// How hosts say goodbye; [`Goodbye::Carrier`] is not supported.
    pub goodbye: Goodbye,
    /// The longest delay of a message, and the longest time between two polls of a runtime thread.
    pub delay: Duration,
}

/// The types of a simulated transport: requesters are numbers.
pub struct SimMedium;

impl Medium for SimMedium {
    type Export = SimExport;
    type Attachment = ();
    type Requester = u64;
}

/// A simulated region: only who may import it counts.
#[derive(Clone, Debug)]
pub struct SimExport {
    /// The only host that may import it; `None`: all may.
    pub only: Option<HostId>,
}

impl Export for SimExport {
    fn describe(&self, importer: HostId) -> Option<Description> {
        let rights = Rights::READ;
        let allows = self.only.is_none_or(|only| only == importer);
        allows.then_some(Description { rights, len: 64, opaque: Opaque::EMPTY })
    }
}

/// How a request of a test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// An import, with a region of this generation.
    Imported(u32),
    /// An import, without a region.
    Failed(ImportError),
    /// A revocation; whether all importers were quiet, or have stopped.
    Revoked(bool),
    /// A goodbye.
    Departed,
}

/// One region that a host may use.
type Use = (HostId, RegionKey, u32);

struct Host {
    control: Control<SimMedium>,
    is_alive: bool,
    /// Until when it does nothing.
    stalled: Instant,
    /// Whether it can send again what had no room, and has not had its turn since.
    has_room: bool,
    /// When which thread passes a poll, and sees inhibitions up to which epoch.
    passes: BTreeSet<(Instant, u32, u64)>,
    /// Threads that may use a region.
    users: BTreeMap<Use, BTreeSet<u32>>,
    /// By epoch.
    inhibited: BTreeMap<u64, Use>,
    /// Regions of this host whose revocation has ended.
    revoked: BTreeSet<Use>,
    gone: BTreeMap<HostId, (Instant, PeerEvent)>,
    ended: BTreeMap<u64, Ended>,
}

/// What travels.
enum Packet {
    Message(Vec<u8>),
    /// The goodbye of the data path.
    Goodbye,
    /// The connection was closed.
    End,
}

/// One direction of a connection.
#[derive(Default)]
struct Wire {
    queue: VecDeque<(Instant, Packet)>,
    /// Carries nothing any more, without an end.
    is_cut: bool,
    /// The receiver reads nothing any more.
    is_closed: bool,
    /// It also carried what no peer sends.
    is_hostile: bool,
}

/// A rack in one thread. Panics if one of these does not hold, whatever happens:
/// - A request ends once.
/// - The end of a peer is reported once.
/// - No import ends with a generation that its owner has revoked to the end, nor with one that was
///   inhibited here (unless the owner checks each operation, and sends no revocations).
/// - A revocation ends quietly only when no thread of a host that the owner counts as there may use
///   the region; with [`CutOff::AtStop`] no thread of any host that runs.
/// - Nothing is sent without room for it, and nothing longer than a message.
pub struct Network {
    rack: Rack,
    start: Instant,
    now: Instant,
    random: Random,
    hosts: Vec<Host>,
    wires: BTreeMap<(HostId, HostId), Wire>,
    trace: Vec<String>,
    requests: u64,
}

impl Network {
    /// A rack that is complete at the time `now`, whichever that is.
    pub fn new(now: Instant, rack: Rack, seed: u64) -> Self {
        let host = |local| {
            let mut control = Control::new(
                now,
                Config {
                    local: HostId(local),
                    hosts: rack.hosts,
                    loss_bound: rack.loss_bound,
                    reach: rack.reach,
                    cut_off: rack.cut_off,
                    goodbye: rack.goodbye,
                    revocation_timeout: None,
                },
            );
            (0..rack.hosts).for_each(|peer| control.connected(HostId(peer), now));
            Host {
                control,
                is_alive: true,
                stalled: now,
                has_room: false,
                passes: BTreeSet::new(),
                users: BTreeMap::new(),
                inhibited: BTreeMap::new(),
                revoked: BTreeSet::new(),
                gone: BTreeMap::new(),
                ended: BTreeMap::new(),
            }
        };
        let hosts = (0..rack.hosts).map(host).collect();
        let pairs = (0..rack.hosts).flat_map(|a| (0..rack.hosts).map(move |b| (a, b)));
        let pairs = pairs.filter(|(a, b)| a != b);
        let wires = pairs.map(|(a, b)| ((HostId(a), HostId(b)), Wire::default())).collect();
        let random = Random::new(seed);
        Self { rack, start: now, now, random, hosts, wires, trace: Vec::new(), requests: 0 }
    }

    // ---- What a test has hosts do.

    /// `host` exports `key`, to one host only or to all; false if it does already.
    pub fn export(&mut self, host: HostId, key: u64, only: Option<HostId>) -> bool {
        let control = &mut self.host(host).control;
        let exported = control.export(RegionKey(key), |_| SimExport { only }).is_ok();
        self.serve(host);
        exported
    }

    /// `host` revokes `key`: the number of the request, if it was exported.
    pub fn revoke(&mut self, host: HostId, key: u64) -> Option<u64> {
        let (now, request) = (self.now, self.next_request());
        let control = &mut self.host(host).control;
        control.revoke(now, RegionKey(key), None, Some(request))?;
        self.serve(host);
        Some(request)
    }

    /// `host` begins to import `key` of `owner`: the number of the request.
    pub fn import(&mut self, host: HostId, owner: HostId, key: u64, timeout: Duration) -> u64 {
        let (now, request) = (self.now, self.next_request());
        let control = &mut self.host(host).control;
        control.begin_import(now, request, owner, RegionKey(key), timeout);
        self.serve(host);
        request
    }

    /// As [`import`](Self::import), and cancels it as soon as it was asked for.
    pub fn import_and_cancel(&mut self, host: HostId, owner: HostId, key: u64) -> u64 {
        let (now, request) = (self.now, self.next_request());
        let control = &mut self.host(host).control;
        let timeout = Duration::from_secs(3600);
        let import = control.begin_import(now, request, owner, RegionKey(key), timeout);
        self.serve(host);
        self.host(host).control.cancel_import(import);
        self.serve(host);
        request
    }

    /// `host` leaves: the number of the request.
    pub fn leave(&mut self, host: HostId) -> u64 {
        let (now, request) = (self.now, self.next_request());
        let is_first = !self.host(host).control.is_leaving();
        self.host(host).control.leave(now, request);
        if self.rack.goodbye == Goodbye::DataPath && is_first {
            for peer in self.others(host) {
                self.post(host, peer, Packet::Goodbye);
            }
        }
        self.serve(host);
        request
    }

    /// The process of `host` ends without a word.
    pub fn kill(&mut self, host: HostId) {
        if std::mem::replace(&mut self.host(host).is_alive, false) {
            for peer in self.others(host) {
                self.post(host, peer, Packet::End);
                self.wire(peer, host).is_closed = true;
            }
            // Those that expect nothing more from it.
            self.others(host).into_iter().for_each(|peer| self.serve(peer));
        }
    }

    /// `host` does nothing for a while.
    pub fn stall(&mut self, host: HostId, time: Duration) {
        let until = self.now + time;
        let stalled = &mut self.host(host).stalled;
        *stalled = until.max(*stalled);
    }

    /// The network carries nothing between two hosts any more, and reports no error.
    pub fn cut(&mut self, one: HostId, other: HostId) {
        self.wire(one, other).is_cut = true;
        self.wire(other, one).is_cut = true;
    }

    /// `from` sends `to` what its control plane has not made.
    pub fn inject(&mut self, from: HostId, to: HostId, bytes: Vec<u8>) {
        self.wire(from, to).is_hostile = true;
        self.post(from, to, Packet::Message(bytes));
    }

    // ---- Time.

    /// Lets `time` pass.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.next_time().filter(|next| *next <= end) {
            self.now = next.max(self.now);
            for host in (0..self.rack.hosts).map(HostId) {
                self.serve(host);
            }
        }
        self.now = end;
    }

    /// When something happens next.
    fn next_time(&self) -> Option<Instant> {
        let hosts = self.hosts.iter().filter(|host| host.is_alive);
        let of_hosts = hosts.flat_map(|host| {
            let pass = host.passes.first().map(|(at, ..)| *at);
            let timeout = host.control.next_timeout();
            let room = host.has_room.then_some(self.now);
            [pass, timeout, room].into_iter().flatten().map(|at| at.max(host.stalled))
        });
        let of_wires = self.wires.iter().filter_map(|((_, to), wire)| {
            let host = &self.hosts[to.0 as usize];
            let at = wire.queue.front().map(|(at, _)| *at)?;
            host.is_alive.then_some(at.max(host.stalled))
        });
        of_hosts.chain(of_wires).min()
    }

    // ---- What came of it.

    /// What has happened so far, line by line.
    pub fn trace(&self) -> &[String] {
        &self.trace
    }

    /// How a request of `host` ended, if it has.
    pub fn ended(&self, host: HostId, request: u64) -> Option<&Ended> {
        self.hosts[host.0 as usize].ended.get(&request)
    }

    /// How `host` saw `peer` end, and when, since the beginning.
    pub fn gone(&self, host: HostId, peer: HostId) -> Option<(Duration, &PeerEvent)> {
        let (at, event) = self.hosts[host.0 as usize].gone.get(&peer)?;
        Some((*at - self.start, event))
    }

    /// Whether the process of `host` runs.
    pub fn is_alive(&self, host: HostId) -> bool {
        self.hosts[host.0 as usize].is_alive
    }

    /// Time since the beginning.
    pub fn time(&self) -> Duration {
        self.now - self.start
    }

    /// The control plane of `host`.
    pub fn control(&self, host: HostId) -> &Control<SimMedium> {
        &self.hosts[host.0 as usize].control
    }

    fn host(&mut self, host: HostId) -> &mut Host {
        &mut self.hosts[host.0 as usize]
    }

    fn wire(&mut self, from: HostId, to: HostId) -> &mut Wire {
        self.wires.entry((from, to)).or_default()
    }

    fn others(&self, host: HostId) -> Vec<HostId> {
        (0..self.rack.hosts).map(HostId).filter(|other| *other != host).collect()
    }

    fn next_request(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    fn random_time(&mut self, end: Duration) -> Duration {
        let nanos = u64::try_from(end.as_nanos()).unwrap_or(u64::MAX).max(1);
        Duration::from_nanos(self.random.below(nanos))
    }

    fn post(&mut self, from: HostId, to: HostId, packet: Packet) {
        let delay = self.rack.delay;
        let at = self.now + self.random_time(delay);
        let wire = self.wire(from, to);
        if wire.is_cut || wire.is_closed {
            return;
        }
        let at = wire.queue.back().map_or(at, |(last, _)| at.max(*last));
        wire.queue.push_back((at, packet));
        if wire.queue.len() >= ROOM {
            self.host(from).control.set_writable(to, false);
        }
    }

    fn note(&mut self, host: HostId, what: String) {
        let micros = self.time().as_micros();
        self.trace.push(format!("{micros} {host} {what}"));
    }
}
