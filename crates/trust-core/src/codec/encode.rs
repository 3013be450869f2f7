//! [`Encoder`]: from serde's data model to bytes.

use primitive::limits::{MESSAGE_BYTES, NESTING};
use serde::ser::{self, Serialize, Serializer};

use crate::codec::fault::Fault;
use crate::codec::{Encoded, trusts, variant_word};

/// Encodes one value, which is `depth` levels inside the one that the message is made of.
pub(super) struct Encoder<'a, const N: usize> {
    out: &'a mut Encoded<N>,
    depth: u32,
}

impl<'a, const N: usize> Encoder<'a, N> {
    #[inline]
    pub(super) fn new(out: &'a mut Encoded<N>) -> Self {
        Encoder { out, depth: 0 }
    }

    /// One level further inside.
    #[inline]
    fn inner(self) -> Result<Self, Fault> {
        if self.depth < NESTING {
            Ok(Encoder { out: self.out, depth: self.depth + 1 })
        } else {
            Err(Fault::too_deep())
        }
    }

    #[inline]
    fn put<const LEN: usize>(self, bytes: [u8; LEN]) -> Result<(), Fault> {
        self.out.put(&bytes);
        Ok(())
    }

    #[inline]
    fn put_len(&mut self, len: usize) -> Result<(), Fault> {
        if len > MESSAGE_BYTES {
            return Err(too_long(len));
        }
        self.out.put(&(len as u32).to_le_bytes());
        Ok(())
    }

    #[inline]
    fn put_variant(&mut self, index: u32, name: &str) -> Result<(), Fault> {
        match variant_word(index, name) {
            Some(word) => self.out.put(&word.to_le_bytes()),
            None => return Err(too_many_variants(index, name)),
        }
        Ok(())
    }

    /// The same again, for a part of the value.
    #[inline]
    fn part(&mut self) -> Encoder<'_, N> {
        Encoder { out: self.out, depth: self.depth }
    }
}

#[cold]
#[inline(never)]
fn too_long(len: usize) -> Fault {
    Fault::new(format!(
        "a collection or string has a length of {len}, expected at most {MESSAGE_BYTES}: send it \
         in parts"
    ))
}

#[cold]
#[inline(never)]
fn too_many_variants(index: u32, name: &str) -> Fault {
    Fault::new(format!(
        "the variant `{name}` has the number {index}, expected at most {}",
        u16::MAX
    ))
}

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

impl<'a, const N: usize> Serializer for Encoder<'a, N> {
    type Ok = ();
    type Error = Fault;
    type SerializeSeq = Counted<'a, N>;
    type SerializeTuple = Fields<'a, N>;
    type SerializeTupleStruct = Fields<'a, N>;
    type SerializeTupleVariant = Fields<'a, N>;
    type SerializeMap = Counted<'a, N>;
    type SerializeStruct = Fields<'a, N>;
    type SerializeStructVariant = Fields<'a, N>;

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
    fn serialize_seq(self, len: Option<usize>) -> Result<Counted<'a, N>, Fault> {
        match len {
            Some(len) => Counted::begin(self, len),
            None => Err(Fault::new(
                "a sequence does not know its length: collect it into a `Vec` first".to_owned(),
            )),
        }
    }

    #[inline]
    fn serialize_tuple(self, _: usize) -> Result<Fields<'a, N>, Fault> {
        self.inner().map(Fields)
    }

    #[inline]
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Fields<'a, N>, Fault> {
        self.inner().map(Fields)
    }

    #[inline]
    fn serialize_tuple_variant(
        mut self,
        _: &'static str,
        index: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Fields<'a, N>, Fault> {
        self.put_variant(index, variant)?;
        self.inner().map(Fields)
    }

    #[inline]
    fn serialize_map(self, len: Option<usize>) -> Result<Counted<'a, N>, Fault> {
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
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Fields<'a, N>, Fault> {
        self.inner().map(Fields)
    }

    #[inline]
    fn serialize_struct_variant(
        mut self,
        _: &'static str,
        index: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Fields<'a, N>, Fault> {
        self.put_variant(index, variant)?;
        self.inner().map(Fields)
    }

    #[inline]
    fn is_human_readable(&self) -> bool {
        false
    }
}

/// The fields of a struct, a tuple or a variant. The encoder knows one level further inside.
pub(super) struct Fields<'a, const N: usize>(Encoder<'a, N>);

impl<const N: usize> Fields<'_, N> {
    #[inline]
    fn field<V: Serialize + ?Sized>(&mut self, value: &V) -> Result<(), Fault> {
        self.0.out.fields += 1;
        value.serialize(self.0.part())
    }
}

#[cold]
#[inline(never)]
fn left_out(field: &str) -> Fault {
    Fault::new(format!(
        "the field `{field}` is left out, but the rack's format has no field names, so the \
         receiver would read another value: remove `#[serde(skip_serializing_if)]` from it"
    ))
}

macro_rules! fields {
    ($($trait:ident $method:ident),*) => {
        $(
            impl<const N: usize> ser::$trait for Fields<'_, N> {
                type Ok = ();
                type Error = Fault;

                #[inline]
                fn $method<V: Serialize + ?Sized>(&mut self, value: &V) -> Result<(), Fault> {
                    self.field(value)
                }

                #[inline]
                fn end(self) -> Result<(), Fault> {
                    Ok(())
                }
            }
        )*
    };
}

fields! {
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field
}

macro_rules! named_fields {
    ($($trait:ident),*) => {
        $(
            impl<const N: usize> ser::$trait for Fields<'_, N> {
                type Ok = ();
                type Error = Fault;

                #[inline]
                fn serialize_field<V: Serialize + ?Sized>(
                    &mut self,
                    _: &'static str,
                    value: &V,
                ) -> Result<(), Fault> {
                    self.field(value)
                }

                #[inline]
                fn skip_field(&mut self, key: &'static str) -> Result<(), Fault> {
                    Err(left_out(key))
                }

                #[inline]
                fn end(self) -> Result<(), Fault> {
                    Ok(())
                }
            }
        )*
    };
}

named_fields! { SerializeStruct, SerializeStructVariant }

/// The elements of a sequence, or the entries of a map. The encoder knows one level further inside.
pub(super) struct Counted<'a, const N: usize> {
    encoder: Encoder<'a, N>,
    /// Elements announced and not written yet.
    left: usize,
    /// Where the current entry of a map begins.
    entry: usize,
}

impl<'a, const N: usize> Counted<'a, N> {
    #[inline]
    fn begin(mut encoder: Encoder<'a, N>, len: usize) -> Result<Self, Fault> {
        encoder.put_len(len)?;
        Ok(Counted { encoder: encoder.inner()?, left: len, entry: 0 })
    }

    /// An element that began at `start` is complete.
    #[inline]
    fn complete(&mut self, start: usize) -> Result<(), Fault> {
        if self.encoder.out.len == start {
            self.encoder.out.put(&[0]);
        }
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None => return Err(miscounted()),
        }
        Ok(())
    }

    #[inline]
    fn finish(self) -> Result<(), Fault> {
        if self.left == 0 { Ok(()) } else { Err(miscounted()) }
    }
}

#[cold]
#[inline(never)]
fn miscounted() -> Fault {
    Fault::new("a collection has more or fewer elements than its `Serialize` announced".to_owned())
}

impl<const N: usize> ser::SerializeSeq for Counted<'_, N> {
    type Ok = ();
    type Error = Fault;

    #[inline]
    fn serialize_element<V: Serialize + ?Sized>(&mut self, value: &V) -> Result<(), Fault> {
        let start = self.encoder.out.len;
        value.serialize(self.encoder.part())?;
        self.complete(start)
    }

    #[inline]
    fn end(self) -> Result<(), Fault> {
        self.finish()
    }
}

impl<const N: usize> ser::SerializeMap for Counted<'_, N> {
    type Ok = ();
    type Error = Fault;

    #[inline]
    fn serialize_key<K: Serialize + ?Sized>(&mut self, key: &K) -> Result<(), Fault> {
        self.entry = self.encoder.out.len;
        key.serialize(self.encoder.part())
    }

    #[inline]
    fn serialize_value<V: Serialize + ?Sized>(&mut self, value: &V) -> Result<(), Fault> {
        value.serialize(self.encoder.part())?;
        self.complete(self.entry)
    }

    #[inline]
    fn end(self) -> Result<(), Fault> {
        self.finish()
    }
}
