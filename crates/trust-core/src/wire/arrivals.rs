//! Arrival words: which of very many clients have sent something, without a cache line of each.
//!
//! With few clients a trustee looks at the next signal word of each pair. With many, every client
//! also writes the number of its latest batch into an *arrival word*; these stand side by side, so
//! that a poll of a thousand idle clients reads eight kilobytes in order. An arrival word is only a
//! hint where to look: the signal in the buffer decides.
//!
//! The rule that keeps batches from being lost, which the model in `tests/loom_arrivals.rs` checks:
//! the client stores the signal first and the arrival word second, both with release; the trustee
//! loads an arrival word with acquire before it notes the word as seen. Without the acquire a
//! weakly ordered processor may look for the signal too early, and the trustee, having noted the
//! word, never looks again.

use std::cell::RefCell;

use primitive::SharedBytes;
use primitive::limits::CACHE_LINE;
use primitive::sync::Ordering;

use crate::wire::words::WORD;

/// The arrival words of the clients of one host.
struct Group {
    words: SharedBytes,
    /// The words as they were last read, as bytes.
    seen: Vec<u8>,
    /// The number of the first client of the group.
    first: usize,
}

/// The arrival words of all clients of one trustee.
pub struct Arrivals {
    groups: RefCell<Vec<Group>>,
    /// Clients that have more to serve than one batch, or wait for a bulk payload.
    again: RefCell<Vec<usize>>,
}

impl std::fmt::Debug for Arrivals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arrivals").field("again", &self.again).finish_non_exhaustive()
    }
}

/// The outcome of serving one client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Visit {
    /// A request was served.
    pub served: bool,
    /// The client must be visited by the next poll, whatever its arrival word says.
    pub again: bool,
}

/// Bytes of the arrival words of `clients` clients: whole cache lines.
pub(crate) const fn bytes_for(clients: usize) -> usize {
    (clients * WORD).next_multiple_of(CACHE_LINE)
}

impl Arrivals {
    /// Groups of words (whole cache lines of them), each with the number of its first client.
    pub fn new(groups: impl IntoIterator<Item = (SharedBytes, usize)>) -> Self {
        let groups = groups
            .into_iter()
            .map(|(words, first)| Group { seen: vec![0; words.len()], words, first })
            .collect();
        Self { groups: RefCell::new(groups), again: RefCell::default() }
    }

    /// Calls `visit` with the number of each client that has sent something; true if any request
    /// was served. Rows of words are longer than there are clients, and a peer may write anywhere,
    /// so a number may belong to no client.
    #[inline(always)]
    pub fn serve(&self, mut visit: impl FnMut(usize) -> Visit) -> bool {
        let mut found = std::mem::take(&mut *self.again.borrow_mut());
        for group in self.groups.borrow_mut().iter_mut() {
            group.look(&mut found);
        }
        let mut any = false;
        for number in found.drain(..) {
            let Visit { served, again } = visit(number);
            any |= served;
            if again {
                self.again.borrow_mut().push(number);
            }
        }
        let mut again = self.again.borrow_mut();
        if again.is_empty() {
            *again = found;
        }
        any
    }
}

impl Arrivals {
    /// The clients that the next [`serve`](Self::serve) will visit, each once. Notes nothing.
    pub fn pending(&self) -> Vec<usize> {
        let mut found = self.again.borrow().clone();
        let again = found.len();
        for group in self.groups.borrow().iter() {
            group.peek(&mut found);
        }
        let (again, changed) = found.split_at(again);
        let is_new = |client: &&usize| !again.contains(client);
        again.iter().chain(changed.iter().filter(is_new)).copied().collect()
    }
}

impl Group {
    /// The arrival word at byte `word`, if it is not what was seen.
    #[inline(always)]
    fn change(&self, word: usize) -> Option<[u8; WORD]> {
        let now = self.words.load(word, Ordering::Acquire).to_ne_bytes();
        (self.seen[word..word + WORD] != now).then_some(now)
    }

    #[inline(always)]
    fn look(&mut self, found: &mut Vec<usize>) {
        let mut at = 0;
        // The scan of whole lines has no order; each word that it leads to is loaded again.
        while let Some(line) = self.words.first_difference(at, &self.seen) {
            for word in (line..line + CACHE_LINE).step_by(WORD) {
                if let Some(now) = self.change(word) {
                    self.seen[word..word + WORD].copy_from_slice(&now);
                    found.push(self.first + word / WORD);
                }
            }
            at = line + CACHE_LINE;
        }
    }

    /// As [`look`](Self::look), and the words do not count as seen.
    fn peek(&self, found: &mut Vec<usize>) {
        let mut at = 0;
        while let Some(line) = self.words.first_difference(at, &self.seen) {
            let words = (line..line + CACHE_LINE).step_by(WORD);
            let changed = words.filter(|word| self.change(*word).is_some());
            found.extend(changed.map(|word| self.first + word / WORD));
            at = line + CACHE_LINE;
        }
    }
}
