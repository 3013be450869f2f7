//! What a thread knows of the jams at its trustees: which have its code, and their handles.
//!
//! Each pair of jam and trustee is remembered in the place that its hash names. One that another has
//! displaced sends its code once more. In front of them are the pairs that were used last of jams of
//! packages, whose code is never dropped: what a call needs is all in one place there. A Local Function is
//! another jam here.
//!
//! A jam of a package has a [`Key`] as well, by which consecutive calls are found to be of the same
//! jam before anything is looked up.

use std::cell::{Cell, RefCell};
use std::num::NonZero;
use std::ptr;

use jam_abi::Element;

use crate::handles;
use crate::sender::{Code, Held, Inner, Mode};

const PLACES: usize = 256;

#[derive(Clone, Copy)]
struct Known {
    /// Whose code it is; null for nobody's.
    code: *const Inner,
    /// The thread of the trustee, with [`LOCAL`] beside it where the handle is of the Local Function.
    home: u64,
    /// What calls carry ([`handles::word`]); 0 where the handle is not known.
    word: u64,
}

const NOTHING: Known = Known { code: ptr::null(), home: 0, word: 0 };

/// No thread's.
const LOCAL: u64 = 1 << 63;

const RECENT_PLACES: usize = 64;

/// A jam of a package, or its Local Function: its address, of which the lowest bit says which.
pub(super) type Key = NonZero<usize>;

/// The key of a jam that is sent in this mode, which is not [`Mode::Injected`].
#[inline(always)]
pub(super) fn key_of(element: &'static Element, mode: Mode) -> Key {
    const { assert!(align_of::<Element>() > 1) };
    ptr::NonNull::from(element).addr() | usize::from(mode == Mode::Local)
}

/// A jam of a package, at a trustee to which its handle is known.
#[derive(Clone, Copy)]
struct Recent {
    key: Key,
    /// The thread of the trustee.
    home: u64,
    word: u64,
    code: &'static Inner,
}

thread_local! {
    static RECENT: [Cell<Option<Recent>>; RECENT_PLACES] =
        const { [const { Cell::new(None) }; RECENT_PLACES] };
    static KNOWN: [Cell<Known>; PLACES] = const { [const { Cell::new(NOTHING) }; PLACES] };
    /// The codes of all places, so that no address becomes another's.
    static CODES: RefCell<Vec<Option<Code>>> = const { RefCell::new(Vec::new()) };
}

#[inline(always)]
fn place(code: *const Inner, home: u64) -> usize {
    let hash = (code.addr() as u64 >> 4 ^ home).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> 56) as usize % PLACES
}

#[inline(always)]
fn recent_place(key: Key, home: u64) -> usize {
    ((key.get() >> 4) ^ home as usize) % RECENT_PLACES
}

/// The code of the jam with this key, and the word by which calls to the trustee name it, if this thread has
/// [noted](note) them lately.
#[inline(always)]
pub(super) fn recent(key: Key, home: u64) -> Option<(&'static Inner, u64)> {
    let recent = RECENT.with(|recent| recent[recent_place(key, home)].get())?;
    (recent.key == key && recent.home == home).then_some((recent.code, recent.word))
}

/// Notes a pair for [`recent`], if its code is that of a package.
pub(super) fn note(key: Key, home: u64, word: u64, code: &Code) {
    if let Held::Static(code) = code.held() {
        let recent = Recent { key, home, word, code };
        RECENT.with(|places| places[recent_place(key, home)].set(Some(recent)));
    }
}

/// The word by which calls of this jam to the trustee name it, if that is known.
#[inline(always)]
pub(super) fn handle(code: &Code, home: u64, mode: Mode) -> Option<u64> {
    let home = match mode {
        Mode::Automatic | Mode::Cached => home,
        Mode::Local => home | LOCAL,
        Mode::Injected => return None,
    };
    let code = ptr::from_ref(code.inner());
    let known = KNOWN.with(|known| known[place(code, home)].get());
    (known.code == code && known.home == home && known.word != 0).then_some(known.word)
}

/// Whether this thread has sent the code to the trustee; from now on it has.
pub(super) fn has_code(code: &Code, home: u64) -> bool {
    let inner = ptr::from_ref(code.inner());
    let known = KNOWN.with(|known| known[place(inner, home)].get());
    let has_code = known.code == inner && known.home == home;
    if !has_code {
        remember(code, home, 0);
    }
    has_code
}

/// Notes the handle that a trustee has given.
pub(super) fn learn(code: &Code, home: u64, mode: Mode, handle: u64) {
    let host = trust_core::local_trustee().trustee().thread().host.0;
    let home = if mode == Mode::Local { home | LOCAL } else { home };
    remember(code, home, handles::word(handle, host));
}

fn remember(code: &Code, home: u64, word: u64) {
    let inner = ptr::from_ref(code.inner());
    let place = place(inner, home);
    // A thread whose values are being dropped remembers nothing: the codes would be gone.
    let _ = CODES.try_with(|codes| {
        let mut codes = codes.borrow_mut();
        codes.resize(PLACES, None);
        let before = codes[place].replace(code.clone());
        KNOWN.with(|known| known[place].set(Known { code: inner, home, word }));
        // They may have another word of it.
        RECENT.with(|recent| recent.iter().for_each(|place| place.set(None)));
        drop(codes);
        drop(before);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code that is never dropped, as that of packages.
    fn code_of_package() -> Code {
        let code: &'static Code = Box::leak(Box::new(Code::new("jam", b"code")));
        Code::from(code.inner())
    }

    fn key(number: usize) -> Key {
        Key::new(number).expect("a number that is not 0")
    }

    /// They are threads of processes that have linked other jams under the same handles.
    #[test]
    fn the_word_of_one_trustee_is_not_sent_to_another() {
        let code = code_of_package();
        let place_of = |home| place(code.inner(), home);
        let one = 1;
        // With the same place, in which the last one stays.
        let mut others = (2..).filter(|home| place_of(*home) == place_of(one));
        let (two, three) = (others.next().expect("one"), others.next().expect("another"));
        remember(&code, one, 7);
        assert_eq!(handle(&code, one, Mode::Automatic), Some(7));
        assert_eq!(handle(&code, one, Mode::Cached), Some(7));
        assert_eq!(handle(&code, one, Mode::Injected), None);
        assert_eq!(handle(&code, one, Mode::Local), None, "that is another jam");
        assert_eq!(handle(&code, two, Mode::Automatic), None);
        remember(&code, two, 9);
        assert_eq!(handle(&code, two, Mode::Automatic), Some(9));
        assert_eq!(handle(&code, one, Mode::Automatic), None, "it was displaced");
        assert!(!has_code(&code, three) && has_code(&code, three));
        assert_eq!(handle(&code, three, Mode::Automatic), None, "its handle has not come");
        assert!(!has_code(&code, two));
    }

    #[test]
    fn a_recent_word_is_that_of_one_jam_at_one_trustee() {
        let (code, jam) = (code_of_package(), key(0x1000));
        let word = |jam, home| recent(jam, home).map(|(_, word)| word);
        note(jam, 1, 7, &code);
        assert_eq!(word(jam, 1), Some(7));
        // All of these have its place.
        for (other, home) in [(jam, 1 + RECENT_PLACES as u64), (jam | 1, 1), (key(0x2000), 1)] {
            assert_eq!(recent_place(other, home), recent_place(jam, 1));
            assert_eq!(word(other, home), None, "{other:x} at {home}");
        }
        let counted = Code::new("jam", b"code");
        note(key(0x1010), 1, 8, &counted);
        assert_eq!(word(key(0x1010), 1), None, "its code may be dropped");
    }

    /// A trustee that has evicted the code and linked it again names it by another handle.
    #[test]
    fn a_recent_word_ends_when_another_is_learned() {
        let (code, jam) = (code_of_package(), key(0x1000));
        remember(&code, 1, 7);
        note(jam, 1, 7, &code);
        assert!(recent(jam, 1).is_some());
        remember(&code, 1, 9);
        assert!(recent(jam, 1).is_none());
        assert_eq!(handle(&code, 1, Mode::Automatic), Some(9));
    }
}
