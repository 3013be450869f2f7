//! [`Lru`]: values in segments, each in order of last use, with constant-time operations.
//!
//! The values are in a vector, whose free places are linked by `older` until [`Lru::compact`] gives
//! them back. In each segment, a doubly linked list of indices orders them from the most recently used
//! (head) to the least recently used (tail), without pointers or an allocation per link.
//!
//! ```text
//!   head --> [7] <--> [2] <--> [9] <-- tail
//!            used last          leaves the segment next
//! ```

/// No neighbour.
const NONE: u32 = u32::MAX;

const NO_VALUE: &str = "no value at this index";

/// A part of the order of use; see [`eviction`](crate::store::eviction).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// New values.
    Hot,
    /// Values that were used more than once.
    Warm,
    /// Values that are evicted next.
    Cold,
    /// Values that expire soon.
    Temporary,
}

/// The number of segments.
pub(crate) const SEGMENTS: usize = 4;

/// A value and its list links; aligned, so that a small value occupies one cache line and not two.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Node<V> {
    newer: u32,
    older: u32,
    segment: Segment,
    /// `None` where the place is free.
    value: Option<V>,
}

/// The ends of a segment's list.
#[derive(Clone, Copy, Debug)]
struct Ends {
    head: u32,
    tail: u32,
    count: usize,
}

/// Values by index, in order of last use. Holds up to 2^32 - 2 values.
#[derive(Debug)]
pub(crate) struct Lru<V> {
    nodes: Vec<Node<V>>,
    /// The place that became free last.
    free: u32,
    len: usize,
    lists: [Ends; SEGMENTS],
    /// One more than the largest index of a value since there was none.
    end: u32,
}

impl<V> Default for Lru<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V> Lru<V> {
    /// Without values.
    pub(crate) fn new() -> Self {
        let empty = Ends { head: NONE, tail: NONE, count: 0 };
        Self { nodes: Vec::new(), free: NONE, len: 0, lists: [empty; SEGMENTS], end: 0 }
    }

    /// The number of values.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no values.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of values in a segment.
    pub(crate) fn count(&self, segment: Segment) -> usize {
        self.lists[segment as usize].count
    }

    /// More than the index of every value, and at most one more than the largest that there was since
    /// there were no values.
    pub(crate) fn end(&self) -> u32 {
        self.end
    }

    /// Adds a value as the most recently used of a segment and returns its index.
    ///
    /// # Panics
    /// With more than 2^32 - 2 values, which are over 200 GB of items.
    pub(crate) fn insert(&mut self, value: V, segment: Segment) -> u32 {
        let node = Node { newer: NONE, older: NONE, segment, value: Some(value) };
        let index = match self.free {
            NONE => {
                let index = u32::try_from(self.nodes.len()).ok().filter(|&index| index != NONE);
                self.nodes.push(node);
                index.expect("a shard holds fewer than 2^32 - 1 items")
            }
            index => {
                self.free = std::mem::replace(&mut self.nodes[index as usize], node).older;
                index
            }
        };
        self.len += 1;
        self.end = self.end.max(index + 1);
        self.link(index, segment);
        index
    }

    /// Removes a value.
    ///
    /// # Panics
    /// If there is no value at `index`.
    pub(crate) fn remove(&mut self, index: u32) -> V {
        self.unlink(index);
        let node = &mut self.nodes[index as usize];
        let value = node.value.take().expect(NO_VALUE);
        node.older = std::mem::replace(&mut self.free, index);
        self.len -= 1;
        if self.len == 0 {
            self.end = 0;
        }
        value
    }

    /// The number of free places, whose memory is still taken.
    pub(crate) fn free(&self) -> usize {
        self.nodes.len() - self.len
    }

    /// Gives back the memory of free places: values move to the front, in the order of their indices.
    /// Returns the new index of each value by its old one; for a free place, that of the next value.
    pub(crate) fn compact(&mut self) -> Vec<u32> {
        let mut next = 0;
        let moved: Vec<u32> = self
            .nodes
            .iter()
            .map(|node| {
                let here = next;
                next += u32::from(node.value.is_some());
                here
            })
            .collect();
        self.nodes.retain(|node| node.value.is_some());
        self.nodes.shrink_to_fit();
        let follow = |index: &mut u32| {
            if *index != NONE {
                *index = moved[*index as usize];
            }
        };
        for node in &mut self.nodes {
            follow(&mut node.newer);
            follow(&mut node.older);
        }
        for list in &mut self.lists {
            follow(&mut list.head);
            follow(&mut list.tail);
        }
        (self.free, self.end) = (NONE, next);
        moved
    }

    /// Makes a value the most recently used of a segment.
    ///
    /// # Panics
    /// If there is no value at `index`.
    pub(crate) fn place(&mut self, index: u32, segment: Segment) {
        if self.lists[segment as usize].head != index {
            self.unlink(index);
            self.link(index, segment);
        }
    }

    /// The segment of the value at `index`.
    ///
    /// # Panics
    /// If there is no such value.
    pub(crate) fn segment(&self, index: u32) -> Segment {
        let node = &self.nodes[index as usize];
        assert!(node.value.is_some(), "{NO_VALUE}");
        node.segment
    }

    /// The index of the least recently used value of a segment.
    pub(crate) fn oldest(&self, segment: Segment) -> Option<u32> {
        let tail = self.lists[segment as usize].tail;
        (tail != NONE).then_some(tail)
    }

    /// The value at `index`, if there is one.
    pub(crate) fn at(&self, index: u32) -> Option<&V> {
        self.nodes.get(index as usize)?.value.as_ref()
    }

    /// The value at `index`.
    ///
    /// # Panics
    /// If there is no such value.
    pub(crate) fn get(&self, index: u32) -> &V {
        self.nodes[index as usize].value.as_ref().expect(NO_VALUE)
    }

    /// The value at `index`.
    ///
    /// # Panics
    /// If there is no such value.
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut V {
        self.node(index).value.as_mut().expect(NO_VALUE)
    }

    /// Asks the processor for the place of an index, without reading it.
    pub(crate) fn prefetch(&self, index: u32) {
        if let Some(node) = self.nodes.get(index as usize) {
            primitive::prefetch(node);
        }
    }

    fn node(&mut self, index: u32) -> &mut Node<V> {
        let node = &mut self.nodes[index as usize];
        assert!(node.value.is_some(), "{NO_VALUE}");
        node
    }

    fn link(&mut self, index: u32, segment: Segment) {
        let list = &mut self.lists[segment as usize];
        list.count += 1;
        let older = std::mem::replace(&mut list.head, index);
        if older == NONE {
            list.tail = index;
        } else {
            self.node(older).newer = index;
        }
        let node = self.node(index);
        (node.newer, node.older, node.segment) = (NONE, older, segment);
    }

    fn unlink(&mut self, index: u32) {
        let node = self.node(index);
        let (newer, older, segment) = (node.newer, node.older, node.segment as usize);
        self.lists[segment].count -= 1;
        match newer {
            NONE => self.lists[segment].head = older,
            newer => self.node(newer).older = older,
        }
        match older {
            NONE => self.lists[segment].tail = newer,
            older => self.node(older).newer = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Segment; SEGMENTS] =
        [Segment::Hot, Segment::Warm, Segment::Cold, Segment::Temporary];

    #[test]
    fn what_was_used_last_is_the_youngest() {
        let mut lru = Lru::new();
        let (a, b) = (lru.insert("a", Segment::Hot), lru.insert("b", Segment::Hot));
        assert_eq!(lru.oldest(Segment::Hot), Some(a));
        lru.place(a, Segment::Hot);
        assert_eq!(lru.oldest(Segment::Hot), Some(b));
        lru.place(b, Segment::Cold);
        assert_eq!((lru.oldest(Segment::Hot), lru.oldest(Segment::Cold)), (Some(a), Some(b)));
        assert_eq!(lru.remove(b), "b");
        assert_eq!(lru.len(), 1);
    }

    fn order(lru: &Lru<u32>, segment: Segment) -> Vec<u32> {
        let Ends { head, tail, count } = lru.lists[segment as usize];
        let mut order = Vec::new();
        let mut at = head;
        while at != NONE {
            order.push(at);
            at = lru.nodes[at as usize].older;
        }
        let mut back = Vec::new();
        let mut at = tail;
        while at != NONE {
            back.push(at);
            at = lru.nodes[at as usize].newer;
        }
        back.reverse();
        assert_eq!(order, back, "both directions agree");
        assert_eq!(order.len(), count);
        order
    }

    proptest! {
        #[test]
        fn agrees_with_plain_lists(
            steps in prop::collection::vec(
                (0..4u8, 0..SEGMENTS, any::<prop::sample::Index>()),
                0..200,
            )
        ) {
            let mut lru = Lru::new();
            let mut model: [Vec<u32>; SEGMENTS] = Default::default();
            for (step, to, which) in steps {
                let all: Vec<u32> = model.iter().flatten().copied().collect();
                match step {
                    0 => {
                        let index = lru.insert(0, ALL[to]);
                        model[to].insert(0, index);
                    }
                    _ if all.is_empty() => {}
                    1 => {
                        let index = all[which.index(all.len())];
                        lru.place(index, ALL[to]);
                        model.iter_mut().for_each(|list| list.retain(|&other| other != index));
                        model[to].insert(0, index);
                    }
                    2 => {
                        let moved = lru.compact();
                        model.iter_mut().flatten().for_each(|index| *index = moved[*index as usize]);
                        prop_assert_eq!((lru.free(), lru.end() as usize), (0, all.len()));
                    }
                    _ => {
                        let index = all[which.index(all.len())];
                        lru.remove(index);
                        model.iter_mut().for_each(|list| list.retain(|&other| other != index));
                    }
                }
                for (list, segment) in model.iter().zip(ALL) {
                    prop_assert_eq!(&order(&lru, segment), list);
                    prop_assert_eq!(lru.oldest(segment), list.last().copied());
                }
                prop_assert_eq!(lru.len(), model.iter().map(Vec::len).sum::<usize>());
            }
        }
    }
}
