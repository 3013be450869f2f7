//! Set-up: from a transport to the nodes of this host's threads.
//!
//! Every ordered pair of hosts shares one region in the trustees' host, with the slots of all pairs
//! of their threads:
//!
//! ```text
//!   | arrival words, a row for each trustee thread | pair (0,0) | pair (0,1) | ... | pair (t,c) |
//!                                                    trustee t, client c: BUFFERS buffers each
//! ```

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use primitive::limits::DIRECT_POLL_CLIENTS;
use progress::Progress;
use thiserror::Error;
use transport_api::park_word::PeerParkWord;
use transport_api::{
    Cell, HostId, LaneError, Namespace, RegionError, RegionKey, ThreadId, Transport,
};

use crate::client::outbox::Outbox;
use crate::node::outboxes::Outboxes;
use crate::node::racks;
use crate::node::state::{Node, Parts};
use crate::node::system::install;
use crate::trustee::inbox::Inbox;
use crate::trustee::inboxes::Inboxes;
use crate::trustee::property::Handoff;
use crate::wire::arrivals::{Arrivals, bytes_for};
use crate::wire::link::Link;
use crate::wire::slot::{ClientSlot, PAIR_BYTES, TrusteeSlot};

/// Why a rack could not be wired up.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WiringError {
    /// A region of slots could not be shared.
    #[error("cannot share request slots with the rack")]
    Region(#[from] RegionError),
    /// A lane or a parker could not be opened.
    #[error("cannot open a lane")]
    Lane(#[from] LaneError),
    /// A host offers slots of another size.
    #[error(
        "{host} offers {offered} bytes of request slots where {expected} are due: it is not the \
         same build, or not the same rack"
    )]
    Layout {
        /// Whose slots they are.
        host: HostId,
        /// Their bytes.
        offered: usize,
        /// What this rack's hosts and threads need.
        expected: usize,
    },
}

/// The slots of one host, shared with all hosts.
pub struct Wiring {
    transport: Arc<dyn Transport>,
    rack: u32,
    /// By host: the slots in which its threads are our clients.
    clients: Vec<Cell>,
    /// By host: the slots in which its threads are our trustees.
    trustees: Vec<Cell>,
    layout: Layout,
    /// By thread of this host.
    handoffs: Arc<[Arc<Handoff>]>,
}

impl std::fmt::Debug for Wiring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wiring").field("rack", &self.rack).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy)]
struct Layout {
    threads: usize,
    has_arrivals: bool,
}

impl Layout {
    fn row_bytes(self) -> usize {
        bytes_for(self.threads)
    }
    /// The arrival word of a pair.
    fn arrival(self, trustee: u32, client: u32) -> usize {
        trustee as usize * self.row_bytes() + client as usize * crate::wire::words::WORD
    }
    /// The memory of a pair.
    fn pair(self, trustee: u32, client: u32) -> usize {
        let pair = trustee as usize * self.threads + client as usize;
        self.threads * self.row_bytes() + pair * PAIR_BYTES
    }
    fn bytes(self) -> usize {
        let pairs = self.threads * self.threads;
        self.threads * self.row_bytes() + pairs * PAIR_BYTES
    }
}

/// The region that a host exports for the clients of `client`.
fn slots_key(client: HostId) -> RegionKey {
    RegionKey::new(Namespace::DELEGATION, 1 << 32 | u64::from(client.0))
}

/// The region that a host exports as its copy of the slots at `trustee`.
fn mirror_key(trustee: HostId) -> RegionKey {
    RegionKey::new(Namespace::DELEGATION, 2 << 32 | u64::from(trustee.0))
}

impl Wiring {
    /// Shares slots with every host of the rack, waiting up to `timeout` for each of them.
    /// `rack` is this rack's number in this process
    /// ([`Registered::number`](crate::Registered::number)).
    ///
    /// # Errors
    /// When a host does not come up or memory is short.
    pub fn connect(
        transport: Arc<dyn Transport>,
        rack: u32,
        timeout: Duration,
    ) -> Result<Wiring, WiringError> {
        let me = transport.local();
        let hosts = transport.hosts();
        let threads = transport.threads() as usize;
        let has_arrivals = hosts as usize * threads > DIRECT_POLL_CLIENTS;
        let layout = Layout { threads, has_arrivals };
        racks::set_host(rack, me.0);
        let all = || (0..hosts).map(HostId);
        let offers = all()
            .map(|client| Cell::offer(&*transport, slots_key(client), layout.bytes()))
            .collect::<Result<Vec<_>, _>>()?;
        let trustees = all()
            .map(|host| Cell::join(&*transport, host, slots_key(me), mirror_key(host), timeout))
            .collect::<Result<Vec<_>, _>>()?;
        let clients = all()
            .zip(&offers)
            .map(|(host, offer)| offer.accept(&*transport, host, mirror_key(me), timeout))
            .collect::<Result<Vec<_>, _>>()?;
        let expected = layout.bytes();
        for (host, cell) in all().zip(&trustees).chain(all().zip(&clients)) {
            for offered in [cell.local().len(), cell.remote().len()] {
                if offered != expected {
                    return Err(WiringError::Layout { host, offered, expected });
                }
            }
        }
        let handoffs = (0..threads).map(|_| Arc::default()).collect();
        Ok(Wiring { transport, rack, clients, trustees, layout, handoffs })
    }

    /// The node of runtime thread `thread` of this host. Call it once for each thread, on the
    /// thread itself.
    ///
    /// # Errors
    /// When a lane cannot be opened.
    pub fn node(&self, thread: u32) -> Result<Rc<Node>, WiringError> {
        let me = ThreadId { host: self.transport.local(), thread };
        let lanes = (0..self.transport.hosts())
            .map(|host| self.transport.lane(thread, HostId(host)))
            .collect::<Result<Vec<_>, LaneError>>()?;
        let all_mapped = (0..self.transport.hosts()).all(|host| self.transport.maps(HostId(host)));
        let everybody = || {
            let threads = self.layout.threads as u32;
            (0..self.transport.hosts()).flat_map(move |host| {
                (0..threads).map(move |thread| ThreadId { host: HostId(host), thread })
            })
        };
        let park_word = |of: ThreadId| lanes[of.host.0 as usize].park_word(of.thread);
        let outboxes = everybody().map(|trustee| {
            (trustee != me).then(|| Box::new(self.outbox(me, trustee, park_word(trustee))))
        });
        let inboxes = everybody()
            .map(|client| (client != me).then(|| self.inbox(me, client, park_word(client))));
        let arrivals = self.layout.has_arrivals.then(|| self.arrivals(thread));
        let (outboxes, inboxes) = (outboxes.collect(), inboxes.collect());
        let node = Node::new(Parts {
            me,
            rack: self.rack,
            threads: self.layout.threads as u32,
            outboxes: Outboxes::new(outboxes),
            inboxes: Inboxes::new(inboxes, arrivals),
            progress: Progress::new(lanes, all_mapped),
            handoffs: self.handoffs.clone(),
        });
        install(&node);
        Ok(node)
    }

    fn outbox(&self, me: ThreadId, trustee: ThreadId, park_word: Option<PeerParkWord>) -> Outbox {
        let cell = &self.trustees[trustee.host.0 as usize];
        let pair = self.layout.pair(trustee.thread, me.thread);
        let arrival = self.layout.arrival(trustee.thread, me.thread);
        let arrival = self.layout.has_arrivals.then_some(arrival);
        let is_stream = self.transport.streams(trustee.host);
        let link = Link::new(trustee, cell.remote().clone(), pair, arrival, is_stream)
            .with_park_word(park_word);
        let memory = cell.local().slice(pair, PAIR_BYTES);
        Outbox::new(ClientSlot::new(memory, link.is_checked()), link)
    }

    fn inbox(&self, me: ThreadId, client: ThreadId, park_word: Option<PeerParkWord>) -> Inbox {
        let cell = &self.clients[client.host.0 as usize];
        let pair = self.layout.pair(me.thread, client.thread);
        let is_stream = self.transport.streams(client.host);
        let link = Link::new(client, cell.remote().clone(), pair, None, is_stream)
            .with_park_word(park_word);
        let memory = cell.local().slice(pair, PAIR_BYTES);
        Inbox::new(TrusteeSlot::new(memory, link.is_checked()), link)
    }

    fn arrivals(&self, thread: u32) -> Arrivals {
        let row = self.layout.arrival(thread, 0);
        Arrivals::new(self.clients.iter().enumerate().map(|(host, cell)| {
            let words = cell.local().slice(row, bytes_for(self.layout.threads));
            (words, host * self.layout.threads)
        }))
    }
}
