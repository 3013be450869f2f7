//! Unsent responses, and the memory that they take.
//!
//! An [`Output`] holds a part of the host's [`Budget`] while its bytes are unsent: a batch first reserves
//! the maximum size of a response, then runs the command, then releases what the response did not
//! need. If the budget is exhausted the batch stops with a [`Shortage`]; the server resumes it
//! after other responses were sent.
//!
//! ```text
//!   Output   | header | data (shared) | header | data (shared) | END | ...
//!              owned     the item's     owned
//! ```

use std::collections::VecDeque;
use std::io::IoSlice;

use crate::memcached::budget::{Budget, Reservation};
use crate::store::Data;

/// Data of at least this many bytes is sent from the store's allocation. Smaller data is copied,
/// which costs less than a segment.
const SHARED_BYTES: usize = 4096;

/// Memory of the first segment: a response of usual size.
const FIRST_BYTES: usize = 256;

/// Memory of the first segment that is kept for the next response, at most.
const KEPT_BYTES: usize = 8192;

/// Maximum number of segments in one write to a socket.
const SLICES_MAX: usize = 32;

/// The budget cannot cover a response now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("budget for unsent responses exhausted: {bytes} more bytes needed")]
pub struct Shortage {
    /// Maximum size of the response in bytes.
    pub bytes: usize,
}

/// Unsent responses to one client, in order.
#[derive(Debug, Default)]
pub struct Output {
    /// The first segment, if it is owned; its memory serves again once it is sent. Usually the only one.
    first: Vec<u8>,
    /// The segments behind it.
    rest: VecDeque<Segment>,
    /// Bytes of `first` that were sent, or of the first segment of `rest` if that is empty; less than
    /// its length.
    sent: usize,
    /// Unsent bytes.
    length: usize,
    /// The budget that `held` is reserved from; `None` is unlimited.
    budget: Option<Budget>,
    held: usize,
}

#[derive(Debug)]
enum Segment {
    Owned(Vec<u8>),
    Shared(Data),
}

impl Segment {
    fn bytes(&self) -> &[u8] {
        match self {
            Segment::Owned(bytes) => bytes,
            Segment::Shared(data) => data,
        }
    }
}

impl Output {
    /// An empty output, charged to `budget`.
    pub fn new(budget: &Budget) -> Self {
        let mut output = Self::default();
        output.budget = Some(budget.clone());
        output
    }

    /// An empty output with memory that is reserved for it.
    pub fn with(reservation: Reservation) -> Self {
        let (budget, held) = reservation.into_parts();
        let mut output = Self::default();
        (output.budget, output.held) = (Some(budget), held);
        output
    }

    /// The memory of an output that is sent, for the next one, if both have the same budget.
    pub fn take_sent(&mut self, budget: &Budget) -> Option<Self> {
        let serves = self.is_empty() && self.budget.as_ref().is_some_and(|own| own.is(budget));
        serves.then(|| std::mem::take(self))
    }

    /// Reserves memory for `bytes` more bytes.
    ///
    /// # Errors
    /// If the budget cannot cover them now.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), Shortage> {
        let Some(budget) = &self.budget else { return Ok(()) };
        let more = (self.length + bytes).saturating_sub(self.held);
        if more > 0 && !budget.reserve_more(self.held, more) {
            return Err(Shortage { bytes });
        }
        self.held += more;
        Ok(())
    }

    /// Adjusts the reservation to the unsent bytes.
    pub fn settle(&mut self) {
        let Some(budget) = &self.budget else { return };
        if self.length < self.held {
            budget.release(self.held - self.length);
        } else if self.length > self.held {
            // A response larger than its reservation is charged too.
            budget.charge(self.length - self.held);
        }
        self.held = self.length;
    }

    /// Appends bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.length += bytes.len();
        match self.rest.back_mut() {
            Some(Segment::Owned(last)) => last.extend_from_slice(bytes),
            Some(Segment::Shared(_)) => self.rest.push_back(Segment::Owned(bytes.to_vec())),
            None => {
                if self.first.capacity() == 0 {
                    self.first.reserve(FIRST_BYTES.max(bytes.len()));
                }
                self.first.extend_from_slice(bytes);
            }
        }
    }

    /// Appends the data of an item, without a copy if it is large.
    pub fn push_data(&mut self, data: &Data) {
        if data.len() < SHARED_BYTES {
            return self.push(data);
        }
        self.length += data.len();
        self.rest.push_back(Segment::Shared(data.clone()));
    }

    /// Appends the bytes of `other`, with its reservation.
    pub fn append(&mut self, mut other: Output) {
        if self.is_empty() {
            *self = other;
            return;
        }
        self.length += std::mem::take(&mut other.length);
        self.held += std::mem::take(&mut other.held);
        if !other.first.is_empty() {
            self.rest.push_back(Segment::Owned(std::mem::take(&mut other.first)));
        }
        self.rest.append(&mut other.rest);
    }

    /// The number of unsent bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no unsent bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The unsent segments.
    fn segments(&self) -> impl Iterator<Item = &[u8]> {
        let first = (!self.first.is_empty()).then_some(&self.first[..]);
        let all = first.into_iter().chain(self.rest.iter().map(Segment::bytes)).enumerate();
        all.map(|(index, bytes)| if index == 0 { &bytes[self.sent..] } else { bytes })
    }

    /// Calls `write` with the first unsent bytes, for one vectored write.
    pub fn write_with<R>(&self, write: impl FnOnce(&[IoSlice<'_>]) -> R) -> R {
        if self.rest.is_empty() {
            return write(&[IoSlice::new(&self.first[self.sent..])]);
        }
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        for (slice, bytes) in slices.iter_mut().zip(self.segments()) {
            *slice = IoSlice::new(bytes);
            count += 1;
        }
        write(&slices[..count])
    }

    /// Removes the first `bytes` bytes, which were sent, and releases their reservation.
    pub fn advance(&mut self, bytes: usize) {
        let bytes = bytes.min(self.length);
        self.length -= bytes;
        self.sent += bytes;
        if self.sent >= self.first.len() {
            self.sent -= self.first.len();
            self.first.clear();
            if self.first.capacity() > KEPT_BYTES {
                self.first = Vec::new();
            }
            while let Some(first) = self.rest.front()
                && self.sent >= first.bytes().len()
            {
                self.sent -= first.bytes().len();
                self.rest.pop_front();
            }
        }
        self.settle();
    }

    /// A copy of the unsent bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.segments().flatten().copied().collect()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget
            && self.held > 0
        {
            budget.release(self.held);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_are_sent_in_order_and_the_budget_is_exact(
            pieces in proptest::collection::vec((any::<bool>(), 0usize..9000), 1..20),
            steps in proptest::collection::vec(1usize..7000, 1..40),
        ) {
            let budget = Budget::new(1 << 20);
            let mut output = Output::new(&budget);
            let mut expected = Vec::new();
            for (number, (shared, length)) in pieces.into_iter().enumerate() {
                let bytes = vec![number as u8; length];
                expected.extend_from_slice(&bytes);
                output.reserve(length + 100).unwrap();
                if shared { output.push_data(&Data::from(&bytes[..])) } else { output.push(&bytes) }
                output.settle();
                prop_assert_eq!(budget.available(), (1 << 20) - expected.len());
            }
            prop_assert_eq!(output.to_vec(), expected.clone());
            let mut sent = Vec::new();
            for step in steps {
                let mut taken: Vec<u8> =
                    output.write_with(|slices| slices.iter().flat_map(|s| s.iter()).copied().collect());
                prop_assert_eq!(taken.is_empty(), output.is_empty());
                taken.truncate(step);
                output.advance(taken.len());
                sent.extend_from_slice(&taken);
                prop_assert_eq!(output.len() + sent.len(), expected.len());
                prop_assert_eq!(budget.available(), (1 << 20) - output.len());
            }
            prop_assert_eq!([sent, output.to_vec()].concat(), expected);
            drop(output);
            prop_assert_eq!(budget.available(), 1 << 20);
        }
    }

    #[test]
    fn appended_responses_keep_their_reservation() {
        let budget = Budget::new(100);
        let (mut first, mut second) = (Output::new(&budget), Output::new(&budget));
        for output in [&mut first, &mut second] {
            output.reserve(10).unwrap();
            output.push(b"0123456789");
        }
        first.append(second);
        assert_eq!((first.len(), budget.available()), (20, 80));
        first.advance(15);
        assert_eq!((first.to_vec(), budget.available()), (b"56789".to_vec(), 95));
    }
}
