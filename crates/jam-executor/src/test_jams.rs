//! Jams for tests, in assembly: they need no compiler of jams where the tests run.

use std::arch::global_asm;

use jam_abi::entry::Types;
use jam_format::{Blob, Import, Machine};

macro_rules! jams {
    ($($(#[$attribute:meta])* $name:ident: $x86_64:literal, $aarch64:literal;)*) => {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: data of this process, which its forks copy to where jams are.
        global_asm!(
            ".pushsection .rodata.jams,\"a\",@progbits",
            $(concat!(stringify!($name), ":"), $x86_64, concat!(stringify!($name), "_end:"),)*
            ".popsection"
        );
        #[cfg(target_arch = "aarch64")]
        // SAFETY: data of this process, which its forks copy to where jams are.
        global_asm!(
            ".pushsection .rodata.jams,\"a\",@progbits", ".p2align 4",
            $(concat!(stringify!($name), ":"), $aarch64, concat!(stringify!($name), "_end:"),)*
            ".popsection"
        );
        $(
            $(#[$attribute])*
            #[allow(clippy::disallowed_methods, reason = "read-only data of this process")]
            pub(crate) fn $name() -> &'static [u8] {
                // SAFETY: labels of the assembly, in this order.
                unsafe extern "C" {
                    #[link_name = stringify!($name)]
                    static START: u8;
                    #[link_name = concat!(stringify!($name), "_end")]
                    static END: u8;
                }
                let len = (&raw const END).addr() - (&raw const START).addr();
                // SAFETY: between two labels of read-only data.
                unsafe { std::slice::from_raw_parts(&raw const START, len) }
            }
        )*
    };
}

jams! {
    // Returns what is in registers that hold nothing, and whether its argument is the call.
    test_jam_registers:
        "or rbx, rcx; or rbx, rdx; or rbx, rsi; or rbx, rbp; or rbx, r8; or rbx, r9; or rbx, r10
         or rbx, r11; or rbx, r12; or rbx, r13; or rbx, r14; or rbx, r15
         movq rax, xmm0; or rbx, rax; movq rax, xmm15; or rbx, rax
         mov rax, [rdi + 64]; test rax, rax; sete cl; movzx ecx, cl; or rbx, rcx; mov eax, ebx; ret",
        "orr x9, x9, x1; orr x9, x9, x2; orr x9, x9, x7; orr x9, x9, x18; orr x9, x9, x19
         orr x9, x9, x28; orr x9, x9, x29; fmov x1, d0; orr x9, x9, x1; fmov x1, d8; orr x9, x9, x1
         fmov x1, d31; orr x9, x9, x1; ldr x1, [x0, #64]; cmp x1, #0; cset x1, eq; orr x0, x9, x1
         ret";
    // Fills registers, and returns 7.
    test_jam_leaves:
        "mov rax, -1; movq xmm0, rax; movq xmm15, rax; mov r8, rax; mov r15, rax; mov ebx, 5
         mov eax, 7; ret",
        "mov x9, #-1; fmov d0, x9; fmov d8, x9; fmov d31, x9; mov x18, x9; mov x28, x9; mov x7, x9
         mov x0, #7; ret";
    // Logs twice, and returns 0.
    test_jam_logs:
        "push rbx; push r12; sub rsp, 8; mov rbx, [rdi + 64]; lea r12, [rip + 90f]
         mov rdi, rbx; mov rsi, r12; mov edx, 4; call [rbx + 8]
         mov rdi, rbx; mov rsi, r12; mov edx, 2; call [rbx + 8]
         xor eax, eax; add rsp, 8; pop r12; pop rbx; ret; 90: .ascii \"text\"",
        "stp x29, x30, [sp, #-32]!; stp x19, x20, [sp, #16]; ldr x19, [x0, #64]; adr x20, 90f
         mov x0, x19; mov x1, x20; mov x2, #4; ldr x9, [x19, #8]; blr x9
         mov x0, x19; mov x1, x20; mov x2, #2; ldr x9, [x19, #8]; blr x9
         mov x0, #0; ldp x19, x20, [sp, #16]; ldp x29, x30, [sp], #32; ret; 90: .ascii \"text\"";
    // Panics through its first import, whose slot is the first word of data.
    test_jam_panics:
        "91: lea rax, [rip + 91b]; mov rax, [rax + 0x100000]; lea rdi, [rip + 90f]; mov esi, 4
         mov rdx, rdi; mov ecx, 2; mov r8d, 12; mov r9d, 34; jmp rax; 90: .ascii \"text\"",
        "91: adr x9, 91b; add x9, x9, #0x100, lsl #12; ldr x9, [x9]; adr x0, 90f; mov x1, #4
         mov x2, x0; mov x3, #2; mov x4, #12; mov x5, #34; br x9; 90: .ascii \"text\"";
    // Reads address 8.
    test_jam_faults:
        "nop; mov eax, 8; mov rax, [rax]; ret",
        "nop; mov x9, #8; ldr x9, [x9]; ret";
    // Asks for the number of the process.
    test_jam_asks:
        "nop; mov eax, 39; syscall; xor eax, eax; ret",
        "nop; mov x8, #172; svc #0; mov x0, #0; ret";
    // Never ends.
    test_jam_loops:
        "90: jmp 90b",
        "90: b 90b";
    // Writes to its own text.
    test_jam_writes:
        "lea rax, [rip]; mov [rax], rax; xor eax, eax; ret",
        "adr x9, .; str x9, [x9]; mov x0, #0; ret";
    // Returns the first byte of the scratch.
    test_jam_scratch:
        "movabs rax, 0x1080000000; movzx eax, byte ptr [rax]; ret",
        "mov x9, #0x80000000; movk x9, #0x10, lsl #32; ldrb w0, [x9]; ret";
    // Ends as the program does, by its system call, whose address the jam ends with, but with the trap
    // flag, which ends the process when its call has ended.
    #[cfg_attr(target_arch = "aarch64", expect(dead_code, reason = "x86-64 has the flag"))]
    test_jam_traps:
        "mov ecx, ss; push rcx; push rsp; push 0x102; mov ecx, cs; push rcx; push [rip + 90f]
         mov edi, 1; movabs rsi, 0x10000001f8; mov edx, 1; mov eax, 1; iretq; 90: .quad 0",
        "ret";
    // Calls itself for ever.
    test_jam_recurses:
        "91: sub rsp, 4096; push rax; call 91b; ret",
        "91: sub sp, sp, #4096; str x30, [sp]; bl 91b; ret";
}

/// The blob of a jam that takes and returns nothing.
pub(crate) fn blob(text: &[u8]) -> Vec<u8> {
    let imports = [Import { name: "__jam_panic", signature: 0 }];
    let blob = Blob {
        name: "test",
        entry_signature: Types::<(), (), (), ()>::SIGNATURE,
        imports: &imports,
        text,
        data: &[0; 8],
        ..Blob::new(Machine::CURRENT.expect("a machine of jams"))
    };
    blob.encode().expect("a blob")
}
