//! The distributions against values computed elsewhere, and against their own definition.
//!
//! Seeds are fixed, so the tests are deterministic; bounds are still several standard deviations
//! wide, so that another random number generator passes too.

use super::*;
use crate::ycsb::properties::Properties;

const DRAWS: usize = 200_000;

// Sums and hashes computed with another program (exact summation, big integers).
const Z2: f64 = 1.503_477_775_028_359_4;
const Z100: f64 = 5.294_568_831_377_163_5;
const Z1K: f64 = 7.728_953_217_284_738;
const Z100K: f64 = 12.778_338_062_551_171;
const Z1M: f64 = 15.391_849_746_036_804;
const Z100K_HALF: f64 = 630.996_758_662_378_7;
const FNV: [(u64, u64); 6] = [
    (0, 6_284_781_860_667_377_211),
    (1, 8_517_097_267_634_966_620),
    (2, 1_820_151_046_732_198_393),
    (1_000, 5_952_875_239_596_136_740),
    (99_999, 7_592_201_923_306_675_823),
    (10_000_000_000, 1_201_321_332_300_452_516),
];

fn workload(text: &str) -> Workload {
    Workload::new("w", &Properties::parse("w", text).unwrap()).unwrap().0
}

fn rng() -> Rng {
    Rng::with_seed(42)
}

/// The number of times each item below `items` is drawn in [`DRAWS`] draws.
fn histogram(items: usize, mut draw: impl FnMut(&mut Rng) -> u64) -> Vec<usize> {
    let mut rng = rng();
    let mut counts = vec![0; items];
    for _ in 0..DRAWS {
        counts[draw(&mut rng) as usize] += 1;
    }
    counts
}

#[track_caller]
fn assert_share(count: usize, expected: f64) {
    let share = count as f64 / DRAWS as f64;
    let deviation = (expected * (1.0 - expected) / DRAWS as f64).sqrt();
    assert!((share - expected).abs() < 6.0 * deviation, "share {share}, expected {expected}");
}

#[test]
fn zeta_matches_sums_computed_elsewhere() {
    for (n, theta, expected) in [
        (1, 0.99, 1.0),
        (2, 0.99, Z2),
        (100, 0.99, Z100),
        (1000, 0.99, Z1K),
        (100_000, 0.99, Z100K),
        (1_000_000, 0.99, Z1M),
        (100_000, 0.5, Z100K_HALF),
        // The constant that YCSB carries for its scrambled generator. It was summed in floating
        // point from the large end down to tiny terms, so its last digits are rounding.
        (SCRAMBLED_ITEMS, 0.99, 26.469_028_201_783_02),
    ] {
        let error = (zeta(n, theta) / expected - 1.0).abs();
        let bound = if n == SCRAMBLED_ITEMS { 1e-8 } else { 1e-12 };
        assert!(error < bound, "zeta({n}, {theta}) is off by {error:e}");
    }
}

#[test]
fn fnv_matches_values_computed_elsewhere() {
    for (value, expected) in FNV {
        assert_eq!(fnv_hash(value), expected, "{value}");
    }
}

#[test]
fn growing_step_by_step_ends_where_starting_there_does() {
    let mut grown = Zipfian::new(1000, 0.99);
    for items in 1001..=1500 {
        grown.grow(items);
    }
    grown.grow(100_000);
    grown.grow(3);
    let fresh = Zipfian::new(100_000, 0.99);
    assert_eq!(grown.items, fresh.items);
    assert!((grown.zeta_n / fresh.zeta_n - 1.0).abs() < 1e-12);
    assert!((grown.eta / fresh.eta - 1.0).abs() < 1e-12);
}

#[test]
fn the_head_of_the_zipfian_has_its_exact_frequencies() {
    let zipfian = Zipfian::new(1000, 0.99);
    let counts = histogram(1000, |rng| zipfian.next(rng));
    // The first two items are drawn exactly.
    assert_share(counts[0], 1.0 / Z1K);
    assert_share(counts[1], 0.5_f64.powf(0.99) / Z1K);
    // Of the rest, Gray's inversion is within a fifth.
    for (item, &count) in counts.iter().enumerate().take(20).skip(2) {
        let expected = ((item + 1) as f64).powf(-0.99) / Z1K;
        let share = count as f64 / DRAWS as f64;
        assert!((share / expected - 1.0).abs() < 0.25, "item {item}: {share} against {expected}");
    }
    // Item 2 may gain, but the first hundred together hold what they should.
    let head = counts[..100].iter().sum::<usize>() as f64 / DRAWS as f64;
    assert!((head / (Z100 / Z1K) - 1.0).abs() < 0.02, "{head}");
}

#[test]
fn the_zipfian_stays_in_range_at_both_ends() {
    for items in [1, 2, 3, 10] {
        let zipfian = Zipfian::new(items, 0.99);
        let counts = histogram(items as usize, |rng| zipfian.next(rng));
        assert!(counts.iter().all(|&count| count > 0), "{items}: {counts:?}");
    }
}

#[test]
fn scrambling_scatters_the_popular_keys_and_keeps_their_frequency() {
    let workload = workload("recordcount=1000\nrequestdistribution=zipfian");
    let mut chooser = KeyChooser::new(&workload);
    let counts = histogram(1000, |rng| chooser.next(rng, 1000));
    // The most popular item of ten billion, at the place where its hash puts it. Other items fall
    // on the same key, about a thousandth of the rest.
    let hottest = (0..1000).max_by_key(|&key| counts[key]).unwrap();
    assert_eq!(hottest as u64, fnv_hash(0) % 1000);
    let share = counts[hottest] as f64 / DRAWS as f64;
    let expected = 1.0 / 26.469 + (1.0 - 1.0 / 26.469) / 1000.0;
    assert!((share / expected - 1.0).abs() < 0.1, "{share} against {expected}");
    assert!(counts.iter().all(|&count| count > 0));
}

#[test]
fn scrambled_keys_do_not_move_while_records_are_inserted() {
    let text = "recordcount=100\noperationcount=1000\nreadproportion=0.9\nupdateproportion=0\n\
                insertproportion=0.1\nrequestdistribution=zipfian";
    let mut chooser = KeyChooser::new(&workload(text));
    let hottest = |chooser: &mut KeyChooser, limit: u64| {
        let counts = histogram(300, |rng| chooser.next(rng, limit));
        assert!(counts[limit as usize..].iter().all(|&count| count == 0));
        (0..300).max_by_key(|&key| counts[key]).unwrap()
    };
    let place = (fnv_hash(0) % 300) as usize;
    let before = hottest(&mut chooser, 100);
    let after = hottest(&mut chooser, 300);
    assert_eq!(after, place);
    assert!(before == place || place >= 100);
}

#[test]
fn operations_without_end_leave_draws_short() {
    let text = "recordcount=1000\noperationcount=1099511627776\ninsertproportion=0.05\n\
                requestdistribution=zipfian";
    let (mut chooser, mut rng) = (KeyChooser::new(&workload(text)), rng());
    // One draw of a hundred million is of the thousand that exist.
    assert!((0..100).all(|_| chooser.next(&mut rng, 1000) < 1000));
}

#[test]
fn latest_prefers_the_record_inserted_last() {
    let mut chooser = KeyChooser::new(&workload("recordcount=1000\nrequestdistribution=latest"));
    let counts = histogram(1000, |rng| chooser.next(rng, 1000));
    assert_share(counts[999], 1.0 / Z1K);
    assert_share(counts[998], 0.5_f64.powf(0.99) / Z1K);
    let counts = histogram(2000, |rng| chooser.next(rng, 2000));
    assert_eq!((0..2000).max_by_key(|&key| counts[key]), Some(1999));
    assert!(counts[0..1000].iter().sum::<usize>() > 0, "old records are still read");
}

#[test]
fn uniform_is_flat() {
    let mut chooser = KeyChooser::new(&workload("recordcount=10\nrequestdistribution=uniform"));
    for count in histogram(10, |rng| chooser.next(rng, 10)) {
        assert_share(count, 0.1);
    }
}

#[test]
fn scan_lengths_stay_within_their_bounds() {
    let uniform = ScanLength::new(&workload("minscanlength=3\nmaxscanlength=7"));
    let counts = histogram(8, |rng| uniform.next(rng));
    assert_eq!(counts[..3], [0, 0, 0]);
    for &count in &counts[3..] {
        assert_share(count, 0.2);
    }
    let skewed = workload("maxscanlength=100\nscanlengthdistribution=zipfian");
    let skewed = ScanLength::new(&skewed);
    let counts = histogram(101, |rng| skewed.next(rng));
    assert_eq!(counts[0], 0);
    assert_share(counts[1], 1.0 / Z100);
}
