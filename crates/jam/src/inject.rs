//! [`Inject`]: running a jam on a property of any trustee of the rack.
//!
//! It is a delegated call, so order, batches and flow control are those of `apply`:
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
//! Requests of one thread to one trustee are served in order, so that a call after the first finds the
//! code there. One that is sent again is after those that were sent meanwhile. What names the jam in a
//! call is [`Name`]; each has a file:
//!
//! | Name | Calls | Form |
//! |---|---|---|
//! | digest (`inject/by_digest.rs`) | the first ones, and those sent again with code | by the codec |
//! | [handle](crate::handles) (`inject/by_handle.rs`) | nearly all | [plain](trust_core::PlainCall) |
//! | code (`inject/with_code.rs`) | those in [`Mode::Injected`] | plain |
//!
//! `inject/serve.rs` is what trustees do with each of them; `inject/known.rs`, what a thread knows of its
//! trustees.

mod by_digest;
mod by_handle;
mod errors;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod known;
mod layout;
mod serve;
mod with_code;

use jam_abi::Element;
use jam_abi::entry::PropertyPart;
use trust_core::Trust;

use crate::error::JamError;
use crate::inject::by_handle::Ended;
use crate::inject::errors::{failed, undelivered};
use crate::inject::serve::is_for;
use crate::sender::{Code, Held, Inner, Mode, Sendable};
use crate::symbols::export::Open;

/// Runs jams on a property: implemented for `Trust<T>`, where the crate of `T` has
/// [opened](crate::open) it to jams.
pub trait Inject<T: 'static> {
    /// Runs `jam` on the property with `args` and `payload`, and returns its result, waiting for it as
    /// [`Trust::apply`] does. The first call to a trustee carries the jam's code; later ones name it.
    ///
    /// A call that finds its jam evicted is sent again with the code, after those that this thread has
    /// sent meanwhile; all others are served in the order of `apply`.
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
    /// A call that finds its jam evicted is sent again with the code, after those that were sent
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
        if let Some(Recent { code, word, .. }) = recent::<T, J>(self, jam) {
            match by_handle::call::<T, J>(self, word, args, payload) {
                Some(Ok(Ok(reply))) => return Ok(reply.value()),
                Some(ended) => return retry::<T, J>(self, jam, &code.into(), args, payload, ended),
                None => {}
            }
        }
        let (code, name) = name::<T, J>(self, jam)?;
        match name {
            Name::Code => {
                if let Some(ended) = with_code::call::<T, J>(self, code, args, payload) {
                    return ended;
                }
            }
            Name::Handle(word) => match by_handle::call::<T, J>(self, word, args, payload) {
                Some(Ok(Ok(reply))) => return Ok(reply.value()),
                Some(ended) => return retry::<T, J>(self, jam, code, args, payload, ended),
                None => {}
            },
            Name::Digest => {}
        }
        by_digest::call(self, jam, code, false, args, payload)
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
        let then = match jam.element() {
            Some(element) if payload.is_empty() => {
                let key = known::key_of(element, jam.mode());
                match by_handle::call_again::<T, J, _>(self, (key, element), args, then) {
                    Ok(()) => return,
                    Err(then) => then,
                }
            }
            _ => then,
        };
        then_by_name::<T, J, _>(self, jam, args, payload, then);
    }
}

/// Makes a call that is not of the same jam as the one before it, or has a payload.
#[inline(never)]
#[track_caller]
fn then_by_name<T: Open, J: Sendable, F>(
    trust: &Trust<T>,
    jam: &J,
    args: J::Args,
    payload: &[J::Element],
    then: F,
) where
    F: FnOnce(Result<J::Reply, JamError>) + 'static,
{
    let then = match recent::<T, J>(trust, jam) {
        Some(recent) => {
            let (key, element) = recent.key;
            let word = (recent.word, Some(key));
            match by_handle::call_then::<T, J, _, _>(trust, word, args, payload, element, then) {
                Ok(()) => return,
                Err(then) => then,
            }
        }
        None => then,
    };
    let (code, name) = match name::<T, J>(trust, jam) {
        Ok(named) => named,
        Err(error) => return then(Err(error)),
    };
    // A pointer is all that the callback of a plain call keeps beside its caller's.
    let unsent = match code.held() {
        Held::Static(inner) => {
            call_plainly::<T, J, _, _>(trust, (code, name), args, payload, *inner, then)
        }
        Held::Counted(inner) => {
            call_plainly::<T, J, _, _>(trust, (code, name), args, payload, inner.clone(), then)
        }
    };
    if let Err(then) = unsent {
        by_digest::call_then(trust, jam, code, args, payload, then);
    }
}

/// Ends a call by handle that has no result: with the error, or by making it again with the code.
#[cold]
#[inline(never)]
#[track_caller]
fn retry<T: Open, J: Sendable>(
    trust: &Trust<T>,
    jam: &J,
    code: &Code,
    args: J::Args,
    payload: &[J::Element],
    ended: Ended<T, J>,
) -> Result<J::Reply, JamError> {
    let missed = match ended {
        Ok(Ok(reply)) => return Ok(reply.value()),
        Ok(Err(missed)) => missed,
        Err(source) => return Err(undelivered(code, source)),
    };
    match failed(code, *missed.failure) {
        Some(error) => Err(error),
        // It was evicted since.
        None => by_digest::call(trust, jam, code, true, args, payload),
    }
}

/// A jam of a package that this thread has called lately at a trustee.
struct Recent {
    key: (known::Key, &'static Element),
    code: &'static Inner,
    /// That of its handle.
    word: u64,
}

/// What is known of the jam at this trustee, if this thread has called it there lately.
#[inline(always)]
#[track_caller]
fn recent<T: Open, J: Sendable>(trust: &Trust<T>, jam: &J) -> Option<Recent> {
    check_property::<T, J>();
    let element = jam.element()?;
    let key = known::key_of(element, jam.mode());
    let (code, word) = known::recent(key, trust.home())?;
    Some(Recent { key: (key, element), code, word })
}

/// # Panics
/// If the jam is for another type of property.
#[inline(always)]
#[track_caller]
fn check_property<T: Open, J: Sendable>() {
    assert!(
        const { is_for::<T, J::Property>() },
        "the jam works on a property {:?}, the trust is of {:?}",
        <J::Property as PropertyPart>::NAME,
        T::NAME
    );
}

/// What names a jam in a call.
enum Name {
    /// The word of its handle.
    Handle(u64),
    Digest,
    /// The code, which the call carries.
    Code,
}

/// The code of a jam, and what names it in a call to this trust.
#[inline(always)]
#[track_caller]
fn name<'j, T: Open, J: Sendable>(
    trust: &Trust<T>,
    jam: &'j J,
) -> Result<(&'j Code, Name), JamError> {
    check_property::<T, J>();
    let (code, mode) = (jam.code()?, jam.mode());
    let name = match known::handle(code, trust.home(), mode) {
        _ if mode == Mode::Injected => Name::Code,
        Some(word) => {
            if let Some(element) = jam.element() {
                known::note(known::key_of(element, mode), trust.home(), word, code);
            }
            Name::Handle(word)
        }
        None => Name::Digest,
    };
    Ok((code, name))
}

/// Makes a plain call, if there is one of this name. `code` is the jam's, for the callback.
///
/// # Errors
/// `then`, uncalled, if there is none, or the property is this thread's own.
#[inline(always)]
fn call_plainly<T: Open, J: Sendable, C, F>(
    trust: &Trust<T>,
    (carried, name): (&Code, Name),
    args: J::Args,
    payload: &[J::Element],
    code: C,
    then: F,
) -> Result<(), F>
where
    C: by_handle::CodeOf + Into<Code>,
    F: FnOnce(Result<J::Reply, JamError>) + 'static,
{
    match name {
        Name::Handle(word) => {
            by_handle::call_then::<T, J, C, F>(trust, (word, None), args, payload, code, then)
        }
        Name::Code => with_code::call_then::<T, J, C, F>(trust, carried, args, payload, code, then),
        Name::Digest => Err(then),
    }
}
