//! Which of very many clients have sent something, without touching a cache line of each.
//!
//! With few clients a trustee looks at the next signal word of each pair. With many, every client
//! also writes the number of its latest batch into an *arrival word*; these stand side by side, so
//! that a poll of a thousand idle clients reads eight kilobytes in order. An arrival word is only a
//! hint where to look: the signal in the buffer decides.

use crate::{inbox::Inbox, node::Node, wire::WORD};
use primitive::{SharedBytes, limits::CACHE_LINE, sync::Ordering};
use std::cell::RefCell;

/// The arrival words of the clients of one host.
struct Group {
    words: SharedBytes,
    /// What the words said when they were last looked at, as bytes.
    seen: Vec<u8>,
    /// The inbox of the first client of the group.
    first: usize,
}

/// The arrival words of all clients of one trustee.
pub(crate) struct Arrivals {
    groups: RefCell<Vec<Group>>,
    /// Inboxes that have more to serve than one batch, or wait for a bulk payload.
    again: RefCell<Vec<usize>>,
}

/// Bytes of the arrival words of `clients` clients: whole cache lines.
pub(crate) const fn bytes_for(clients: usize) -> usize {
    (clients * WORD).next_multiple_of(CACHE_LINE)
}

impl Arrivals {
    /// Groups of words, each with the index of its first client's inbox.
    pub(crate) fn new(groups: impl IntoIterator<Item = (SharedBytes, usize)>) -> Self {
        let groups = groups
            .into_iter()
            .map(|(words, first)| Group { seen: vec![0; words.len()], words, first })
            .collect();
        Self { groups: RefCell::new(groups), again: RefCell::default() }
    }

    /// Serves the clients that have sent something; true if any request was served.
    pub(crate) fn serve(&self, inboxes: &[Option<Inbox>], node: &Node) -> bool {
        let mut found = std::mem::take(&mut *self.again.borrow_mut());
        for group in self.groups.borrow_mut().iter_mut() {
            group.look(&mut found);
        }
        let mut served = false;
        for index in found.drain(..) {
            // Rows of words are longer than there are clients, and a peer may write anywhere.
            let Some(Some(inbox)) = inboxes.get(index) else { continue };
            served |= inbox.serve(node);
            if inbox.is_ready() || inbox.is_paused() {
                self.again.borrow_mut().push(index);
            }
        }
        let mut again = self.again.borrow_mut();
        if again.is_empty() {
            *again = found;
        }
        served
    }
}

impl Group {
    #[inline(always)]
    fn look(&mut self, found: &mut Vec<usize>) {
        let mut at = 0;
        while let Some(line) = self.words.first_difference(at, &self.seen) {
            for word in (line..line + CACHE_LINE).step_by(WORD) {
                let now = self.words.load(word, Ordering::Relaxed).to_ne_bytes();
                let seen = &mut self.seen[word..word + WORD];
                if *seen != now {
                    seen.copy_from_slice(&now);
                    found.push(self.first + word / WORD);
                }
            }
            at = line + CACHE_LINE;
        }
    }
}
