//! How many values of a channel travel together: [`batch`].
//!
//! One delegated call carries many small values, but a large one alone, so that a batch neither delays
//! what comes after it nor exceeds the largest message. The size of a value is known only to its
//! `Serialize`, so it is run once more, with a [`Counter`] that stops when the budget is spent. So a
//! batch costs at most the counting of [`BATCH_BYTES`], however large its values are.

use std::fmt::{self, Display};

use serde::ser::{self, Serialize, Serializer};
use trust_core::trust_bytes;

/// Bytes of the values of one batch, about.
const BATCH_BYTES: usize = 64 * 1024;
/// Values in one batch, at most.
pub(super) const BATCH_VALUES: usize = 1024;

/// How many values at the front of `values` go into one batch: at least one, if there is one.
pub(super) fn batch<'a, T: Serialize + 'a>(values: impl IntoIterator<Item = &'a T>) -> usize {
    let mut counter = Counter::new();
    let fits = |value: &&T| counter.takes(*value);
    let mut values = values.into_iter().take(BATCH_VALUES).peekable();
    let has_any = values.peek().is_some();
    values.take_while(fits).count().max(usize::from(has_any))
}

/// Adds values one by one to a batch that is being made.
pub(super) struct Counter {
    left: usize,
}

impl Counter {
    pub(super) fn new() -> Self {
        Counter { left: BATCH_BYTES }
    }

    /// Whether `value` fits into what is left of the batch.
    pub(super) fn takes<T: Serialize>(&mut self, value: &T) -> bool {
        value.serialize(self).is_ok()
    }

    fn count(&mut self, bytes: usize) -> Result<(), TooLarge> {
        self.left = self.left.checked_sub(bytes).ok_or(TooLarge)?;
        Ok(())
    }
}

/// The budget is spent, or the value cannot be counted, because its `Serialize` fails: it travels alone.
#[derive(Debug)]
pub(super) struct TooLarge;

impl Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value does not fit into the batch")
    }
}

impl std::error::Error for TooLarge {}

impl ser::Error for TooLarge {
    fn custom<T: Display>(_: T) -> Self {
        TooLarge
    }
}

/// Methods for values of a fixed size.
macro_rules! sized {
    ($($method:ident($type:ty);)*) => {
        $(fn $method(self, _: $type) -> Result<(), TooLarge> {
            self.count(size_of::<$type>())
        })*
    };
}

impl<'a> Serializer for &'a mut Counter {
    type Ok = ();
    type Error = TooLarge;
    type SerializeSeq = &'a mut Counter;
    type SerializeTuple = &'a mut Counter;
    type SerializeTupleStruct = &'a mut Counter;
    type SerializeTupleVariant = &'a mut Counter;
    type SerializeMap = &'a mut Counter;
    type SerializeStruct = &'a mut Counter;
    type SerializeStructVariant = &'a mut Counter;

    sized! {
        serialize_bool(bool);
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_i32(i32);
        serialize_i64(i64);
        serialize_i128(i128);
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
        serialize_u64(u64);
        serialize_u128(u128);
        serialize_f32(f32);
        serialize_f64(f64);
        serialize_char(char);
    }

    fn serialize_str(self, value: &str) -> Result<(), TooLarge> {
        self.count(4 + value.len())
    }
    fn serialize_bytes(self, value: &[u8]) -> Result<(), TooLarge> {
        self.count(4 + value.len())
    }
    fn serialize_none(self) -> Result<(), TooLarge> {
        self.count(1)
    }
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), TooLarge> {
        self.count(1)?;
        value.serialize(self)
    }
    fn serialize_unit(self) -> Result<(), TooLarge> {
        self.count(1)
    }
    fn serialize_unit_struct(self, _: &'static str) -> Result<(), TooLarge> {
        self.count(1)
    }
    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
    ) -> Result<(), TooLarge> {
        self.count(4)
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<(), TooLarge> {
        // Only the codec can encode the content of a trust.
        if let Some(bytes) = trust_bytes(name) {
            return self.count(bytes);
        }
        value.serialize(self)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), TooLarge> {
        self.count(4)?;
        value.serialize(self)
    }
    fn serialize_seq(self, len: Option<usize>) -> Result<Self, TooLarge> {
        // Every element has a byte at least: a long sequence is refused without looking at it.
        if len.is_some_and(|len| len > self.left) {
            return Err(TooLarge);
        }
        self.count(4)?;
        Ok(self)
    }
    fn serialize_tuple(self, _: usize) -> Result<Self, TooLarge> {
        Ok(self)
    }
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, TooLarge> {
        Ok(self)
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, TooLarge> {
        self.count(4)?;
        Ok(self)
    }
    fn serialize_map(self, len: Option<usize>) -> Result<Self, TooLarge> {
        self.serialize_seq(len)
    }
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, TooLarge> {
        Ok(self)
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, TooLarge> {
        self.count(4)?;
        Ok(self)
    }
    fn is_human_readable(&self) -> bool {
        false
    }
}

/// Compound values are the sum of their parts.
macro_rules! compound {
    ($($trait:ident: $method:ident;)*) => {
        $(impl ser::$trait for &mut Counter {
            type Ok = ();
            type Error = TooLarge;
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), TooLarge> {
                value.serialize(&mut **self)
            }
            fn end(self) -> Result<(), TooLarge> {
                Ok(())
            }
        })*
    };
}

compound! {
    SerializeSeq: serialize_element;
    SerializeTuple: serialize_element;
    SerializeTupleStruct: serialize_field;
    SerializeTupleVariant: serialize_field;
}

/// As [`compound`], for those whose fields have names.
macro_rules! named {
    ($($trait:ident;)*) => {
        $(impl ser::$trait for &mut Counter {
            type Ok = ();
            type Error = TooLarge;
            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                _: &'static str,
                value: &T,
            ) -> Result<(), TooLarge> {
                value.serialize(&mut **self)
            }
            fn end(self) -> Result<(), TooLarge> {
                Ok(())
            }
        })*
    };
}

named! {
    SerializeStruct;
    SerializeStructVariant;
}

impl ser::SerializeMap for &mut Counter {
    type Ok = ();
    type Error = TooLarge;
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), TooLarge> {
        key.serialize(&mut **self)
    }
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), TooLarge> {
        value.serialize(&mut **self)
    }
    fn end(self) -> Result<(), TooLarge> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_bounded_by_bytes_and_by_number() {
        let none: [u64; 0] = [];
        assert_eq!(batch(&none), 0);
        assert_eq!(batch(&vec![7u64; 5000]), BATCH_VALUES);
        let texts = vec!["x".repeat(30_000); 9];
        assert_eq!(batch(&texts), 2);
        let large = vec![vec![1u8; 10 << 20], vec![1]];
        assert_eq!(batch(&large), 1, "a value that is too large travels alone");
        let pairs = vec![(1u8, Some("three".to_owned())); 10];
        assert_eq!(batch(&pairs), 10);
    }

    #[test]
    fn values_with_trusts_travel_together() {
        let run = crate::Rack::new().threads(1).check_leaks(true).run(|| {
            let trust = crate::entrust(5u64);
            let values: Vec<_> = (0..20).map(|n| (n, Some(trust.clone()))).collect();
            assert_eq!(batch(&values), 20);
            let (sender, receiver) = crate::channel::<u64>(1);
            assert_eq!(batch(&vec![sender; 20]), 20);
            assert_eq!(batch([&receiver, &receiver]), 2);
            assert_eq!(batch(&vec![trust; 9000]), BATCH_VALUES);
        });
        run.unwrap();
    }
}
