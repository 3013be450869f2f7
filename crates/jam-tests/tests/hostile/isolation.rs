//! What a jam in an executor can reach: its call, and nothing else.

use std::fs;

use gossamer::jam::{Executor, ExecutorError};

use crate::{Plain, Scratched, as_both, goes_on};

#[test]
fn the_process_has_nothing_but_its_parts() {
    as_both(|mut executor| {
        goes_on(&mut executor);
        let proc = format!("/proc/{}", executor.process_id().unwrap());
        let read = |file: &str| fs::read_to_string(format!("{proc}/{file}"));
        let maps = read("maps").unwrap();
        let maps = maps.lines().filter(|line| !line.contains("[vsyscall]"));
        // Where the kernel seals functions of its own, they stay, and the first stack with them.
        let is_sealed = has_sealed_functions();
        let is_kernels = |line: &&str| line.contains("[v") || line.contains("[stack]");
        let maps: Vec<_> = maps.filter(|line| !(is_sealed && is_kernels(line))).collect();
        // The program, text, data, request, call, two stacks and the scratch.
        let parts = maps.iter().filter(|line| line.contains("gossamer-executor"));
        assert_eq!((parts.count(), maps.len()), (8, 8), "{maps:#?}");
        assert!(maps.iter().all(|line| !line.contains("rwx")), "{maps:#?}");
        let fds = fs::read_dir(format!("{proc}/fd")).unwrap();
        let mut fds: Vec<_> =
            fds.map(|fd| fd.unwrap().file_name().into_string().unwrap()).collect();
        fds.sort();
        assert_eq!(fds, ["1", "2"]);
        let status = read("status").unwrap();
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().nth(1).unwrap().to_owned()
        };
        assert_eq!(
            (field("Seccomp:"), field("NoNewPrivs:"), field("Name:")),
            ("2".into(), "1".into(), "jam-executor".into())
        );
        assert_eq!(fs::read(format!("{proc}/environ")).unwrap(), b"");
    });
}

/// Whether this kernel seals the functions that it maps into each process.
fn has_sealed_functions() -> bool {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut lines = maps.lines().skip_while(|line| !line.ends_with("[vdso]"));
    let flags = lines.find(|line| line.starts_with("VmFlags:"));
    flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "sl"))
}

#[test]
fn memory_of_others_is_neither_read_nor_written() {
    as_both(|mut executor| {
        let secret = Box::new(0x5ec2_0e70_u64);
        let secret_at = (&raw const *secret).addr() as u64;
        for address in [0, 8, secret_at, 0x10_0000_0000, 0x10_1000_0000, 0x7fff_ffff_f000] {
            match executor.run(&jam!(Plain<u64>, "wild_write"), address, &[]) {
                Err(ExecutorError::Crashed { jam, fault }) => {
                    assert_eq!(jam, "wild_write");
                    assert_eq!(fault.signal, Some(libc::SIGSEGV));
                    assert_eq!(fault.address, Some(address));
                    // Among its few instructions, which differ by machine, after the loop of its entry.
                    assert!(fault.offset.is_some_and(|offset| offset < 256), "{fault}");
                }
                other => panic!("{address:x}: {other:?}"),
            }
            goes_on(&mut executor);
        }
        assert_eq!(executor.restarts(), 6);
        match executor.run(&jam!(Plain<u64>, "peek"), secret_at, &[]) {
            Err(ExecutorError::Crashed { fault, .. }) => assert_eq!(fault.address, Some(secret_at)),
            other => panic!("{other:?}"),
        }
        assert_eq!(*secret, 0x5ec2_0e70);
    });
}

#[test]
fn system_calls_are_denied() {
    as_both(|mut executor| {
        let call = |executor: &mut Executor, number: i64, arguments: [u64; 3]| {
            let [a, b, c] = arguments;
            let jam = jam!(Plain<[u64; 4]>, "system_call");
            match executor.run(&jam, [number as u64, a, b, c], &[]) {
                Err(ExecutorError::Denied { jam, call, fault }) => {
                    assert_eq!((&*jam, call), ("system_call", number));
                    assert!(fault.offset.is_some(), "{fault}");
                }
                other => panic!("{number}: {other:?}"),
            }
        };
        for number in [
            libc::SYS_openat,
            libc::SYS_socket,
            libc::SYS_clone,
            libc::SYS_execve,
            libc::SYS_mmap,
            libc::SYS_mprotect,
            libc::SYS_munmap,
            libc::SYS_rt_sigaction,
            libc::SYS_kill,
            libc::SYS_exit_group,
            libc::SYS_futex,
            libc::SYS_io_uring_setup,
            libc::SYS_prctl,
            // No system call, and one of x32.
            100_000,
            0x4000_0000,
        ] {
            call(&mut executor, number, [0; 3]);
        }
        // Those of the program, with its arguments, made elsewhere.
        call(&mut executor, libc::SYS_write, [1, 0x10_0000_01f8, 1]);
        call(&mut executor, libc::SYS_read, [1, 0x10_2000_0038, 1]);
        goes_on(&mut executor);
    });
}

#[test]
fn code_is_not_written_and_data_does_not_run() {
    as_both(|mut executor| {
        let crash = |result: Result<u64, ExecutorError>| match result {
            Err(ExecutorError::Crashed { fault, .. }) => {
                assert_eq!(fault.signal, Some(libc::SIGSEGV))
            }
            other => panic!("{other:?}"),
        };
        crash(executor.run(&jam!(Plain<()>, "self_modify"), (), &[]));
        crash(executor.run(&jam!(Scratched<()>, "run_scratch"), (), &[]));
        for place in 0..2 {
            crash(executor.run(&jam!(Plain<u64>, "run_data"), place, &[]));
        }
        goes_on(&mut executor);
    });
}

#[test]
fn a_scratch_is_of_one_call() {
    as_both(|mut executor| {
        let scratch = jam!(Scratched<u64>, "scratch");
        let len = 100_000usize.next_multiple_of(64 << 10);
        assert_eq!(executor.run(&scratch, 0xa5, &[]).unwrap(), 0);
        let mut bytes = [0; 3];
        executor.read_scratch(len - 3, &mut bytes).unwrap();
        assert_eq!(bytes, [0xa5; 3]);
        assert_eq!(executor.run(&scratch, 1, &[]).unwrap(), 0, "a call sees what another left");
        executor.write_scratch(5, b"four").unwrap();
        executor.write_scratch(len - 1, &[1]).unwrap();
        assert_eq!(executor.run(&scratch, 1, &[]).unwrap(), 5);
    });
}

/// Whether processes may use the instructions for the bases of segments: what the system has told this one.
#[cfg(target_arch = "x86_64")]
fn jams_have_bases() -> bool {
    const FSGSBASE: u64 = 2;
    // SAFETY: it returns a number that the system has given this process, for any key.
    unsafe { libc::getauxval(libc::AT_HWCAP2) & FSGSBASE != 0 }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn registers_and_stack_are_of_one_call() {
    as_both(|mut executor| {
        let bases = u64::from(jams_have_bases());
        let find = jam!(Plain<u64>, "find_registers");
        assert_eq!(executor.run(&find, bases, &[]).unwrap(), 0);
        let leave = jam!(Plain<[u64; 2]>, "leave_registers");
        assert_eq!(executor.run(&leave, [0x5ec2_0e70, bases], &[]).unwrap(), 0x5ec2_0e70);
        assert_eq!(executor.run(&find, bases, &[]).unwrap(), 0);
        goes_on(&mut executor);
        assert_eq!(executor.restarts(), 0);
    });
}
