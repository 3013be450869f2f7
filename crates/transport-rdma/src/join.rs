//! How the hosts' queue pairs are connected: each host tells every other how its own can be
//! reached, over the carrier's lanes of the service threads, and then that they are ready.

use crate::{
    RdmaConfig, RdmaError,
    host::Host,
    imports::Remote,
    link::Link,
    message::{Message, TAG, Told},
    payloads,
    place::{Place, refused},
    seat::{Seat, completion_queue},
    sleepers::Sleepers,
    verbs::{Endpoint, Pd},
};
use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher,
    io,
    sync::Arc,
    time::{Duration, Instant},
};
use transport_api::{Carrier, Event, HostId, Lane, Parker, ThreadId};

/// How long the service thread sleeps between looks while hosts join.
const LOOK: Duration = Duration::from_millis(20);

/// What a process has become once all its queue pairs are connected.
pub(crate) struct Joined {
    pub(crate) host: Arc<Host>,
    pub(crate) lanes: Vec<Box<dyn Lane>>,
    pub(crate) parker: Box<dyn Parker>,
    /// What hosts that were ready earlier have said meanwhile.
    pub(crate) early: Vec<(HostId, Message)>,
}

/// A number for the first packet of a connection: 24 bits that nobody guesses.
fn first_packet() -> u32 {
    RandomState::new().hash_one(0) as u32 & 0xff_ffff
}

/// Connects the queue pair of `link` with itself.
pub(crate) fn connect_to_itself(
    link: &mut Link,
    place: &Place,
    config: &RdmaConfig,
) -> io::Result<()> {
    let end = place.endpoint(link.qp.number(), first_packet());
    link.qp.connect((end, place.gid), end, place.timing(config, place.answering()))
}

/// Joins the other hosts, whose processes `carrier` has joined already.
pub(crate) fn join(carrier: Arc<dyn Carrier>, config: RdmaConfig) -> Result<Joined, RdmaError> {
    if let Some(objection) = config.objection() {
        return Err(RdmaError::Settings(objection));
    }
    let threads = carrier.threads() - 1;
    if threads == 0 {
        let text = "the carrier needs a thread more than the rack has, which is at least one";
        return Err(RdmaError::Settings(text.into()));
    }
    let place = Place::find(&config)?;
    let name = place.device.name().to_owned();
    let refused = |what| {
        let name = name.clone();
        move |source| refused(&name, what, source)
    };
    let pd = Pd::new(&place.device).map_err(refused("make a protection domain"))?;
    let hosts = carrier.hosts() as usize;
    let mut seats = Vec::new();
    for thread in 0..threads {
        let cq = completion_queue(&pd, &config, hosts, place.abilities.completions)
            .map_err(refused("make a completion queue"))?;
        carrier.watch(thread, &*cq)?;
        seats.push(Seat::new(hosts, cq));
    }
    let host = Host::new(carrier, pd, place, config, seats).map_err(refused("register memory"))?;
    let (lanes, parker) = service_lanes(&host)?;
    let mut joining = Joining::new(host, lanes, parker)?;
    joining.run().map_err(|failure| match failure {
        Failure::Refused(source) => refused("connect a queue pair")(source),
        Failure::Other(error) => error,
    })?;
    let Joining { host, lanes, parker, early, .. } = joining;
    Ok(Joined { host, lanes, parker, early })
}

type ServiceLanes = (Vec<Box<dyn Lane>>, Box<dyn Parker>);

fn service_lanes(host: &Host) -> Result<ServiceLanes, RdmaError> {
    let lane = |peer| host.carrier.lane(host.threads, peer);
    // The one to this host tells when withdrawn regions are quiet.
    let lanes = host.peers().chain([host.local]).map(lane).collect::<Result<_, _>>()?;
    Ok((lanes, host.carrier.parker(host.threads)?))
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

/// How far one peer has come.
struct Progress {
    /// This host's ends of the connections to it, by thread, and what each reads at a time.
    ours: Vec<Endpoint>,
    most: usize,
    has_greeted: bool,
    is_ready: bool,
}

/// What is to be done about something that a peer has said while hosts join.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Connect the queue pairs with these ends of its own, which answer so much at a time; `row` is
    /// where it hears who sleeps, and `payloads` where it has payloads fetched from.
    Connect { answering: u8, row: Told, payloads: Option<Told>, ends: Vec<Endpoint> },
    /// Nothing: it is ready.
    Ready,
    /// It is for the service thread, later.
    Early(Message),
}

impl Progress {
    /// The peer says `message`, or breaks the rules: it greets once, with an end for each thread,
    /// then is ready once, and then may say anything else.
    fn hear(&mut self, message: Message) -> Result<Step, String> {
        match message {
            Message::Hello { answering, row, payloads, ends }
                if !self.has_greeted && ends.len() == self.ours.len() =>
            {
                let threads = ends.len();
                Sleepers::objection(&row, threads).map_or(Ok(()), Err)?;
                let blocks = payloads.as_ref();
                let wrong = blocks.and_then(|told| payloads::objection(told, threads, self.most));
                wrong.map_or(Ok(()), Err)?;
                self.has_greeted = true;
                Ok(Step::Connect { answering, row, payloads, ends })
            }
            Message::Hello { ends, .. } => {
                Err(format!("a second greeting, or one of {} threads", ends.len()))
            }
            Message::Ready if self.has_greeted && !self.is_ready => {
                self.is_ready = true;
                Ok(Step::Ready)
            }
            message if self.is_ready && message != Message::Ready => Ok(Step::Early(message)),
            message => Err(format!("{message:?} while hosts join")),
        }
    }
}

struct Joining {
    host: Arc<Host>,
    lanes: Vec<Box<dyn Lane>>,
    parker: Box<dyn Parker>,
    /// In the order of the lanes.
    progress: Vec<Progress>,
    early: Vec<(HostId, Message)>,
}

impl Joining {
    /// Makes the queue pairs.
    fn new(
        host: Arc<Host>,
        lanes: Vec<Box<dyn Lane>>,
        parker: Box<dyn Parker>,
    ) -> Result<Self, RdmaError> {
        let mut progress = Vec::new();
        let refused = |what, source| refused(host.place.device.name(), what, source);
        let links = host.peers().count() * host.threads as usize;
        // A host that is alone has no links.
        let memory =
            host.memory_for(links.max(1)).map_err(|source| refused("register memory", source))?;
        let mut parts = (0..links).map(|link| memory.1.part(link * memory.0, memory.0));
        for peer in host.peers() {
            let mut ours = Vec::new();
            for thread in 0..host.threads {
                let seat = host.seat(thread);
                let other = ThreadId { host: peer, thread };
                let memory = parts.next().expect("a part for each link");
                let from = (&seat.cq, &memory, host.offered(thread, peer));
                let link = Link::new(from, &host.config, other, host.threads)
                    .map_err(|source| refused("make a queue pair", source))?;
                ours.push(host.place.endpoint(link.qp.number(), first_packet()));
                seat.desk().put(peer, link);
            }
            let most = host.config.most();
            progress.push(Progress { ours, most, has_greeted: false, is_ready: false });
        }
        Ok(Self { host, lanes, parker, progress, early: Vec::new() })
    }

    /// Connects them with those of all peers.
    fn run(&mut self) -> Result<(), Failure> {
        let (start, timeout) = (Instant::now(), self.host.config.join_timeout);
        for index in 0..self.progress.len() {
            let (answering, ends) =
                (self.host.place.answering(), self.progress[index].ours.clone());
            let peer = self.lanes[index].peer();
            let (row, payloads) = (self.host.sleepers.row(peer), self.host.tell_offered(peer));
            self.say(index, &Message::Hello { answering, row, payloads, ends });
        }
        loop {
            for index in 0..self.progress.len() {
                self.hear(index)?;
            }
            let missing = self.lanes.iter().zip(&self.progress).filter(|(_, p)| !p.is_ready);
            let missing: Vec<_> = missing.map(|(lane, _)| lane.peer()).collect();
            if missing.is_empty() {
                return Ok(());
            }
            if start.elapsed() >= timeout {
                return Err(RdmaError::Missing { missing, waited: timeout }.into());
            }
            self.parker.park(LOOK, &mut || false);
        }
    }

    fn say(&mut self, index: usize, message: &Message) {
        let lane = &mut self.lanes[index];
        // If the peer is gone, the lane reports it.
        let _ = lane.bulk(self.host.threads, TAG, message.encode());
        let _ = lane.flush();
    }

    fn hear(&mut self, index: usize) -> Result<(), Failure> {
        let peer = self.lanes[index].peer();
        let (mut said, mut gone) = (Vec::new(), None);
        self.lanes[index].poll(&mut |event| match event {
            Event::Bulk { from, tag, payload } => said.push((from, tag, payload)),
            Event::Peer(event) => gone = Some(event),
            _ => {}
        });
        for (from, tag, bytes) in said {
            let heard = Message::heard(from, self.host.threads, tag, &bytes);
            let step = heard.and_then(|message| self.progress[index].hear(message));
            match step.map_err(|what| RdmaError::Nonsense(peer, what))? {
                Step::Connect { answering, row, payloads, ends } => {
                    self.host.sleepers.say_at(peer, self.host.id, &row);
                    if let Some(told) = &payloads {
                        self.fetch_from(peer, told);
                    }
                    self.connect(index, answering, &ends)?;
                }
                Step::Ready => {}
                Step::Early(message) => self.early.push((peer, message)),
            }
        }
        gone.map_or(Ok(()), |event| Err(RdmaError::Gone(event).into()))
    }

    /// A peer has said where payloads are to be fetched from, a part by each thread.
    fn fetch_from(&self, peer: HostId, told: &Told) {
        let each = told.len / u64::from(self.host.threads);
        for thread in 0..self.host.threads {
            let at = told.address + u64::from(thread) * each;
            let blocks = Remote::for_good(self.host.id, at, told.remote_key);
            self.host
                .with(thread, peer, |link, _| link.fetches_from(Arc::new(blocks), each as usize));
        }
    }

    /// A peer has said where its queue pairs are.
    fn connect(&mut self, index: usize, answering: u8, ends: &[Endpoint]) -> Result<(), Failure> {
        let Self { host, lanes, progress, .. } = self;
        let peer = lanes[index].peer();
        let timing = host.place.timing(&host.config, answering);
        for (thread, (ours, theirs)) in (0..).zip(progress[index].ours.iter().zip(ends)) {
            let from = (*ours, host.place.gid);
            let connected =
                host.with(thread, peer, |link, _| link.qp.connect(from, *theirs, timing));
            connected.unwrap_or(Ok(())).map_err(Failure::Refused)?;
        }
        self.say(index, &Message::Ready);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: Endpoint = Endpoint { gid: [7; 16], lid: 0, mtu: 3, qp: 17, first: 1 };

    fn progress() -> Progress {
        Progress { ours: vec![END; 2], most: 64 << 10, has_greeted: false, is_ready: false }
    }

    /// Where a host of so many threads says which of them sleep.
    fn row(threads: u32) -> Told {
        let (rights, len) = (transport_api::Rights::WRITE, u64::from(threads) * 8);
        Told { rights, generation: 0, len, address: 4096, remote_key: 1 }
    }

    fn hello(threads: u32) -> Message {
        let ends = vec![END; threads as usize];
        Message::Hello { answering: 4, row: row(threads), payloads: blocks(2, 64 << 10), ends }
    }

    /// Where a host of so many threads has payloads fetched from, in blocks of so many bytes.
    fn blocks(threads: usize, each: usize) -> Option<Told> {
        let len = (threads * payloads::BLOCKS * each) as u64;
        let rights = transport_api::Rights::READ;
        Some(Told { rights, generation: 0, len, address: 4096, remote_key: 1 })
    }

    #[test]
    fn a_peer_greets_is_ready_and_then_may_say_more() {
        let mut peer = progress();
        let payloads = blocks(2, 64 << 10);
        let connect = Step::Connect { answering: 4, row: row(2), payloads, ends: vec![END; 2] };
        assert_eq!(peer.hear(hello(2)), Ok(connect));
        assert_eq!(peer.hear(Message::Ready), Ok(Step::Ready));
        let early = Message::Forgotten { number: 1 };
        assert_eq!(peer.hear(early.clone()), Ok(Step::Early(early)));
    }

    #[test]
    fn whoever_does_not_keep_the_order_is_refused_in_words() {
        let greets =
            |row, payloads| Message::Hello { answering: 4, row, payloads, ends: vec![END; 2] };
        let revoke =
            || Message::Revoke { number: 1, key: transport_api::RegionKey(1), generation: 0 };
        let wrong = [
            vec![Message::Ready],
            vec![revoke()],
            vec![hello(1)],
            vec![hello(3)],
            vec![greets(row(1), None)],
            vec![greets(row(2), blocks(2, 128 << 10))],
            vec![greets(row(2), Some(Told { len: 8, ..row(2) }))],
            vec![hello(2), hello(2)],
            vec![hello(2), revoke()],
            vec![hello(2), Message::Ready, Message::Ready],
            vec![hello(2), Message::Ready, hello(2)],
        ];
        for mut said in wrong {
            let (mut peer, last) = (progress(), said.pop().expect("something"));
            said.into_iter().for_each(|message| drop(peer.hear(message).expect("in order")));
            let refused = peer.hear(last.clone()).expect_err("out of order");
            assert!(!refused.is_empty(), "{last:?}");
        }
    }
}
