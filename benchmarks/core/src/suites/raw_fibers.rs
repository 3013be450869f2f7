//! The stack switches of other crates behind one trait, at the lowest level that each offers.
//!
//! A fiber here repeats one piece of work and yields after each run.
//! Stacks are the crates' own, 64 KiB, with their guard pages.

use std::cell::Cell;
use std::ffi::c_void;
use std::rc::Rc;

use context::stack::ProtectedFixedSizeStack;
use context::{Context, Transfer};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};
use generator::{Generator, Gn, LocalGenerator, done};

/// Bytes of stack for every fiber.
pub(crate) const STACK: usize = 64 * 1024;

/// A fiber that runs `W` each time it is resumed.
pub(crate) trait RawFiber<W: FnMut() + 'static>: Sized {
    /// A suspended fiber.
    fn endless(work: W) -> Self;

    /// Resumes it for one run of its work.
    fn resume(&mut self);
}

/// A stack that one fiber after another uses, as from a pool.
pub(crate) trait RawPool: Default {
    /// Creates a fiber on the stack, runs it to its end, and gets the stack back.
    fn run_once(&mut self, work: fn());
}

/// A fiber of `corosensei`.
pub(crate) struct Corosensei(Coroutine<(), (), ()>);

impl<W: FnMut() + 'static> RawFiber<W> for Corosensei {
    fn endless(mut work: W) -> Self {
        let stack = DefaultStack::new(STACK).expect("memory for a stack");
        Corosensei(Coroutine::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
            loop {
                work();
                yielder.suspend(());
            }
        }))
    }

    #[inline(always)]
    fn resume(&mut self) {
        self.0.resume(());
    }
}

/// A stack of `corosensei`.
pub(crate) struct CorosenseiPool(Option<DefaultStack>);

impl Default for CorosenseiPool {
    fn default() -> Self {
        CorosenseiPool(Some(DefaultStack::new(STACK).expect("memory for a stack")))
    }
}

impl RawPool for CorosenseiPool {
    #[inline(always)]
    fn run_once(&mut self, work: fn()) {
        let stack = self.0.take().expect("every fiber returns its stack");
        let mut fiber = Coroutine::with_stack(stack, move |_: &Yielder<(), ()>, ()| work());
        fiber.resume(());
        self.0 = Some(fiber.into_stack());
    }
}

/// A fiber of `generator`.
pub(crate) struct Gener {
    fiber: LocalGenerator<'static, (), ()>,
    quit: Rc<Cell<bool>>,
}

/// `generator` counts stacks in words.
const WORDS: usize = STACK / size_of::<usize>();

impl<W: FnMut() + 'static> RawFiber<W> for Gener {
    fn endless(mut work: W) -> Self {
        let quit = Rc::new(Cell::new(false));
        let quits = quit.clone();
        let fiber = Gn::<()>::new_scoped_opt_local(WORDS, move |mut scope| {
            while !quits.get() {
                work();
                scope.yield_with(());
            }
            done!()
        });
        Gener { fiber, quit }
    }

    #[inline(always)]
    fn resume(&mut self) {
        self.fiber.resume();
    }
}

impl Drop for Gener {
    // Dropping a suspended fiber would unwind it by a panic.
    fn drop(&mut self) {
        self.quit.set(true);
        self.fiber.resume();
    }
}

/// A stack of `generator`, inside the generator that is given new work.
pub(crate) struct GenerPool(Generator<'static, (), ()>);

impl Default for GenerPool {
    fn default() -> Self {
        let mut fiber = Gn::<()>::new_opt(WORDS, || ());
        fiber.resume();
        GenerPool(fiber)
    }
}

impl RawPool for GenerPool {
    #[inline(always)]
    fn run_once(&mut self, work: fn()) {
        self.0.init_code(work);
        self.0.resume();
    }
}

/// A fiber of `context`.
pub(crate) struct Ctx<W> {
    context: Option<Context>,
    work: *mut W,
    // Outlives the context, which lives on it.
    _stack: ProtectedFixedSizeStack,
}

extern "C" fn endless<W: FnMut()>(mut transfer: Transfer) -> ! {
    let work = transfer.data as *mut W;
    loop {
        // SAFETY: `data` of the first transfer is `Ctx::work`, which lives until the fiber is
        // dropped, and only this fiber uses it.
        unsafe { (*work)() };
        // SAFETY: the transfer holds the context that resumed this fiber, used once.
        transfer = unsafe { transfer.context.resume(0) };
    }
}

impl<W: FnMut() + 'static> RawFiber<W> for Ctx<W> {
    fn endless(work: W) -> Self {
        let stack = ProtectedFixedSizeStack::new(STACK).expect("memory for a stack");
        // SAFETY: the stack is kept beside the context and used for nothing else.
        let context = unsafe { Context::new(&stack, endless::<W>) };
        Ctx { context: Some(context), work: Box::into_raw(Box::new(work)), _stack: stack }
    }

    #[inline(always)]
    fn resume(&mut self) {
        let context = self.context.take().expect("a context is put back after every switch");
        // SAFETY: the context is this fiber's latest one, and its stack is alive.
        let transfer = unsafe { context.resume(self.work as usize) };
        self.context = Some(transfer.context);
    }
}

impl<W> Drop for Ctx<W> {
    fn drop(&mut self) {
        // SAFETY: `work` came from `Box::into_raw`; the fiber, its only user, never runs again.
        drop(unsafe { Box::from_raw(self.work) });
    }
}

/// A stack of `context`.
pub(crate) struct CtxPool(ProtectedFixedSizeStack);

impl Default for CtxPool {
    fn default() -> Self {
        CtxPool(ProtectedFixedSizeStack::new(STACK).expect("memory for a stack"))
    }
}

extern "C" fn once(transfer: Transfer) -> ! {
    // SAFETY: `data` is the `fn()` that `CtxPool::run_once` passed.
    let work =
        unsafe { std::mem::transmute::<*const c_void, fn()>(transfer.data as *const c_void) };
    work();
    // SAFETY: the transfer holds the context that resumed this fiber, used once.
    unsafe { transfer.context.resume(0) };
    unreachable!("a fiber that has run its work is not resumed")
}

impl RawPool for CtxPool {
    #[inline(always)]
    fn run_once(&mut self, work: fn()) {
        // SAFETY: the stack is alive, and the fiber before on it has been left for good.
        unsafe { Context::new(&self.0, once).resume(work as *const c_void as usize) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    fn runs<F, W>(make: fn(W) -> F, work: impl Fn(Rc<Cell<u64>>) -> W)
    where
        W: FnMut() + 'static,
        F: RawFiber<W>,
    {
        let count = Rc::new(Cell::new(0));
        let mut fibers: Vec<F> = (0..3).map(|_| make(work(count.clone()))).collect();
        for _ in 0..5 {
            fibers.iter_mut().for_each(RawFiber::resume);
        }
        assert_eq!(count.get(), 15);
    }

    #[test]
    fn every_fiber_runs_its_work_once_per_resume() {
        let work = |count: Rc<Cell<u64>>| move || count.set(count.get() + 1);
        runs(Corosensei::endless, work);
        runs(Gener::endless, work);
        runs(Ctx::endless, work);
    }

    #[test]
    fn every_pool_runs_one_fiber_after_another() {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        fn work() {
            RUNS.fetch_add(1, Relaxed);
        }
        fn thrice(mut pool: impl RawPool) {
            (0..3).for_each(|_| pool.run_once(work));
        }
        thrice(CorosenseiPool::default());
        thrice(GenerPool::default());
        thrice(CtxPool::default());
        assert_eq!(RUNS.load(Relaxed), 9);
    }
}
