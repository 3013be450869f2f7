//! Tests of the program, all of it but what isolates it: it runs in a fork of the test's process, so
//! also where nothing executes a memfd and there is no seccomp, as in QEMU's user mode.

use std::arch::global_asm;
use std::fs::File;
use std::io::{Read, Write};
use std::mem::transmute;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::ptr;
use std::time::Duration;

use jam::Digest;
use jam_format::{Blob, Import, Machine};
use primitive::sync::Ordering;

use crate::claims::{Cause, Claims, log};
use crate::code::{Code, Linked};
use crate::executor::write_call;
use crate::image::Image;
use crate::layout::{CALL, STUB, Sizes, UNIT, call};
use crate::memory::Memory;
use crate::stub::CODE_AT;

const SIZES: Sizes = Sizes { payload: UNIT, stack: UNIT, scratch: UNIT };

macro_rules! jams {
    ($($name:ident: $x86_64:literal, $aarch64:literal;)*) => {
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
            #[allow(clippy::disallowed_methods, reason = "read-only data of this process")]
            fn $name() -> &'static [u8] {
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
}

/// The program in a fork of this process.
struct Fork {
    id: libc::pid_t,
    socket: UnixStream,
    memory: Memory,
    code: Code,
}

/// The program where it belongs, in this process, so that forks have it.
fn map_program() {
    let image = Image::unconfined(&SIZES);
    let len = image.bytes.len().next_multiple_of(UNIT);
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: fresh memory where nothing is, which is written before it is executable.
    unsafe {
        let wanted = ptr::without_provenance_mut(STUB as usize);
        let memory = libc::mmap(wanted, len, access, flags, -1, 0);
        assert_eq!(memory, wanted, "{}", std::io::Error::last_os_error());
        ptr::copy_nonoverlapping(image.bytes.as_ptr(), memory.cast(), image.bytes.len());
        assert_eq!(libc::mprotect(memory, len, libc::PROT_READ | libc::PROT_EXEC), 0);
    }
}

/// Replaces this process, which is a fork, by the program.
fn become_program(memory: RawFd, socket: RawFd) -> ! {
    let start = STUB as usize + CODE_AT;
    // SAFETY: system calls about descriptors; then the program, which does not return and uses nothing
    // of this process.
    unsafe {
        libc::dup2(memory, 0);
        libc::dup2(socket, 1);
        transmute::<usize, extern "C" fn() -> !>(start)()
    }
}

impl Fork {
    fn new() -> Self {
        let memory = Memory::new(SIZES.total()).unwrap();
        let (socket, theirs) = UnixStream::pair().unwrap();
        let file: &File = &memory.file;
        // SAFETY: the child calls only what is async-signal-safe.
        let id = unsafe { libc::fork() };
        if id == 0 {
            become_program(file.as_raw_fd(), theirs.as_raw_fd());
        }
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut fork = Fork { id, socket, memory, code: Code::default() };
        drop(theirs);
        assert_eq!(fork.ended(), 1, "the setup failed");
        fork
    }

    /// Bytes that say that a call has ended: 0 if the process has.
    fn ended(&mut self) -> usize {
        self.socket.read(&mut [0]).unwrap()
    }

    fn run(&mut self, jam: &[u8]) -> (Claims, Linked, usize) {
        let imports = [Import { name: "__jam_panic", signature: 0 }];
        let machine = Machine::CURRENT.unwrap();
        let blob = Blob {
            name: "test",
            imports: &imports,
            text: jam,
            data: &[0; 8],
            ..Blob::new(machine)
        };
        let blob = blob.encode().unwrap();
        let memory = &self.memory.bytes;
        let linked = self.code.link(&blob, Digest::of(&blob), memory, &SIZES).unwrap().unwrap();
        memory.word32(SIZES.offset_of(CALL) + call::KIND).store(0, Ordering::Relaxed);
        memory.store(SIZES.offset_of(CALL) + call::LOG_USED, 0, Ordering::Relaxed);
        write_call(memory, &SIZES, &linked, &[], &[], 8);
        self.socket.write_all(&[1]).unwrap();
        let ended = self.ended();
        (Claims::read(&self.memory.bytes, &SIZES), linked, ended)
    }
}

impl Drop for Fork {
    fn drop(&mut self) {
        // SAFETY: a child of this process that was not waited for.
        unsafe {
            libc::kill(self.id, libc::SIGKILL);
            libc::waitpid(self.id, ptr::null_mut(), 0);
        }
    }
}

#[test]
fn calls_begin_with_nothing_and_end_with_what_they_return() {
    map_program();
    let mut fork = Fork::new();
    for _ in 0..3 {
        let (claims, _, ended) = fork.run(test_jam_registers());
        assert_eq!((claims.code(), ended), (Some(0), 1));
        assert_eq!(fork.run(test_jam_leaves()).0.code(), Some(7));
    }
    // Logs.
    assert_eq!(fork.run(test_jam_logs()).0.code(), Some(0));
    let mut lines = Vec::new();
    log(&fork.memory.bytes, &SIZES, |line| lines.push(line.to_owned()));
    assert_eq!(lines, ["text", "te"]);
    // Panics.
    let (claims, _, ended) = fork.run(test_jam_panics());
    let panic = claims.panic(&fork.memory.bytes, &SIZES).expect("a panic");
    assert_eq!((&*panic.message, &*panic.file), ("text", "te"));
    assert_eq!((panic.line, panic.column, ended), (12, 34, 1));
    assert_eq!(fork.run(test_jam_leaves()).0.code(), Some(7));
    // Faults.
    let (claims, linked, ended) = fork.run(test_jam_faults());
    let (cause, fault) = claims.fault(None, &linked, &SIZES);
    assert_eq!((cause, ended), (Cause::Crash, 0));
    assert_eq!((fault.signal, fault.address), (Some(libc::SIGSEGV), Some(8)));
    let at = if cfg!(target_arch = "x86_64") { 6 } else { 8 };
    assert_eq!(fault.offset, Some(at));
}
