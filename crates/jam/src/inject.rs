//! [`Inject`]: running a jam on a property of any trustee of the rack.
//!
//! It is an ordinary delegated call, so order, batches and flow control are those of `apply`. Its
//! closure is [`serve`], which knows the types of the property, arguments and result; its argument
//! names the jam by its digest:
//!
//! ```text
//!   sender                                      trustee
//!   first call to this trustee: with code  -->  verify, link, run
//!                                          <--  result, and the handle of the linked jam
//!   until that is here: digest only        -->  run
//!   later ones: handle only                -->  run
//!                                          <--  NeedCode (it was evicted)
//!   the same call again, with code         -->  verify, link, run
//! ```
//!
//! Requests of one thread to one trustee are served in order, so that a call behind the first finds
//! the code there. Calls by [handle](crate::handles) are plain ([`trust_core::PlainCall`]) and in
//! `inject/by_handle.rs`; what a thread knows of its trustees is in `inject/known.rs`.

mod by_handle;
mod known;

use std::any::Any;
use std::cell::RefCell;
use std::rc::{Rc, Weak};

use jam_abi::entry::{Part, PropertyPart, Types};
use jam_abi::{Call, code};
use jam_format::Digest;
use serde::{Deserialize, Serialize};
use trust_core::{DelegateError, Trust};

use crate::error::{JamError, Refusal};
use crate::plain_bytes::{Payload, Value};
use crate::receiver::{Failure, receiver};
use crate::sender::{Code, Held, Mode, Sendable};
use crate::symbols::export::Open;

/// A call as it travels.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
struct Request<A: Part> {
    /// The halves of the digest; the number of the sending host, with [`LOCAL`] and
    /// [`WANTS_HANDLE`] beside it.
    head: Value<[u64; 3]>,
    args: Value<A>,
    more: Option<Box<More>>,
}

/// What only some calls have.
#[derive(Default, Serialize, Deserialize)]
struct More {
    payload: Payload,
    code: Option<Payload>,
}

/// The Local Function is meant.
const LOCAL: u64 = 1 << 32;
/// The answer is to have the jam's handle.
const WANTS_HANDLE: u64 = 1 << 33;

/// How a call has ended: a result, which counts only without a failure, and the jam's handle or 0.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
struct Answer<R: Part>(Value<R>, u64, Option<Box<Failure>>);

/// Runs jams on a property: implemented for `Trust<T>`, where the crate of `T` has
/// [opened](crate::open) it to jams.
pub trait Inject<T: 'static> {
    /// Runs `jam` on the property with `args` and `payload`, and returns its result, waiting for it as
    /// [`Trust::apply`] does. The first call to a trustee carries the jam's code; later ones name it.
    ///
    /// # Errors
    /// [`JamError`]: the jam panicked, its receiver refused it, or the call failed as any delegated
    /// call can. The property and its trustee continue in each case.
    ///
    /// # Panics
    /// In delegated context, where waiting is not allowed; and if the jam is for another type of
    /// property than `T`.
    #[track_caller]
    fn inject<J: Sendable>(
        &self,
        jam: &J,
        args: J::Args,
        payload: &[J::Element],
    ) -> Result<J::Reply, JamError>
    where
        T: Open;

    /// As [`inject`](Self::inject), without waiting: `then` is called with the result on this thread.
    /// Allowed in delegated context, too.
    ///
    /// A call that finds its jam evicted is sent again with the code, behind those that were sent
    /// meanwhile; all others are served in the order of `apply_then`.
    #[track_caller]
    fn inject_then<J: Sendable>(
        &self,
        jam: &J,
        args: J::Args,
        payload: &[J::Element],
        then: impl FnOnce(Result<J::Reply, JamError>) + 'static,
    ) where
        T: Open;
}

impl<T: 'static> Inject<T> for Trust<T> {
    #[inline]
    fn inject<J: Sendable>(
        &self,
        jam: &J,
        args: J::Args,
        payload: &[J::Element],
    ) -> Result<J::Reply, JamError>
    where
        T: Open,
    {
        check_property::<T, J>();
        let code = jam.code()?;
        if let Some(word) = known::handle(code, self.home(), jam.mode())
            && let Some(ended) = by_handle::call::<T, J>(self, word, args, payload)
        {
            return match ended {
                Ok(Ok(reply)) => Ok(reply.value()),
                Err(source) => Err(JamError::Delegate { jam: code.name().to_owned(), source }),
                Ok(Err(missed)) => match failed(code, *missed.failure) {
                    Some(error) => Err(error),
                    // It was evicted since.
                    None => self.inject_by_digest(jam, code, true, args, payload),
                },
            };
        }
        let with_code = carries_code(self.home(), code, jam.mode());
        self.inject_by_digest(jam, code, with_code, args, payload)
    }

    #[inline]
    fn inject_then<J: Sendable>(
        &self,
        jam: &J,
        args: J::Args,
        payload: &[J::Element],
        then: impl FnOnce(Result<J::Reply, JamError>) + 'static,
    ) where
        T: Open,
    {
        check_property::<T, J>();
        let code = match jam.code() {
            Ok(code) => code,
            Err(error) => return then(Err(error)),
        };
        let Some(word) = known::handle(code, self.home(), jam.mode()) else {
            return self.inject_by_digest_then(jam, code, args, payload, then);
        };
        // A pointer is all that the callback of a call by handle keeps beside its caller's.
        let unsent = match code.held() {
            Held::Static(inner) => {
                by_handle::call_then::<T, J, _, _>(self, word, args, payload, *inner, then)
            }
            Held::Counted(inner) => {
                by_handle::call_then::<T, J, _, _>(self, word, args, payload, inner.clone(), then)
            }
        };
        if let Err(then) = unsent {
            self.inject_by_digest_then(jam, code, args, payload, then);
        }
    }
}

/// Calls that name a jam by its digest: the first ones to a trustee, and those with code.
trait ByDigest<T: 'static> {
    fn inject_by_digest<J: Sendable>(
        &self,
        jam: &J,
        code: &Code,
        with_code: bool,
        args: J::Args,
        payload: &[J::Element],
    ) -> Result<J::Reply, JamError>
    where
        T: Open;

    fn inject_by_digest_then<J: Sendable>(
        &self,
        jam: &J,
        code: &Code,
        args: J::Args,
        payload: &[J::Element],
        then: impl FnOnce(Result<J::Reply, JamError>) + 'static,
    ) where
        T: Open;
}

impl<T: 'static> ByDigest<T> for Trust<T> {
    #[inline(never)]
    fn inject_by_digest<J: Sendable>(
        &self,
        jam: &J,
        code: &Code,
        mut with_code: bool,
        args: J::Args,
        payload: &[J::Element],
    ) -> Result<J::Reply, JamError>
    where
        T: Open,
    {
        let from = Origin { home: self.home(), mode: jam.mode() };
        loop {
            let request = request::<J>(code, jam.mode(), with_code, args, payload);
            let answer = self
                .try_apply_with(serve::<T, J::Property, J::Args, J::Element, J::Reply>, request);
            match result(code, from, answer) {
                // It was evicted since. With its code it is linked, unless others take its place.
                Err(None) if !with_code => with_code = true,
                Err(None) => return Err(no_room(code)),
                Err(Some(error)) => return Err(error),
                Ok(reply) => return Ok(reply),
            }
        }
    }

    #[inline(never)]
    fn inject_by_digest_then<J: Sendable>(
        &self,
        jam: &J,
        code: &Code,
        args: J::Args,
        payload: &[J::Element],
        then: impl FnOnce(Result<J::Reply, JamError>) + 'static,
    ) where
        T: Open,
    {
        let (code, mode) = (code.clone(), jam.mode());
        let from = Origin { home: self.home(), mode };
        let with_code = carries_code(self.home(), &code, mode);
        let first = request::<J>(&code, mode, with_code, args, payload);
        // Kept only where it may have to be sent again.
        let again = (!with_code).then(|| (shared(self), Payload::of(payload)));
        self.try_apply_with_then(
            serve::<T, J::Property, J::Args, J::Element, J::Reply>,
            first,
            move |answer| match (result(&code, from, answer), again) {
                (Ok(reply), _) => then(Ok(reply)),
                (Err(Some(error)), _) => then(Err(error)),
                (Err(None), None) => then(Err(no_room(&code))),
                (Err(None), Some((trust, payload))) => {
                    let trust = trust.downcast_ref::<Trust<T>>().expect("it is of this property");
                    send_code_then::<T, J>(trust, code, mode, args, payload, then);
                }
            },
        );
    }
}

/// Sends a call that has found its jam evicted again, with the code.
#[cold]
#[inline(never)]
fn send_code_then<T: Open, J: Sendable>(
    trust: &Trust<T>,
    code: Code,
    mode: Mode,
    args: J::Args,
    payload: Payload,
    then: impl FnOnce(Result<J::Reply, JamError>) + 'static,
) {
    let from = Origin { home: trust.home(), mode };
    let mut request = request::<J>(&code, mode, true, args, &[]);
    request.more.get_or_insert_default().payload = payload;
    trust.try_apply_with_then(
        serve::<T, J::Property, J::Args, J::Element, J::Reply>,
        request,
        move |answer| {
            let ended = result(&code, from, answer);
            then(ended.map_err(|error| error.unwrap_or_else(|| no_room(&code))));
        },
    );
}

/// What a sender remembers of a call by digest, to learn the jam's handle.
#[derive(Clone, Copy)]
struct Origin {
    /// The trustee.
    home: u64,
    mode: Mode,
}

/// Trusts of calls that may have to be sent again.
const SHARED: usize = 16;

thread_local! {
    /// The trust that this thread has shared last for each of some trustees.
    static LAST_SHARED: RefCell<[Weak<dyn Any>; SHARED]> =
        RefCell::new(std::array::from_fn(|_| Weak::<()>::new() as Weak<dyn Any>));
}

/// A trust of the same property, shared by the calls of this thread that are outstanding: a clone for
/// each would have each send a request when it is dropped.
fn shared<T: 'static>(trust: &Trust<T>) -> Rc<dyn Any> {
    let place = trust.trustee().thread().thread as usize % SHARED;
    let before = LAST_SHARED.with_borrow(|all| all[place].upgrade());
    let is_it = |any: &Rc<dyn Any>| any.downcast_ref().is_some_and(|other| trust.is_same(other));
    before.filter(is_it).unwrap_or_else(|| {
        let fresh: Rc<dyn Any> = Rc::new(trust.clone());
        LAST_SHARED.with_borrow_mut(|all| all[place] = Rc::downgrade(&fresh));
        fresh
    })
}

/// Whether a call to the trustee has to carry the code.
fn carries_code(home: u64, code: &Code, mode: Mode) -> bool {
    match mode {
        Mode::Injected => true,
        Mode::Cached | Mode::Local => false,
        Mode::Automatic if code.is_everywhere() => false,
        Mode::Automatic => !known::has_code(code, home),
    }
}

fn halves(digest: &Digest) -> (u64, u64) {
    let whole = u128::from_le_bytes(*digest.as_bytes());
    (whole as u64, (whole >> 64) as u64)
}

#[inline(always)]
#[track_caller]
fn check_property<T: Open, J: Sendable>() {
    let name = <J::Property as PropertyPart>::NAME;
    assert!(
        const { is_for::<T, J::Property>() },
        "the jam works on a property {name:?}, the trust is of {:?}",
        T::NAME
    );
}

/// Whether a jam with the property `P` may run on a `T`.
const fn is_for<T: Open, P: PropertyPart>() -> bool {
    let (wanted, found) = (P::NAME.as_bytes(), T::NAME.as_bytes());
    if wanted.is_empty() {
        return true;
    }
    let mut is_same = wanted.len() == found.len();
    let mut at = 0;
    while is_same && at < wanted.len() {
        is_same = wanted[at] == found[at];
        at += 1;
    }
    is_same
}

fn request<J: Sendable>(
    code: &Code,
    mode: Mode,
    with_code: bool,
    args: J::Args,
    payload: &[J::Element],
) -> Request<J::Args> {
    let mut flags = if mode == Mode::Local { LOCAL } else { 0 };
    if mode != Mode::Injected {
        flags |= WANTS_HANDLE;
    }
    let host = trust_core::local_trustee().trustee().thread().host.0;
    let (low, high) = halves(code.digest());
    let more = (with_code || !payload.is_empty()).then(|| {
        let code = with_code.then(|| Payload::of_bytes(code.wire()));
        Box::new(More { payload: Payload::of(payload), code })
    });
    Request { head: Value::new([low, high, u64::from(host) | flags]), args: Value::new(args), more }
}

fn digest(low: u64, high: u64) -> Digest {
    Digest::from_bytes((u128::from(low) | u128::from(high) << 64).to_le_bytes())
}

/// The delegated closure.
fn serve<T: Open, P: PropertyPart, A: Part, E: Part, R: Part>(
    property: &mut T,
    request: Request<A>,
) -> Answer<R> {
    match run::<T, P, A, E, R>(property, &request) {
        Ok(reply) => {
            let [low, high, flags] = request.head.get();
            let wants_handle = flags & WANTS_HANDLE != 0;
            let handle = || receiver().handle(&digest(low, high), flags & LOCAL != 0);
            Answer(reply, if wants_handle { handle() } else { 0 }, None)
        }
        Err(failure) => failure_of(failure),
    }
}

#[cold]
fn failure_of<R: Part>(failure: Failure) -> Answer<R> {
    Answer(Value::zeroed(), 0, Some(Box::new(failure)))
}

#[inline]
fn run<T: Open, P: PropertyPart, A: Part, E: Part, R: Part>(
    property: &mut T,
    request: &Request<A>,
) -> Result<Value<R>, Failure> {
    let receiver = receiver();
    let Request { head, args, more } = request;
    let [low, high, sender] = head.get();
    let digest = digest(low, high);
    if const { !is_for::<T, P>() } {
        return Err(wrong_property(P::NAME, T::NAME));
    }
    let mut reply = Value::<R>::zeroed();
    let context = receiver.context(sender as u32);
    let (payload, payload_len) = match more {
        Some(more) => (more.payload.as_ptr(), more.payload.len()),
        None => (args.as_ptr(), 0),
    };
    // A peer wrote the length, and entries in C do not compare it themselves.
    if !is_whole::<E>(payload_len) {
        return Err(Refusal::Entry { code: code::PAYLOAD_LENGTH }.into());
    }
    let mut call = Call {
        property: std::ptr::from_mut(property).cast(),
        args: args.as_ptr(),
        args_len: A::BYTES,
        payload,
        payload_len,
        reply: reply.as_mut_ptr(),
        reply_capacity: R::BYTES,
        reply_len: 0,
        context: &raw const context,
    };
    let signature = Types::<P, A, E, R>::SIGNATURE;
    // SAFETY: the property is a `T`, which has the name that the signature covers, and this closure
    // has it for itself; the other parts have the types of the signature and live until the return;
    // a delegated closure does not wait.
    unsafe {
        if sender & LOCAL != 0 {
            receiver.run_local(&digest, signature, &mut call)?;
            return Ok(reply);
        }
        let code = || more.as_ref().and_then(|more| more.code.as_ref());
        match receiver.run(&digest, signature, &mut call) {
            // Code that is here already is not looked at: its digest says that it is the same.
            Err(Failure::NeedCode) => {
                let code = code();
                // Another thread may evict it again before this one runs it.
                let mut ended = Err(Failure::NeedCode);
                for _ in 0..MAX_LINKS {
                    match code {
                        Some(code) => receiver.receive(code.bytes(), digest)?,
                        None if receiver.link_arrived(None, &digest)? => {}
                        None => return Err(Failure::NeedCode),
                    }
                    ended = receiver.run(&digest, signature, &mut call);
                    if ended != Err(Failure::NeedCode) {
                        break;
                    }
                }
                ended?;
            }
            ended => ended?,
        }
    }
    Ok(reply)
}

/// How often a call that has its code links it at most.
const MAX_LINKS: u32 = 4;

/// Whether a payload of `len` bytes consists of whole elements.
fn is_whole<E: Part>(len: usize) -> bool {
    if E::BYTES == 0 { len == 0 } else { len.is_multiple_of(E::BYTES) }
}

#[cold]
fn wrong_property(wanted: &str, found: &str) -> Failure {
    Refusal::WrongProperty { wanted: wanted.to_owned(), found: found.to_owned() }.into()
}

/// What the sender gets; `Err(None)` if the code is not there.
fn result<R: Part>(
    code: &Code,
    from: Origin,
    answer: Result<Answer<R>, DelegateError>,
) -> Result<R, Option<JamError>> {
    match answer {
        Ok(Answer(value, handle, None)) => {
            if handle != 0 {
                known::learn(code, from.home, from.mode, handle);
            }
            Ok(value.get())
        }
        Ok(Answer(_, _, Some(failure))) => Err(failed(code, *failure)),
        Err(source) => Err(Some(JamError::Delegate { jam: code.name().to_owned(), source })),
    }
}

#[cold]
fn failed(code: &Code, failure: Failure) -> Option<JamError> {
    match failure {
        Failure::NeedCode => None,
        Failure::Panicked(panicked) => {
            Some(JamError::Panicked { jam: code.name().to_owned(), source: panicked })
        }
        Failure::Refused(refusal) => Some(refused(code, refusal)),
    }
}

#[cold]
fn no_room(code: &Code) -> JamError {
    refused(code, Refusal::NoRoom { bytes: code.len() })
}

#[cold]
fn refused(code: &Code, source: Refusal) -> JamError {
    JamError::Refused { jam: code.name().to_owned(), source: source.explained(code.types()) }
}

#[cfg(test)]
mod tests;
