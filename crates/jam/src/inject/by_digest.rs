//! Calls that name a jam by its digest: the first ones to a trustee, those that are sent again with the
//! code, and those of properties of the own thread. They are ordinary delegated calls of [`serve`], which
//! knows the types of property, arguments and result.

use std::any::Any;
use std::cell::RefCell;
use std::rc::{Rc, Weak};

use jam_abi::Call;
use jam_abi::entry::{Part, PropertyPart};
use jam_format::Digest;
use serde::{Deserialize, Serialize};
use trust_core::{DelegateError, Trust};

use crate::error::JamError;
use crate::inject::errors::{failed, no_room, undelivered};
use crate::inject::{known, serve as trustee};
use crate::plain_bytes::{Payload, Value};
use crate::receiver::{Failure, receiver};
use crate::sender::{Code, Mode, Sendable};
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

/// Calls a jam by its digest, and waits. `is_evicted` if a call has just found it so.
#[inline(never)]
pub(super) fn call<T: Open, J: Sendable>(
    trust: &Trust<T>,
    jam: &J,
    code: &Code,
    is_evicted: bool,
    args: J::Args,
    payload: &[J::Element],
) -> Result<J::Reply, JamError> {
    let from = Origin { home: trust.home(), mode: jam.mode() };
    let mut with_code = is_evicted || carries_code(trust.home(), code, jam.mode());
    loop {
        let request = request::<J>(code, jam.mode(), with_code, args, payload);
        let answer =
            trust.try_apply_with(serve::<T, J::Property, J::Args, J::Element, J::Reply>, request);
        match result(code, from, answer) {
            // It was evicted since. With its code it is linked, unless others take its place.
            Err(None) if !with_code => with_code = true,
            Err(None) => return Err(no_room(code)),
            Err(Some(error)) => return Err(error),
            Ok(reply) => return Ok(reply),
        }
    }
}

/// Calls a jam by its digest.
#[inline(never)]
pub(super) fn call_then<T: Open, J: Sendable>(
    trust: &Trust<T>,
    jam: &J,
    code: &Code,
    args: J::Args,
    payload: &[J::Element],
    then: impl FnOnce(Result<J::Reply, JamError>) + 'static,
) {
    let (code, mode) = (code.clone(), jam.mode());
    let from = Origin { home: trust.home(), mode };
    let with_code = carries_code(trust.home(), &code, mode);
    let first = request::<J>(&code, mode, with_code, args, payload);
    // Kept only where it may have to be sent again.
    let again = (!with_code).then(|| (shared(trust), Payload::of(payload)));
    trust.try_apply_with_then(
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

/// Sends a call that has found its jam evicted again, with the code.
#[cold]
#[inline(never)]
pub(super) fn send_code_then<T: Open, J: Sendable>(
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
            Answer(Value::new(reply), if wants_handle { handle() } else { 0 }, None)
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
) -> Result<R, Failure> {
    let receiver = receiver();
    let Request { head, args, more } = request;
    let [low, high, sender] = head.get();
    let digest = digest(low, high);
    let payload = more.as_ref().map_or(&[][..], |more| more.payload.bytes());
    trustee::run::<T, P, A, E, R, _>(
        property,
        &receiver.context(sender as u32),
        args.bytes(),
        payload,
        // SAFETY: the call is of `serve::run`; a delegated closure does not wait.
        |signature, call: &mut Call| unsafe {
            if sender & LOCAL != 0 {
                return receiver.run_local(&digest, signature, call);
            }
            match receiver.run(&digest, signature, call) {
                // Code that is here already is not looked at: its digest says that it is the same.
                Err(Failure::NeedCode) => {
                    let code = more.as_ref().and_then(|more| more.code.as_ref());
                    receiver.run_arrived(&digest, code.map(Payload::bytes), signature, call)
                }
                ended => ended,
            }
        },
    )
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
        Err(source) => Err(Some(undelivered(code, source))),
    }
}

#[cfg(test)]
mod tests;
