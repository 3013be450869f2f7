//! [`Trust`]: a counted reference to a property (thesis 2.3.1).

use std::fmt;
use std::hint::cold_path;
use std::marker::PhantomData;

use parking_lot::Mutex;
use primitive::sync::{AtomicU64, Ordering};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use transport_api::ThreadId;

use crate::api::trustee::Trustee;
use crate::client::outbox::Outbox;
use crate::closure::registry::{Tag, registry};
use crate::codec::trusts::{self, Record};
use crate::node::{Node, NodeId, current, on_node, racks, with_node};
use crate::trustee::count::{COUNTED, RENAME_AFTER, mint};

/// A counted reference to a property: a value of type `T` that one thread of the rack, its
/// *trustee*, owns. Other threads work on it by sending closures to that thread.
///
/// It takes the place of an `Arc<Mutex<T>>`: clone it, send it to other fibers, threads and
/// processes, [`apply`](Self::apply) closures to the value. The property is dropped, by its
/// trustee, when its last trust is.
///
/// Cloning sends nothing, wherever it happens; dropping sends one small request (`count.rs` says
/// how they are counted). So a loop, or a function that it calls, borrows the trust, `&trust`, instead
/// of cloning it each time; every fiber gets a clone of its own.
///
/// A trust travels inside arguments, results and spawned closures, and only there: any serializer
/// or deserializer but the rack's own gets an error.
#[doc(alias = "Mutex", alias = "RwLock", alias = "AtomicU64")]
pub struct Trust<T: 'static> {
    /// The trustee's.
    pub(crate) home: NodeId,
    pub(crate) property: u32,
    pub(crate) tag: Tag,
    /// Cache: the property's [name](Outbox::name_of) at the outbox that last sent through this trust without
    /// waiting, or [`NO_NAME`]. The upper half is that outbox's token.
    cached_name: AtomicU64,
    ledger: Mutex<Ledger>,
    _property: PhantomData<fn(T) -> T>,
}

/// The identity of a property ([`Trust::id`]): a key for maps, and an order in which to take several
/// latches. It means the same on all hosts of a rack.
///
/// It keeps nothing alive: when the property is gone, another one may get its id. Properties of two
/// racks in one process may have the same id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PropertyId {
    thread: u32,
    property: u32,
}

/// As messages name it, on a thread of a rack: "property 1 of thread 0 of host 0".
impl fmt::Debug for PropertyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match on_node(|node| node.thread_numbered(self.thread)).flatten() {
            Some(thread) => write!(f, "PropertyId(property {} of {thread})", self.property),
            None => {
                write!(f, "PropertyId(property {} of thread number {})", self.property, self.thread)
            }
        }
    }
}

// A trust is plain data, but moving one by its bytes would move the heap pointer of its ledger.
#[cfg(feature = "nightly")]
impl<T> !crate::NoRef for Trust<T> {}

/// No thread has sent such a request. No property has this name: its number would be too large.
const NO_NAME: u64 = u64::MAX;

/// What the drop of a trust must send.
struct Ledger {
    id: u64,
    /// The ids of the trusts that were cloned from this one.
    children: Vec<u64>,
    /// Threads that have sent requests through this trust without waiting for the replies, and may
    /// still have some queued.
    users: Vec<u32>,
}

impl<T: 'static> Trust<T> {
    /// Takes `value` into trust at `node`.
    pub(crate) fn entrust_at(node: &Node, value: T) -> Self {
        let (property, tag) = node.insert(value);
        Self::with_id(node.id, property, tag, COUNTED)
    }

    /// Takes `value` into trust at another thread of `node`'s host, without waiting for it.
    pub(crate) fn entrust_beside(node: &Node, thread: ThreadId, value: T) -> Self
    where
        T: Send,
    {
        let (property, tag) = node.hand_off(thread.thread, value);
        Self::with_id(NodeId::new(node.id.rack(), node.number_of(thread)), property, tag, COUNTED)
    }

    pub(super) fn with_id(home: NodeId, property: u32, tag: Tag, id: u64) -> Self {
        Trust {
            home,
            property,
            tag,
            cached_name: AtomicU64::new(NO_NAME),
            ledger: Mutex::new(Ledger { id, children: Vec::new(), users: Vec::new() }),
            _property: PhantomData,
        }
    }

    /// The thread that owns the property.
    #[must_use]
    pub fn trustee(&self) -> Trustee {
        Trustee::with_id(self.home)
    }

    /// The identity of the property: the same for all its trusts, on all hosts.
    ///
    /// Fibers that hold several latches at once do not deadlock if all of them take the latches in
    /// the order of their ids:
    ///
    /// ```ignore
    /// let (first, second) = if a.id() < b.id() { (a, b) } else { (b, a) };
    /// ```
    #[must_use]
    pub fn id(&self) -> PropertyId {
        PropertyId { thread: self.home.number(), property: self.property }
    }

    /// Whether both are trusts of the same property, of the same rack.
    #[must_use]
    pub fn is_same(&self, other: &Trust<T>) -> bool {
        self.home == other.home && self.property == other.property
    }

    /// How many requests of this thread to the trustee are outstanding: those of all properties of
    /// that thread, and the runtime's own. They are counted by the batch, which costs a request
    /// nothing: one counts until all replies of its batch have been taken. A launched closure that
    /// waits counts no longer. Zero on the trustee itself and outside the rack.
    ///
    /// For programs that keep a window of requests under way:
    ///
    /// ```
    /// # use gossamer_trust_core::Trust;
    /// fn send(sum: &Trust<u64>, numbers: &[u64], window: usize) {
    ///     for part in numbers.chunks(16) {
    ///         while sum.outstanding() >= window {
    ///             fiber::yield_now();
    ///         }
    ///         part.iter().for_each(|n| sum.apply_with_then(|sum, n| *sum += n, *n, |()| {}));
    ///     }
    /// }
    /// ```
    #[must_use]
    #[inline]
    pub fn outstanding(&self) -> usize {
        let node = current(self).filter(|node| node.id.rack() == self.home.rack());
        node.map_or(0, |node| node.outstanding_at(self.home.number()))
    }

    /// Whether `node`, which is not the trustee's, may queue a request here without waiting for the
    /// reply. If so, that has been noted: the drop of this trust must not overtake the request, on
    /// whatever thread that happens.
    #[inline(always)]
    pub(crate) fn is_used_by(&self, node: &Node) -> bool {
        self.outbox_of(node).is_some()
    }

    /// Where `node` queues such a request, if it [may](Self::is_used_by).
    ///
    /// One comparison answers most calls: a thread is only ever noted here if it may, and goes on
    /// sending to the trustee that it has sent to last.
    #[inline(always)]
    pub(crate) fn outbox_of<'a>(&self, node: &'a Node) -> Option<&'a Outbox> {
        match node.recent_with_token(self.cached_name() >> 32) {
            Some(outbox) => Some(outbox),
            None => {
                cold_path();
                self.find_outbox_of(node)
            }
        }
    }

    #[inline(never)]
    fn find_outbox_of<'a>(&self, node: &'a Node) -> Option<&'a Outbox> {
        let outbox = node.outbox_at(self.home)?;
        if self.cached_name() >> 32 != outbox.token() {
            self.note_user(node.number(), outbox);
        }
        Some(outbox)
    }

    #[cold]
    fn note_user(&self, user: u32, outbox: &Outbox) {
        let mut ledger = self.ledger.lock();
        if !ledger.users.contains(&user) {
            ledger.users.push(user);
        }
        self.cached_name.store(outbox.name_of(self.property), Ordering::Relaxed);
    }

    /// The property's name at the outbox that last sent through this trust without waiting, or [`NO_NAME`].
    #[inline(always)]
    pub(crate) fn cached_name(&self) -> u64 {
        self.cached_name.load(Ordering::Relaxed)
    }

    /// Another trust of the property, made on its own thread, which has no id of its own.
    #[inline(always)]
    fn clone_at_home(&self) -> Option<Self> {
        let node = current(self).filter(|node| self.is_at(node))?;
        let is_there = node.properties().count(self.property);
        is_there.then(|| Self::with_id(self.home, self.property, self.tag, COUNTED))
    }

    /// A new id, whose trust counts as cloned from this one.
    fn mint_child(&self) -> u64 {
        let rack = self.home.rack();
        let host = with_node(|node| match node {
            Some(node) if node.id.rack() == rack => node.me.host.0,
            _ => racks::host_of(rack),
        });
        let child = mint(host);
        let mut ledger = self.ledger.lock();
        ledger.children.push(child);
        if ledger.children.len() >= RENAME_AFTER {
            let new = mint(host);
            let old = std::mem::replace(&mut ledger.id, new);
            let mut ids = std::mem::take(&mut ledger.children);
            ids.extend([old, new]);
            drop(ledger);
            // The users stay with the trust: under its new id it keeps the property alive for what
            // they have queued.
            self.release(ids, Vec::new());
        }
        child
    }

    #[inline(never)]
    fn drop_with_ids(&mut self) {
        let ledger = self.ledger.get_mut();
        let mut ids = std::mem::take(&mut ledger.children);
        ids.push(ledger.id);
        let users = std::mem::take(&mut ledger.users);
        self.release(ids, users);
    }

    fn release(&self, ids: Vec<u64>, users: Vec<u32>) {
        let (home, property) = (self.home.number(), self.property);
        let rack = self.home.rack();
        with_node(|node| match node {
            Some(node) if node.id.rack() == rack => node.release(home, property, ids, users),
            _ => racks::post(rack, move |node| node.release(home, property, ids, users)),
        });
    }
}

impl<T: 'static> Clone for Trust<T> {
    fn clone(&self) -> Self {
        if let Some(clone) = self.clone_at_home() {
            return clone;
        }
        Self::with_id(self.home, self.property, self.tag, self.mint_child())
    }
}

impl<T: 'static> Drop for Trust<T> {
    fn drop(&mut self) {
        let ledger = self.ledger.get_mut();
        let is_bare = ledger.id == COUNTED && ledger.children.is_empty() && ledger.users.is_empty();
        if is_bare && let Some(node) = current(self).filter(|node| self.is_at(node)) {
            return node.release_counted(self.property);
        }
        self.drop_with_ids();
    }
}

impl<T: 'static> fmt::Debug for Trust<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust")
            .field("type", &std::any::type_name::<T>())
            .field("trustee", &self.trustee())
            .field("property", &self.property)
            .finish_non_exhaustive()
    }
}

/// Only the rack's own codec can make a trust travel (`codec/trusts.rs`): any other serializer gets
/// an error, and no trust comes of it.
impl<T: 'static> Serialize for Trust<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let id = self.mint_child();
        let child = Self::with_id(self.home, self.property, self.tag, id);
        let record = Record { home: self.home.number(), property: self.property, id };
        trusts::serialize(record, child, serializer)
    }
}

/// Only the rack's own codec can make a trust arrive: any other deserializer gets an error.
impl<'de, T: 'static> Deserialize<'de> for Trust<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Record { home, property, id } = trusts::deserialize(deserializer)?;
        let tag = registry().tag_of::<T>();
        with_node(|node| match node {
            Some(node) if node.thread_numbered(home).is_some() => {
                Ok(Self::with_id(NodeId::new(node.id.rack(), home), property, tag, id))
            }
            Some(_) => {
                Err(de::Error::custom(format!("a trust of thread {home}, not in this rack")))
            }
            None => Err(de::Error::custom("a trust can only be received on a thread of its rack")),
        })
    }
}
