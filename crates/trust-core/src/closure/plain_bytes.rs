//! [`PlainBytes`]: results that travel as their bytes, past the codec, in their requests' places.

use std::mem::MaybeUninit;

use crate::wire::words::WORD;

/// A value that is its bytes, such as the result of a [`PlainCall`](crate::PlainCall).
///
/// # Safety
/// It has no padding, and any bytes are a value of it.
pub unsafe trait PlainBytes: Copy + 'static {}

// SAFETY: it has no bytes, so any are a value of it.
unsafe impl PlainBytes for () {}
// SAFETY: an integer has no padding, and any bytes are one.
unsafe impl PlainBytes for u64 {}
// SAFETY: integers one after the other.
unsafe impl<const N: usize> PlainBytes for [u64; N] {}

/// Words of a result; after a request's head it needs one less, as the first takes the head's place.
pub(crate) const fn result_words<R: PlainBytes>() -> usize {
    size_of::<R>().div_ceil(WORD)
}

/// Bytes of the word `index` that are bytes of `R`.
const fn bytes_of_word<R>(index: usize) -> usize {
    let left = size_of::<R>().saturating_sub(index * WORD);
    if left < WORD { left } else { WORD }
}

/// The word `index` of a value; what it does not fill is zero.
#[inline(always)]
pub(crate) fn word_of<R: PlainBytes>(value: &R, index: usize) -> u64 {
    let mut word = [0; WORD];
    let from = std::ptr::from_ref(value).cast::<u8>();
    // SAFETY: inside the value, all of whose bytes are initialised, and no more than a word.
    unsafe {
        let from = from.wrapping_add(index * WORD);
        std::ptr::copy_nonoverlapping(from, word.as_mut_ptr(), bytes_of_word::<R>(index));
    }
    u64::from_le_bytes(word)
}

/// The value of these words.
#[inline(always)]
pub(crate) fn value_of<R: PlainBytes>(word: impl Fn(usize) -> u64) -> R {
    let mut value = MaybeUninit::<R>::uninit();
    for index in 0..result_words::<R>() {
        let bytes = word(index).to_le_bytes();
        // SAFETY: inside the value, and no more than a word.
        unsafe {
            let to = value.as_mut_ptr().cast::<u8>().add(index * WORD);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes_of_word::<R>(index));
        }
    }
    // SAFETY: all bytes have been written, and any are a value.
    unsafe { value.assume_init() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(C)]
    struct Odd([u8; 11]);
    // SAFETY: an array of bytes has no padding, and any bytes are one.
    unsafe impl PlainBytes for Odd {}

    fn back<R: PlainBytes>(value: R) -> R {
        value_of(|index| word_of(&value, index))
    }

    #[test]
    fn values_of_every_size_come_back() {
        let odd = Odd(std::array::from_fn(|at| at as u8 + 1));
        assert_eq!(back(odd), odd);
        assert_eq!((word_of(&odd, 1), result_words::<Odd>()), (0x000b_0a09, 2));
        assert_eq!((back([1, 2, u64::MAX]), result_words::<[u64; 3]>()), ([1, 2, u64::MAX], 3));
        assert_eq!((back(7), result_words::<u64>()), (7, 1));
        back(());
        assert_eq!(result_words::<()>(), 0);
    }
}
