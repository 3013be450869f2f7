//! The service thread: one per process, off every path that matters. It answers the imports of
//! peers, asks peers for regions on behalf of this host's threads, and notices when a peer leaves
//! or dies.
//!
//! A death is noticed through the peer's pidfd, which becomes readable at once when the process
//! ends, whatever it was doing; a link that closes without a goodbye counts as a death, too.

use crate::{
    export::Described,
    host::Host,
    message::{Message, RegionInfo},
    socket::{self, NoPacket, Sender, timespec},
};
use parking_lot::Mutex;
use primitive::limits::PENDING_IMPORTS;
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    process::{WaitId, WaitIdOptions, WaitIdStatus, waitid},
};
use std::{
    collections::{HashMap, VecDeque},
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};
use transport_api::{HostId, Importer, LossReason, PeerEvent, RegionKey, deadline};

/// How long after a link has closed its process may take to end, so that the report can say how it
/// ended. Part of the 100 ms within which a loss is reported.
const CLOSING: Duration = Duration::from_millis(50);

/// Packets of one link that are read before the other links have their turn.
const PACKETS_A_TURN: usize = 256;

/// What threads of this process ask of the service thread.
pub(crate) enum Order {
    /// Ask `owner` for a region. The importer is dropped unanswered when the owner is gone.
    Import { owner: HostId, key: RegionKey, timeout: Duration, importer: Importer },
    /// Say goodbye to all, then drop `said`.
    Goodbye { _said: mpsc::Sender<()> },
    /// Close all links without a word, and end.
    Stop,
}

/// Where orders are left for the service thread.
pub(crate) struct Desk {
    wakeup: OwnedFd,
    /// `None` once the service thread has ended.
    orders: Mutex<Option<Vec<Order>>>,
}

impl Desk {
    pub(crate) fn new() -> io::Result<Self> {
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { wakeup, orders: Mutex::new(Some(Vec::new())) })
    }

    /// Leaves an order; drops it if nobody will look any more.
    pub(crate) fn leave(&self, order: Order) {
        if let Some(orders) = &mut *self.orders.lock() {
            orders.push(order);
        }
        self.ring();
    }

    /// Gets the service thread to look at everything again: orders, exports, the fate of peers.
    pub(crate) fn ring(&self) {
        // It fails only if it has been rung 2^64 times unanswered.
        let _ = rustix::io::write(&self.wakeup, &1u64.to_ne_bytes());
    }
}

/// The link to one peer, from its making until it is closed.
pub(crate) struct Link {
    pub(crate) host: HostId,
    pub(crate) peer: Sender,
    pub(crate) socket: OwnedFd,
    pub(crate) pidfd: OwnedFd,
    /// Packets that had no room in the socket.
    out: VecDeque<(Message, Option<Arc<OwnedFd>>)>,
    /// Imports that it has not answered yet, by number. They are dropped only after it has been
    /// noted what became of the peer, so that whoever asked can say so.
    asked: HashMap<u64, (RegionKey, Importer)>,
    /// Its imports that wait for an export here. With the answers in `out`, at most
    /// [`PENDING_IMPORTS`].
    waiting: Vec<(u64, RegionKey, Instant)>,
    /// Since when its socket is closed.
    closed: Option<Instant>,
}

impl Link {
    pub(crate) fn new(host: HostId, peer: Sender, socket: OwnedFd, pidfd: OwnedFd) -> Self {
        let (out, asked, waiting) = (VecDeque::new(), HashMap::new(), Vec::new());
        Self { host, peer, socket, pidfd, out, asked, waiting, closed: None }
    }
}

/// What a link has come to.
enum Fate {
    Fine,
    Left,
    Lost(LossReason),
}

pub(crate) struct Service {
    host: Arc<Host>,
    desk: Arc<Desk>,
    links: Vec<Link>,
    /// The number of the next import.
    next: u64,
}

impl Service {
    pub(crate) fn new(host: Arc<Host>, desk: Arc<Desk>, links: Vec<Link>) -> Self {
        Self { host, desk, links, next: 0 }
    }

    /// Serves until it is told to stop.
    pub(crate) fn run(mut self) {
        while self.follow_orders() {
            let links = std::mem::take(&mut self.links);
            self.links = links.into_iter().filter_map(|link| self.keep(link)).collect();
            self.answer_waiting();
            if let Err(error) = self.wait() {
                // Without a way to watch its peers a host must count them as lost.
                let reason = LossReason::Connection(format!("cannot watch it: {error}"));
                self.links.iter().for_each(|link| self.lose(link, reason.clone()));
                break;
            }
        }
        // Whoever waits for an answer sees its channel close.
        *self.desk.orders.lock() = None;
    }

    fn lose(&self, link: &Link, reason: LossReason) {
        self.host.gone(PeerEvent::Lost(link.host, reason));
    }

    /// False if the service is to stop.
    fn follow_orders(&mut self) -> bool {
        let mut rung = [0; 8];
        // Fails if it was not rung, which is as well.
        let _ = rustix::io::read(&self.desk.wakeup, &mut rung);
        let orders = self.desk.orders.lock().as_mut().map(std::mem::take).unwrap_or_default();
        for order in orders {
            match order {
                Order::Stop => return false,
                Order::Goodbye { _said } => {
                    for link in &mut self.links {
                        link.post(Message::Goodbye, None);
                    }
                }
                Order::Import { owner, key, timeout, importer } => {
                    let link = self.links.iter_mut().find(|link| link.host == owner);
                    let Some(link) = link else { continue };
                    let timeout = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                    // Also if the link is closed: who asks is told when it is known what became of
                    // the peer.
                    link.asked.insert(self.next, (key, importer));
                    if link.closed.is_none() {
                        link.post(Message::Import { id: self.next, key, timeout }, None);
                    }
                    self.next += 1;
                }
            }
        }
        true
    }

    /// Answers imports whose region is there now, or whose timeout has passed.
    fn answer_waiting(&mut self) {
        let now = Instant::now();
        for link in &mut self.links {
            for (id, key, deadline) in std::mem::take(&mut link.waiting) {
                match self.host.exports.describe(key, link.host) {
                    Some((described, file)) => {
                        let Described { rights, generation, len, .. } = described;
                        let region = Some(RegionInfo { rights, generation, len: len as u64 });
                        link.post(Message::Export { id, region }, file);
                    }
                    None if deadline <= now => {
                        link.post(Message::Export { id, region: None }, None)
                    }
                    None => link.waiting.push((id, key, deadline)),
                }
            }
        }
    }

    /// Reads and writes what there is; the link, if it lives on.
    fn keep(&mut self, mut link: Link) -> Option<Link> {
        // Checked before the socket is read: what a dead process said last is then all there.
        let ended = self.has_ended(&link);
        match link.exchange(&self.host, ended) {
            Fate::Left => {
                self.host.gone(PeerEvent::Left(link.host));
                link.asked.clear();
            }
            Fate::Lost(reason) => {
                self.lose(&link, reason);
                return None;
            }
            Fate::Fine => {}
        }
        if ended {
            let (pid, how) = (link.peer.pid, how_it_ended(&link.pidfd));
            self.lose(&link, LossReason::ProcessEnded { pid, how });
            return None;
        }
        if link.closed.is_some_and(|since| since.elapsed() >= CLOSING) {
            let text = "it closed its link without a goodbye";
            self.lose(&link, LossReason::Connection(text.into()));
            return None;
        }
        // Lanes may have found it broken: the link goes, and the peer hears of it by that.
        let gone = self.host.end_of(link.host);
        (!matches!(gone, Some(PeerEvent::Lost(..)))).then_some(link)
    }

    fn has_ended(&self, link: &Link) -> bool {
        let ended = socket::readable([Some(link.pidfd.as_fd())], Instant::now());
        ended.is_ok_and(|[ended]| ended)
    }

    /// Sleeps until something happens or some timeout passes.
    fn wait(&self) -> io::Result<()> {
        let mut polled = vec![PollFd::new(&self.desk.wakeup, PollFlags::IN)];
        let mut deadline = None;
        for link in &self.links {
            polled.push(PollFd::new(&link.pidfd, PollFlags::IN));
            if link.closed.is_none() {
                let out = if link.out.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
                polled.push(PollFd::new(&link.socket, PollFlags::IN | out));
            }
            let closing = link.closed.map(|since| since + CLOSING);
            let waiting = link.waiting.iter().map(|(_, _, deadline)| *deadline);
            deadline = waiting.chain(closing).chain(deadline).min();
        }
        let left = deadline.map(|at| timespec(at.saturating_duration_since(Instant::now())));
        match poll(&mut polled, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Link {
    fn post(&mut self, message: Message, file: Option<Arc<OwnedFd>>) {
        self.out.push_back((message, file));
        self.send();
    }

    /// Sends what has room. A closed socket is noticed by reading.
    fn send(&mut self) {
        while let Some((message, file)) = self.out.front() {
            match socket::send(
                &self.socket,
                message,
                file.as_ref().map(|file| file.as_fd()).as_slice(),
            ) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                _ => self.out.pop_front(),
            };
        }
    }

    /// Whether the peer has imported as much as it may without an answer that it has read.
    fn is_full(&self) -> bool {
        let is_answer = |message: &Message| matches!(message, Message::Export { .. });
        // Counted only when the peer may be near the limit.
        self.waiting.len() + self.out.len() >= PENDING_IMPORTS
            && self.waiting.len() + self.out.iter().filter(|(m, _)| is_answer(m)).count()
                >= PENDING_IMPORTS
    }

    /// Sends as much as possible, and receives as much as one turn allows, from a process that has
    /// `ended` everything. What is left keeps the socket readable.
    fn exchange(&mut self, host: &Host, ended: bool) -> Fate {
        if self.closed.is_some() {
            return Fate::Fine;
        }
        self.send();
        // A process that has ended sends no more, so this ends, too.
        for _ in 0..if ended { usize::MAX } else { PACKETS_A_TURN } {
            let mut received = match socket::receive(&self.socket) {
                Ok(received) => received,
                Err(NoPacket::NotYet) => return Fate::Fine,
                Err(NoPacket::Closed) => {
                    self.closed = Some(Instant::now());
                    return Fate::Fine;
                }
                Err(NoPacket::Nonsense(what)) => return Fate::Lost(LossReason::Protocol(what)),
                Err(NoPacket::System(error)) => {
                    return Fate::Lost(LossReason::Connection(format!("cannot hear it: {error}")));
                }
            };
            if received.from != self.peer {
                let text = format!("{:?} sent as {:?}", received.message, received.from);
                return Fate::Lost(LossReason::Protocol(text));
            }
            match (received.message, received.files.pop()) {
                (Message::Goodbye, _) => return Fate::Left,
                (Message::Import { .. }, _) if self.is_full() => {
                    let text = format!("more than {PENDING_IMPORTS} unanswered imports");
                    return Fate::Lost(LossReason::Protocol(text));
                }
                (Message::Import { id, key, timeout }, _) => {
                    let timeout = Duration::from_millis(timeout);
                    self.waiting.push((id, key, deadline(Instant::now(), timeout)));
                }
                (Message::Export { id, region }, file) => {
                    // A blocked importer may have timed out.
                    if let Some((key, importer)) = self.asked.remove(&id) {
                        host.imported(self.host, key, region, file, importer);
                    }
                }
                (other, _) => {
                    return Fate::Lost(LossReason::Protocol(format!("{other:?} on a link")));
                }
            }
        }
        Fate::Fine
    }
}

/// How a process ended, in words, where only its parent can know.
pub(crate) const STATUS_UNKNOWN: &str = "status unknown";

/// The status with which the process of `pidfd` ended, or `None` while it runs. Fails if it is not
/// a child of this process.
fn child_status(pidfd: &OwnedFd) -> io::Result<Option<WaitIdStatus>> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::PidFd(pidfd.as_fd()), options)?)
}

/// The status with which the process of `pidfd` ended, if it is a child of this one and has ended.
fn status_of(pidfd: &OwnedFd) -> Option<WaitIdStatus> {
    child_status(pidfd).ok().flatten()
}

/// Whether the process of `pidfd` is a child of this one that has not ended.
pub(crate) fn is_running_child(pidfd: &OwnedFd) -> bool {
    matches!(child_status(pidfd), Ok(None))
}

/// Whether the process of `pidfd` is known to have been ended by a signal.
pub(crate) fn was_killed(pidfd: &OwnedFd) -> bool {
    status_of(pidfd).is_some_and(|status| status.terminating_signal().is_some())
}

/// How the process of `pidfd` ended, in words, as far as this process may know.
pub(crate) fn how_it_ended(pidfd: &OwnedFd) -> String {
    let Some(status) = status_of(pidfd) else { return STATUS_UNKNOWN.into() };
    if let Some(code) = status.exit_status() {
        return format!("exit status {code}");
    }
    let Some(number) = status.terminating_signal() else { return "no status".into() };
    let names = [
        (1, "SIGHUP"),
        (2, "SIGINT"),
        (3, "SIGQUIT"),
        (4, "SIGILL"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (11, "SIGSEGV"),
        (13, "SIGPIPE"),
        (15, "SIGTERM"),
    ];
    let name = names.iter().find(|(n, _)| *n == number).map_or("", |(_, name)| name);
    format!("signal {number} {name}").trim_end().into()
}
