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
