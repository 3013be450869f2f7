//! The parts of a value: the fields of a struct, the elements of a collection, and what is in a
//! variant.

use serde::de::value::U32Deserializer;
use serde::de::{
    DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor,
};

use crate::codec::decode::decoder::Decoder;
use crate::codec::fault::Fault;

impl<'de> Decoder<'_, 'de> {
    #[inline]
    pub(super) fn fields<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_seq(Fields { decoder: self.inner()?, left: len })
    }
}

/// The fields of a struct, a tuple or a variant. The decoder knows one level further inside.
pub(super) struct Fields<'a, 'de> {
    pub(super) decoder: Decoder<'a, 'de>,
    /// Fields that the type has at most, and that have not been asked for.
    pub(super) left: usize,
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
pub(super) struct Counted<'a, 'de> {
    pub(super) decoder: Decoder<'a, 'de>,
    /// Elements that have not been asked for.
    pub(super) left: usize,
    /// The bytes that were left when the current entry of a map began.
    pub(super) entry: usize,
}

impl Counted<'_, '_> {
    /// `value`, if it took all elements.
    #[inline]
    pub(super) fn finish<V>(self, value: V) -> Result<V, Fault> {
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
pub(super) struct Variant<'a, 'de> {
    pub(super) decoder: Decoder<'a, 'de>,
    pub(super) index: u32,
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
