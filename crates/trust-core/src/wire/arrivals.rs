//! Arrival words: which of very many clients have sent something, without a cache line of each.
//!
//! With few clients a trustee looks at the next signal word of each pair. With many, every client
//! also writes the number of its latest batch into an *arrival word*; these stand side by side, so
//! that a poll of a thousand idle clients reads eight kilobytes in order. An arrival word is only a
//! hint where to look: the signal in the buffer decides.
//!
//! Peers write these words, whatever they like. A word that changes without a batch costs one look at
//! a signal. A peer that sends a batch and leaves its word as it was delays that batch, until it
//! changes the word, and no other: a host can write the words of its own threads only, and each word
//! is compared by itself.
//!
//! The rule that keeps batches from being lost, which the model in `tests/loom_arrivals.rs` checks:
//! the client stores the signal first and the arrival word second, both with release; the trustee
//! loads an arrival word with acquire before it notes the word as seen. Without the acquire a
//! weakly ordered processor may look for the signal too early, and the trustee, having noted the
//! word, never looks again.

use std::cell::RefCell;

use primitive::limits::CACHE_LINE;
use primitive::sync::Ordering;
use primitive::{CacheLine, SharedBytes};

use crate::wire::words::WORD;

/// The arrival words of the clients of one host.
struct Group {
    words: SharedBytes,
    /// The words as they were last read.
    seen: Vec<CacheLine>,
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
            .map(|(words, first)| {
                debug_assert!(words.len().is_multiple_of(CACHE_LINE));
                let seen = vec![CacheLine::default(); words.len() / CACHE_LINE];
                Group { words, seen, first }
            })
            .collect();
        Self { groups: RefCell::new(groups), again: RefCell::default() }
    }

    /// Calls `visit` with the number of each client that has sent something; true if any request
    /// was served. Rows of words are longer than there are clients, and a peer may write anywhere,
    /// so a number may belong to no client.
    #[inline(always)]
    pub fn serve(&self, visit: impl FnMut(usize) -> Visit) -> bool {
        self.has_any() && self.serve_found(visit)
    }

    /// Whether there is a client to visit.
    #[inline(always)]
    fn has_any(&self) -> bool {
        let differs = |group: &Group| group.words.first_difference(0, &group.seen).is_some();
        !self.again.borrow().is_empty() || self.groups.borrow().iter().any(differs)
    }

    #[inline(never)]
    fn serve_found(&self, mut visit: impl FnMut(usize) -> Visit) -> bool {
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

/// Words of a line.
const LINE_WORDS: usize = CACHE_LINE / WORD;

impl Group {
    /// The arrival word `word` of `line`, if it is not what was seen.
    #[inline(always)]
    fn change(&self, line: usize, word: usize) -> Option<u64> {
        let now = self.words.load(line * CACHE_LINE + word * WORD, Ordering::Acquire);
        (self.seen[line].0[word] != now).then_some(now)
    }

    #[inline(always)]
    fn look(&mut self, found: &mut Vec<usize>) {
        let mut from = 0;
        // The scan of whole lines has no order; each word that it leads to is loaded again.
        while let Some(line) = self.words.first_difference(from, &self.seen) {
            for word in 0..LINE_WORDS {
                if let Some(now) = self.change(line, word) {
                    self.seen[line].0[word] = now;
                    found.push(self.first + line * LINE_WORDS + word);
                }
            }
            from = line + 1;
        }
    }

    /// As [`look`](Self::look), and the words do not count as seen.
    fn peek(&self, found: &mut Vec<usize>) {
        let mut from = 0;
        while let Some(line) = self.words.first_difference(from, &self.seen) {
            let changed = (0..LINE_WORDS).filter(|word| self.change(line, *word).is_some());
            found.extend(changed.map(|word| self.first + line * LINE_WORDS + word));
            from = line + 1;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const CLIENTS: usize = 5 * LINE_WORDS;

    /// The clients that a poll visits.
    fn visited(arrivals: &Arrivals) -> Vec<usize> {
        let mut visited = Vec::new();
        arrivals.serve(|client| {
            visited.push(client);
            Visit::default()
        });
        visited
    }

    #[test]
    fn a_host_that_writes_anything_into_its_words_hides_no_client_of_another() {
        let [hostile, honest] = [0; 2].map(|_| SharedBytes::heap(CLIENTS * WORD));
        let groups = [(hostile.clone(), 0), (honest.clone(), CLIENTS)];
        let arrivals = Arrivals::new(groups);
        let mut random = 1u64;
        for round in 1..500u64 {
            let client = round as usize % CLIENTS;
            honest.store(client * WORD, round, Ordering::Release);
            // Also what undoes the change, if words were added up.
            let noise = [random, random.rotate_left(32), round.wrapping_neg(), 0];
            for (word, noise) in (0..CLIENTS).step_by(7).zip(noise.into_iter().cycle()) {
                hostile.store((word + client) % CLIENTS * WORD, noise, Ordering::Release);
            }
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
            let visited = visited(&arrivals);
            assert_eq!(visited.iter().filter(|one| **one >= CLIENTS).count(), 1, "{visited:?}");
            assert!(visited.contains(&(CLIENTS + client)), "round {round}: {visited:?}");
        }
        assert!(visited(&arrivals).is_empty(), "all has been seen");
    }
}
