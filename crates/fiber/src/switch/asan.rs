//! Tells AddressSanitizer of stack switches. Only with `--cfg address_sanitizer`
//! (`cargo xtask asan`); elsewhere its functions are empty.
//!
//! AddressSanitizer knows the bounds of the stack that a thread runs on, and keeps a *fake stack*
//! for each, where locals live whose addresses are taken, so that it sees their use after their
//! function has returned. For every switch it must be notified:
//! 1. just before, on the old stack: where the new stack is ([`Side::leave_for`]);
//! 2. just after, on the new stack: which fake stack belongs to it ([`Side::arrive`]).
//!
//! Between a fiber's end and the next one on its stack, the stack's memory is poisoned, so that
//! using a pointer into it that was kept is reported.

#[cfg(not(address_sanitizer))]
pub(in crate::switch) use disabled::Side;
#[cfg(address_sanitizer)]
pub(in crate::switch) use enabled::Side;

#[cfg(not(address_sanitizer))]
mod disabled {
    use crate::stack::Stack;

    #[derive(Clone, Copy)]
    pub(in crate::switch) struct Side;

    impl Side {
        pub(in crate::switch) const fn new() -> Side {
            Side
        }
        #[inline(always)]
        pub(in crate::switch) fn begin(&self, _stack: &Stack) {}
        #[inline(always)]
        pub(in crate::switch) fn end(&self) {}
        #[inline(always)]
        pub(in crate::switch) fn leave_for(&self, _next: &Side) {}
        #[inline(always)]
        pub(in crate::switch) fn arrive(&self) {}
        pub(in crate::switch) fn saved(&self) -> Side {
            *self
        }
        pub(in crate::switch) fn restore(&self, _saved: Side) {}
    }
}

#[cfg(address_sanitizer)]
mod enabled {
    use std::cell::Cell;
    use std::ffi::c_void;
    use std::ptr;

    use crate::stack::Stack;

    // SAFETY: as in `sanitizer/common_interface_defs.h` and `sanitizer/asan_interface.h`.
    unsafe extern "C" {
        fn __sanitizer_start_switch_fiber(
            fake_stack_save: *mut *mut c_void,
            bottom: *const c_void,
            bytes: usize,
        );
        fn __sanitizer_finish_switch_fiber(
            fake_stack_save: *mut c_void,
            bottom_old: *mut *const c_void,
            bytes_old: *mut usize,
        );
        fn __asan_poison_memory_region(address: *const c_void, bytes: usize);
        fn __asan_unpoison_memory_region(address: *const c_void, bytes: usize);
    }

    /// One side of a switch, an execution or the code that resumes it: where its stack is, and the
    /// fake stack that belongs to it while it is suspended.
    #[derive(Clone)]
    pub(in crate::switch) struct Side(Cell<Known>);

    #[derive(Clone, Copy)]
    struct Known {
        fake_stack: *mut c_void,
        bottom: *const c_void,
        bytes: usize,
    }

    thread_local! {
        /// The side that was left last. Its bounds are noted on arrival, since those of a thread's
        /// own stack are known to AddressSanitizer alone.
        static LEFT: Cell<*const Side> = const { Cell::new(ptr::null()) };
    }

    impl Side {
        pub(in crate::switch) const fn new() -> Side {
            let (fake_stack, bottom) = (ptr::null_mut(), ptr::null());
            Side(Cell::new(Known { fake_stack, bottom, bytes: 0 }))
        }

        /// An execution is about to begin on `stack`. It takes over the fake stack of the one that
        /// ran there before: that one could not have given it up, since its last function, too, has
        /// its locals there.
        pub(in crate::switch) fn begin(&self, stack: &Stack) {
            let (bottom, bytes) = (stack.usable_start().cast_const().cast(), stack.usable_bytes());
            self.0.set(Known { bottom, bytes, ..self.0.get() });
            // SAFETY: the memory of a stack on which nothing runs. Frames of the execution before
            // that did not return have left their red zones there.
            unsafe { __asan_unpoison_memory_region(bottom, bytes) };
        }

        /// The execution has ended; its stack is not used until the next begins.
        pub(in crate::switch) fn end(&self) {
            let Known { bottom, bytes, .. } = self.0.get();
            // SAFETY: the memory of a stack on which nothing runs.
            unsafe { __asan_poison_memory_region(bottom, bytes) };
        }

        /// Before the switch from this side, on whose stack the caller runs, to `next`.
        #[inline(always)]
        pub(in crate::switch) fn leave_for(&self, next: &Side) {
            let Known { bottom, bytes, .. } = next.0.get();
            LEFT.set(self);
            // SAFETY: the place to save to is in this side; the bounds are those of the next stack.
            unsafe {
                let save = &raw mut (*self.0.as_ptr()).fake_stack;
                __sanitizer_start_switch_fiber(save, bottom, bytes);
            }
        }

        /// After the switch to this side, on whose stack the caller runs.
        #[inline(always)]
        pub(in crate::switch) fn arrive(&self) {
            let (mut bottom, mut bytes) = (ptr::null(), 0);
            let fake_stack = self.0.get().fake_stack;
            // SAFETY: both pointers are to locals; the fake stack is what was saved for this side.
            unsafe {
                __sanitizer_finish_switch_fiber(fake_stack, &raw mut bottom, &raw mut bytes);
            }
            // SAFETY: the side was left a moment ago by a switch of this thread; sides stay in
            // place while their execution lasts, and that of the resumer is a thread-local.
            if let Some(left) = unsafe { LEFT.replace(ptr::null()).as_ref() } {
                left.0.set(Known { bottom, bytes, ..left.0.get() });
            }
        }

        /// A copy, to be [restored](Self::restore).
        pub(in crate::switch) fn saved(&self) -> Side {
            self.clone()
        }

        pub(in crate::switch) fn restore(&self, saved: Side) {
            self.0.set(saved.0.get());
        }
    }
}
