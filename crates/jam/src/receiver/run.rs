//! Running jams by their digests, and Local Functions.

use std::panic::{AssertUnwindSafe, catch_unwind};

use jam_abi::{Call, ContextData, code};
use jam_format::Digest;
use primitive::sync::Ordering;

use crate::enter::barrier;
use crate::error::{Refusal, SignatureHash};
use crate::local::Resolved;
use crate::policy::Gate;
use crate::receiver::thread::Thread;
use crate::receiver::{Failure, Receiver};
use crate::ried::host::panicked_of;
use crate::shape::Shape;

/// How often a call that has its code links it at most.
const MAX_LINKS: u32 = 4;

impl Receiver {
    /// Runs the jam with this digest, if it is linked.
    ///
    /// # Safety
    /// `call` is valid for a jam of this signature: the property is of its type and nothing else
    /// refers to it, arguments and payload are readable, the reply is writable, the context is of
    /// [`context`](Self::context). The calling thread runs no other fiber before this returns: it is
    /// in delegated context.
    #[inline]
    pub(crate) unsafe fn run(
        &self,
        digest: &Digest,
        signature: u64,
        call: &mut Call,
    ) -> Result<(), Failure> {
        // SAFETY: as the caller promises.
        unsafe { self.run_checked(digest, self.gate(None), call, of_signature(signature)) }
    }

    /// Runs the jam with this digest, which was not linked when its call arrived, with the code of the
    /// call or that of a package; `NeedCode` if there is neither, or others take its place each time.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn run_arrived(
        &self,
        digest: &Digest,
        code: Option<&[u8]>,
        signature: u64,
        call: &mut Call,
    ) -> Result<(), Failure> {
        // SAFETY: the context is of `context`, as the caller promises.
        let host = Some(unsafe { (*call.context).sender });
        let mut ended = Err(Failure::NeedCode);
        for _ in 0..MAX_LINKS {
            match code {
                Some(code) => drop(self.receive_under(None, host, code, *digest)?),
                None if self.link_arrived(None, host, digest)?.is_some() => {}
                None => break,
            }
            // SAFETY: as the caller promises.
            ended = unsafe { self.run(digest, signature, call) };
            // Another thread may have evicted it again.
            if ended != Err(Failure::NeedCode) {
                break;
            }
        }
        ended
    }

    /// Runs the jam with this digest, if it is linked and the gate admits it, unless `check` refuses
    /// the call.
    ///
    /// # Safety
    /// Once `check` has accepted the shape of the jam, `call`, which it may complete, is valid for it,
    /// as for [`run`](Self::run).
    #[inline]
    pub(crate) unsafe fn run_checked(
        &self,
        digest: &Digest,
        gate: Gate<'_>,
        call: &mut Call,
        check: impl FnOnce(&Shape, &mut Call) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let thread = Thread::current(self);
        let mut inside = thread.runner.enter();
        let Some(mut linked) = self.cache.find(digest, &inside) else {
            return Err(Failure::NeedCode);
        };
        if !linked.is_admitted(gate.bit()) {
            // With the code it is asked whether the policy admits it by now.
            return Err(Failure::NeedCode);
        }
        check(&linked.shape, call)?;
        if linked.generation.load(Ordering::Relaxed) != self.symbols.generation() {
            // Outside, since what is taken out waits for all that are inside.
            drop(inside);
            self.cache.renew(digest, &self.symbols)?;
            inside = thread.runner.enter();
            linked = self.cache.find(digest, &inside).ok_or(Failure::NeedCode)?;
            // Given up meanwhile, and linked by a part of the process with another policy.
            if !linked.is_admitted(gate.bit()) {
                return Err(Failure::NeedCode);
            }
        }
        thread.seen.catch_up();
        // SAFETY: as the caller promises, and the signatures are equal; the thread is inside.
        match unsafe { linked.run(call) } {
            Ok(code::DONE) => Ok(()),
            Ok(code) => Err(Refusal::Entry { code }.into()),
            Err(panicked) => Err(Failure::Panicked(*panicked)),
        }
    }

    /// Runs the Local Function of the jam with this digest.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    pub(crate) unsafe fn run_local(
        &self,
        digest: &Digest,
        signature: u64,
        call: &mut Call,
    ) -> Result<(), Failure> {
        // SAFETY: as the caller promises.
        unsafe { self.run_local_checked(digest, self.gate(None), call, of_signature(signature)) }
    }

    /// Runs the Local Function of the jam with this digest, unless `check` refuses the call.
    ///
    /// # Safety
    /// As for [`run_checked`](Self::run_checked).
    pub(crate) unsafe fn run_local_checked(
        &self,
        digest: &Digest,
        gate: Gate<'_>,
        call: &mut Call,
        check: impl FnOnce(&Shape, &mut Call) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        gate.check_local()?;
        let local = self.locals.find(digest, &self.symbols)?;
        check(local.shape, call)?;
        // SAFETY: its imports are resolved, and the shape is checked; the rest as the caller promises.
        unsafe { enter_local(&local, call) }
    }

    /// What a jam of this sender is told.
    #[inline]
    pub(crate) fn context(&self, sender: u32) -> ContextData {
        let receiver = std::ptr::from_ref(self).cast_mut().cast();
        ContextData { sender, reserved: 0, log: write_log, receiver }
    }
}

/// Runs a Local Function.
///
/// # Safety
/// As for [`Receiver::run`].
#[inline]
pub(super) unsafe fn enter_local(local: &Resolved<'_>, call: &mut Call) -> Result<(), Failure> {
    // SAFETY: its imports are resolved; the rest as the caller promises.
    let run = AssertUnwindSafe(|| barrier(|| unsafe { (local.entry)(call) }));
    match catch_unwind(run) {
        Ok(code::DONE) => Ok(()),
        Ok(code) => Err(Refusal::Entry { code }.into()),
        Err(payload) => Err(Failure::Panicked(panicked_of(payload))),
    }
}

/// The check of a call of this signature: [`check_signature`].
#[inline(always)]
fn of_signature(wanted: u64) -> impl FnOnce(&Shape, &mut Call) -> Result<(), Failure> {
    move |shape, _| check_signature(wanted, shape)
}

/// Refuses a call of another signature than the jam's.
#[inline(always)]
pub(super) fn check_signature(wanted: u64, shape: &Shape) -> Result<(), Failure> {
    match shape.signature == wanted {
        true => Ok(()),
        false => Err(wrong_entry(wanted, shape.signature)),
    }
}

#[cold]
fn wrong_entry(wanted: u64, found: u64) -> Failure {
    Refusal::WrongEntry { wanted: SignatureHash(wanted), found: SignatureHash(found) }.into()
}

/// # Safety
/// Called by a jam with its context, and text of that many bytes.
unsafe extern "C" fn write_log(context: *const ContextData, text: *const u8, len: usize) {
    // SAFETY: the context is that of `Receiver::context`, whose receiver is alive during the call; the
    // text is as the jam promises.
    let (receiver, sender, text) = unsafe {
        let context = &*context;
        let receiver = &*context.receiver.cast::<Receiver>();
        (receiver, context.sender, crate::symbols::c::text(text, len))
    };
    // Whether injected code or a Local Function calls this is not known here, so a panic of the log
    // ends neither.
    receiver.log.write(sender, &text);
}
