//! Calls that carry their code, each of them ([`Mode::Injected`](crate::Mode::Injected)). They are plain:
//! past the codec, and the code is copied once on either side.
//!
//! A trustee that has linked a jam with the call's digest compares the code that has arrived with that of
//! the linked one, byte by byte, and runs it if they are the same. Any other code is verified, and linked
//! or refused.

use std::marker::PhantomData;

use jam_abi::Call;
use jam_abi::entry::{Part, PropertyPart, Types};
use jam_format::Digest;
use trust_core::{DelegateError, PlainCall, PlainEnd, Trust};

use crate::error::JamError;
use crate::handles;
use crate::inject::by_handle::{JamOf, Reply, TypesOf};
use crate::inject::errors::{failed, no_room, undelivered};
use crate::inject::layout::{CallParts, with_front};
use crate::inject::serve;
use crate::plain_bytes::bytes_of;
use crate::receiver::Failure;
use crate::receiver::running::Running;
use crate::sender::{Code, Sendable};
use crate::symbols::export::Open;

/// A call with its code, of a jam with the types `S`.
struct WithCode<S>(PhantomData<S>);

/// How a call ends for its sender.
type Ended<J> = Result<Result<Reply<<J as Sendable>::Reply>, Box<Failure>>, DelegateError>;

impl<T: Open, P: PropertyPart + 'static, A: Part, E: Part, R: Part> PlainCall<T>
    for WithCode<Types<P, A, E, R>>
{
    const BYTES: Option<usize> = None;
    type Run = Running;
    type Reply = Reply<R>;
    type Error = Box<Failure>;

    #[inline]
    fn serve(
        running: &mut Running,
        property: &mut T,
        word: u64,
        bytes: &[u8],
    ) -> Result<Reply<R>, Box<Failure>> {
        let parts = CallParts::<[u8; Digest::BYTES]>::of::<A>(bytes)?;
        let (digest, code) = (Digest::from_bytes(parts.more.get()), parts.code()?);
        let (_, host) = handles::of_word(word);
        let (args, payload) = (parts.args, parts.payload);
        let context = running.context(host);
        let enter = |signature, call: &mut Call| {
            // SAFETY: the call is of `serve::run`; a delegated call does not wait.
            unsafe { running.run_with_code(&digest, code, signature, call) }
        };
        serve::run::<T, P, A, E, R, _>(property, &context, args, payload, enter).map(Reply::new)
    }
}

/// Calls a jam with its code, and waits; `None` if the property is this thread's own.
#[inline(always)]
#[track_caller]
pub(super) fn call<T: Open, J: Sendable>(
    trust: &Trust<T>,
    code: &Code,
    args: J::Args,
    payload: &[J::Element],
) -> Option<Result<J::Reply, JamError>> {
    let ended = with_head::<J, _>(code, args, payload, |word, head, tails| {
        trust.plain_call::<WithCode<TypesOf<J>>>(word, head, tails)
    });
    ended.map(|ended| result::<J>(code, ended))
}

/// Calls a jam with its code, `carried`; `code` is the same one, for the callback.
///
/// # Errors
/// `then`, if the property is this thread's own or the thread is of no rack.
#[inline(always)]
pub(super) fn call_then<T: Open, J: Sendable, C, F>(
    trust: &Trust<T>,
    carried: &Code,
    args: J::Args,
    payload: &[J::Element],
    code: C,
    then: F,
) -> Result<(), F>
where
    C: Into<Code> + 'static,
    F: FnOnce(Result<J::Reply, JamError>) + 'static,
{
    let end = End { code, then, _jam: PhantomData::<fn(JamOf<J>)> };
    let sent = with_head::<J, _>(carried, args, payload, |word, head, tails| {
        trust.plain_call_then::<WithCode<TypesOf<J>>, _>((word, None), head, tails, end)
    });
    sent.map_err(|end| end.then)
}

/// What ends a call: `then` gets its result.
struct End<J, C, F> {
    code: C,
    then: F,
    _jam: PhantomData<fn(J)>,
}

impl<J, C, F> PlainEnd<Reply<J::Reply>, Box<Failure>> for End<J, C, F>
where
    J: Sendable + 'static,
    C: Into<Code> + 'static,
    F: FnOnce(Result<J::Reply, JamError>) + 'static,
{
    fn end(self, ended: Ended<J>) {
        match ended {
            Ok(Ok(reply)) => (self.then)(Ok(reply.value())),
            other => (self.then)(result::<J>(&self.code.into(), other)),
        }
    }
}

/// Hands the parts of a call to `send`: word, head and tails.
#[inline(always)]
fn with_head<J: Sendable, R>(
    code: &Code,
    args: J::Args,
    payload: &[J::Element],
    send: impl FnOnce(u64, &[u8], &[&[u8]]) -> R,
) -> R {
    let host = trust_core::local_trustee().trustee().thread().host.0;
    let (payload, wire) = (bytes_of(payload), code.wire());
    let digest = *code.digest().as_bytes();
    with_front(payload.len(), wire.len(), digest, args, |head| {
        send(handles::word(0, host), head, &[payload, wire])
    })
}

fn result<J: Sendable>(code: &Code, ended: Ended<J>) -> Result<J::Reply, JamError> {
    match ended {
        Ok(Ok(reply)) => Ok(reply.value()),
        Ok(Err(failure)) => Err(failed(code, *failure).unwrap_or_else(|| no_room(code))),
        Err(source) => Err(undelivered(code, source)),
    }
}
