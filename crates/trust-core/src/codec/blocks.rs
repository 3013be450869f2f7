//! Vectors and slices of numbers, which are copied as blocks.
//!
//! serde shows a format the elements of a `Vec<u8>` one by one, at several nanoseconds each. What it
//! is given as a whole is a generic type: the collection, or the visitor that makes one. Both
//! sides here ask whether that type is one of those that they know, and copy its elements at once
//! then. The compiler knows the answer. The bytes are the same as without, so either side may or may
//! not do so.
//!
//! `Any` cannot be asked, since serde's types are not bound to be `'static`. [`id_of`] takes any
//! type, and says what it is except for its lifetimes.

use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, transmute, transmute_copy};

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::forward_to_deserialize_any;

/// Calls `$each!(type)` for every type of numbers whose bytes in memory are its encoding.
macro_rules! number_types {
    ($each:ident) => {
        $each!(u8);
        $each!(i8);
        $each!(u16);
        $each!(i16);
        $each!(u32);
        $each!(i32);
        $each!(u64);
        $each!(i64);
        $each!(u128);
        $each!(i128);
        $each!(f32);
        $each!(f64);
    };
}

/// The id of `T` with all its lifetimes replaced by `'static`.
#[inline(always)]
fn id_of<T: ?Sized>() -> TypeId {
    trait Identified {
        fn id(&self) -> TypeId
        where
            Self: 'static;
    }
    impl<T: ?Sized> Identified for PhantomData<T> {
        #[inline(always)]
        fn id(&self) -> TypeId
        where
            Self: 'static,
        {
            TypeId::of::<T>()
        }
    }
    let of = PhantomData::<T>;
    let of: &dyn Identified = &of;
    // SAFETY: only the bound on lifetimes inside the type changes, which is not known when the
    // program runs. The one method that it permits to call looks at no value, and the reference
    // does not leave this function.
    unsafe { transmute::<&dyn Identified, &(dyn Identified + 'static)>(of) }.id()
}

/// The elements of a collection, as they are encoded.
pub(super) struct Block<'a> {
    pub(super) len: usize,
    pub(super) bytes: &'a [u8],
}

/// The elements of `collection`, if that is a reference to a vector or slice of numbers.
#[inline(always)]
#[allow(clippy::disallowed_methods, reason = "a vector or slice, so no other code writes to it")]
pub(super) fn block_of<I>(collection: &I) -> Option<Block<'_>> {
    macro_rules! try_type {
        ($type:ty) => {
            if id_of::<I>() == TypeId::of::<&'static Vec<$type>>() {
                // SAFETY: `I` is such a reference, for a lifetime that does not end before that of
                // `collection`, which is the one that it gets here.
                let numbers: &Vec<$type> = unsafe { *std::ptr::from_ref(collection).cast() };
                return Some(block!(numbers));
            }
            if id_of::<I>() == TypeId::of::<&'static [$type]>() {
                // SAFETY: `I` is such a reference, to a slice, for a lifetime as above.
                let numbers: &[$type] = unsafe { *std::ptr::from_ref(collection).cast() };
                return Some(block!(numbers));
            }
        };
    }
    macro_rules! block {
        ($numbers:ident) => {{
            let start = $numbers.as_ptr().cast::<u8>();
            // SAFETY: all bytes of numbers are initialised.
            let bytes = unsafe { std::slice::from_raw_parts(start, size_of_val(&$numbers[..])) };
            Block { len: $numbers.len(), bytes }
        }};
    }
    if cfg!(target_endian = "little") {
        number_types!(try_type);
    }
    None
}

/// Bytes of an element of the vector of numbers that `V` makes of a sequence, if it is serde's own
/// visitor for one.
#[inline(always)]
pub(super) fn element_bytes<'de, V: Visitor<'de>>() -> Option<usize> {
    macro_rules! try_type {
        ($type:ty) => {
            // The first condition alone keeps the second out of most programs.
            if id_of::<V::Value>() == TypeId::of::<Vec<$type>>()
                && visitor_of::<Vec<$type>>() == Some(id_of::<V>())
            {
                return Some(size_of::<$type>());
            }
        };
    }
    number_types!(try_type);
    None
}

/// The vector of numbers that are encoded as `bytes`. `None` if `V` is no type for which
/// [`element_bytes`] has an answer.
#[inline(always)]
pub(super) fn vector_of<V>(bytes: &[u8]) -> Option<V> {
    macro_rules! try_type {
        ($type:ty) => {
            if id_of::<V>() == TypeId::of::<Vec<$type>>() {
                let (numbers, _) = bytes.as_chunks();
                let numbers = numbers.iter().map(|bytes| <$type>::from_le_bytes(*bytes));
                let numbers = ManuallyDrop::new(numbers.collect::<Vec<$type>>());
                // SAFETY: `V` is this type, in which there are no lifetimes; the original is not
                // dropped.
                return Some(unsafe { transmute_copy::<Vec<$type>, V>(&numbers) });
            }
        };
    }
    number_types!(try_type);
    None
}

/// The id of the visitor that `T` has a sequence decoded with.
#[inline(always)]
fn visitor_of<'de, T: Deserialize<'de>>() -> Option<TypeId> {
    T::deserialize(Asking).err().and_then(|Asked(id)| id)
}

/// Decodes nothing: its error says which visitor a type comes with.
struct Asking;

#[derive(Debug)]
struct Asked(Option<TypeId>);

impl<'de> Deserializer<'de> for Asking {
    type Error = Asked;

    #[inline(always)]
    fn deserialize_seq<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Asked> {
        Err(Asked(Some(id_of::<V>())))
    }

    #[inline(always)]
    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Asked> {
        Err(Asked(None))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl de::Error for Asked {
    #[inline]
    fn custom<T: fmt::Display>(_: T) -> Self {
        Asked(None)
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no value, but a question")
    }
}

impl std::error::Error for Asked {}
