//! [`Running`]: jams that a thread runs one after the other, by their [handles](crate::handles), or with
//! their code beside the call. The common path of calls to what is linked.

use std::ptr;

use jam_abi::{Call, ContextData, code};
use jam_format::Digest;
use primitive::sync::{AtomicPtr, Ordering};

use crate::error::{Panicked, Refusal};
use crate::handles;
use crate::link::Linked;
use crate::local::Resolved;
use crate::receiver::run::{check_signature, enter_local};
use crate::receiver::thread::Thread;
use crate::receiver::{Failure, Receiver, receiver};
use crate::reuse::Inside;

/// What a thread keeps while it runs jams one after the other: it enters the receiver once. What is
/// evicted meanwhile is freed only when this is dropped.
///
/// It belongs to one kind of call, so that all its jams have one signature.
#[derive(Default)]
pub(crate) struct Running {
    /// What the last call by handle has found. It is valid while the thread is inside.
    again: Option<Again>,
    state: Option<Entered>,
}

/// The jam that the last call by handle has run: the next one, if it has the same word, compares only
/// what may have changed since.
pub(crate) struct Again {
    word: u64,
    target: Target,
    /// What calls of the word's host are told.
    context: ContextData,
    receiver: &'static Receiver,
}

/// What a word names.
enum Target {
    Injected {
        linked: *const Linked,
        /// Where its handle finds it.
        place: &'static AtomicPtr<Linked>,
        thread: &'static Thread,
    },
    Local(Resolved<'static>),
}

/// Why what a word names does not run at once.
enum NotReady {
    /// It is linked with symbols that have changed since.
    Outdated(Digest),
    Failed(Failure),
}

impl NotReady {
    #[cold]
    fn failed(failure: Failure) -> Box<Self> {
        Box::new(NotReady::Failed(failure))
    }
}

/// A thread inside the receiver, while this lives: what it finds there may run, and is freed only after it.
pub(crate) struct Entered {
    receiver: &'static Receiver,
    thread: &'static Thread,
    inside: Inside<'static>,
}

/// A linked jam that may run now, by a thread that is inside.
#[derive(Clone, Copy)]
pub(crate) struct Ready<'e> {
    linked: &'e Linked,
    thread: &'e Thread,
}

impl Entered {
    /// Enters the receiver of the process.
    #[inline(always)]
    pub(crate) fn of_process() -> Self {
        Self::at(receiver())
    }

    #[inline(always)]
    fn at(receiver: &'static Receiver) -> Self {
        let thread = Thread::current(receiver);
        Self { receiver, thread, inside: thread.runner.enter() }
    }

    /// The jam with the handle in this word, if it is linked, may run, has this signature and the newest
    /// symbols. A Local Function is not found.
    #[inline(always)]
    pub(crate) fn ready(&self, word: u64, signature: u64) -> Option<Ready<'_>> {
        let Self { receiver, thread, ref inside } = *self;
        let linked = receiver.cache.find_by_handle(handles::of_word(word).0, inside)?;
        self.may_run(linked, signature).then_some(Ready { linked, thread })
    }

    /// Whether the jam is admitted, has this signature, and is linked with the newest symbols.
    #[inline(always)]
    fn may_run(&self, linked: &Linked, signature: u64) -> bool {
        // What is not admitted only a mailbox with a policy of its own may run.
        linked.is_admitted(self.receiver.gate(None).bit())
            && linked.shape.signature == signature
            && linked.generation.load(Ordering::Relaxed) == self.receiver.symbols.generation()
    }

    /// Why [`ready`](Self::ready) has found nothing.
    #[cold]
    fn not_ready(&self, word: u64, signature: u64) -> Box<NotReady> {
        let found = self.receiver.cache.find_by_handle(handles::of_word(word).0, &self.inside);
        match found.filter(|linked| linked.is_admitted(self.receiver.gate(None).bit())) {
            None => NotReady::failed(Failure::NeedCode),
            Some(linked) => match check_signature(signature, &linked.shape) {
                Err(failure) => NotReady::failed(failure),
                Ok(()) => Box::new(NotReady::Outdated(linked.digest)),
            },
        }
    }

    /// What the jam of a call with this word is told.
    #[inline(always)]
    pub(crate) fn context(&self, word: u64) -> ContextData {
        self.receiver.context(handles::of_word(word).1)
    }
}

impl Ready<'_> {
    /// Runs the jam.
    ///
    /// # Safety
    /// As for [`Receiver::run`], and the call has the signature with which it was found.
    #[inline(always)]
    pub(crate) unsafe fn run(self, call: &mut Call) -> Result<(), Box<Failure>> {
        // SAFETY: as the caller promises; the thread is inside while this is borrowed of `Entered`.
        unsafe { run_linked(self.linked, self.thread, call) }
    }
}

impl Running {
    /// At a receiver that is not the process's.
    #[cfg(all(test, target_arch = "x86_64"))]
    pub(crate) fn at(receiver: &'static Receiver) -> Self {
        Running { again: None, state: Some(Entered::at(receiver)) }
    }

    /// What a jam of this sender is told.
    #[inline(always)]
    pub(crate) fn context(&self, sender: u32) -> ContextData {
        match &self.state {
            Some(state) => state.receiver.context(sender),
            None => receiver().context(sender),
        }
    }

    /// What the last call has run, if the next one has this word and the same still runs: it is linked,
    /// the policy admits it, and its symbols are the newest.
    #[inline(always)]
    pub(crate) fn again(&self, word: u64) -> Option<&Again> {
        self.again.as_ref().filter(|again| again.is_valid(word))
    }

    /// As [`again`](Self::again), and if that returns `None`, as [`find`](Self::find).
    #[inline(always)]
    pub(crate) fn again_or_find(&mut self, word: u64, signature: u64) -> Option<&Again> {
        if self.again(word).is_none() {
            return self.find(word, signature).ok();
        }
        self.again.as_ref()
    }

    /// Leaves the receiver: what was evicted meanwhile can be freed.
    fn leave(&mut self) {
        self.again = None;
        self.state = None;
    }

    /// Looks for what the handle in this word names. If it is linked, may run, has this signature and the
    /// newest symbols, it is what [`again`](Self::again) finds from now on.
    #[inline(never)]
    fn find(&mut self, word: u64, signature: u64) -> Result<&Again, Box<NotReady>> {
        let (handle, host) = handles::of_word(word);
        let (receiver, target) = if handles::is_local(handle) {
            let receiver = self.state.as_ref().map_or_else(receiver, |state| state.receiver);
            let local = receiver.local_by_handle(handle, signature).map_err(NotReady::failed)?;
            (receiver, Target::Local(local))
        } else {
            let entered = self.state.get_or_insert_with(Entered::of_process);
            let Entered { receiver, thread, .. } = *entered;
            let ready = entered.ready(word, signature);
            let Ready { linked, .. } = ready.ok_or_else(|| entered.not_ready(word, signature))?;
            let place = receiver.cache.place_of(handle);
            (receiver, Target::Injected { linked, place, thread })
        };
        let context = receiver.context(host);
        Ok(self.again.insert(Again { word, target, context, receiver }))
    }

    /// Runs the jam with the handle in this word, if it is linked, or the Local Function with it.
    ///
    /// # Safety
    /// As for [`Receiver::run`].
    pub(crate) unsafe fn run(
        &mut self,
        word: u64,
        signature: u64,
        call: &mut Call,
    ) -> Result<(), Box<Failure>> {
        match self.find(word, signature).map_err(|not_ready| *not_ready) {
            // SAFETY: as the caller promises, and the signatures are equal.
            Ok(found) => unsafe { found.run(call) },
            // SAFETY: as the caller promises.
            Err(NotReady::Outdated(digest)) => unsafe {
                self.run_renewed(&digest, signature, call)
            },
            Err(NotReady::Failed(failure)) => Err(Box::new(failure)),
        }
    }

    /// Runs the jam with this digest, whose code has arrived with the call: the one that is linked, if
    /// that has the same code, byte by byte. If not, what has arrived is verified and linked first.
    ///
    /// # Safety
    /// As for [`Receiver::run`].
    #[inline]
    pub(crate) unsafe fn run_with_code(
        &mut self,
        digest: &Digest,
        code: &[u8],
        signature: u64,
        call: &mut Call,
    ) -> Result<(), Box<Failure>> {
        let entered = self.state.get_or_insert_with(Entered::of_process);
        let Entered { receiver, thread, ref inside } = *entered;
        // A proof may stand after the blob: who answers for a jam is asked when it is linked.
        let linked = receiver
            .cache
            .find(digest, inside)
            .filter(|linked| code.starts_with(&linked.blob) && entered.may_run(linked, signature));
        match linked {
            // SAFETY: as the caller promises, and the signatures are equal; the thread is inside.
            Some(linked) => unsafe { run_linked(linked, thread, call) },
            None => {
                // Outside, since what is taken out waits for all that are inside.
                self.leave();
                // SAFETY: as the caller promises.
                unsafe { receiver.run_arrived(digest, Some(code), signature, call) }
                    .map_err(Box::new)
            }
        }
    }

    /// As [`run`](Self::run), of a jam whose symbols have changed.
    ///
    /// # Safety
    /// As for [`Receiver::run`].
    #[cold]
    #[inline(never)]
    unsafe fn run_renewed(
        &mut self,
        digest: &Digest,
        signature: u64,
        call: &mut Call,
    ) -> Result<(), Box<Failure>> {
        let receiver = self.state.as_ref().map_or_else(receiver, |state| state.receiver);
        // Outside, since what is taken out waits for all that are inside.
        self.leave();
        // SAFETY: as the caller promises.
        unsafe { receiver.run(digest, signature, call) }.map_err(Box::new)
    }
}

impl Again {
    /// Whether a call with this word runs it, still.
    #[inline(always)]
    fn is_valid(&self, word: u64) -> bool {
        let Again { receiver, ref target, .. } = *self;
        let (gate, generation) = (receiver.gate(None), receiver.symbols.generation());
        self.word == word
            && match *target {
                Target::Injected { linked, place, .. } => {
                    let is_found = ptr::eq(place.load(Ordering::Relaxed), linked);
                    // SAFETY: `find` has found it, and the thread has been inside since.
                    let linked = unsafe { &*linked };
                    is_found
                        && linked.is_admitted(gate.bit())
                        && linked.generation.load(Ordering::Relaxed) == generation
                }
                Target::Local(ref local) => {
                    gate.check_local().is_ok() && local.is_resolved(generation)
                }
            }
    }

    /// What its jam is told.
    #[inline(always)]
    pub(crate) fn context(&self) -> &ContextData {
        &self.context
    }

    /// Runs the jam.
    ///
    /// # Safety
    /// As for [`Receiver::run`]. This is of [`Running::again`], and the call has the signature with which it was
    /// found.
    #[inline(always)]
    pub(crate) unsafe fn run(&self, call: &mut Call) -> Result<(), Box<Failure>> {
        // SAFETY: `Running::find` has found it, and the thread has been inside since if it was injected; the
        // rest as the caller promises.
        unsafe {
            match &self.target {
                Target::Injected { linked, thread, .. } => run_linked(&**linked, thread, call),
                Target::Local(local) => run_local(local, call),
            }
        }
    }
}

/// Runs a Local Function. Apart, since what catches its panics is more than what runs injected code.
///
/// # Safety
/// As for [`Receiver::run`], and the signatures are equal.
#[inline(never)]
unsafe fn run_local(local: &Resolved<'_>, call: &mut Call) -> Result<(), Box<Failure>> {
    // SAFETY: as the caller promises.
    unsafe { enter_local(local, call) }.map_err(Box::new)
}

/// # Safety
/// As for [`Linked::run`].
#[inline(always)]
unsafe fn run_linked(
    linked: &Linked,
    thread: &Thread,
    call: &mut Call,
) -> Result<(), Box<Failure>> {
    thread.seen.catch_up();
    // SAFETY: as the caller promises.
    match unsafe { linked.run(call) } {
        Ok(code::DONE) => Ok(()),
        Ok(code) => Err(entry_code(code)),
        Err(panicked) => Err(panicked_with(panicked)),
    }
}

#[cold]
#[inline(never)]
fn entry_code(code: u32) -> Box<Failure> {
    Box::new(Refusal::Entry { code }.into())
}

#[cold]
#[inline(never)]
#[allow(clippy::boxed_local, reason = "the caller, a common path, then moves a pointer")]
fn panicked_with(panicked: Box<Panicked>) -> Box<Failure> {
    Box::new(Failure::Panicked(*panicked))
}

impl Receiver {
    /// The handle of a linked jam, or of a Local Function; 0 if it has none.
    pub(crate) fn handle(&self, digest: &Digest, is_local: bool) -> u64 {
        if is_local {
            return self.locals.handle(digest);
        }
        let inside = Thread::current(self).runner.enter();
        self.cache.find(digest, &inside).map_or(0, |linked| linked.handle)
    }

    /// The Local Function with this handle, if it may run and has this signature.
    fn local_by_handle(&self, handle: u64, signature: u64) -> Result<Resolved<'_>, Failure> {
        self.gate(None).check_local()?;
        let local = self.locals.find_by_handle(handle, &self.symbols)?;
        check_signature(signature, local.shape)?;
        Ok(local)
    }
}
