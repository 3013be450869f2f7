//! [`Sizes`]: how many items have which size, for memcached's `stats sizes`.

use std::collections::BTreeMap;

/// Bytes by which sizes are grouped.
const STEP: usize = 32;

/// The number of items by size, in steps of 32 bytes.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    counts: BTreeMap<u32, u64>,
}

impl Sizes {
    fn step(bytes: usize) -> u32 {
        // Lossless: items are a little larger than 1 MiB at most.
        (bytes.div_ceil(STEP) * STEP) as u32
    }

    /// An item of so many bytes was added.
    pub(crate) fn add(&mut self, bytes: usize) {
        *self.counts.entry(Self::step(bytes)).or_default() += 1;
    }

    /// An item of so many bytes was removed. One that was there before sizes were counted is not
    /// known.
    pub(crate) fn remove(&mut self, bytes: usize) {
        if let Some(count) = self.counts.get_mut(&Self::step(bytes)) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&Self::step(bytes));
            }
        }
    }

    /// The first `count` sizes from `bytes` on, smallest first, with their number of items.
    pub(crate) fn from(&self, bytes: u32, count: usize) -> Vec<(u32, u64)> {
        self.counts.range(bytes..).take(count).map(|(&bytes, &items)| (bytes, items)).collect()
    }
}
