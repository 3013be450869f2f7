//! Plain values, which travel past the codec: as one word, or as nothing.

use std::any::{Any, TypeId};

use crate::error::CodecError;

/// What a plain value is: nothing, or one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plain {
    Nothing,
    Word(u64),
}

impl Plain {
    /// Words that it takes.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn words(self) -> usize {
        usize::from(self != Plain::Nothing)
    }

    /// Its word, if it has one.
    #[cfg_attr(optimised, inline(always))]
    pub(crate) fn word(self) -> Option<u64> {
        match self {
            Plain::Nothing => None,
            Plain::Word(word) => Some(word),
        }
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

/// The value as a plain one, if it is of a plain type. Which it is, an optimising compiler knows:
/// nothing of the chain is left in a program.
#[cfg_attr(optimised, inline(always))]
pub(crate) fn to_plain<V: 'static>(value: &V) -> Option<Plain> {
    if const { may_be_plain::<V>() } { any_to_plain(value) } else { None }
}

/// The chains, of which an unoptimised program has one copy: at each use they would be most of its
/// code, and of the time to compile it.
#[cfg_attr(optimised, inline(always))]
fn any_to_plain(value: &dyn Any) -> Option<Plain> {
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

/// See [`any_to_plain`].
#[cfg_attr(optimised, inline(always))]
fn any_words(value: TypeId) -> Option<usize> {
    if value == TypeId::of::<()>() {
        return Some(0);
    }
    macro_rules! try_type {
        ($type:ty, $_to:expr, $_from:expr) => {
            if value == TypeId::of::<$type>() {
                return Some(1);
            }
        };
    }
    plain_types!(try_type);
    None
}

/// Stores the plain value with this word in `place`, an `Option` of its type. See [`any_to_plain`].
#[cfg_attr(optimised, inline(always))]
fn store_plain(place: &mut dyn Any, word: u64) {
    if let Some(place) = place.downcast_mut::<Option<()>>() {
        *place = Some(());
    }
    macro_rules! try_type {
        ($type:ty, $_to:expr, $from:expr) => {
            if let Some(place) = place.downcast_mut::<Option<$type>>() {
                *place = Some($from(word));
                return;
            }
        };
    }
    plain_types!(try_type);
}

/// Whether `V` may be a plain type, as far as its layout says. Unlike [`plain_words`] it can be asked in a
/// `const` block: the compiler then makes no code for plain values of any other type, where it would make
/// and remove it otherwise, for each closure of a program.
pub(crate) const fn may_be_plain<V>() -> bool {
    size_of::<V>() <= size_of::<u64>() && !std::mem::needs_drop::<V>()
}

const _: () = {
    macro_rules! check {
        ($type:ty, $_to:expr, $_from:expr) => {
            assert!(may_be_plain::<$type>());
        };
    }
    assert!(may_be_plain::<()>());
    plain_types!(check);
};

/// Whether `V` is a plain type, and if so how many words it takes.
#[cfg_attr(optimised, inline(always))]
pub(crate) fn plain_words<V: 'static>() -> Option<usize> {
    if const { may_be_plain::<V>() } { any_words(TypeId::of::<V>()) } else { None }
}

/// The value of the plain type `V` with this word (which is only fetched if the type has one);
/// `None` if `V` is no plain type.
#[cfg_attr(optimised, inline(always))]
pub(crate) fn from_plain<V: 'static>(word: impl FnOnce() -> u64) -> Option<V> {
    if const { may_be_plain::<V>() } {
        let word = match plain_words::<V>()? {
            0 => 0,
            _ => word(),
        };
        let mut value: Option<V> = None;
        store_plain(&mut value, word);
        value
    } else {
        None
    }
}

/// The value of the plain type `V` from the bytes of its word: how a later reply carries it.
pub(super) fn plain_from_bytes<V: 'static>(bytes: &[u8]) -> Result<V, CodecError> {
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
