//! What the victim has: properties of several types, and closures of all kinds in its table.

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use gossamer_trust_core::{
    Delegable, Latch, LocalTrustee, PlainCall, Step, Trustee, local_trustee,
};
use serde::{Deserialize, Serialize};

/// Whether a closure has ever met a property of another type.
pub(crate) static MISTAKEN: AtomicBool = AtomicBool::new(false);
/// Whether a call of so many bytes has ever been served with another number of them.
pub(crate) static MISCOUNTED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Closures that have run on this thread.
    pub(crate) static RUN: Cell<u64> = const { Cell::new(0) };
}

/// A property that knows its type at run time too.
struct Sealed<const N: u64> {
    seal: [u64; 4],
    noted: u64,
}

impl<const N: u64> Sealed<N> {
    fn new() -> Self {
        Sealed { seal: [N; 4], noted: 0 }
    }
    fn touch(&mut self, value: u64) -> u64 {
        RUN.set(RUN.get() + 1);
        if self.seal != [N; 4] {
            MISTAKEN.store(true, SeqCst);
        }
        self.noted = self.noted.wrapping_add(value);
        self.noted
    }
    fn touch_unless_13(&mut self, value: u64) -> u64 {
        assert_ne!(value, 13, "thirteen, on purpose");
        self.touch(value)
    }
}

/// A call of plain bytes, of so many, or of any number if 0.
struct Plain<const BYTES: usize>;

/// Bytes of a call that is too long for the stack.
pub(crate) const LONG: usize = 200;

impl<const BYTES: usize> PlainCall<Sealed<1>> for Plain<BYTES> {
    const BYTES: Option<usize> = if BYTES == 0 { None } else { Some(BYTES) };
    type Run = u64;
    type Reply = [u64; 2];
    type Error = String;

    fn serve(
        run: &mut u64,
        sealed: &mut Sealed<1>,
        word: u64,
        bytes: &[u8],
    ) -> Result<[u64; 2], String> {
        *run += 1;
        assert!(bytes.as_ptr().addr().is_multiple_of(16));
        if Self::BYTES.is_some_and(|len| bytes.len() != len) {
            MISCOUNTED.store(true, SeqCst);
        }
        if word == 3 { Err(format!("three, {bytes:?}")) } else { Ok([sealed.touch(word), *run]) }
    }
}

/// A call of plain bytes whose result, its word four times, is longer than its request may be.
struct Wide;

impl PlainCall<Sealed<1>> for Wide {
    const BYTES: Option<usize> = None;
    type Run = ();
    type Reply = [u64; 4];
    type Error = String;

    fn serve(_: &mut (), sealed: &mut Sealed<1>, word: u64, _: &[u8]) -> Result<[u64; 4], String> {
        sealed.touch(word);
        Ok([word; 4])
    }
}

/// A value that holds one of its own type: one byte per level.
#[derive(Serialize, Deserialize)]
struct Chain(Option<Box<Chain>>);

/// What was seen of lent arguments: at the first look at them (0), at the second one (1), or by the call (2).
pub(crate) type Seen = (u8, u64, Vec<u8>);

thread_local! {
    /// What this thread has seen of lent arguments.
    pub(crate) static SEEN: RefCell<Vec<Seen>> = const { RefCell::new(Vec::new()) };
    /// What is to be done once, at the next first look.
    pub(crate) static AT_FIRST_LOOK: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

fn see(step: u8, number: u64, bytes: &[u8]) {
    SEEN.with_borrow_mut(|seen| seen.push((step, number, bytes.to_vec())));
    if let Some(act) = AT_FIRST_LOOK.take() {
        act();
    }
}

/// A property whose calls have lent arguments, and which shows parts of itself.
struct Lent {
    sealed: Sealed<4>,
    text: Vec<u8>,
}

/// Its number.
pub(crate) const LENT: u32 = 5;

/// The byte that its text consists of.
pub(crate) const SHOWN: u8 = b'w';

/// How much of it a call with this number is shown: nothing, what has no room in the slot, what has none
/// where the request was, or little.
pub(crate) fn shown(number: u64) -> Option<usize> {
    match number % 16 {
        3 => None,
        15 => Some(60_000),
        other if other % 2 == 1 => Some(300),
        _ => Some(3),
    }
}

impl Lent {
    fn new() -> Self {
        Lent { sealed: Sealed::new(), text: vec![SHOWN; 60_000] }
    }
    fn show(&mut self, number: u64) -> Option<&[u8]> {
        self.sealed.touch(number);
        shown(number).map(|len| &self.text[..len])
    }
}

/// Properties that the victim has, beside the one that every node has.
pub(crate) const PROPERTIES: u32 = 5;

pub(crate) fn entrust_properties(local: LocalTrustee) {
    std::mem::forget(local.entrust(Sealed::<1>::new()));
    std::mem::forget(local.entrust(Sealed::<2>::new()));
    std::mem::forget(local.entrust(Latch::new(Sealed::<3>::new())));
    std::mem::forget(local.entrust(String::from("text")));
    std::mem::forget(local.entrust(Lent::new()));
}

/// Puts closures of all kinds into this program's table, those of the runtime with them.
fn delegate_everything(local: LocalTrustee) {
    fn spawn(trustee: Trustee, closure: impl FnOnce(Vec<u32>) -> u64 + Delegable) {
        drop(trustee.spawn_with(closure, vec![1]));
    }
    let one = local.entrust(Sealed::<1>::new());
    one.apply(|sealed| sealed.touch(1));
    one.apply_with(|sealed, text: String| sealed.touch(text.len() as u64), String::new());
    one.apply_with(|sealed, words: Vec<u64>| (sealed.touch(1), words), vec![]);
    let two = local.entrust(Sealed::<2>::new());
    two.apply_with(Sealed::touch, 1);
    two.apply_with(Sealed::touch_unless_13, 1);
    two.apply_with(|two, pair: (bool, char)| (two.touch(1), pair), (true, 'x'));
    two.apply_with(|two, other| (two.touch(1), other).1, one.clone());
    two.apply(|two| two.touch(1) > 0);
    let three = local.entrust(Latch::new(Sealed::<3>::new()));
    three.launch_with(|three, words: Vec<u8>| three.touch(words.len() as u64), vec![]);
    let text = local.entrust(String::new());
    text.apply_with(|text, more: char| text.push(more), 'x');
    text.apply_with(
        |text, chain: Chain| text.push(if chain.0.is_some() { 'x' } else { 'y' }),
        Chain(None),
    );
    text.apply_with(|_, nothing: Vec<()>| nothing.len() as u64, vec![]);
    assert!(one.plain_call::<Plain<11>>(1, &[2; 11], &[]).is_none());
    assert!(one.plain_call::<Plain<LONG>>(1, &[2; LONG], &[]).is_none());
    assert!(one.plain_call::<Plain<0>>(1, &[2; 11], &[&[3; 9], &[4; 2]]).is_none());
    assert!(one.plain_call::<Wide>(1, &[], &[]).is_none());
    let lent = local.entrust(Lent::new());
    lent.lend((1u64, &[2][..])).apply_with_prefetch(
        |_, (number, bytes), step| see(u8::from(step == Step::Second), *number, bytes),
        |lent, (number, bytes)| {
            lent.sealed.touch(number);
            see(2, number, bytes);
        },
    );
    let shown = lent.lend((1u64, &[2][..])).apply_ref_with_prefetch(
        |_, (number, bytes), step| see(u8::from(step == Step::Second), *number, bytes),
        |lent, (number, bytes)| {
            see(2, number, bytes);
            lent.show(number)
        },
        |shown| shown.map(<[u8]>::len),
    );
    black_box(shown);
    lent.lend("text").apply(|_, text| text.len() as u64);
    let trustee = local.trustee();
    spawn(trustee, |words| words.len() as u64);
    drop(trustee.entrust(5u32));
    drop(trustee.entrust_with(|n: u8| vec![n; 3], 1));
    drop(trustee.entrust_moved(vec![String::new()]));
    trustee.visit_node(|node, ()| node.outstanding(), ());
}

/// Has the program delegate everything, so that its table has it.
pub(crate) fn fill_table() {
    if black_box(std::env::args().count()) == usize::MAX {
        delegate_everything(local_trustee());
    }
}
