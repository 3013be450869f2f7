//! Turns a fiber's stack overflow into a message that names the fiber.
//!
//! A stack that overflows touches its guard, and the kernel raises SIGSEGV (SIGBUS on some
//! systems). The handler cannot run on the stack that is full, so each thread needs an alternate
//! one. The handler is async-signal-safe: it only reads memory of this thread that is not being
//! written, `write`, `abort`. Every other fault goes to the handler that was there before, such as
//! the standard library's, which reports overflows of the threads' own stacks.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::{io, ptr};

use crate::abort::die;
use crate::core::Core;
use crate::core::block::Block;
use crate::core::current::CURRENT;
use crate::stack::Stack;

const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Bytes of an alternate stack: the kernel saves up to about 11 KiB of vector registers on it.
const SIGNAL_STACK_BYTES: usize = 64 * 1024;

/// The handlers that ours replaced, in the order of `SIGNALS`.
static PREVIOUS: [OnceLock<libc::sigaction>; 2] = [OnceLock::new(), OnceLock::new()];
static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();

/// Keeps overflow detection working on the thread that made it.
pub(crate) struct OverflowGuard {
    /// The thread's alternate stack, when it had none and we gave it one.
    signal_stack: Option<Stack>,
}

impl OverflowGuard {
    pub(crate) fn install() -> io::Result<OverflowGuard> {
        INSTALLED
            .get_or_init(|| {
                install_handlers().map_err(|e| e.raw_os_error().unwrap_or(libc::EINVAL))
            })
            .map_err(io::Error::from_raw_os_error)?;
        if current_signal_stack()?.is_some() {
            return Ok(OverflowGuard { signal_stack: None });
        }
        let stack = Stack::map(SIGNAL_STACK_BYTES, 0)?;
        let description = libc::stack_t {
            ss_sp: stack.usable_start().cast(),
            ss_flags: 0,
            ss_size: stack.usable_bytes(),
        };
        // SAFETY: the memory is mapped, unused, and stays so until `drop` takes it back.
        if unsafe { libc::sigaltstack(&raw const description, ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OverflowGuard { signal_stack: Some(stack) })
    }
}

impl Drop for OverflowGuard {
    fn drop(&mut self) {
        let Some(stack) = self.signal_stack.take() else { return };
        match current_signal_stack() {
            Ok(Some(current)) if current == stack.usable_start() => {
                let none = libc::stack_t {
                    ss_sp: ptr::null_mut(),
                    ss_flags: libc::SS_DISABLE,
                    ss_size: 0,
                };
                // SAFETY: takes the thread's alternate stack away; a handler is not running on it,
                // since this is ordinary code.
                if unsafe { libc::sigaltstack(&raw const none, ptr::null_mut()) } != 0 {
                    std::mem::forget(stack);
                }
            }
            // Other code has replaced it, and may put ours back later.
            _ => std::mem::forget(stack),
        }
    }
}

/// The lowest address of this thread's alternate stack, if it has one.
fn current_signal_stack() -> io::Result<Option<*mut u8>> {
    let mut current =
        libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
    // SAFETY: only asks, into a local.
    if unsafe { libc::sigaltstack(ptr::null(), &raw mut current) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let enabled = current.ss_flags & libc::SS_DISABLE == 0;
    Ok(enabled.then_some(current.ss_sp.cast()))
}

fn install_handlers() -> io::Result<()> {
    for (signal, previous) in SIGNALS.into_iter().zip(&PREVIOUS) {
        // SAFETY: an all-zero sigaction is a valid one: default handler, no flags, empty mask.
        let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
        // Asked first, so that our handler never runs without knowing its predecessor.
        // SAFETY: only asks, into a local.
        if unsafe { libc::sigaction(signal, ptr::null(), &raw mut old) } != 0 {
            return Err(io::Error::last_os_error());
        }
        previous.get_or_init(|| old);
        // SAFETY: an all-zero sigaction is a valid one, as for `old`.
        let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
        new.sa_sigaction = on_fault as *const () as usize;
        new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the handler has the signature that SA_SIGINFO asks for and keeps to what is
        // allowed in signal handlers.
        if unsafe { libc::sigaction(signal, &raw const new, ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo; for these signals it holds an address.
    let address = unsafe { (*info).si_addr() }.addr();
    let (core, block) = CURRENT.with(|current| (current.core.get(), current.running.get()));
    // SAFETY: null, or the fiber this thread runs and its scheduler, which are alive (`current.rs`)
    // and not being written: the thread is in this handler.
    if let Some((core, block)) = unsafe { core.as_ref().zip(block.as_ref()) } {
        // SAFETY: the cell is not written meanwhile, as above.
        let stack = unsafe { &*block.stack.as_ptr() };
        if let Some(stack) = stack.as_ref().filter(|stack| stack.guard().contains(&address)) {
            report(core, block, stack);
        }
    }
    pass_on(signal, info, context);
}

fn report(core: &Core, block: &Block, stack: &Stack) -> ! {
    // SAFETY: the thread is in the signal handler, so the cell is not being written.
    let name = unsafe { &*block.name.as_ptr() };
    let mut serial = [0; 20];
    let mut kib = [0; 20];
    let (prefix, name): (&[u8], &[u8]) = match name {
        Some(name) => (b"", name.as_bytes()),
        None => (b"fiber ", decimal(block.serial.get(), &mut serial)),
    };
    die(&[
        b"\nfiber '",
        prefix,
        name,
        b"' on thread '",
        core.thread_name.as_bytes(),
        b"' has overflowed its stack of ",
        decimal((stack.usable_bytes() / 1024) as u64, &mut kib),
        b" KiB; give fibers larger ones with Rack::stack_bytes, or without a rack with \
          Config::stack_bytes or Builder::stack_bytes\n",
    ])
}

/// Lets the previous handler have the fault.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let index = usize::from(signal != SIGNALS[0]);
    let previous = PREVIOUS[index].get();
    match previous {
        Some(action) if ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction) => {
            if action.sa_flags & libc::SA_SIGINFO != 0 {
                // SAFETY: SA_SIGINFO says that the word is a function of this signature.
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                    unsafe { std::mem::transmute(action.sa_sigaction) };
                handler(signal, info, context);
            } else {
                // SAFETY: without SA_SIGINFO it is a function of the signal number.
                let handler: extern "C" fn(c_int) =
                    unsafe { std::mem::transmute(action.sa_sigaction) };
                handler(signal);
            }
        }
        _ => {
            // SAFETY: an all-zero sigaction asks for the default action; when this handler returns,
            // the instruction faults again and the process ends as it would have without this
            // handler.
            unsafe {
                let default: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, &raw const default, ptr::null_mut());
            }
        }
    }
}

/// Formats a number without allocating.
fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &digits[start..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_full() {
        for number in [0, 7, 10, 128, u64::MAX] {
            assert_eq!(decimal(number, &mut [0; 20]), number.to_string().as_bytes());
        }
    }

    #[test]
    fn a_thread_without_a_signal_stack_gets_one_and_loses_it_again() {
        std::thread::spawn(|| {
            let none =
                libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
            let mut inherited = none;
            // SAFETY: this thread does not overflow its stack; it gets its signal stack back below.
            assert_eq!(unsafe { libc::sigaltstack(&raw const none, &raw mut inherited) }, 0);
            let guard = OverflowGuard::install().unwrap();
            assert!(guard.signal_stack.is_some());
            assert!(current_signal_stack().unwrap().is_some());
            drop(guard);
            assert!(current_signal_stack().unwrap().is_none());
            // SAFETY: hands back what the standard library had installed, which it still owns.
            assert_eq!(unsafe { libc::sigaltstack(&raw const inherited, ptr::null_mut()) }, 0);
        })
        .join()
        .unwrap();
    }

    /// In a child process, for each distance: the handler aborts.
    #[test]
    fn the_whole_guard_is_reported_as_an_overflow() {
        const CHILD: &str = "GOSSAMER_FIBER_TEST_BELOW_THE_STACK";
        if let Some(distance) = std::env::var_os(CHILD) {
            let distance: usize = distance.to_str().unwrap().parse().unwrap();
            let scheduler = crate::Scheduler::new(crate::Config::default()).unwrap();
            scheduler.enter(|| {
                crate::spawn_local(move || {
                    // SAFETY: the running fiber's stack, which stays where it is.
                    let touch = crate::core::current::with_fiber(|_, block| unsafe {
                        (*block.stack.as_ptr()).as_ref().unwrap().usable_start()
                    });
                    let touch = touch.unwrap().wrapping_sub(distance);
                    // SAFETY: it is in the guard, so this faults, and the handler aborts.
                    unsafe { touch.write_volatile(1) };
                })
            });
            scheduler.run(1);
            return;
        }
        // The last one is what a frame of 20 KiB that is not touched in order would come to; then
        // the far end of the guard.
        for distance in [1, 4096, 4097, 20 * 1024, 64 * 1024] {
            let test = "overflow::tests::the_whole_guard_is_reported_as_an_overflow";
            let output = std::process::Command::new(std::env::current_exe().unwrap())
                .args([test, "--exact", "--nocapture"])
                .env(CHILD, distance.to_string())
                .output()
                .unwrap();
            let message = String::from_utf8_lossy(&output.stderr);
            let expected = "has overflowed its stack";
            assert!(message.contains(expected), "{distance} bytes below: {message}");
        }
    }
}
