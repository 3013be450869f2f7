//! [`Receiver`]: what a process has to receive jams with, one for all its threads.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use jam_abi::{Call, ContextData, code};
use jam_format::Digest;
use primitive::sync::Ordering;
use serde::{Deserialize, Serialize};

use crate::arena::icache::Seen;
use crate::cache::Cache;
use crate::enter::barrier;
use crate::error::{Panicked, Refusal};
use crate::frame::Frame;
use crate::local::Locals;
use crate::log::LogSlot;
use crate::policy::{Gatekeeper, Policy};
use crate::reuse::Runner;
use crate::ried::error::RiedRefusal;
use crate::ried::host::panicked_of;
use crate::ried::{Arrived, NotLoaded, Rieds};
use crate::symbols::Symbols;
use crate::symbols::export::check_property_types;

/// Bytes of executable memory that jams take if the program says nothing else.
const DEFAULT_MAX_BYTES: usize = 16 << 20;

/// What a process receives jams with.
///
/// There is one for all threads of the process ([`receiver`]).
pub struct Receiver {
    cache: Cache,
    symbols: Symbols,
    gatekeeper: Gatekeeper,
    locals: Locals,
    rieds: Rieds,
    log: Arc<LogSlot>,
}

/// How a run has ended that has no result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Failure {
    /// The code is not here.
    NeedCode,
    Panicked(Panicked),
    Refused(Refusal),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Failure::Refused(refusal)
    }
}

/// The receiver of this process.
pub fn receiver() -> &'static Receiver {
    static RECEIVER: OnceLock<Receiver> = OnceLock::new();
    RECEIVER.get_or_init(|| Receiver::new(DEFAULT_MAX_BYTES))
}

impl Receiver {
    pub(crate) fn new(max_bytes: usize) -> Self {
        check_property_types();
        let locals = Locals::of_program();
        let gatekeeper = Gatekeeper::default();
        gatekeeper.admit(locals.digests());
        Receiver {
            cache: Cache::new(max_bytes),
            symbols: Symbols::of_program(),
            gatekeeper,
            locals,
            rieds: Rieds::default(),
            log: Arc::default(),
        }
    }

    /// Sets whose jams run from now on. What is linked must be admitted again, so it is given up, and
    /// rieds that are not admitted are unloaded; what runs at this moment ends.
    pub fn set_policy(&self, policy: Policy) {
        self.gatekeeper.set(policy);
        self.rieds.recheck(&self.gatekeeper, &self.symbols);
        self.cache.clear();
    }

    /// Admits jams and rieds under the policy [`Policy::Signed`]. Whoever calls this answers for their code: it
    /// has checked, for instance, the signature of the package that has them.
    pub fn admit(&self, digests: impl IntoIterator<Item = Digest>) {
        self.gatekeeper.admit(digests);
    }

    /// What imports resolve to, to add functions to.
    pub fn symbols(&self) -> &Symbols {
        &self.symbols
    }

    /// Has `log` called with what jams and rieds log, on the thread that runs them; it must not wait.
    pub fn set_log(&self, log: impl Fn(u32, &str) + Send + Sync + 'static) {
        self.log.set(log);
    }

    /// Loads a ried of these bytes into this process; a number for
    /// [`unload_ried`](Self::unload_ried). [`load_ried`](crate::load_ried) does it on any host.
    ///
    /// # Errors
    /// Why it is not loaded.
    pub fn load_ried(&self, library: &[u8]) -> Result<u64, RiedRefusal> {
        match self.load_arrived(Digest::of(library), Some(library), u32::MAX) {
            Ok(layer) => Ok(layer),
            Err(NotLoaded::Refused(refusal)) => Err(refusal),
            Err(NotLoaded::NeedBytes) => unreachable!("it has the bytes"),
        }
    }

    pub(crate) fn load_arrived(
        &self,
        claimed: Digest,
        bytes: Option<&[u8]>,
        sender: u32,
    ) -> Result<u64, NotLoaded> {
        let arrived = Arrived { claimed, bytes, sender };
        self.rieds.load(arrived, &self.gatekeeper, &self.symbols, &self.log)
    }

    /// Takes away what a load of a ried has added: jams that run later find what was there before.
    /// The library stays mapped. False if there is nothing of this number.
    pub fn unload_ried(&self, number: u64) -> bool {
        self.rieds.unload(number, &self.symbols)
    }

    /// Bytes of executable memory in use, and how many jams are in it.
    pub fn size(&self) -> (usize, usize) {
        self.cache.size()
    }

    /// Verifies and links a jam that has arrived.
    ///
    /// # Errors
    /// Why it does not run here.
    pub fn receive(&self, blob: &[u8], claimed: Digest) -> Result<(), Refusal> {
        let verified = Frame::new(blob, claimed).parse()?.verify(&self.gatekeeper)?;
        self.cache.add(&verified, &self.symbols, &self.gatekeeper)
    }

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
        let thread = Thread::current(self);
        let mut inside = thread.runner.enter();
        let Some(mut linked) = self.cache.find(digest, &inside) else {
            return Err(Failure::NeedCode);
        };
        if linked.signature != signature {
            return Err(wrong_entry(signature, linked.signature));
        }
        if linked.generation.load(Ordering::Relaxed) != self.symbols.generation() {
            // Outside, since what is taken out waits for all that are inside.
            drop(inside);
            self.cache.renew(digest, &self.symbols)?;
            inside = thread.runner.enter();
            linked = self.cache.find(digest, &inside).ok_or(Failure::NeedCode)?;
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
        self.gatekeeper.check_local()?;
        let local = self.locals.find(digest, &self.symbols)?;
        if local.signature != signature {
            return Err(wrong_entry(signature, local.signature));
        }
        // SAFETY: its imports are resolved; the rest as the caller promises.
        let run = AssertUnwindSafe(|| barrier(|| unsafe { (local.entry)(call) }));
        match catch_unwind(run) {
            Ok(code::DONE) => Ok(()),
            Ok(code) => Err(Refusal::Entry { code }.into()),
            Err(payload) => Err(Failure::Panicked(panicked_of(payload))),
        }
    }

    /// What a jam of this sender is told.
    #[inline]
    pub(crate) fn context(&self, sender: u32) -> ContextData {
        let receiver = std::ptr::from_ref(self).cast_mut().cast();
        ContextData { sender, reserved: 0, log: write_log, receiver }
    }
}

#[cold]
fn wrong_entry(wanted: u64, found: u64) -> Failure {
    Refusal::WrongEntry { wanted, found }.into()
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

/// What a thread has at a receiver.
struct Thread {
    /// The receiver, which the thread must leave before that ends.
    receiver: *const Receiver,
    runner: Runner,
    seen: Seen,
}

/// Leaves the receiver when the thread ends.
struct Leaver(Cell<*const Thread>);

thread_local! {
    /// Of the receiver that the thread has used last: nearly always the process's only one. It has no
    /// destructor, so that its use is one load.
    static CURRENT: Cell<*const Thread> = const { Cell::new(std::ptr::null()) };
    static LEAVER: Leaver = const { Leaver(Cell::new(std::ptr::null())) };
}

impl Thread {
    #[inline(always)]
    fn current(receiver: &Receiver) -> &Thread {
        // SAFETY: null, or made by `first` and freed only by the thread's end.
        match unsafe { CURRENT.get().as_ref() } {
            Some(thread) if std::ptr::eq(thread.receiver, receiver) => thread,
            _ => Thread::first(receiver),
        }
    }

    #[cold]
    #[inline(never)]
    fn first(receiver: &Receiver) -> &Thread {
        let runner = receiver.cache.reuse().runner();
        let thread = Box::new(Thread { receiver, runner, seen: Seen::nothing() });
        let thread = Box::into_raw(thread).cast_const();
        // A thread whose thread-locals are being destroyed keeps its place: it is leaked.
        let before = LEAVER.try_with(|leaver| leaver.0.replace(thread)).ok();
        CURRENT.set(thread);
        if let Some(before) = before {
            // SAFETY: made by this function, and not used any more: `CURRENT` was it.
            unsafe { leave(before) };
        }
        // SAFETY: made by this function, and freed only when the thread ends.
        unsafe { &*thread }
    }
}

impl Drop for Leaver {
    fn drop(&mut self) {
        CURRENT.set(std::ptr::null());
        // SAFETY: made by `Thread::first`, and not used any more.
        unsafe { leave(self.0.get()) };
    }
}

/// # Safety
/// Null, or of `Thread::first` and not used any more.
unsafe fn leave(thread: *const Thread) {
    if !thread.is_null() {
        // SAFETY: as promised by the caller; the receiver is the process's, which never ends.
        let thread = unsafe { Box::from_raw(thread.cast_mut()) };
        // SAFETY: the receiver is the process's, which never ends.
        unsafe { &*thread.receiver }.cache.reuse().leave(&thread.runner);
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
