//! Tests of the program, all of it but what isolates it: it runs in a fork of the test's process, so
//! also where nothing executes a memfd and there is no seccomp, as in QEMU's user mode.

use std::fs::File;
use std::io::{Read, Write};
use std::mem::transmute;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::ptr;
use std::time::Duration;

use jam::Digest;
use primitive::sync::Ordering;

use crate::claims::{Cause, Claims, log};
use crate::code::{Code, Linked};
use crate::executor::write_call;
use crate::image::Image;
use crate::layout::{CALL, STUB, Sizes, UNIT, call};
use crate::memory::Memory;
use crate::stub::CODE_AT;
use crate::test_jams::{
    blob, test_jam_faults, test_jam_leaves, test_jam_logs, test_jam_panics, test_jam_registers,
};

const SIZES: Sizes = Sizes { payload: UNIT, stack: UNIT, scratch: UNIT };

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
        let blob = blob(jam);
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
