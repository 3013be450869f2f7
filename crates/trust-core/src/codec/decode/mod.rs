//! From bytes, which a peer may have chosen, to serde's data model: [`Decoder`] as a deserializer.

pub(super) mod decoder;
mod parts;

use serde::de::{Deserializer, Visitor};

use crate::codec::blocks::{element_bytes, vector_of};
use crate::codec::decode::decoder::{Decoder, describes_nothing, ended, invalid, unexpected};
use crate::codec::decode::parts::{Counted, Variant};
use crate::codec::fault::Fault;
use crate::codec::format::variant_word;
use crate::codec::text::text;
use crate::codec::trusts;
use crate::codec::trusts::Record;

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty),*) => {
        $(
            #[inline]
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
                visitor.$visit(<$type>::from_le_bytes(self.source.take()?))
            }
        )*
    };
}

impl<'de> Deserializer<'de> for Decoder<'_, 'de> {
    type Error = Fault;

    numbers! {
        deserialize_i8 visit_i8 i8, deserialize_i16 visit_i16 i16, deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64, deserialize_i128 visit_i128 i128,
        deserialize_u8 visit_u8 u8, deserialize_u16 visit_u16 u16, deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64, deserialize_u128 visit_u128 u128,
        deserialize_f32 visit_f32 f32, deserialize_f64 visit_f64 f64
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        Err(describes_nothing(&visitor))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        Err(describes_nothing(&visitor))
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        Err(describes_nothing(&visitor))
    }

    #[inline]
    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.source.take::<1>()? {
            [0] => visitor.visit_bool(false),
            [1] => visitor.visit_bool(true),
            [other] => Err(invalid(other.into(), &visitor)),
        }
    }

    #[inline]
    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let bits = u32::from_le_bytes(self.source.take()?);
        match char::from_u32(bits) {
            Some(value) => visitor.visit_char(value),
            None => Err(invalid(bits, &visitor)),
        }
    }

    #[inline]
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let bytes = self.source.take_bytes()?;
        match text(bytes) {
            Ok(text) => visitor.visit_borrowed_str(text),
            Err(_) => Err(unexpected(format_args!("a string that is not UTF-8"))),
        }
    }

    #[inline]
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    #[inline]
    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_borrowed_bytes(self.source.take_bytes()?)
    }

    #[inline]
    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_bytes(visitor)
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.source.take::<1>()? {
            [0] => visitor.visit_none(),
            [1] => visitor.visit_some(self.inner()?),
            [other] => Err(invalid(other.into(), &visitor)),
        }
    }

    #[inline]
    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    #[inline]
    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        if trusts::is_trust(name) {
            let records = self.source.records.split_first_chunk::<{ Record::BYTES }>();
            let Some((record, left)) = records else { return Err(ended()) };
            self.source.records = left;
            return trusts::hand_over(Record::from_bytes(*record), visitor);
        }
        visitor.visit_newtype_struct(self.inner()?)
    }

    #[inline]
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let left = self.source.take_len()?;
        let decoder = self.inner()?;
        if let Some(bytes) = element_bytes::<V>()
            && let Some(numbers) = vector_of(decoder.source.take_block(left, bytes)?)
        {
            return Ok(numbers);
        }
        let mut elements = Counted { decoder, left, entry: 0 };
        let value = visitor.visit_seq(&mut elements)?;
        elements.finish(value)
    }

    #[inline]
    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Fault> {
        self.fields(len, visitor)
    }

    #[inline]
    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.fields(len, visitor)
    }

    #[inline]
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let left = self.source.take_len()?;
        let mut entries = Counted { decoder: self.inner()?, left, entry: 0 };
        let value = visitor.visit_map(&mut entries)?;
        entries.finish(value)
    }

    #[inline]
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.fields(fields.len(), visitor)
    }

    #[inline]
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let word = u32::from_le_bytes(self.source.take()?);
        let index = word & u32::from(u16::MAX);
        // An index beyond the list is the visitor's to refuse.
        if let Some(variant) = variants.get(index as usize)
            && variant_word(index, variant) != Some(word)
        {
            return Err(another_variant(name, variant));
        }
        visitor.visit_enum(Variant { decoder: self, index })
    }

    #[inline]
    fn is_human_readable(&self) -> bool {
        false
    }
}

/// serde numbers the variants differently on the two sides if one of them is skipped.
#[cold]
#[inline(never)]
fn another_variant(name: &str, variant: &str) -> Fault {
    Fault::new(format!(
        "a variant of `{name}` was sent that is not `{variant}` but has its number: \
         `#[serde(skip)]` on a variant cannot be used with values that cross the rack, unless it is \
         the last"
    ))
}
