//! Key names and field values of records.

use crate::store::number::Decimal;
use crate::ycsb::generator::fnv_hash;
use crate::ycsb::workload::{InsertOrder, Workload};

/// Bytes of random text that field values are sliced from. Prime, so that offsets do not repeat in
/// step with field lengths.
const TEXT_BYTES: usize = 65_537;

/// Makes keys and field values of records.
#[derive(Clone, Debug)]
pub struct RecordMaker {
    text: Vec<u8>,
    order: InsertOrder,
    zero_padding: usize,
    field_length: usize,
    record_bytes: usize,
}

impl RecordMaker {
    /// A maker for the records of `workload`.
    pub fn new(workload: &Workload) -> Self {
        let mut rng = fastrand::Rng::with_seed(workload.seed);
        let longest = TEXT_BYTES + workload.record_bytes();
        Self {
            text: (0..longest).map(|_| rng.u8(b' '..=b'~')).collect(),
            order: workload.insert_order,
            zero_padding: workload.zero_padding as usize,
            field_length: workload.field_length as usize,
            record_bytes: workload.record_bytes(),
        }
    }

    /// Writes the key of record `number` into `key`: `user`, then the number or its hash in
    /// decimal.
    pub fn key(&self, number: u64, key: &mut Vec<u8>) {
        let number = match self.order {
            InsertOrder::Hashed => fnv_hash(number),
            InsertOrder::Ordered => number,
        };
        let digits = Decimal::new(number);
        let digits = digits.as_bytes();
        key.clear();
        key.extend_from_slice(b"user");
        key.resize(key.len() + self.zero_padding.saturating_sub(digits.len()), b'0');
        key.extend_from_slice(digits);
    }

    /// Printable random bytes for one field.
    pub fn field(&self, rng: &mut fastrand::Rng) -> &[u8] {
        let start = rng.usize(..TEXT_BYTES);
        &self.text[start..start + self.field_length]
    }

    /// Printable random bytes for a whole record: its fields, one after the other.
    pub fn record(&self, rng: &mut fastrand::Rng) -> &[u8] {
        let start = rng.usize(..TEXT_BYTES);
        &self.text[start..start + self.record_bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ycsb::properties::Properties;

    fn maker(text: &str) -> RecordMaker {
        let properties = Properties::parse("w", text).unwrap();
        RecordMaker::new(&Workload::new("w", &properties).unwrap().0)
    }

    fn key(maker: &RecordMaker, number: u64) -> String {
        let mut key = b"old contents".to_vec();
        maker.key(number, &mut key);
        String::from_utf8(key).unwrap()
    }

    #[test]
    fn keys_have_ycsbs_names() {
        // The well-known first keys of any YCSB load.
        let hashed = maker("");
        assert_eq!(key(&hashed, 0), "user6284781860667377211");
        assert_eq!(key(&hashed, 1), "user8517097267634966620");
        let ordered = maker("insertorder=ordered\nzeropadding=5");
        assert_eq!(key(&ordered, 0), "user00000");
        assert_eq!(key(&ordered, 123_456), "user123456");
    }

    #[test]
    fn values_have_the_workloads_size_and_are_printable() {
        let maker = maker("fieldcount=3\nfieldlength=7");
        let mut rng = fastrand::Rng::with_seed(1);
        assert_eq!(maker.field(&mut rng).len(), 7);
        let record = maker.record(&mut rng).to_vec();
        assert_eq!(record.len(), 21);
        assert!(record.iter().all(|byte| (b' '..=b'~').contains(byte)));
        assert_ne!(maker.record(&mut rng), record);
    }
}
