//! Invariants of lookups in a registry of any bytes: the body of a fuzz target.
//!
//! Only there when the crate is built for fuzzing (`cargo xtask fuzz`), and in its own tests, which
//! run it on its committed corpus, `fuzz/corpus/registry`.

use crate::Name;
use crate::table::{
    ENTRY_BYTES, ENTRY_WORDS, Entry, EntryWords, Lookup, Next, Probe, Slot, Strategy, TORN_READS,
    is_intact, sealed,
};

/// Slots of a table, at most.
const SLOTS: usize = 16;

/// A slot has one encoding, and a lookup in a table with any content ends: it reads slots of the
/// table only, none of them too often, and finds the name that was looked up or none.
///
/// The first byte selects the strategy (its lowest bits) and whether checksums are repaired; the
/// others are the table.
///
/// # Panics
/// When that does not hold.
pub fn registry(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else { return };
    let strategy = match first & 0b11 {
        0 => Strategy::Ask,
        1 => Strategy::ProbeThenAsk(3),
        _ => Strategy::Probe,
    };
    let is_repaired = first & 0b100 != 0;
    let table: Vec<EntryWords> =
        bytes.chunks(ENTRY_BYTES).take(SLOTS).map(|slot| words_of(slot, is_repaired)).collect();
    let mut names = vec![Name::new("prices").expect("a name")];
    for words in &table {
        if let Ok(slot) = Slot::decode(words) {
            assert_eq!(slot.encode(), *words, "a slot has two encodings");
            if let Slot::Entry(entry) = slot {
                names.push(entry.name);
            }
        }
    }
    for (name, words) in names.iter().flat_map(|name| table.iter().map(move |words| (name, words)))
    {
        check_decode_of(name, words);
    }
    if !table.is_empty() {
        names.into_iter().for_each(|name| look_up(name, strategy, &table));
    }
}

/// A lookup that reads one slot of a mapped registry finds what [`Slot::decode`] gives.
///
/// # Panics
/// If it does not.
pub(crate) fn check_decode_of(name: &Name, words: &EntryWords) {
    let expected = match Slot::decode(words) {
        Ok(Slot::Entry(entry)) if entry.name == *name => Some((entry.generation, entry.what)),
        _ => None,
    };
    let found = Entry::decode_of(name, words).filter(|_| is_intact(words));
    assert_eq!(found, expected, "{name} in {words:x?}");
}

/// The words of a slot, behind whose bytes everything is zero.
fn words_of(slot: &[u8], is_repaired: bool) -> EntryWords {
    let mut bytes = [0; ENTRY_BYTES];
    bytes[..slot.len()].copy_from_slice(slot);
    let mut words = [0; ENTRY_WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    if is_repaired && bytes != [0; ENTRY_BYTES] { sealed(words) } else { words }
}

fn look_up(name: Name, strategy: Strategy, table: &[EntryWords]) {
    let mut probe = Probe::in_slots(name, strategy, table.len());
    let mut reads = vec![0; table.len()];
    let lookup = loop {
        match probe.next() {
            Next::Read(range) => {
                let slot = range.start / ENTRY_BYTES;
                assert_eq!(range, slot * ENTRY_BYTES..(slot + 1) * ENTRY_BYTES, "not a slot");
                reads[slot] += 1;
                assert!(reads[slot] <= TORN_READS, "slot {slot} is read too often");
                let bytes: Vec<u8> = table[slot].iter().flat_map(|w| w.to_ne_bytes()).collect();
                probe.take(&bytes.try_into().expect("16 words"));
            }
            Next::Done(lookup) => break lookup,
        }
    };
    match lookup {
        Lookup::Found(entry) => assert_eq!(entry.name, name, "another name is found"),
        Lookup::Ask => assert_ne!(strategy, Strategy::Probe, "a lookup that may not ask"),
        Lookup::NotFound | Lookup::Torn { .. } | Lookup::Malformed { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use fuzz_corpus::Corpus;
    use primitive::SharedBytes;
    use transport_api::{Namespace, RegionKey};

    use super::*;
    use crate::table::{Entry, Notify, Published, Table};

    #[test]
    fn the_corpus_does_no_harm() {
        Corpus::of("registry").run(registry);
    }

    fn bytes_of(words: &EntryWords) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    #[ignore = "writes seeds: cargo test -p gossamer-segment --lib write_seeds -- --ignored"]
    fn write_seeds() {
        let put = |name: &str, first: u8, table: &[u8]| {
            Corpus::of("registry").write(name, [&[first], table].concat());
        };
        let key = RegionKey::new(Namespace::SEGMENTS, 5);
        let segment = |notify| Published::Segment { key, len: 4096, notify, thread: 1 };
        let entry = |name: &str, what| Entry {
            name: Name::new(name).expect("a name"),
            generation: 3,
            what,
        };
        let trust = entry("orders", Published::Trust { thread: 2, id: 8 });
        put("trust", 2, &bytes_of(&trust.encode()));
        for notify in [Notify::Always, Notify::Never, Notify::Conditional] {
            let entry = entry("prices", segment(notify));
            put(&format!("segment-{notify}"), 2, &bytes_of(&entry.encode()));
        }
        let longest = entry(&"n".repeat(Name::MAX_LEN), segment(Notify::Always));
        put("longest-name", 2, &bytes_of(&longest.encode()));
        put("deleted", 2, &bytes_of(&Slot::Deleted.encode()));
        put("empty", 2, &bytes_of(&Slot::Empty.encode()));
        put("torn", 2, &bytes_of(&trust.encode())[..40]);
        put("repaired", 6, &bytes_of(&trust.encode())[..64]);
        // A table of a few names, one of them removed, for each strategy.
        let mut table = Table::new(SharedBytes::heap(8 * ENTRY_BYTES));
        for name in ["prices", "orders", "trades", "quotes", "books", "rates"] {
            table.insert(entry(name, segment(Notify::Never))).expect("a slot");
        }
        table.remove(&Name::new("trades").expect("a name"));
        let mut bytes = vec![0; table.memory().len()];
        table.memory().read_words(0, &mut bytes);
        for (strategy, name) in [(0, "ask"), (1, "probe-then-ask"), (2, "probe"), (6, "fields")] {
            put(&format!("table-{name}"), strategy, &bytes);
        }
    }
}
