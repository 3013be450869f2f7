//! Plain values, which travel past the codec: as one word, or as nothing.

use std::any::Any;

use crate::error::CodecError;

/// What a plain value is: nothing, or one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plain {
    Nothing,
    Word(u64),
}

impl Plain {
    /// Words that it takes.
    #[inline(always)]
    pub(crate) fn words(self) -> usize {
        usize::from(self != Plain::Nothing)
    }
}

/// Calls `$each!(type, to word, from word)` for every plain type but `()`.
macro_rules! plain_types {
    ($each:ident) => {
        $each!(u64, |v: u64| v, |w: u64| w);
        $each!(i64, |v: i64| v as u64, |w: u64| w as i64);
        $each!(usize, |v: usize| v as u64, |w: u64| w as usize);
        $each!(isize, |v: isize| v as u64, |w: u64| w as isize);
        $each!(u32, |v: u32| u64::from(v), |w: u64| w as u32);
        $each!(i32, |v: i32| v as u64, |w: u64| w as i32);
        $each!(u16, |v: u16| u64::from(v), |w: u64| w as u16);
        $each!(i16, |v: i16| v as u64, |w: u64| w as i16);
        $each!(u8, |v: u8| u64::from(v), |w: u64| w as u8);
        $each!(i8, |v: i8| v as u64, |w: u64| w as i8);
        $each!(bool, |v: bool| u64::from(v), |w: u64| w != 0);
        $each!(f64, |v: f64| v.to_bits(), |w: u64| f64::from_bits(w));
        $each!(f32, |v: f32| u64::from(v.to_bits()), |w: u64| f32::from_bits(w as u32));
    };
}

/// The value as a plain one, if it is of a plain type. Which it is, the compiler knows: nothing of
/// the chain is left in a program.
#[inline(always)]
pub(crate) fn to_plain<V: 'static>(value: &V) -> Option<Plain> {
    let value: &dyn Any = value;
    if value.is::<()>() {
        return Some(Plain::Nothing);
    }
    macro_rules! try_type {
        ($type:ty, $to:expr, $_from:expr) => {
            if let Some(value) = value.downcast_ref::<$type>() {
                return Some(Plain::Word($to(*value)));
            }
        };
    }
    plain_types!(try_type);
    None
}

/// Whether `V` is a plain type, and if so how many words it takes.
#[inline(always)]
pub(crate) fn plain_words<V: 'static>() -> Option<usize> {
    from_plain::<V>(|| 0).map(|value| to_plain(&value).map_or(0, Plain::words))
}

/// The value of the plain type `V` with this word (which is only fetched if the type has one);
/// `None` if `V` is no plain type.
#[inline(always)]
pub(crate) fn from_plain<V: 'static>(word: impl FnOnce() -> u64) -> Option<V> {
    let mut value: Option<V> = None;
    let place: &mut dyn Any = &mut value;
    if let Some(place) = place.downcast_mut::<Option<()>>() {
        *place = Some(());
        return value;
    }
    macro_rules! try_type {
        ($type:ty, $_to:expr, $from:expr) => {
            if let Some(place) = place.downcast_mut::<Option<$type>>() {
                *place = Some($from(word()));
                return value;
            }
        };
    }
    plain_types!(try_type);
    None
}

/// The value of the plain type `V` from the bytes of its word: how a later reply carries it.
pub(crate) fn plain_from_bytes<V: 'static>(bytes: &[u8]) -> Result<V, CodecError> {
    let len = plain_words::<V>().map(|words| words * size_of::<u64>());
    let mut word = [0; size_of::<u64>()];
    match len {
        Some(len) if len == bytes.len() => {
            word[..len].copy_from_slice(bytes);
            Ok(from_plain(|| u64::from_le_bytes(word)).expect("a plain type"))
        }
        _ => {
            Err(CodecError(format!("{} bytes, not a {}", bytes.len(), std::any::type_name::<V>())))
        }
    }
}
