//! What a program sends: jams of the packages that it was built with ([`Jam`]), and jams that it got
//! while it ran ([`LoadedJam`]).

use std::any::type_name;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use jam_abi::entry::{Part, PropertyPart, Types};
use jam_abi::{Element, Jam};
use jam_format::{Digest, FunctionKind, Machine, functions_in};
use parking_lot::Mutex;

use crate::error::JamError;
use crate::package::element_code;

/// In which form a jam runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The first call to a trustee carries code, later ones a number that names it. If the receiver has
    /// evicted the code, the call is sent again with it.
    #[default]
    Automatic,
    /// Every call carries code.
    Injected,
    /// Calls carry the digest only, until the receiver asks for code.
    Cached,
    /// The Local Function of the receiver's own program. If the jam is in Rust, it has the program's profile:
    /// in a debug build it panics where arithmetic overflows, and injected code wraps.
    Local,
}

/// The code of a jam, or of a ried, for the machines of this rack.
#[derive(Clone)]
pub struct Code(Held);

/// Code of packages is never dropped, so that calls of it count nothing.
#[derive(Clone)]
pub(crate) enum Held {
    Static(&'static Inner),
    Counted(Arc<Inner>),
}

pub(crate) struct Inner {
    name: Box<str>,
    digest: Digest,
    /// The blob, and after it the proof that a signer answers for it, if there is one.
    wire: Box<[u8]>,
    /// That of both.
    wire_digest: Digest,
    blob_bytes: usize,
    is_everywhere: bool,
    /// The types of its functions, as its package has them; empty if it came without one.
    types: Box<str>,
}

impl From<&'static Inner> for Code {
    fn from(inner: &'static Inner) -> Self {
        Self(Held::Static(inner))
    }
}

impl From<Arc<Inner>> for Code {
    fn from(inner: Arc<Inner>) -> Self {
        Self(Held::Counted(inner))
    }
}

impl Inner {
    fn new(name: &str, bytes: &[u8]) -> Self {
        Self::signed(name, bytes, &[])
    }

    fn signed(name: &str, bytes: &[u8], proof: &[u8]) -> Self {
        let digest = Digest::of(bytes);
        let wire: Box<[u8]> = [bytes, proof].concat().into();
        let wire_digest = if proof.is_empty() { digest } else { Digest::of(&wire) };
        let (name, blob_bytes) = (name.into(), bytes.len());
        let (is_everywhere, types) = (false, Box::default());
        Inner { name, digest, wire, wire_digest, blob_bytes, is_everywhere, types }
    }
}

impl Code {
    /// Code with the proof that a signer answers for it, or none; `is_everywhere` if every process of
    /// the rack has been given its package.
    pub(crate) fn loaded(name: &str, bytes: &[u8], proof: &[u8], is_everywhere: bool) -> Self {
        let inner = Inner { is_everywhere, ..Inner::signed(name, bytes, proof) };
        Self(Held::Counted(Arc::new(inner)))
    }

    pub(crate) fn new(name: &str, bytes: &[u8]) -> Self {
        Self::loaded(name, bytes, &[], false)
    }

    /// With the text of the types of its functions.
    pub(crate) fn with_types(mut self, types: &str) -> Self {
        if let Held::Counted(inner) = &mut self.0
            && let Some(inner) = Arc::get_mut(inner)
        {
            inner.types = types.into();
        }
        self
    }

    /// The text of the types of its functions, for errors; may be empty.
    pub(crate) fn types(&self) -> &str {
        &self.inner().types
    }

    /// The code of a ried: a shared library, to [load](crate::load_ried) it.
    pub fn of_library(name: &str, library: &[u8]) -> Self {
        Self::new(name, library)
    }

    fn of_package(name: &str, bytes: &[u8], types: &str) -> Self {
        let inner = Inner { types: types.into(), ..Inner::new(name, bytes) };
        Self(Held::Static(Box::leak(Box::new(inner))))
    }

    pub(crate) fn held(&self) -> &Held {
        &self.0
    }

    pub(crate) fn inner(&self) -> &Inner {
        match &self.0 {
            Held::Static(inner) => inner,
            Held::Counted(inner) => inner,
        }
    }

    /// The name of the jam or ried.
    pub fn name(&self) -> &str {
        &self.inner().name
    }

    /// What receivers know it by.
    pub fn digest(&self) -> &Digest {
        &self.inner().digest
    }

    /// Its blob, or library.
    pub fn bytes(&self) -> &[u8] {
        &self.inner().wire[..self.inner().blob_bytes]
    }

    /// What a call carries that carries code: the blob, and after it the proof that a signer answers
    /// for it, if its package is signed.
    pub fn wire(&self) -> &[u8] {
        &self.inner().wire
    }

    /// The digest of [`wire`](Self::wire): another one for each proof.
    pub(crate) fn wire_digest(&self) -> &Digest {
        &self.inner().wire_digest
    }

    /// The proof that a signer answers for it; empty if its package is not signed.
    pub(crate) fn proof(&self) -> &[u8] {
        &self.inner().wire[self.inner().blob_bytes..]
    }

    /// Whether the first call to a trustee need not carry the code: every process has its package.
    pub(crate) fn is_everywhere(&self) -> bool {
        self.inner().is_everywhere
    }

    pub(crate) fn len(&self) -> u64 {
        self.inner().blob_bytes as u64
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Code").field("name", &self.name()).field("digest", self.digest()).finish()
    }
}

/// A jam with its types and the mode in which it is sent: a [`Jam`], a [`LoadedJam`], or what
/// [`in_mode`](Self::in_mode) makes of them.
pub trait Sendable {
    /// `&T` or `&mut T` of the opaque type that names the property; `()` for none.
    type Property: PropertyPart + 'static;
    /// The arguments.
    type Args: Part;
    /// The element of the payload.
    type Element: Part;
    /// The result.
    type Reply: Part;

    /// Its code.
    ///
    /// # Errors
    /// There is none for this machine.
    fn code(&self) -> Result<&Code, JamError>;

    /// The mode that [`in_mode`](Self::in_mode) has given it; `None` if it is sent as its sender says.
    fn own_mode(&self) -> Option<Mode> {
        None
    }

    /// How it is sent to a trust: in its own mode, by default [`Mode::Automatic`].
    fn mode(&self) -> Mode {
        self.own_mode().unwrap_or_default()
    }

    /// Which jam of a package it is, if it is one that is sent by its handle once that is known.
    #[doc(hidden)]
    fn element(&self) -> Option<&'static Element> {
        None
    }

    /// The same jam, sent in this mode.
    fn in_mode(&self, mode: Mode) -> InMode<'_, Self>
    where
        Self: Sized,
    {
        InMode { jam: self, mode }
    }
}

/// A jam that is sent in a mode of its own.
#[derive(Debug)]
pub struct InMode<'j, J> {
    jam: &'j J,
    mode: Mode,
}

impl<J: Sendable> Sendable for InMode<'_, J> {
    type Property = J::Property;
    type Args = J::Args;
    type Element = J::Element;
    type Reply = J::Reply;

    fn code(&self) -> Result<&Code, JamError> {
        self.jam.code()
    }

    fn own_mode(&self) -> Option<Mode> {
        Some(self.mode)
    }

    #[inline(always)]
    fn element(&self) -> Option<&'static Element> {
        self.jam.element().filter(|_| self.mode != Mode::Injected)
    }
}

impl<P: PropertyPart + 'static, A: Part, E: Part, R: Part> Sendable for Jam<P, A, E, R> {
    type Property = P;
    type Args = A;
    type Element = E;
    type Reply = R;

    #[inline(always)]
    fn element(&self) -> Option<&'static Element> {
        Some(Jam::element(self))
    }

    fn code(&self) -> Result<&Code, JamError> {
        let element = Jam::element(self);
        let place = (std::ptr::from_ref(element).addr() >> 4) % RECENT;
        RECENT_CODES.with(|recent| match recent[place].get() {
            Some((of, code)) if std::ptr::eq(of, element) => Ok(code),
            _ => {
                let code = code_of(element)?;
                recent[place].set(Some((element, code)));
                Ok(code)
            }
        })
    }
}

/// Places of the codes that a thread has sent recently.
const RECENT: usize = 16;

thread_local! {
    /// Each in the place that its element's address names.
    static RECENT_CODES: [Cell<Option<(&'static Element, &'static Code)>>; RECENT] =
        const { [const { Cell::new(None) }; RECENT] };
}

/// The code of an element, which is made once for the process and kept.
#[cold]
pub(crate) fn code_of(element: &'static Element) -> Result<&'static Code, JamError> {
    static CODES: Mutex<BTreeMap<usize, &'static Code>> = Mutex::new(BTreeMap::new());
    let mut codes = CODES.lock();
    let address = std::ptr::from_ref(element).addr();
    if let Some(code) = codes.get(&address) {
        return Ok(code);
    }
    let (code, types) = element_code(element).ok_or_else(|| no_code(element.name))?;
    let code: &'static Code = Box::leak(Box::new(Code::of_package(element.name, code, types)));
    codes.insert(address, code);
    Ok(code)
}

fn no_code(jam: &str) -> JamError {
    let machine = Machine::CURRENT.map_or(std::env::consts::ARCH, Machine::name);
    JamError::NoCode { jam: jam.to_owned(), machine }
}

/// A jam that the program was not built with, from a blob or from a [`Package`](crate::Package). The
/// parameters are its property, arguments, payload element and result, which are compared with the
/// types that it was built with.
pub struct LoadedJam<P, A, E, R> {
    code: Code,
    types: PhantomData<fn(P, A, E) -> R>,
}

impl<P: PropertyPart, A: Part, E: Part, R: Part> LoadedJam<P, A, E, R> {
    /// The jam in a blob.
    ///
    /// # Errors
    /// The bytes are no blob, it is for another machine, or it has other types.
    pub fn from_blob(bytes: &[u8]) -> Result<Self, JamError> {
        Self::from_signed(bytes, &[], false, "")
    }

    /// The jam in a blob, with the bytes of a proof after it, if there are any.
    pub(crate) fn from_signed(
        bytes: &[u8],
        proof: &[u8],
        is_everywhere: bool,
        types: &str,
    ) -> Result<Self, JamError> {
        let unusable = |jam: &str, reason| JamError::Unusable { jam: jam.to_owned(), reason };
        let blob = jam_format::Parsed::parse(bytes).map_err(|e| unusable("?", e.to_string()))?;
        if Machine::CURRENT != Some(blob.machine()) {
            return Err(no_code(blob.name()));
        }
        let (wanted, found) = (Types::<P, A, E, R>::SIGNATURE, blob.entry_signature());
        if wanted != found {
            let mut entries = functions_in(types).filter(|f| f.kind == FunctionKind::Entry);
            let entry =
                entries.next().map_or(String::new(), |entry| format!(" is `{entry}`, which"));
            let (property, args) = (type_name::<P>(), type_name::<A>());
            let (element, reply) = (type_name::<E>(), type_name::<R>());
            let reason = format!(
                "its entry{entry} has signature {found:016x}, expected {wanted:016x}, that of \
                 `fn({property}, {args}, &[{element}]) -> {reply}`: its property, arguments, payload or result have other types; compare \
                 them with `gossamer jam inspect`"
            );
            return Err(unusable(blob.name(), reason));
        }
        let code = Code::loaded(blob.name(), bytes, proof, is_everywhere).with_types(types);
        Ok(Self { code, types: PhantomData })
    }
}

impl<P, A, E, R> Clone for LoadedJam<P, A, E, R> {
    fn clone(&self) -> Self {
        Self { code: self.code.clone(), types: PhantomData }
    }
}

impl<P, A, E, R> fmt::Debug for LoadedJam<P, A, E, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LoadedJam").field(&self.code).finish()
    }
}

impl<P: PropertyPart + 'static, A: Part, E: Part, R: Part> Sendable for LoadedJam<P, A, E, R> {
    type Property = P;
    type Args = A;
    type Element = E;
    type Reply = R;

    fn code(&self) -> Result<&Code, JamError> {
        Ok(&self.code)
    }
}
