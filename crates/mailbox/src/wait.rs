//! [`CpuWait`]: how a processor waits for a word to change without taking power, or a core's resources
//! from its sibling, as a spin loop does. Found at run time.
//!
//! | Processor | Instructions | Ends |
//! |---|---|---|
//! | Intel since Tremont and Alder Lake | `umonitor`, `umwait` | a write to the word's line, or a deadline |
//! | AMD since Excavator and Zen | `monitorx`, `mwaitx` | the same |
//! | aarch64 with Linux's event stream | `ldaxr`, `wfe` | the same, or the next event of that stream, 100 us or so |
//! | others | `pause` or `yield` | after some 10 to 100 ns |
//!
//! Each waits for one line. So a sender waits in this way for the flag of its next bank, where that is
//! mapped, and a receiver for the next frame of its only sender. A receiver that has several senders
//! pauses between two looks at all of them: a wait for one of them, or for a timer alone, would delay
//! the frames of the others by up to that time, 100 us with `wfe`. Like every receiver, it sleeps
//! when nothing has come for 100 us.
//!
//! All may end without cause, so callers look again. None of them gives up the core: for longer waits
//! a thread sleeps (`sleep.rs`).

use primitive::sync::AtomicU64;
#[cfg(not(loom))]
use primitive::sync::OnceLock;
#[cfg(all(not(loom), target_arch = "x86_64"))]
use primitive::sync::Ordering;

/// The longest wait in ticks of the time-stamp counter: 2 to 5 microseconds. A caller with other things
/// to look at does so in between.
#[cfg(all(not(loom), target_arch = "x86_64"))]
const TICKS: u64 = 8_000;

/// How a processor waits for a word to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuWait {
    /// `umonitor` and `umwait` (Intel, WAITPKG).
    Umwait,
    /// `monitorx` and `mwaitx` (AMD).
    Mwaitx,
    /// `wfe` with an exclusive load (aarch64).
    Wfe,
    /// A spin hint.
    Pause,
}

/// What decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Facts {
    /// aarch64, whose baseline has `wfe`, under a system that makes the event stream: without it, `wfe`
    /// may last for as long as nothing interrupts the processor.
    has_event_stream: bool,
    /// The largest basic and extended leaves of CPUID; zero elsewhere.
    leaves: (u32, u32),
    /// ECX of leaf 7.
    leaf_7: u32,
    /// ECX of leaf 0x8000_0001.
    leaf_extended: u32,
}

/// The extended leaf that has MONITORX, and its bit there; the basic leaf that has WAITPKG, and its bit.
const EXTENDED: (u32, u32) = (0x8000_0001, 1 << 29);
const BASIC: (u32, u32) = (7, 1 << 5);

impl Facts {
    fn choose(self) -> CpuWait {
        let Facts { has_event_stream, leaves, leaf_7, leaf_extended } = self;
        if has_event_stream {
            CpuWait::Wfe
        } else if leaves.0 >= BASIC.0 && leaf_7 & BASIC.1 != 0 {
            CpuWait::Umwait
        } else if leaves.1 >= EXTENDED.0 && leaf_extended & EXTENDED.1 != 0 {
            CpuWait::Mwaitx
        } else {
            CpuWait::Pause
        }
    }

    #[cfg(all(not(loom), target_arch = "x86_64"))]
    fn of_this_processor() -> Facts {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        let leaves = (__cpuid(0).eax, __cpuid(0x8000_0000).eax);
        // A leaf that the processor does not have gives the data of another one.
        let leaf_7 = if leaves.0 >= BASIC.0 { __cpuid_count(BASIC.0, 0).ecx } else { 0 };
        let leaf_extended = if leaves.1 >= EXTENDED.0 { __cpuid(EXTENDED.0).ecx } else { 0 };
        Facts { has_event_stream: false, leaves, leaf_7, leaf_extended }
    }

    #[cfg(all(not(loom), target_arch = "aarch64"))]
    fn of_this_processor() -> Facts {
        /// `HWCAP_EVTSTRM`.
        const EVENT_STREAM: usize = 1 << 2;
        let (capabilities, _) = rustix::param::linux_hwcap();
        Facts { has_event_stream: capabilities & EVENT_STREAM != 0, ..Facts::default() }
    }

    #[cfg(all(not(loom), not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    fn of_this_processor() -> Facts {
        Facts::default()
    }
}

impl CpuWait {
    /// The best that this processor has.
    ///
    /// ```
    /// println!("a receiver waits by {:?}", mailbox::CpuWait::detected());
    /// ```
    #[cfg(not(loom))]
    pub fn detected() -> CpuWait {
        static DETECTED: OnceLock<CpuWait> = OnceLock::new();
        *DETECTED.get_or_init(|| Facts::of_this_processor().choose())
    }

    /// The best that a model has.
    #[cfg(loom)]
    pub fn detected() -> CpuWait {
        Facts::default().choose()
    }

    /// Waits a moment, or until `word` is no longer `seen`. May return early.
    #[inline]
    pub(crate) fn wait(self, word: &AtomicU64, seen: u64) {
        match self {
            #[cfg(all(not(loom), target_arch = "x86_64"))]
            CpuWait::Umwait => umwait(word, seen),
            #[cfg(all(not(loom), target_arch = "x86_64"))]
            CpuWait::Mwaitx => mwaitx(word, seen),
            #[cfg(all(not(loom), target_arch = "aarch64"))]
            CpuWait::Wfe => wfe(word, seen),
            _ => {
                let _ = (word, seen);
                primitive::sync::spin_hint();
            }
        }
    }
}

/// Only for a processor that has WAITPKG: others raise SIGILL.
#[cfg(all(not(loom), target_arch = "x86_64"))]
fn umwait(word: &AtomicU64, seen: u64) {
    // SAFETY: `umonitor` reads no memory but arms a monitor for the line of a valid address.
    unsafe { std::arch::asm!("umonitor {}", in(reg) word.as_ptr(), options(nostack)) };
    // A write before the monitor was armed would not end the wait.
    if word.load(Ordering::Relaxed) == seen {
        // SAFETY: reads a counter.
        let deadline = unsafe { std::arch::x86_64::_rdtsc() }.wrapping_add(TICKS);
        // SAFETY: `umwait` waits in state C0.1, which ends fastest, until the deadline at most; it
        // changes flags and no memory.
        unsafe {
            std::arch::asm!(
                "umwait {state:e}",
                state = in(reg) 1_u32,
                in("eax") deadline as u32,
                in("edx") (deadline >> 32) as u32,
                options(nostack),
            );
        }
    }
}

/// Only for a processor that has MONITORX: others raise SIGILL.
#[cfg(all(not(loom), target_arch = "x86_64"))]
fn mwaitx(word: &AtomicU64, seen: u64) {
    // SAFETY: `monitorx` reads no memory but arms a monitor for the line of a valid address.
    unsafe {
        std::arch::asm!(
            "monitorx",
            in("rax") word.as_ptr(),
            in("ecx") 0_u32,
            in("edx") 0_u32,
            options(nostack),
        );
    }
    if word.load(Ordering::Relaxed) == seen {
        // SAFETY: `mwaitx` with its timer waits for some ticks at most, in state C0 (0xf0), and changes
        // no memory. RBX, which the compiler keeps for itself, is restored.
        unsafe {
            std::arch::asm!(
                "mov {saved}, rbx",
                "mov ebx, {ticks:e}",
                "mwaitx",
                "mov rbx, {saved}",
                saved = out(reg) _,
                ticks = in(reg) TICKS as u32,
                in("eax") 0xf0_u32,
                in("ecx") 2_u32,
                options(nostack),
            );
        }
    }
}

#[cfg(all(not(loom), target_arch = "aarch64"))]
fn wfe(word: &AtomicU64, seen: u64) {
    // SAFETY: the exclusive load reads an aligned word that the reference keeps, and arms the monitor of
    // its address; `wfe` waits for an event, at the latest that of the timer. No memory changes.
    unsafe {
        std::arch::asm!(
            "ldaxr {now}, [{word}]",
            "cmp {now}, {seen}",
            "b.ne 2f",
            "wfe",
            "2:",
            now = out(reg) _,
            word = in(reg) word.as_ptr(),
            seen = in(reg) seen,
            options(nostack),
        );
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_best_that_the_processor_has_is_chosen() {
        let intel = Facts { leaves: (0x1f, 0x8000_0008), leaf_7: 1 << 5, ..Facts::default() };
        let amd = Facts { leaves: (0x10, 0x8000_0028), leaf_extended: 1 << 29, ..Facts::default() };
        assert_eq!(intel.choose(), CpuWait::Umwait);
        assert_eq!(amd.choose(), CpuWait::Mwaitx);
        assert_eq!(Facts { leaf_7: 1 << 5, ..amd }.choose(), CpuWait::Umwait, "both");
        assert_eq!(Facts { has_event_stream: true, ..Facts::default() }.choose(), CpuWait::Wfe);
        assert_eq!(Facts::default().choose(), CpuWait::Pause);
        // Other bits of the same registers, and leaves that the processor does not have.
        assert_eq!(Facts { leaf_7: !(1 << 5), ..intel }.choose(), CpuWait::Pause);
        assert_eq!(Facts { leaf_extended: !(1 << 29), ..amd }.choose(), CpuWait::Pause);
        assert_eq!(Facts { leaves: (6, 0x8000_0008), ..intel }.choose(), CpuWait::Pause);
        assert_eq!(Facts { leaves: (0x10, 0x8000_0000), ..amd }.choose(), CpuWait::Pause);
    }

    #[test]
    fn this_processor_waits_and_goes_on() {
        let (cpu, word) = (CpuWait::detected(), AtomicU64::new(7));
        assert_eq!(cpu, CpuWait::detected());
        for _ in 0..1000 {
            cpu.wait(&word, 7);
            cpu.wait(&word, 8);
        }
    }
}
