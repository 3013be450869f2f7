//! The service thread: one per process. It looks after the connections that nobody else looks after
//! at the moment, answers the imports of peers, asks peers for regions on behalf of this host's
//! threads, and notices when a peer leaves or is lost.
//!
//! While some thread is awake, it looks every [tick](transport_api::PollTracker::TICK) whether that thread still polls; when none
//! is, it wakes for the signs of life alone.

use crate::{
    conn,
    control::{BEATS, Control},
    host::Host,
    wire::Broken,
};
use primitive::sync::Ordering;
use rustix::{
    buffer::spare_capacity,
    event::{
        EventfdFlags, Timespec,
        epoll::{self, EventData, EventFlags},
    },
};
use std::{
    io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    time::{Duration, Instant},
};
use transport_api::{HostId, Importer, LossReason, PeerEvent, ProgressThread, RegionKey};

/// Events that one wait returns, at most.
const READY: usize = 256;

/// Reads of a data connection whose peer has ended, at most: more than a socket holds.
const LAST_READS: u32 = 128;

/// What the epoll calls the desk and the control connections; data connections have their token.
const DESK: u64 = u64::MAX;
const CONTROL: u64 = 1 << 63;

/// An eventfd: something to ring.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    Ok(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

/// Rings an eventfd, until it is silenced.
pub(crate) fn ring(eventfd: &OwnedFd) {
    // It fails only if it has been rung 2^64 times unanswered.
    let _ = rustix::io::write(eventfd, &1u64.to_ne_bytes());
}

/// Takes what has rung.
pub(crate) fn silence(eventfd: &OwnedFd) {
    // Fails if it was not rung, which is as well.
    let _ = rustix::io::read(eventfd, &mut [0; 8]);
}

/// A time to wait, for the system.
pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec::try_from(time).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 })
}

/// What threads of this process ask of the service thread.
pub(crate) enum Order {
    /// Ask `owner` for a region. The importer is dropped unanswered when the owner is gone.
    Import { owner: HostId, key: RegionKey, timeout: Duration, importer: Importer },
    /// Drop `_said` when all peers have heard this host's goodbye, or are gone.
    Goodbye { _said: mpsc::Sender<()> },
    /// A data connection has come to an unexpected end.
    Ended { peer: HostId, broken: Broken },
    /// Close all connections without a word, and end.
    Stop,
}

/// Where orders are left for the service thread.
pub(crate) struct Desk {
    /// Where the service thread waits.
    pub(crate) epoll: OwnedFd,
    wakeup: OwnedFd,
    /// `None` once the service thread has ended.
    orders: Mutex<Option<Vec<Order>>>,
}

impl Desk {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wakeup = eventfd()?;
        epoll::add(&epoll, &wakeup, EventData::new_u64(DESK), EventFlags::IN)?;
        Ok(Self { epoll, wakeup, orders: Mutex::new(Some(Vec::new())) })
    }

    fn orders(&self) -> MutexGuard<'_, Option<Vec<Order>>> {
        // A list of orders is whole whoever panicked.
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves an order; drops it if nobody will look any more.
    pub(crate) fn leave(&self, order: Order) {
        if let Some(orders) = &mut *self.orders() {
            orders.push(order);
        }
        self.ring();
    }

    /// Gets the service thread to look at everything again.
    pub(crate) fn ring(&self) {
        ring(&self.wakeup);
    }
}

pub(crate) struct Service {
    host: Arc<Host>,
    controls: Vec<Control>,
    /// The loss bound, and what of it lies between two signs of life.
    bound: Duration,
    beat: Duration,
    next_beat: Instant,
    progress_thread: ProgressThread,
    /// Who waits for this host's goodbye to be heard.
    leaving: Vec<mpsc::Sender<()>>,
    /// The number of the next import.
    number: u64,
}

impl Service {
    pub(crate) fn new(host: Arc<Host>, controls: Vec<Control>, bound: Duration) -> Self {
        let now = Instant::now();
        let progress_thread = ProgressThread::new(host.threads, now);
        Self {
            host,
            controls,
            bound,
            beat: bound / BEATS,
            next_beat: now,
            progress_thread,
            leaving: Vec::new(),
            number: 0,
        }
    }

    /// Begins to watch the connections.
    pub(crate) fn register(&self) -> io::Result<()> {
        let Host { seats, desk, .. } = &*self.host;
        for (peer, thread) in self.host.links() {
            let conn = self.host.link(peer, thread);
            conn.register(&seats[thread as usize].epoll, &desk.epoll, peer, thread)?;
        }
        for (index, control) in (0..).zip(&self.controls) {
            control.register(&desk.epoll, CONTROL | index)?;
        }
        Ok(())
    }

    /// Serves until it is told to stop.
    pub(crate) fn run(mut self) {
        // What the handshakes have read already, no epoll tells of.
        for (peer, thread) in self.host.clone().links() {
            self.host.pump(peer, thread);
        }
        for index in 0..self.controls.len() {
            self.listen(index);
        }
        let mut events = Vec::with_capacity(READY);
        while self.follow_orders() {
            self.tick();
            self.beat(Instant::now());
            self.settle();
            let timeout = timespec(self.next().saturating_duration_since(Instant::now()));
            let epoll = &self.host.desk.epoll;
            match epoll::wait(epoll, spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    // Without a way to watch its peers a host must count them as lost.
                    self.end(&format!("this host cannot watch it: {error}"));
                    return;
                }
            }
            for event in events.drain(..) {
                match event.data.u64() {
                    DESK => silence(&self.host.desk.wakeup),
                    token if token & CONTROL != 0 => self.listen((token & !CONTROL) as usize),
                    token => self.serve(token, event.flags),
                }
            }
        }
        self.end("this host has closed its connections");
    }

    /// Closes everything.
    fn end(&mut self, why: &str) {
        for control in &mut self.controls {
            self.host.lose(control.peer, Broken::Failed(why.into()));
            control.close();
        }
        for (peer, thread) in self.host.links() {
            self.host.link(peer, thread).close();
        }
        // Whoever waits for an answer sees its channel close.
        *self.host.desk.orders() = None;
    }

    /// False if the service is to stop.
    fn follow_orders(&mut self) -> bool {
        let orders = self.host.desk.orders().as_mut().map(std::mem::take).unwrap_or_default();
        for order in orders {
            match order {
                Order::Stop => return false,
                Order::Goodbye { _said } => self.leaving.push(_said),
                Order::Ended { peer, broken } => {
                    let index = self.controls.iter().position(|control| control.peer == peer);
                    index.into_iter().for_each(|index| self.listen(index));
                    self.host.lose(peer, broken);
                }
                Order::Import { owner, key, timeout, importer } => {
                    let control = self.controls.iter_mut().find(|control| control.peer == owner);
                    if let Some(control) = control {
                        control.ask(self.number, key, timeout, importer);
                        self.number += 1;
                    }
                }
            }
        }
        true
    }

    /// Something happened on a data connection.
    fn serve(&mut self, token: u64, flags: EventFlags) {
        let (peer, thread) = (HostId((token >> 32) as u32), token as u32);
        let ended = flags.intersects(EventFlags::HUP | EventFlags::ERR);
        if ended || self.host.seat(thread).adopted.load(Ordering::Acquire) {
            self.host.pump(peer, thread);
            return;
        }
        // Its thread is back.
        let mut conn = self.host.link(peer, thread);
        debug_assert_eq!(conn::token(peer, thread), token);
        conn.arm(false);
        self.host.push_or_lose(conn, peer, thread);
    }

    /// Something happened on a control connection.
    fn listen(&mut self, index: usize) {
        let control = &mut self.controls[index];
        let received = control.receive(Instant::now());
        for answered in control.take_answered() {
            self.host.imported(control.peer, answered);
        }
        let Err(broken) = received else { return };
        let peer = control.peer;
        // What it has said before it ended may still wait in this host, which holds only so much.
        for thread in 0..self.host.threads {
            let _ = (0..LAST_READS).find(|_| !self.host.pump(peer, thread));
        }
        if self.host.end_of(peer).is_none() {
            self.host.lose(peer, broken);
        }
        self.controls[index].close();
    }

    /// Adopts the connections of threads that neither poll nor sleep.
    fn tick(&mut self) {
        let host = &self.host;
        let is_away = |thread| host.seat(thread).is_away();
        self.progress_thread.look(&host.poll_tracker, Instant::now(), is_away, |thread| {
            adopt(host, thread);
            false
        });
    }

    /// Gives signs of life, and judges those of the peers.
    fn beat(&mut self, now: Instant) {
        if now < self.next_beat {
            return;
        }
        // Whoever was held up itself cannot tell how long others were silent meanwhile. What they
        // were silent before counts: it may be held up again and again.
        let late = Some(now - self.next_beat).filter(|late| *late > self.beat).unwrap_or_default();
        self.next_beat = now + self.beat;
        for index in 0..self.controls.len() {
            let control = &mut self.controls[index];
            control.ping();
            control.heard = control.heard.max(now.min(control.heard + late));
            let longest = self.bound.saturating_add(self.beat);
            let silent = |control: &Control| now.saturating_duration_since(control.heard) > longest;
            if silent(control) {
                // What it said may not have been read yet.
                self.listen(index);
            }
            let control = &mut self.controls[index];
            if control.is_open() && silent(control) && self.host.end_of(control.peer).is_none() {
                let text = format!("it was silent for more than {:?}", self.bound);
                self.host.lose(control.peer, Broken::Failed(text));
            }
        }
    }

    /// Answers what can be answered, sends what can be sent, and closes what has ended.
    fn settle(&mut self) {
        let now = Instant::now();
        for index in 0..self.controls.len() {
            let control = &mut self.controls[index];
            let peer = control.peer;
            control.answer_waiting(&self.host.exports, now);
            match self.host.end_of(peer) {
                Some(PeerEvent::Left(_)) if !control.told_heard => control.say_heard(),
                Some(PeerEvent::Lost(_, reason)) if control.is_open() => {
                    control.give_up(&told(&self.host, reason));
                    // What cannot be said at once is not said.
                    let _ = control.push();
                    control.close();
                    for thread in 0..self.host.threads {
                        self.host.link(peer, thread).close();
                    }
                }
                _ => {}
            }
            let pushed = control
                .push()
                .and_then(|()| Ok(control.watch(&self.host.desk.epoll, CONTROL | index as u64)?));
            if let Err(broken) = pushed {
                control.close();
                self.host.lose(peer, broken);
            }
        }
        let gone = |peer| self.host.end_of(peer).is_some();
        if self.controls.iter().all(|control| control.has_heard || gone(control.peer)) {
            self.leaving.clear();
        }
    }

    /// When to look again although nothing has happened.
    fn next(&self) -> Instant {
        let tick = self.progress_thread.next(&self.host.poll_tracker);
        let deadlines = self.controls.iter().filter_map(Control::next_deadline);
        deadlines.chain(tick).fold(self.next_beat, Instant::min)
    }
}

/// Has the service thread hear of what arrives for `thread`.
fn adopt(host: &Host, thread: u32) {
    host.seat(thread).adopted.store(true, Ordering::Release);
    for (peer, _) in host.links().filter(|(_, t)| *t == thread) {
        let mut conn = host.link(peer, thread);
        conn.arm(true);
        host.push_or_lose(conn, peer, thread);
    }
}

/// What a peer is told when it is given up.
fn told(host: &Host, reason: &LossReason) -> String {
    format!("{} has given this host up: {reason}", host.local)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{host::Peer, wire::Wire};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_silent_peer_is_lost_also_by_a_host_that_is_always_held_up() {
        const BOUND: Duration = Duration::from_secs(800);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("an address");
        let socket = TcpStream::connect(address).expect("a connection");
        socket.set_nonblocking(true).expect("a socket");
        let desk = Desk::new().expect("a desk");
        let peers = vec![Peer::new(Vec::new()), Peer::new(Vec::new())];
        let host = Host::new(HostId(0), peers, Vec::new(), desk);
        let begin = Instant::now();
        let control = Control::new(HostId(1), Wire::new(socket, None), begin);
        let mut service = Service::new(host.clone(), vec![control], BOUND);
        // Each time two beats late, which are nobody's silence: three pass, and one counts.
        let (late, beats) = (3 * service.beat, BEATS + 1);
        for beat in 0..beats {
            service.beat(begin + beat * late);
            assert_eq!(host.end_of(HostId(1)), None, "after {beat} beats");
        }
        service.beat(begin + beats * late);
        service.beat(begin + (beats + 1) * late);
        assert!(matches!(host.end_of(HostId(1)), Some(PeerEvent::Lost(..))));
    }
}
