//! The file that the process executes: an ELF header, the program, and the setup table with what it
//! refers to. All of it is one segment that is readable and executable.
//!
//! The setup table is a list of system calls, which the program makes before it does anything else.
//! What the process gives up is in this file, therefore, and not in assembly.

use libc::{MAP_FIXED, MAP_SHARED, PROT_EXEC, PROT_READ, PROT_WRITE};

use crate::filter::filter;
use crate::layout::{CALL, END, SIGNAL_STACK, STUB, Sizes, UNIT};
use crate::stub::{self, CODE_AT, INITIAL_AT, LAST, MAY_FAIL, TABLE_AT, labels};

/// Signals whose handler is the program's: faults, a forbidden system call, and the deadline.
const HANDLED: [i32; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
    DEADLINE_SIGNAL,
];
/// What this process sends when the deadline has passed.
pub(crate) const DEADLINE_SIGNAL: i32 = libc::SIGALRM;
/// Signals of a terminal, which are for this process.
const IGNORED: [i32; 3] = [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP];
/// Of `sa_flags`: libc has no name for it.
const SA_RESTORER: u64 = 0x0400_0000;
const SECCOMP_SET_MODE_FILTER: u64 = 1;

/// Resources of which the process gets no more than it has.
const LIMITED: [u32; 8] = [
    libc::RLIMIT_AS,
    libc::RLIMIT_DATA,
    libc::RLIMIT_NOFILE,
    libc::RLIMIT_CORE,
    libc::RLIMIT_FSIZE,
    libc::RLIMIT_NPROC,
    libc::RLIMIT_MEMLOCK,
    libc::RLIMIT_MSGQUEUE,
];

/// A file to execute, and what each step of its setup is.
pub(crate) struct Image {
    pub(crate) bytes: Vec<u8>,
    pub(crate) steps: Vec<&'static str>,
}

impl Image {
    /// For an executor of these sizes, whose descriptor 0 is their memory.
    pub(crate) fn new(sizes: &Sizes) -> Image {
        let mut table = Table { calls: Vec::new(), steps: Vec::new(), constants: Vec::new() };
        table.map(sizes);
        table.give_up_descriptors();
        table.give_up_memory();
        table.handle_signals();
        table.limit();
        table.call("name the process", libc::SYS_prctl, &[libc::PR_SET_NAME as u64, 0]);
        table.point(1, b"jam-executor\0".to_vec());
        table.filter();
        table.finish()
    }
}

#[cfg(all(test, not(address_sanitizer)))]
impl Image {
    /// For a process that is not isolated: it only maps and handles signals.
    pub(crate) fn unconfined(sizes: &Sizes) -> Image {
        let mut table = Table { calls: Vec::new(), steps: Vec::new(), constants: Vec::new() };
        table.map(sizes);
        table.handle_signals();
        table.finish()
    }
}

struct Table {
    calls: Vec<[u64; 7]>,
    steps: Vec<&'static str>,
    /// What arguments point to: the call and the argument, and the bytes.
    constants: Vec<(usize, usize, Vec<u8>)>,
}

impl Table {
    fn call(&mut self, step: &'static str, number: i64, arguments: &[u64]) {
        let mut call = [0; 7];
        call[0] = number as u64;
        call[1..=arguments.len()].copy_from_slice(arguments);
        self.calls.push(call);
        self.steps.push(step);
    }

    /// Makes this argument of the last call point to `bytes`.
    fn point(&mut self, argument: usize, bytes: Vec<u8>) {
        self.constants.push((self.calls.len() - 1, argument, bytes));
    }

    /// Everything that the process will ever have. The call comes first: steps are counted there.
    fn map(&mut self, sizes: &Sizes) {
        let mut regions = sizes.regions().to_vec();
        regions.sort_by_key(|region| region.address != CALL);
        for region in regions.iter().filter(|region| region.len > 0) {
            let write = if region.is_writable { PROT_WRITE } else { 0 };
            let execute = if region.is_executable { PROT_EXEC } else { 0 };
            let protection = (PROT_READ | write | execute) as u64;
            let flags = (MAP_SHARED | MAP_FIXED) as u64;
            let arguments =
                [region.address, region.len as u64, protection, flags, 0, region.at as u64];
            self.call("map its memory", libc::SYS_mmap, &arguments);
        }
    }

    /// All but the socket (1) and the pipe that tells when this process ends (2).
    fn give_up_descriptors(&mut self) {
        self.call("close its memory", libc::SYS_close, &[0]);
        let all = u64::from(u32::MAX);
        self.call("close what it has inherited", libc::SYS_close_range, &[3, all, 0]);
    }

    /// What the kernel has mapped for it: the first stack, and functions of the kernel's.
    fn give_up_memory(&mut self) {
        let regions = [0..STUB, END..1 << 39, END..1 << 42, END..(1 << 47) - 4096, END..1 << 48];
        for region in regions {
            // Address spaces have several sizes, and some kernels seal their functions.
            let arguments = [region.start, region.end - region.start];
            self.call("unmap what it does not need", libc::SYS_munmap, &arguments);
            self.calls.last_mut().expect("just added")[0] |= MAY_FAIL;
        }
    }

    fn handle_signals(&mut self) {
        let stack = [SIGNAL_STACK, 0, UNIT as u64];
        self.call("set its signal stack", libc::SYS_sigaltstack, &[0, 0]);
        self.point(0, words(&stack));
        let flags = (libc::SA_SIGINFO | libc::SA_ONSTACK) as u64 | SA_RESTORER;
        let labels = labels();
        // The handler does not return, so what would restore is never reached.
        let action = [labels.handler, flags, labels.exited, u64::MAX];
        let ignore = [libc::SIG_IGN as u64, 0, 0, 0];
        let handled = HANDLED.map(|signal| (signal, action));
        for (signal, action) in handled.into_iter().chain(IGNORED.map(|signal| (signal, ignore))) {
            self.call("set its signal handlers", libc::SYS_rt_sigaction, &[signal as u64, 0, 0, 8]);
            self.point(1, words(&action));
        }
    }

    fn limit(&mut self) {
        for resource in LIMITED {
            self.call("limit its resources", libc::SYS_prlimit64, &[0, u64::from(resource), 0, 0]);
            self.point(2, words(&[0, 0]));
        }
    }

    fn filter(&mut self) {
        let no_new_privileges = [libc::PR_SET_NO_NEW_PRIVS as u64, 1];
        self.call("give up new privileges", libc::SYS_prctl, &no_new_privileges);
        self.call("install its filter", libc::SYS_seccomp, &[SECCOMP_SET_MODE_FILTER, 0, 0]);
        // The address of the instructions, which lie after this, goes into its second word.
        let filter = filter(&labels());
        let mut program = words(&[filter.len() as u64, 0]);
        program.extend(filter.iter().flat_map(|instruction| instruction.bytes()));
        self.point(2, program);
    }

    fn finish(mut self) -> Image {
        let mut bytes = vec![0; TABLE_AT];
        let code = stub::code();
        bytes[CODE_AT..CODE_AT + code.len()].copy_from_slice(code);
        // What `xrstor` loads: the control word of SSE, all else as at the start of a process.
        bytes[INITIAL_AT + 24..INITIAL_AT + 28].copy_from_slice(&0x1f80_u32.to_le_bytes());
        let mut end = TABLE_AT + (self.calls.len() + 1) * size_of::<[u64; 7]>();
        let mut constants = Vec::new();
        self.constants.sort_by_key(|(call, ..)| *call);
        for (call, argument, mut constant) in self.constants {
            let address = STUB + end as u64;
            self.calls[call][1 + argument] = address;
            if self.calls[call][0] == libc::SYS_seccomp as u64 {
                constant[8..16].copy_from_slice(&(address + 16).to_ne_bytes());
            }
            constant.resize(constant.len().next_multiple_of(8), 0);
            end += constant.len();
            constants.extend(constant);
        }
        bytes.extend(self.calls.iter().flat_map(|call| words(call)));
        bytes.extend(words(&[LAST, 0, 0, 0, 0, 0, 0]));
        bytes.extend(constants);
        let header = header(bytes.len() as u64);
        bytes[..header.len()].copy_from_slice(&header);
        Image { bytes, steps: self.steps }
    }
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The ELF header and two program headers: one segment with everything, and no executable stack.
fn header(len: u64) -> Vec<u8> {
    const MACHINE: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    const HEADER: u16 = 64;
    const PROGRAM_HEADER: u16 = 56;
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(16, 0);
    // An executable file of version 1.
    for half in [2, MACHINE, 1, 0] {
        bytes.extend(half.to_le_bytes());
    }
    bytes.extend(words(&[STUB + CODE_AT as u64, HEADER.into(), 0]));
    bytes.extend([0; 4]);
    for half in [HEADER, PROGRAM_HEADER, 2, 64, 0, 0] {
        bytes.extend(half.to_le_bytes());
    }
    // Each: kind and flags (4: read, 2: write, 1: execute), then offset, addresses, sizes, alignment.
    let segments = [(1_u32, 5_u32, STUB, len, UNIT as u64), (0x6474_e551, 6, 0, 0, 16)];
    for (kind, flags, address, len, align) in segments {
        bytes.extend(kind.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(words(&[0, address, address, len, len, align]));
    }
    bytes
}
