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
use std::mem::{MaybeUninit, transmute};

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
pub(super) fn block_of<I>(collection: &I) -> Option<Block<'_>> {
    // SAFETY: it has this type, but for lifetimes, and any reference in it lives as long as it.
    unsafe { block_at(id_of::<I>(), std::ptr::from_ref(collection).cast()) }
}

/// As [`block_of`], in a function that all types share: each copy of the chain costs time to compile.
///
/// # Safety
/// `collection` points to a value of the type with this id, but for its lifetimes. It is there, and so is
/// what it refers to, for the lifetime `'a`.
#[cfg_attr(optimised, inline(always))]
#[allow(clippy::disallowed_methods, reason = "a vector or slice, so no other code writes to it")]
unsafe fn block_at<'a>(id: TypeId, collection: *const ()) -> Option<Block<'a>> {
    macro_rules! try_type {
        ($type:ty) => {
            if id == TypeId::of::<&'static Vec<$type>>() {
                // SAFETY: it is such a reference, for a lifetime not shorter than `'a`.
                let numbers: &'a Vec<$type> = unsafe { *collection.cast() };
                return Some(block!(numbers));
            }
            if id == TypeId::of::<&'static [$type]>() {
                // SAFETY: it is such a reference, to a slice, for a lifetime as above.
                let numbers: &'a [$type] = unsafe { *collection.cast() };
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
    element_bytes_of(id_of::<V::Value>(), id_of::<V>())
}

/// As [`element_bytes`], for the reason of [`block_at`].
#[cfg_attr(optimised, inline(always))]
fn element_bytes_of(value: TypeId, visitor: TypeId) -> Option<usize> {
    macro_rules! try_type {
        ($type:ty) => {
            // The first condition alone keeps the second out of most programs.
            if value == TypeId::of::<Vec<$type>>() && visitor_of::<Vec<$type>>() == Some(visitor) {
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
    let mut vector = MaybeUninit::<V>::uninit();
    // SAFETY: there is room for a `V`.
    let is_one = unsafe { store_vector(id_of::<V>(), bytes, vector.as_mut_ptr().cast()) };
    // SAFETY: one was written.
    is_one.then(|| unsafe { vector.assume_init() })
}

/// Writes the vector of numbers that are encoded as `bytes` to `place`, if it is of the type with this id;
/// false if that is no such type. For the reason of [`block_at`].
///
/// # Safety
/// `place` has room for a value of that type.
#[cfg_attr(optimised, inline(always))]
unsafe fn store_vector(id: TypeId, bytes: &[u8], place: *mut ()) -> bool {
    macro_rules! try_type {
        ($type:ty) => {
            if id == TypeId::of::<Vec<$type>>() {
                let (numbers, _) = bytes.as_chunks();
                let numbers = numbers.iter().map(|bytes| <$type>::from_le_bytes(*bytes));
                // SAFETY: the caller's promise; the type has no lifetimes.
                unsafe { place.cast::<Vec<$type>>().write(numbers.collect()) };
                return true;
            }
        };
    }
    number_types!(try_type);
    false
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
