//! [`Inject`]: running a jam on a property of any trustee of the rack.
//!
//! It is an ordinary delegated call, so order, batches and flow control are those of `apply`. Its
//! closure is [`serve`], which knows the types of the property, arguments and result; its argument
//! names the jam by its digest:
//!
//! ```text
//!   sender                                      trustee
//!   first call to this trustee: with code  -->  verify, link, run
//!   later ones: digest only                -->  run
//!                                          <--  NeedCode (it was evicted)
//!   the same call again, with code         -->  verify, link, run
//! ```
//!
//! Requests of one thread to one trustee are served in order, so that a call behind the first finds
//! the code there.

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
use crate::sender::{Code, Mode, Sendable};
use crate::symbols::export::Open;

/// A call as it travels.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
struct Request<A: Part> {
    /// The halves of the digest; the number of the sending host, and [`LOCAL`] beside it.
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

/// How a call has ended: a result, which counts only without a failure.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
struct Answer<R: Part>(Value<R>, Option<Box<Failure>>);

/// Runs jams on a property. For `Trust<T>`, where `T` is a type that its crate has
/// [opened](crate::open) to jams.
pub trait Inject<T: 'static> {
    /// Runs `jam` on the property with `args` and `payload`, and returns its result, waiting for it as
    /// [`Trust::apply`] does. The first call to a trustee carries the jam's code; later ones name it.
    ///
    /// # Errors
    /// [`JamError`]: the jam panicked, or its receiver refused it, or the call failed as any delegated
    /// call can. The property and its trustee go on in each case.
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
        let mut with_code = self.carries_code(code, jam.mode());
        loop {
            let request = request::<J>(code, jam.mode(), with_code, args, payload);
            let answer = self
                .try_apply_with(serve::<T, J::Property, J::Args, J::Element, J::Reply>, request);
            match result(code, answer) {
                // It was evicted since. With its code it is linked, unless others take its place.
                Err(None) if !with_code => with_code = true,
                Err(None) => return Err(refused(code, Refusal::NoRoom { bytes: code.len() })),
                Err(Some(error)) => return Err(error),
                Ok(reply) => return Ok(reply),
            }
        }
    }

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
            Ok(code) => code.clone(),
            Err(error) => return then(Err(error)),
        };
        let mode = jam.mode();
        let with_code = self.carries_code(&code, mode);
        let first = request::<J>(&code, mode, with_code, args, payload);
        // Kept only where it may have to be sent again.
        let again = (!with_code).then(|| (shared(self), Payload::of(payload)));
        self.try_apply_with_then(
            serve::<T, J::Property, J::Args, J::Element, J::Reply>,
            first,
            move |answer| match (result(&code, answer), again) {
                (Ok(reply), _) => then(Ok(reply)),
                (Err(Some(error)), _) => then(Err(error)),
                (Err(None), None) => {
                    then(Err(refused(&code, Refusal::NoRoom { bytes: code.len() })))
                }
                (Err(None), Some((trust, payload))) => {
                    let trust = trust.downcast_ref::<Trust<T>>().expect("it is of this property");
                    let mut second = request::<J>(&code, mode, true, args, &[]);
                    second.more.get_or_insert_default().payload = payload;
                    trust.try_apply_with_then(
                        serve::<T, J::Property, J::Args, J::Element, J::Reply>,
                        second,
                        move |answer| {
                            let no_room = || refused(&code, Refusal::NoRoom { bytes: code.len() });
                            then(
                                result(&code, answer)
                                    .map_err(|error| error.unwrap_or_else(no_room)),
                            );
                        },
                    );
                }
            },
        );
    }
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

trait Carries {
    fn carries_code(&self, code: &Code, mode: Mode) -> bool;
}

impl<T: 'static> Carries for Trust<T> {
    /// Whether a call to this trustee has to carry the code.
    fn carries_code(&self, code: &Code, mode: Mode) -> bool {
        match mode {
            Mode::Injected => true,
            Mode::Cached | Mode::Local => false,
            Mode::Automatic if code.is_everywhere() => false,
            Mode::Automatic => {
                let thread = self.trustee().thread();
                let trustee = u64::from(thread.host.0) << 32 | u64::from(thread.thread);
                !is_known(code.digest(), trustee)
            }
        }
    }
}

/// Pairs of jam and trustee that this thread has sent code for are remembered here, in the place that
/// their hash names. One that another has displaced sends its code once more.
const REMEMBERED: usize = 256;

thread_local! {
    static KNOWN: RefCell<Box<[(Digest, u64)]>> =
        RefCell::new(vec![(Digest::from_bytes([0; 16]), u64::MAX); REMEMBERED].into());
}

/// Whether this thread has sent the code to the trustee; from now on it has.
fn is_known(digest: &Digest, trustee: u64) -> bool {
    let (low, _) = halves(digest);
    let place = (low ^ trustee.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % REMEMBERED;
    KNOWN.with_borrow_mut(|known| {
        let is_known = known[place] == (*digest, trustee);
        known[place] = (*digest, trustee);
        is_known
    })
}

fn halves(digest: &Digest) -> (u64, u64) {
    let whole = u128::from_le_bytes(*digest.as_bytes());
    (whole as u64, (whole >> 64) as u64)
}

fn check_property<T: Open, J: Sendable>() {
    let name = <J::Property as PropertyPart>::NAME;
    assert!(
        name.is_empty() || name == T::NAME,
        "the jam works on a property {name:?}, the trust is of {:?}",
        T::NAME
    );
}

fn request<J: Sendable>(
    code: &Code,
    mode: Mode,
    with_code: bool,
    args: J::Args,
    payload: &[J::Element],
) -> Request<J::Args> {
    let local = if mode == Mode::Local { LOCAL } else { 0 };
    let host = trust_core::local_trustee().trustee().thread().host.0;
    let (low, high) = halves(code.digest());
    let more = (with_code || !payload.is_empty()).then(|| {
        let code = with_code.then(|| Payload::of_bytes(code.wire()));
        Box::new(More { payload: Payload::of(payload), code })
    });
    Request { head: Value::new([low, high, u64::from(host) | local]), args: Value::new(args), more }
}

/// The delegated closure.
fn serve<T: Open, P: PropertyPart, A: Part, E: Part, R: Part>(
    property: &mut T,
    request: Request<A>,
) -> Answer<R> {
    run::<T, P, A, E, R>(property, &request).map_or_else(failure_of, |reply| Answer(reply, None))
}

#[cold]
fn failure_of<R: Part>(failure: Failure) -> Answer<R> {
    Answer(Value::zeroed(), Some(Box::new(failure)))
}

#[inline]
fn run<T: Open, P: PropertyPart, A: Part, E: Part, R: Part>(
    property: &mut T,
    request: &Request<A>,
) -> Result<Value<R>, Failure> {
    let receiver = receiver();
    let Request { head, args, more } = request;
    let [low, high, sender] = head.get();
    let digest = (u128::from(low) | u128::from(high) << 64).to_le_bytes();
    let digest = Digest::from_bytes(digest);
    let name = P::NAME;
    if !name.is_empty() && name != T::NAME {
        return Err(wrong_property(name, T::NAME));
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
                        None if receiver.link_arrived(&digest)? => {}
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
    answer: Result<Answer<R>, DelegateError>,
) -> Result<R, Option<JamError>> {
    match answer {
        Ok(Answer(value, None)) => Ok(value.get()),
        Ok(Answer(_, Some(failure))) => Err(failed(code, *failure)),
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
fn refused(code: &Code, source: Refusal) -> JamError {
    JamError::Refused { jam: code.name().to_owned(), source }
}

#[cfg(test)]
mod tests;
