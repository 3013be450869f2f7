//! [`Probe`]: a lookup in the registry of another host, as a state machine without lanes.
//!
//! It says which bytes of the registry to READ, takes them, and ends with a [`Lookup`]. In most
//! lookups the first READ answers. When other names are in the way, a lookup has the three strategies
//! of Thekkath, Levy and Lazowska 1994, section 4.2: to continue with further READs, to ask the owner,
//! or the one and then the other.

use std::ops::Range;

use primitive::sync::{Ordering, fence};

use crate::name::Name;
use crate::table::entry::{ENTRY_BYTES, Entry, Malformed, Slot, SlotError};
use crate::table::home::{SLOTS, home_slot};

/// READs of one slot that come back torn before a lookup ends with [`Lookup::Torn`]. The owner writes
/// an entry in some ten nanoseconds, so this many in a row mean that it was interrupted meanwhile or
/// has ended.
pub const TORN_READS: u32 = if cfg!(loom) { 2 } else { 64 };

/// How a lookup handles a hash collision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Strategy {
    /// Reads slots until it finds the name or an empty slot.
    #[default]
    Probe,
    /// Asks the owner at once: thread 0 of its host answers. That thread must be attached
    /// ([`Segments::attach(0)`](crate::Segments::attach)) and poll, as thread 0 of a rack of fibers
    /// does; otherwise the lookup fails with
    /// [`SegmentError::Unanswered`](crate::SegmentError::Unanswered).
    Ask,
    /// Reads up to this number of slots, then asks the owner as [`Ask`](Self::Ask) does.
    ProbeThenAsk(u32),
}

/// The next step of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// These bytes of the registry: read them and call [`Probe::take`].
    Read(Range<usize>),
    /// The lookup has ended.
    Done(Lookup),
}

/// How a lookup ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// The name has this entry.
    Found(Entry),
    /// The owner has not published the name.
    NotFound,
    /// Not found by the READs that the strategy allows: the owner must be asked.
    Ask,
    /// A slot was torn at every of many READs: ask the owner, or look up again later.
    Torn {
        /// Which slot.
        slot: usize,
    },
    /// The owner wrote an entry that no host of this build writes.
    Malformed {
        /// Which slot.
        slot: usize,
        /// What is wrong with it.
        reason: Malformed,
    },
}

/// A lookup of one name in the registry of one host.
///
/// Call [`next`](Self::next), read what it says, hand it to [`take`](Self::take), and repeat. However
/// the owner changes its table meanwhile, and whatever a malicious one writes there, a lookup reads
/// each slot at most `TORN_READS` times.
///
/// ```
/// use gossamer_segment::testing::{ENTRY_BYTES, Lookup, Next, Probe, REGISTRY_BYTES, Table};
/// use gossamer_segment::{Name, Strategy};
/// use primitive::SharedBytes;
///
/// let table = Table::new(SharedBytes::heap(REGISTRY_BYTES));
/// let mut probe = Probe::new(Name::new("orders")?, Strategy::Probe);
/// let lookup = loop {
///     match probe.next() {
///         Next::Read(bytes) => {
///             let mut slot = [0; ENTRY_BYTES];
///             table.memory().read_words(bytes.start, &mut slot);
///             probe.take(&slot);
///         }
///         Next::Done(lookup) => break lookup,
///     }
/// };
/// assert_eq!(lookup, Lookup::NotFound);
/// # Ok::<(), gossamer_segment::InvalidName>(())
/// ```
#[derive(Debug, Clone)]
pub struct Probe {
    name: Name,
    slots: usize,
    /// Slots that may be read before the owner must be asked; as many as there are if never.
    budget: usize,
    home: usize,
    /// Slots that did not have the name.
    passed: usize,
    /// READs of the current slot that came back torn.
    torn: u32,
    done: Option<Lookup>,
}

impl Probe {
    /// A lookup of `name` in a registry.
    pub fn new(name: Name, strategy: Strategy) -> Self {
        Self::in_slots(name, strategy, SLOTS)
    }

    /// A lookup of `name` in a table of `slots` slots.
    ///
    /// # Panics
    /// If there are no slots.
    pub fn in_slots(name: Name, strategy: Strategy, slots: usize) -> Self {
        let home = home_slot(&name, slots);
        let budget = match strategy {
            Strategy::Probe => slots,
            Strategy::Ask => 0,
            Strategy::ProbeThenAsk(reads) => slots.min(reads as usize),
        };
        let done = (budget == 0).then_some(Lookup::Ask);
        Self { name, slots, budget, home, passed: 0, torn: 0, done }
    }

    /// What it needs next.
    pub fn next(&self) -> Next {
        match &self.done {
            Some(lookup) => Next::Done(lookup.clone()),
            None => {
                let start = self.slot() * ENTRY_BYTES;
                Next::Read(start..start + ENTRY_BYTES)
            }
        }
    }

    /// Takes the bytes that [`next`](Self::next) asked for, which may have been read while the owner
    /// wrote them. A lookup that has ended ignores them.
    pub fn take(&mut self, bytes: &[u8; ENTRY_BYTES]) {
        if self.done.is_some() {
            return;
        }
        // Pairs with the fence of `Table::write`: later loads of other slots, and of the memory
        // that the name stands for, are not older than this slot.
        fence(Ordering::Acquire);
        let slot = self.slot();
        match Slot::decode_bytes(bytes) {
            Ok(Slot::Empty) => self.done = Some(Lookup::NotFound),
            Ok(Slot::Entry(entry)) if entry.name == self.name => {
                self.done = Some(Lookup::Found(entry));
            }
            Ok(Slot::Entry(_) | Slot::Deleted) => self.pass(),
            Err(SlotError::Malformed(reason)) => {
                self.done = Some(Lookup::Malformed { slot, reason });
            }
            Err(SlotError::Torn) => {
                self.torn += 1;
                if self.torn == TORN_READS {
                    self.done = Some(Lookup::Torn { slot });
                }
            }
        }
    }

    /// The current slot does not have the name.
    fn pass(&mut self) {
        self.passed += 1;
        self.torn = 0;
        if self.passed == self.slots {
            self.done = Some(Lookup::NotFound);
        } else if self.passed == self.budget {
            self.done = Some(Lookup::Ask);
        }
    }

    fn slot(&self) -> usize {
        (self.home + self.passed) % self.slots
    }
}
