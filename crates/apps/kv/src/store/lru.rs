//! [`Lru`]: values in order of last use, with constant-time operations.
//!
//! The values are in a slab. A doubly linked list of slab indices orders them from the most
//! recently used (head) to the least recently used (tail), without pointers or an allocation per
//! link.
//!
//! ```text
//!   head --> [7] <--> [2] <--> [9] <-- tail
//!            used last          next to be evicted
//! ```

use slab::Slab;

/// No neighbour.
const NONE: u32 = u32::MAX;

/// A value and its list links; aligned, so that a small value occupies one cache line and not two.
#[derive(Debug)]
#[repr(align(64))]
pub struct Node<V> {
    newer: u32,
    older: u32,
    value: V,
}

/// Values by index, in order of last use. Holds up to 2^32 - 2 values.
///
/// ```
/// use gossamer_kv::store::lru::Lru;
/// let mut lru = Lru::new();
/// let (a, b) = (lru.insert("a"), lru.insert("b"));
/// assert_eq!(lru.oldest(), Some(a));
/// lru.touch(a);
/// assert_eq!(lru.oldest(), Some(b));
/// assert_eq!(lru.remove(b), "b");
/// assert_eq!(lru.len(), 1);
/// ```
#[derive(Debug)]
pub struct Lru<V> {
    nodes: Slab<Node<V>>,
    head: u32,
    tail: u32,
}

impl<V> Default for Lru<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V> Lru<V> {
    /// An empty list.
    pub fn new() -> Self {
        Self { nodes: Slab::new(), head: NONE, tail: NONE }
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds a value as the most recently used and returns its index.
    ///
    /// # Panics
    /// With more than 2^32 - 2 values, which are over 200 GB of items.
    pub fn insert(&mut self, value: V) -> u32 {
        let index = self.nodes.insert(Node { newer: NONE, older: NONE, value });
        let index = u32::try_from(index).ok().filter(|&index| index != NONE);
        let index = index.expect("a shard holds fewer than 2^32 - 1 items");
        self.link(index);
        index
    }

    /// Removes a value.
    ///
    /// # Panics
    /// If there is no value at `index`.
    pub fn remove(&mut self, index: u32) -> V {
        self.unlink(index);
        self.nodes.remove(index as usize).value
    }

    /// Marks a value as the most recently used.
    pub fn touch(&mut self, index: u32) {
        if self.head != index {
            self.unlink(index);
            self.link(index);
        }
    }

    /// The index of the least recently used value.
    pub fn oldest(&self) -> Option<u32> {
        (self.tail != NONE).then_some(self.tail)
    }

    /// The value at `index`.
    ///
    /// # Panics
    /// If there is no such value.
    pub fn get(&self, index: u32) -> &V {
        &self.nodes[index as usize].value
    }

    /// The value at `index`.
    ///
    /// # Panics
    /// If there is no such value.
    pub fn get_mut(&mut self, index: u32) -> &mut V {
        &mut self.node(index).value
    }

    fn node(&mut self, index: u32) -> &mut Node<V> {
        &mut self.nodes[index as usize]
    }

    fn link(&mut self, index: u32) {
        let older = std::mem::replace(&mut self.head, index);
        let node = self.node(index);
        (node.newer, node.older) = (NONE, older);
        match older {
            NONE => self.tail = index,
            older => self.node(older).newer = index,
        }
    }

    fn unlink(&mut self, index: u32) {
        let node = self.node(index);
        let (newer, older) = (node.newer, node.older);
        match newer {
            NONE => self.head = older,
            newer => self.node(newer).older = older,
        }
        match older {
            NONE => self.tail = newer,
            older => self.node(older).newer = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn order(lru: &Lru<u32>) -> Vec<u32> {
        let mut order = Vec::new();
        let mut at = lru.head;
        while at != NONE {
            order.push(at);
            at = lru.nodes[at as usize].older;
        }
        let mut back = Vec::new();
        let mut at = lru.tail;
        while at != NONE {
            back.push(at);
            at = lru.nodes[at as usize].newer;
        }
        back.reverse();
        assert_eq!(order, back, "both directions agree");
        order
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_list(steps in prop::collection::vec((0..3u8, any::<prop::sample::Index>()), 0..200)) {
            let mut lru = Lru::new();
            let mut model: Vec<u32> = Vec::new();
            for (step, which) in steps {
                match step {
                    0 => model.insert(0, lru.insert(0)),
                    1 if !model.is_empty() => {
                        let index = model.remove(which.index(model.len()));
                        lru.touch(index);
                        model.insert(0, index);
                    }
                    2 if !model.is_empty() => {
                        let index = model.remove(which.index(model.len()));
                        lru.remove(index);
                    }
                    _ => {}
                }
                prop_assert_eq!(order(&lru), model.clone());
                prop_assert_eq!(lru.oldest(), model.last().copied());
                prop_assert_eq!(lru.len(), model.len());
            }
        }
    }
}
