//! The distributions that YCSB draws keys and scan lengths from.
//!
//! The zipfian generator is that of Gray et al., "Quickly Generating Billion-Record Synthetic
//! Databases" (SIGMOD 1994), which YCSB uses too. With n items and skew theta, item i (from 0) has
//! probability `1 / ((i + 1)^theta * zeta(n))`, where `zeta(n)` is the sum of `1 / i^theta` for i
//! from 1 to n. One uniform number gives one item: the first two exactly, the others by inverting
//! an approximation of the distribution function, so no table of n entries is needed.

use fastrand::Rng;

use crate::ycsb::workload::{Distribution, Workload, ZIPFIAN_CONSTANT};

/// Items that the scrambled generator draws from before it hashes: YCSB's number. It is far above
/// any record count, so the shape of the distribution does not depend on the number of records.
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;

/// How often a draw of a record that does not exist yet is repeated: where a run may insert many times as
/// many records as there are, a draw must end before a time limit does.
const DRAWS: u32 = 4096;

/// Terms of a zeta sum that are added one by one; the others are estimated.
const ZETA_EXACT_TERMS: u64 = 1000;

/// The 64-bit FNV hash with which YCSB names keys and scatters popular ones: FNV-1a over the eight
/// bytes of `value`, least significant first, made non-negative as a signed number.
pub fn fnv_hash(value: u64) -> u64 {
    let hash = value.to_le_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211)
    });
    (hash as i64).unsigned_abs()
}

/// The sum of `1 / i^theta` for i from 1 to n.
///
/// Large sums are finished with the Euler-Maclaurin formula, whose error after a thousand exact
/// terms is below the rounding of the sum itself. Ten billion items take microseconds.
pub fn zeta(n: u64, theta: f64) -> f64 {
    let term = |i: f64| i.powf(-theta);
    let exact: f64 = (1..=n.min(ZETA_EXACT_TERMS)).rev().map(|i| term(i as f64)).sum();
    if n <= ZETA_EXACT_TERMS {
        return exact;
    }
    let (first, last) = (ZETA_EXACT_TERMS as f64, n as f64);
    let integral = (last.powf(1.0 - theta) - first.powf(1.0 - theta)) / (1.0 - theta);
    let slope = |i: f64| -theta * i.powf(-theta - 1.0);
    exact + integral + (term(last) - term(first)) / 2.0 + (slope(last) - slope(first)) / 12.0
}

/// Draws from 0 to n - 1; smaller numbers are more likely. The number of items can grow.
#[derive(Clone, Debug)]
pub struct Zipfian {
    items: u64,
    theta: f64,
    alpha: f64,
    zeta_n: f64,
    zeta_2: f64,
    eta: f64,
}

impl Zipfian {
    /// A generator over `items` (at least one) with skew `theta`, above 0 and below 1.
    pub fn new(items: u64, theta: f64) -> Self {
        let mut zipfian = Self {
            items: 0,
            theta,
            alpha: 1.0 / (1.0 - theta),
            zeta_n: 0.0,
            zeta_2: zeta(2, theta),
            eta: 0.0,
        };
        zipfian.resize(items.max(1));
        zipfian
    }

    /// Raises the number of items, adding only the new terms to zeta. A smaller number is ignored,
    /// as in YCSB: another client may have seen an older count.
    pub fn grow(&mut self, items: u64) {
        if items > self.items {
            self.resize(items);
        }
    }

    fn resize(&mut self, items: u64) {
        let added = items - self.items;
        if self.items == 0 || added > ZETA_EXACT_TERMS {
            self.zeta_n = zeta(items, self.theta);
        } else {
            self.zeta_n +=
                (self.items + 1..=items).map(|i| (i as f64).powf(-self.theta)).sum::<f64>();
        }
        self.items = items;
        self.eta =
            (1.0 - (2.0 / items as f64).powf(1.0 - self.theta)) / (1.0 - self.zeta_2 / self.zeta_n);
    }

    /// The next item.
    pub fn next(&self, rng: &mut Rng) -> u64 {
        let u = rng.f64();
        let uz = u * self.zeta_n;
        if uz < 1.0 || self.items == 1 {
            return 0;
        }
        if uz < self.zeta_2 {
            return 1;
        }
        let position = (self.eta * u - self.eta + 1.0).powf(self.alpha);
        // Rounding may bring a u just below 1 to exactly the number of items.
        ((self.items as f64 * position) as u64).min(self.items - 1)
    }
}

/// Chooses the record of an operation. The clients of a thread share one.
#[derive(Debug)]
pub struct KeyChooser(Choice);

#[derive(Debug)]
enum Choice {
    Uniform { records: u64 },
    Scrambled { zipfian: Zipfian, records: u64 },
    Latest { zipfian: Zipfian },
}

impl KeyChooser {
    /// A chooser for `workload`.
    pub fn new(workload: &Workload) -> Self {
        let records = workload.record_count;
        let theta = workload.zipfian_constant;
        Self(match workload.request_distribution {
            Distribution::Uniform => Choice::Uniform { records },
            Distribution::Zipfian => {
                // The hash is taken modulo the number of records, which must not change during a
                // run, or every popular key would move. So it includes twice the expected inserts
                // from the start, and draws of records that do not exist yet are repeated.
                let inserts = workload.operation_count as f64 * workload.mix.insert_share() * 2.0;
                let zipfian = Zipfian::new(SCRAMBLED_ITEMS + 1, theta);
                Choice::Scrambled { zipfian, records: records.saturating_add(inserts as u64) }
            }
            Distribution::Latest => Choice::Latest { zipfian: Zipfian::new(records, theta) },
        })
    }

    /// The number of an existing record. Records below `limit` exist; `limit` is at least 1 and
    /// never decreases.
    pub fn next(&mut self, rng: &mut Rng, limit: u64) -> u64 {
        match &mut self.0 {
            Choice::Uniform { records } => rng.u64(..*records),
            Choice::Scrambled { zipfian, records } => {
                let mut hash = 0;
                for _ in 0..DRAWS {
                    hash = fnv_hash(zipfian.next(rng));
                    if hash % *records < limit {
                        return hash % *records;
                    }
                }
                hash % limit
            }
            Choice::Latest { zipfian } => {
                zipfian.grow(limit);
                limit.saturating_sub(1 + zipfian.next(rng))
            }
        }
    }
}

/// Chooses the number of records of a scan.
#[derive(Clone, Debug)]
pub struct ScanLength {
    min: u64,
    max: u64,
    zipfian: Option<Zipfian>,
}

impl ScanLength {
    /// A chooser for `workload`.
    pub fn new(workload: &Workload) -> Self {
        let (min, max) = (workload.min_scan_length, workload.max_scan_length);
        let skewed = workload.scan_length_distribution == Distribution::Zipfian;
        let zipfian = skewed.then(|| Zipfian::new(max - min + 1, ZIPFIAN_CONSTANT));
        Self { min, max, zipfian }
    }

    /// The length of the next scan.
    pub fn next(&self, rng: &mut Rng) -> u64 {
        match &self.zipfian {
            Some(zipfian) => self.min + zipfian.next(rng),
            None => rng.u64(self.min..=self.max),
        }
    }
}

#[cfg(test)]
mod tests;
