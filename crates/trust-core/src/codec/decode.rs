//! [`Decoder`]: from bytes, which a peer may have chosen, to serde's data model.

use std::fmt;

use primitive::limits::NESTING;
use serde::de::value::U32Deserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Expected, IntoDeserializer, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};

use crate::codec::fault::Fault;
use crate::codec::trusts::Record;
use crate::codec::{ASYMMETRY, give_back_records, trusts, variant_word};

/// The bytes of a message that have not been decoded yet.
pub(super) struct Source<'de> {
    pub(super) left: &'de [u8],
    /// Fields of structs and tuples read.
    pub(super) fields: u64,
    /// Records of trusts. Those that are left when this is dropped are given back.
    pub(super) records: &'de [u8],
}

impl Drop for Source<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if !self.records.is_empty() {
            give_back_records(self.records);
        }
    }
}

impl<'de> Source<'de> {
    #[inline]
    fn take<const LEN: usize>(&mut self) -> Result<[u8; LEN], Fault> {
        match self.left.split_first_chunk::<LEN>() {
            Some((bytes, left)) => {
                self.left = left;
                Ok(*bytes)
            }
            None => Err(ended()),
        }
    }

    /// A length, of which every unit takes at least a byte.
    #[inline]
    fn take_len(&mut self) -> Result<usize, Fault> {
        let len = u32::from_le_bytes(self.take()?) as usize;
        if len <= self.left.len() { Ok(len) } else { Err(too_long(len, self.left.len())) }
    }

    #[inline]
    fn take_bytes(&mut self) -> Result<&'de [u8], Fault> {
        let len = self.take_len()?;
        let (bytes, left) = self.left.split_at(len);
        self.left = left;
        Ok(bytes)
    }

    /// The byte that an element of no bytes takes, if the element that began when `before` bytes
    /// were left is one.
    #[inline]
    fn complete(&mut self, before: usize) -> Result<(), Fault> {
        if self.left.len() == before {
            self.take::<1>()?;
        }
        Ok(())
    }
}

#[cold]
#[inline(never)]
fn ended() -> Fault {
    unexpected(format_args!("the value ends before all of it has been read"))
}

#[cold]
#[inline(never)]
fn too_long(len: usize, left: usize) -> Fault {
    unexpected(format_args!("a length of {len} with {left} bytes left"))
}

#[cold]
#[inline(never)]
fn invalid(bits: u32, expected: &dyn Expected) -> Fault {
    unexpected(format_args!("invalid value {bits}, expected {expected}"))
}

/// What an honest sender can only cause by a type whose two sides differ.
fn unexpected(what: fmt::Arguments<'_>) -> Fault {
    Fault::new(format!("{what}; {}", ASYMMETRY))
}

/// What a type asks that wants the format to describe itself.
#[cold]
#[inline(never)]
fn describes_nothing(expected: &dyn Expected) -> Fault {
    Fault::new(format!(
        "expected {expected}, which needs a self-describing format, and the rack's is not one: \
         `#[serde(untagged)]`, `#[serde(tag)]`, `#[serde(flatten)]` and types like \
         `serde_json::Value` cannot cross the rack; use an enum without these attributes, or send \
         the value as a string (of JSON, for example)"
    ))
}

/// Decodes one value, which is `depth` levels inside the one that the message is made of.
pub(super) struct Decoder<'a, 'de> {
    source: &'a mut Source<'de>,
    depth: u32,
}

impl<'a, 'de> Decoder<'a, 'de> {
    #[inline]
    pub(super) fn new(source: &'a mut Source<'de>) -> Self {
        Decoder { source, depth: 0 }
    }

    /// One level further inside.
    #[inline]
    fn inner(self) -> Result<Self, Fault> {
        if self.depth < NESTING {
            Ok(Decoder { source: self.source, depth: self.depth + 1 })
        } else {
            Err(Fault::too_deep())
        }
    }

    /// The same again, for a part of the value.
    #[inline]
    fn part(&mut self) -> Decoder<'_, 'de> {
        Decoder { source: self.source, depth: self.depth }
    }

    #[inline]
    fn fields<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_seq(Fields { decoder: self.inner()?, left: len })
    }
}

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
        match std::str::from_utf8(bytes) {
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
        let mut elements = Counted { decoder: self.inner()?, left, entry: 0 };
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

/// The fields of a struct, a tuple or a variant. The decoder knows one level further inside.
struct Fields<'a, 'de> {
    decoder: Decoder<'a, 'de>,
    /// Fields that the type has at most, and that have not been asked for.
    left: usize,
}

impl<'de> SeqAccess<'de> for Fields<'_, 'de> {
    type Error = Fault;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Fault> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.decoder.source.fields += 1;
        seed.deserialize(self.decoder.part()).map(Some)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// The elements of a sequence, or the entries of a map. The decoder knows one level further inside.
struct Counted<'a, 'de> {
    decoder: Decoder<'a, 'de>,
    /// Elements that have not been asked for.
    left: usize,
    /// The bytes that were left when the current entry of a map began.
    entry: usize,
}

impl Counted<'_, '_> {
    /// `value`, if it took all elements.
    #[inline]
    fn finish<V>(self, value: V) -> Result<V, Fault> {
        if self.left == 0 { Ok(value) } else { Err(left_over(self.left)) }
    }
}

#[cold]
#[inline(never)]
fn left_over(elements: usize) -> Fault {
    Fault::new(format!("a collection has {elements} elements more than its `Deserialize` takes"))
}

impl<'de> SeqAccess<'de> for &mut Counted<'_, 'de> {
    type Error = Fault;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Fault> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let before = self.decoder.source.left.len();
        let value = seed.deserialize(self.decoder.part())?;
        self.decoder.source.complete(before)?;
        Ok(Some(value))
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> MapAccess<'de> for &mut Counted<'_, 'de> {
    type Error = Fault;

    #[inline]
    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.entry = self.decoder.source.left.len();
        seed.deserialize(self.decoder.part()).map(Some)
    }

    #[inline]
    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let value = seed.deserialize(self.decoder.part())?;
        self.decoder.source.complete(self.entry)?;
        Ok(value)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

/// A variant of an enum, and what is in it.
struct Variant<'a, 'de> {
    decoder: Decoder<'a, 'de>,
    index: u32,
}

impl<'de> EnumAccess<'de> for Variant<'_, 'de> {
    type Error = Fault;
    type Variant = Self;

    #[inline]
    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Fault> {
        let index: U32Deserializer<Fault> = self.index.into_deserializer();
        Ok((seed.deserialize(index)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, 'de> {
    type Error = Fault;

    #[inline]
    fn unit_variant(self) -> Result<(), Fault> {
        Ok(())
    }

    #[inline]
    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Fault> {
        seed.deserialize(self.decoder.inner()?)
    }

    #[inline]
    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Fault> {
        self.decoder.fields(len, visitor)
    }

    #[inline]
    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.decoder.fields(fields.len(), visitor)
    }
}
