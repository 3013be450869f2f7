//! Turns a stack overflow into a message that names the fiber, or the thread if it runs none, and what
//! code it runs: delegated closures run on the stacks of both.
//!
//! A stack that overflows touches its guard, and the kernel raises SIGSEGV (SIGBUS on some
//! systems). The handler cannot run on the stack that is full, so each thread needs an alternate
//! one. The handler is async-signal-safe: it only reads memory of this thread that is not being
//! written, formats into an array, `write`, `abort`. Every other fault goes to the handler that was there before, such as
//! the standard library's, which reports overflows of the threads' own stacks.

use std::ffi::{c_int, c_void};
use std::fmt::{self, Write as _};
use std::sync::OnceLock;
use std::{io, ptr};

use crate::abort::die;
use crate::core::current::CURRENT;
use crate::core::{Core, ThreadStack};
use crate::stack::Stack;

const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Bytes of an alternate stack: the kernel saves up to about 11 KiB of vector registers on it.
const SIGNAL_STACK_BYTES: usize = 64 * 1024;

const NO_SIGNAL_STACK: libc::stack_t =
    libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };

/// The handlers that ours replaced, in the order of `SIGNALS`.
static PREVIOUS: [OnceLock<libc::sigaction>; 2] = [OnceLock::new(), OnceLock::new()];
static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();

/// Keeps overflow detection working on the thread that made it.
pub(crate) struct OverflowGuard {
    /// The alternate stack that we gave the thread, if that had none or a small one, and what it had.
    signal_stack: Option<(Stack, libc::stack_t)>,
}

impl OverflowGuard {
    /// The stack of the current thread, which installed this; `None` if the system does not tell.
    pub(crate) fn thread_stack(&self) -> Option<ThreadStack> {
        // SAFETY: an attribute object is plain data, which the call below fills in.
        let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
        // SAFETY: asks for the calling thread, into a local.
        if unsafe { libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) } != 0 {
            return None;
        }
        let (mut low, mut bytes, mut guard_bytes) = (ptr::null_mut(), 0, 0);
        // SAFETY: the attributes were filled in above; the answers go into locals; and they are
        // destroyed once.
        let found = unsafe {
            let found =
                libc::pthread_attr_getstack(&raw const attributes, &raw mut low, &raw mut bytes)
                    | libc::pthread_attr_getguardsize(&raw const attributes, &raw mut guard_bytes);
            libc::pthread_attr_destroy(&raw mut attributes);
            found
        };
        // Some releases of glibc count the guard as part of the stack: it is on one side of the
        // lowest address or on the other, and whatever faults there is an overflow.
        let (low, guard_bytes) = (low.addr(), guard_bytes.max(4096));
        let guard = low.saturating_sub(guard_bytes)..low + guard_bytes;
        (found == 0).then_some(ThreadStack { guard, bytes })
    }

    pub(crate) fn install() -> io::Result<OverflowGuard> {
        INSTALLED
            .get_or_init(|| {
                install_handlers().map_err(|e| e.raw_os_error().unwrap_or(libc::EINVAL))
            })
            .map_err(io::Error::from_raw_os_error)?;
        let before = current_signal_stack()?;
        // The standard library's has 8 KiB, which registers and the message may fill.
        if before.is_some_and(|stack| stack.ss_size >= SIGNAL_STACK_BYTES) {
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
        Ok(OverflowGuard { signal_stack: Some((stack, before.unwrap_or(NO_SIGNAL_STACK))) })
    }
}

impl Drop for OverflowGuard {
    fn drop(&mut self) {
        let Some((stack, before)) = self.signal_stack.take() else { return };
        match current_signal_stack() {
            Ok(Some(current)) if current.ss_sp == stack.usable_start().cast() => {
                // SAFETY: gives the thread the alternate stack back that it had, which belongs to it as
                // long as ours is in its place: who takes an alternate stack from a thread to free it
                // disables what the thread has (so do the standard library and the sanitizers). A
                // handler is not running on ours, since this is ordinary code.
                if unsafe { libc::sigaltstack(&raw const before, ptr::null_mut()) } != 0 {
                    std::mem::forget(stack);
                }
            }
            // Other code has replaced it, and may put ours back later.
            _ => std::mem::forget(stack),
        }
    }
}

/// This thread's alternate stack, if it has one.
fn current_signal_stack() -> io::Result<Option<libc::stack_t>> {
    let mut current = NO_SIGNAL_STACK;
    // SAFETY: only asks, into a local.
    if unsafe { libc::sigaltstack(ptr::null(), &raw mut current) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let enabled = current.ss_flags & libc::SS_DISABLE == 0;
    Ok(enabled.then_some(current))
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
            // SAFETY: the cell is not written meanwhile, as above.
            let name = unsafe { &*block.name.as_ptr() };
            let (number, code) = (block.serial.get(), block.code.get());
            let who = Overflowed::Fiber { name: name.as_deref(), number, code };
            report(core, who, stack.asked_bytes());
        }
    }
    // SAFETY: null, or the scheduler of this thread, as above.
    let core = unsafe { core.as_ref() };
    if let Some(core) = core.filter(|_| block.is_null())
        && let Some(stack) = core.thread_stack.as_ref().filter(|s| s.guard.contains(&address))
    {
        report(core, Overflowed::Thread, stack.bytes);
    }
    pass_on(signal, info, context);
}

/// Whose stack it is.
enum Overflowed<'a> {
    /// A fiber's: its name, if it was given one, its number, and the name of the code that it runs.
    Fiber {
        name: Option<&'a str>,
        number: u64,
        code: &'static str,
    },
    Thread,
}

fn report(core: &Core, who: Overflowed<'_>, stack_bytes: usize) -> ! {
    let mut message = Message { bytes: [0; MESSAGE_BYTES], len: 0 };
    // It never fails: what is too long is cut off.
    let _ = write_report(&mut message, core, who, stack_bytes);
    die(&[&message.bytes[..message.len], b"\n"])
}

fn write_report(
    message: &mut Message,
    core: &Core,
    who: Overflowed<'_>,
    stack_bytes: usize,
) -> fmt::Result {
    let (thread, kib) = (&core.thread_name, stack_bytes / 1024);
    let advice = match who {
        Overflowed::Fiber { name, number, code } => {
            match name {
                Some(name) => write!(message, "\nfiber '{name}'")?,
                None => write!(message, "\nfiber {number}")?,
            }
            write!(message, " (`{code}`) on thread '{thread}'")?;
            // Racks set it.
            match core.running {
                Some(_) => "give fibers larger ones with Rack::stack_bytes",
                None => "give fibers larger ones with Config::stack_bytes or Builder::stack_bytes",
            }
        }
        Overflowed::Thread => {
            write!(message, "\nthread '{thread}'")?;
            "give runtime threads larger ones with Rack::worker_stack_bytes"
        }
    };
    write!(message, " has overflowed its stack of {kib} KiB")?;
    if let Some(running) = core.running {
        running(message)?;
    }
    write!(message, "; {advice}")
}

/// Bytes of a message.
const MESSAGE_BYTES: usize = 1024;

/// A message that is put together without allocating.
struct Message {
    bytes: [u8; MESSAGE_BYTES],
    len: usize,
}

impl fmt::Write for Message {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let len = text.len().min(MESSAGE_BYTES - self.len);
        self.bytes[self.len..self.len + len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        Ok(())
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_are_too_long_are_cut_off() {
        let mut message = Message { bytes: [0; MESSAGE_BYTES], len: 0 };
        (0..300).for_each(|number| write!(message, "{number:04}").unwrap());
        assert_eq!(message.len, MESSAGE_BYTES);
        assert!(message.bytes.starts_with(b"00000001") && message.bytes.ends_with(b"0255"));
    }

    #[test]
    fn a_thread_without_a_signal_stack_gets_one_and_loses_it_again() {
        std::thread::spawn(|| {
            let mut inherited = NO_SIGNAL_STACK;
            let none = NO_SIGNAL_STACK;
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

    #[test]
    fn a_signal_stack_that_is_too_small_is_replaced_and_handed_back() {
        std::thread::spawn(|| {
            let small = Stack::map(crate::MIN_STACK_BYTES, 0).unwrap();
            let small = libc::stack_t {
                ss_sp: small.usable_start().cast(),
                ss_flags: 0,
                ss_size: small.usable_bytes(),
            };
            let mut inherited = small;
            // SAFETY: the memory is there until this thread gets its signal stack back, below.
            assert_eq!(unsafe { libc::sigaltstack(&raw const small, &raw mut inherited) }, 0);
            let guard = OverflowGuard::install().unwrap();
            let ours = current_signal_stack().unwrap().unwrap();
            assert!(ours.ss_size >= SIGNAL_STACK_BYTES, "{} bytes", ours.ss_size);
            let again = OverflowGuard::install().unwrap();
            assert_eq!(current_signal_stack().unwrap().unwrap().ss_sp, ours.ss_sp, "large enough");
            drop(again);
            drop(guard);
            assert_eq!(current_signal_stack().unwrap().unwrap().ss_sp, small.ss_sp);
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
