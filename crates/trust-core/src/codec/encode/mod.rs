//! From serde's data model to bytes: [`Encoder`] as a serializer.

pub(super) mod encoder;
mod parts;

use serde::ser::{Serialize, SerializeSeq, Serializer};

use crate::codec::blocks::block_of;
use crate::codec::encode::encoder::Encoder;
use crate::codec::encode::parts::{Counted, Fields};
use crate::codec::fault::Fault;
use crate::codec::spill::Spill;
use crate::codec::trusts;

macro_rules! numbers {
    ($($method:ident $type:ty),*) => {
        $(
            #[inline]
            fn $method(self, value: $type) -> Result<(), Fault> {
                self.put(value.to_le_bytes())
            }
        )*
    };
}

impl<'a, const N: usize, S: Spill> Serializer for Encoder<'a, N, S> {
    type Ok = ();
    type Error = Fault;
    type SerializeSeq = Counted<'a, N, S>;
    type SerializeTuple = Fields<'a, N, S>;
    type SerializeTupleStruct = Fields<'a, N, S>;
    type SerializeTupleVariant = Fields<'a, N, S>;
    type SerializeMap = Counted<'a, N, S>;
    type SerializeStruct = Fields<'a, N, S>;
    type SerializeStructVariant = Fields<'a, N, S>;

    numbers! {
        serialize_i8 i8, serialize_i16 i16, serialize_i32 i32, serialize_i64 i64,
        serialize_i128 i128, serialize_u8 u8, serialize_u16 u16, serialize_u32 u32,
        serialize_u64 u64, serialize_u128 u128, serialize_f32 f32, serialize_f64 f64
    }

    #[inline]
    fn serialize_bool(self, value: bool) -> Result<(), Fault> {
        self.put([u8::from(value)])
    }

    #[inline]
    fn serialize_char(self, value: char) -> Result<(), Fault> {
        self.put(u32::from(value).to_le_bytes())
    }

    #[inline]
    fn serialize_str(self, value: &str) -> Result<(), Fault> {
        self.serialize_bytes(value.as_bytes())
    }

    #[inline]
    fn serialize_bytes(mut self, value: &[u8]) -> Result<(), Fault> {
        self.put_len(value.len())?;
        self.out.put(value);
        Ok(())
    }

    #[inline]
    fn serialize_none(self) -> Result<(), Fault> {
        self.put([0])
    }

    #[inline]
    fn serialize_some<V: Serialize + ?Sized>(self, value: &V) -> Result<(), Fault> {
        self.out.put(&[1]);
        value.serialize(self.inner()?)
    }

    #[inline]
    fn serialize_unit(self) -> Result<(), Fault> {
        Ok(())
    }

    #[inline]
    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Fault> {
        Ok(())
    }

    #[inline]
    fn serialize_unit_variant(
        mut self,
        _: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<(), Fault> {
        self.put_variant(index, variant)
    }

    #[inline]
    fn serialize_newtype_struct<V: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &V,
    ) -> Result<(), Fault> {
        if let Some(record) = trusts::offered(name, value) {
            self.out.trusts.0.push(record);
            return Ok(());
        }
        value.serialize(self.inner()?)
    }

    #[inline]
    fn serialize_newtype_variant<V: Serialize + ?Sized>(
        mut self,
        _: &'static str,
        index: u32,
        variant: &'static str,
        value: &V,
    ) -> Result<(), Fault> {
        self.put_variant(index, variant)?;
        value.serialize(self.inner()?)
    }

    #[inline]
    fn serialize_seq(self, len: Option<usize>) -> Result<Counted<'a, N, S>, Fault> {
        match len {
            Some(len) => Counted::begin(self, len),
            None => Err(Fault::new(
                "a sequence does not know its length: collect it into a `Vec` first".to_owned(),
            )),
        }
    }

    /// What vectors and slices call with themselves.
    #[inline]
    fn collect_seq<I>(self, collection: I) -> Result<(), Fault>
    where
        I: IntoIterator,
        I::Item: Serialize,
    {
        if let Some(block) = block_of(&collection) {
            return Counted::block(self, block);
        }
        let elements = collection.into_iter();
        let len = match elements.size_hint() {
            (least, Some(most)) if least == most => Some(least),
            _ => None,
        };
        let mut sequence = self.serialize_seq(len)?;
        for element in elements {
            sequence.serialize_element(&element)?;
        }
        sequence.end()
    }

    #[inline]
    fn serialize_tuple(self, _: usize) -> Result<Fields<'a, N, S>, Fault> {
        self.inner().map(Fields)
    }

    #[inline]
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Fields<'a, N, S>, Fault> {
        self.inner().map(Fields)
    }

    #[inline]
    fn serialize_tuple_variant(
        mut self,
        _: &'static str,
        index: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Fields<'a, N, S>, Fault> {
        self.put_variant(index, variant)?;
        self.inner().map(Fields)
    }

    #[inline]
    fn serialize_map(self, len: Option<usize>) -> Result<Counted<'a, N, S>, Fault> {
        match len {
            Some(len) => Counted::begin(self, len),
            None => Err(Fault::new(
                "a map does not know its length: `#[serde(flatten)]` cannot be used with values \
                 that cross the rack (make it a field of its own), and other maps need one (collect \
                 them into a `HashMap` or `Vec` first)"
                    .to_owned(),
            )),
        }
    }

    #[inline]
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Fields<'a, N, S>, Fault> {
        self.inner().map(Fields)
    }

    #[inline]
    fn serialize_struct_variant(
        mut self,
        _: &'static str,
        index: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Fields<'a, N, S>, Fault> {
        self.put_variant(index, variant)?;
        self.inner().map(Fields)
    }

    #[inline]
    fn is_human_readable(&self) -> bool {
        false
    }
}
