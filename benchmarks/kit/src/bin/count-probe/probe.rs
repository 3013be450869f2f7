//! The workloads: phases in assembly, so that the numbers of their instructions are known.

use std::arch::asm;
use std::hint::black_box;
use std::process::ExitCode;

use bench_kit::count::{Workload, mark, run_workload};

#[global_allocator]
static ALLOCATOR: mark::MarkedAlloc = mark::MarkedAlloc;

/// The workloads, for `run_workload` and as the list that the tests repeat.
const WORKLOADS: [Workload; 6] = [
    Workload { name: "exact", phases: &["nops", "lock", "xchg", "call"], run: exact },
    Workload { name: "repeated", phases: &["copy", "empty"], run: repeated },
    Workload { name: "allocating", phases: &["grow", "stay"], run: allocating },
    Workload { name: "unnamed", phases: &["only"], run: unnamed },
    Workload { name: "quitting", phases: &["only"], run: quitting },
    Workload { name: "timid", phases: &["only"], run: || () },
];

/// Runs the workload that the environment names, if it names one.
pub(super) fn run() -> Option<ExitCode> {
    run_workload(&WORKLOADS)
}

/// 100 nops; one `lock add` among 3 instructions; one locking and one plain `xchg`; one system call
/// among 2 instructions. Twice the nops, with a pause in between.
fn exact() {
    let mut word = 7u64;
    mark::begin();
    for _ in 0..2 {
        mark::phase::<0>();
        // SAFETY: a `nop` changes neither registers, flags nor memory.
        unsafe { asm!(".rept 100", "nop", ".endr", options(nostack, preserves_flags)) }
        mark::pause();
        black_box(&mut word);
    }
    let address = &raw mut word;
    // SAFETY: `address` is that of a local that nothing else uses meanwhile; the marks are nops,
    // and `getppid` changes no memory and only the registers named.
    unsafe {
        asm!(
            ".byte 0x0f, 0x1f, 0x80, 1, 0, 0x55, 0x7a",
            "nop",
            "lock add qword ptr [{p}], 1",
            "nop",
            ".byte 0x0f, 0x1f, 0x80, 2, 0, 0x55, 0x7a",
            "xchg [{p}], {t}",
            "xchg {t}, {u}",
            ".byte 0x0f, 0x1f, 0x80, 3, 0, 0x55, 0x7a",
            "mov eax, 110",
            "syscall",
            ".byte 0x0f, 0x1f, 0x80, 0xff, 0xff, 0x55, 0x7a",
            p = in(reg) address,
            t = inout(reg) 1u64 => _,
            u = inout(reg) 2u64 => _,
            out("rax") _,
            out("rcx") _,
            out("r11") _,
        );
    }
    black_box(word);
}

/// A `rep movsb` of 64 bytes is one instruction, and so is the next one after it.
fn repeated() {
    let (from, mut to) = ([5u8; 64], [0u8; 64]);
    mark::begin();
    // SAFETY: both arrays hold the 64 bytes that each copy touches; the direction flag is clear, as
    // the ABI demands.
    unsafe {
        asm!(
            ".byte 0x0f, 0x1f, 0x80, 0, 0, 0x55, 0x7a",
            "rep movsb",
            "mov ecx, 1",
            "dec rsi",
            "dec rdi",
            "rep movsb",
            ".byte 0x0f, 0x1f, 0x80, 1, 0, 0x55, 0x7a",
            ".byte 0x0f, 0x1f, 0x80, 0xff, 0xff, 0x55, 0x7a",
            inout("rcx") 64usize => _,
            inout("rsi") from.as_ptr() => _,
            inout("rdi") to.as_mut_ptr() => _,
        );
    }
    assert_eq!(black_box(to), from);
}

/// One allocation, one growth and one release; then a push that needs none of them.
fn allocating() {
    mark::begin();
    mark::phase::<0>();
    let mut numbers: Vec<u64> = Vec::with_capacity(black_box(1));
    numbers.push(1);
    numbers.push(2);
    drop(black_box(numbers));
    mark::pause();
    let mut numbers: Vec<u64> = Vec::with_capacity(black_box(8));
    mark::phase::<1>();
    numbers.push(black_box(1));
    mark::end();
    black_box(numbers);
}

/// Marks a phase that has no name.
fn unnamed() {
    mark::begin();
    mark::phase::<0>();
    mark::phase::<1>();
    mark::end();
}

/// Ends in the middle of a phase.
fn quitting() {
    mark::begin();
    mark::phase::<0>();
    std::process::exit(3);
}
