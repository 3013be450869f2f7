//! The parts of a value: the fields of a struct, and the elements of a collection.

use serde::ser::{self, Serialize};

use crate::codec::blocks::Block;
use crate::codec::encode::encoder::Encoder;
use crate::codec::fault::Fault;
use crate::codec::spill::Spill;

/// The fields of a struct, a tuple or a variant. The encoder knows one level further inside.
pub(in crate::codec) struct Fields<'a, const N: usize, S: Spill>(pub(super) Encoder<'a, N, S>);

impl<const N: usize, S: Spill> Fields<'_, N, S> {
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
            impl<const N: usize, S: Spill> ser::$trait for Fields<'_, N, S> {
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
            impl<const N: usize, S: Spill> ser::$trait for Fields<'_, N, S> {
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
pub(in crate::codec) struct Counted<'a, const N: usize, S: Spill> {
    encoder: Encoder<'a, N, S>,
    /// Elements announced and not written yet.
    left: usize,
    /// Where the current entry of a map begins.
    entry: usize,
}

impl<'a, const N: usize, S: Spill> Counted<'a, N, S> {
    #[inline]
    pub(super) fn begin(mut encoder: Encoder<'a, N, S>, len: usize) -> Result<Self, Fault> {
        encoder.put_len(len)?;
        Ok(Counted { encoder: encoder.inner()?, left: len, entry: 0 })
    }

    /// A whole sequence.
    #[inline]
    pub(super) fn block(encoder: Encoder<'a, N, S>, block: Block<'_>) -> Result<(), Fault> {
        Counted::begin(encoder, block.len)?.encoder.out.put(block.bytes);
        Ok(())
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

impl<const N: usize, S: Spill> ser::SerializeSeq for Counted<'_, N, S> {
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

impl<const N: usize, S: Spill> ser::SerializeMap for Counted<'_, N, S> {
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
