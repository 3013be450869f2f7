//! Jams that break rules, each in an executor: the outcome that docs/jams.md promises for it, after
//! which the executor goes on. Each test runs as the user who started it and, if that is root, as an
//! ordinary user as well.

#[path = "common/signed.rs"]
mod signed;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use gossamer::jam::{
    Executor, ExecutorError, JamError, LoadedJam, Package, Policy, Refusal, property, receiver,
};
use gossamer_jam_tests::HOSTILE;

use crate::signed::{Ann, signed};

property! {
    /// What an executor gives a jam.
    pub struct Scratch = "gossamer.Scratch@1";
    /// What programs have.
    pub struct Table = "jam-tests.Table@1";
}

type Plain<A> = LoadedJam<(), A, (), u64>;
type Scratched<A> = LoadedJam<&'static mut Scratch, A, (), u64>;
type Sum = LoadedJam<(), u64, u32, u64>;

/// An ordinary user.
const NOBODY: u32 = 65534;

fn blob(name: &str) -> Vec<u8> {
    let package = Package::parse(HOSTILE).unwrap();
    package.blob(name).unwrap_or_else(|| panic!("no jam {name}")).to_vec()
}

macro_rules! jam {
    ($jam:ty, $name:literal) => {
        <$jam>::from_blob(&blob($name)).unwrap()
    };
}

fn executor() -> Executor {
    Executor::builder().scratch(100_000).deadline(Duration::from_secs(20)).start().unwrap()
}

/// Runs `test` with an executor as this user and, if that is root, as an ordinary one.
fn as_both(test: impl Fn(Executor) + Send + Sync + 'static) {
    let test = Arc::new(test);
    let as_user = |user: Option<u32>| {
        let test = test.clone();
        let run = move || {
            if let Some(user) = user {
                rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(user)).unwrap();
            }
            test(executor());
        };
        thread::spawn(run).join().unwrap_or_else(|_| panic!("failed as user {user:?}"));
    };
    as_user(None);
    if rustix::process::getuid().is_root() {
        as_user(Some(NOBODY));
    }
}

/// That it runs an honest jam.
fn goes_on(executor: &mut Executor) {
    assert_eq!(executor.run(&jam!(Sum, "sum"), 10, &[1, 2, 3]).unwrap(), 60);
}

#[test]
fn honest_jams_run_in_one_process() {
    as_both(|mut executor| {
        for round in 0..100 {
            assert_eq!(executor.run(&jam!(Sum, "sum"), round, &[7; 100]).unwrap(), round * 700);
        }
        let words = vec![1; 1 << 18];
        assert_eq!(executor.run(&jam!(Sum, "sum"), 1, &words).unwrap(), 1 << 18);
        assert_eq!(executor.run(&jam!(Plain<u64>, "deep"), 100, &[]).unwrap(), 100);
        assert_eq!(executor.restarts(), 0);
        let longer = vec![1; (1 << 18) + (32 << 10)];
        match executor.run(&jam!(Sum, "sum"), 1, &longer) {
            Err(ExecutorError::Payload { bytes, .. }) => assert_eq!(bytes, longer.len() * 4),
            other => panic!("{other:?}"),
        }
    });
}

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
                    // Among its few instructions, which differ by machine, behind the loop of its entry.
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
fn a_loop_ends_at_the_deadline() {
    as_both(|_| {
        let short = Executor::builder().deadline(Duration::from_millis(50));
        let mut executor = short.start().unwrap();
        match executor.run(&jam!(Plain<()>, "endless"), (), &[]) {
            Err(ExecutorError::Deadline { jam, fault, .. }) => {
                assert_eq!(jam, "endless");
                assert!(fault.offset.is_some(), "{fault}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(executor.process_id(), None);
        assert_eq!(executor.restarts(), 0);
        let mut patient = self::executor();
        goes_on(&mut patient);
    });
}

#[test]
fn a_stack_overflow_is_named() {
    as_both(|mut executor| {
        match executor.run(&jam!(Plain<u64>, "deep"), 1 << 20, &[]) {
            Err(ExecutorError::StackOverflow { jam, stack, fault }) => {
                assert_eq!((&*jam, stack), ("deep", 256 << 10));
                assert!(fault.offset.is_some(), "{fault}");
            }
            other => panic!("{other:?}"),
        }
        // Frames that are larger than a guard of some pages, on a stack of their size: compilers touch each
        // page of them.
        let in_rust = executor.run(&jam!(Plain<u64>, "large_frames"), 3, &[]).map(|_| ());
        let in_c = jam!(LoadedJam::<(), i64, (), i64>, "large_frames_in_c");
        for result in [in_rust, executor.run(&in_c, 3, &[]).map(|_| ())] {
            match result {
                Err(ExecutorError::StackOverflow { stack, fault, .. }) => {
                    assert!(stack == 256 << 10 && fault.offset.is_some(), "{fault}");
                }
                other => panic!("{other:?}"),
            }
        }
        goes_on(&mut executor);
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
#[cfg(target_arch = "x86_64")]
fn instructions_that_raise_signals_are_named() {
    as_both(|mut executor| {
        for (which, signal) in [(0, libc::SIGILL), (1, libc::SIGTRAP)] {
            match executor.run(&jam!(Plain<u64>, "instruction"), which, &[]) {
                Err(ExecutorError::Crashed { fault, .. }) => assert_eq!(fault.signal, Some(signal)),
                other => panic!("{other:?}"),
            }
        }
        // A kernel without 32-bit programs faults.
        match executor.run(&jam!(Plain<u64>, "instruction"), 2, &[]) {
            Err(ExecutorError::Denied { call: 20, .. } | ExecutorError::Crashed { .. }) => {}
            other => panic!("{other:?}"),
        }
        goes_on(&mut executor);
    });
}

#[test]
fn a_panic_comes_back_with_its_line_and_the_process_goes_on() {
    as_both(|_| {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let seen = lines.clone();
        let builder =
            Executor::builder().log(move |line| seen.lock().unwrap().push(line.to_owned()));
        let mut executor = builder.start().unwrap();
        let talks = jam!(LoadedJam::<(), u64, u8, u64>, "talks");
        match executor.run(&talks, 2, &[]) {
            Err(ExecutorError::Panicked { jam, source }) => {
                assert_eq!((&*jam, &*source.message), ("talks", "nothing to say"));
                assert!(source.file.ends_with("hostile/talks.rs") && source.line == 11, "{source}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(*lines.lock().unwrap(), ["a line", "a line"]);
        match executor.run(&talks, 2, &[5]) {
            Err(ExecutorError::Panicked { source, .. }) => assert_eq!(source.line, 13),
            other => panic!("{other:?}"),
        }
        assert_eq!(executor.run(&talks, 1, &[5, 6]).unwrap(), 6);
        lines.lock().unwrap().clear();
        assert_eq!(executor.run(&talks, 10_000, &[9; 10_001]).unwrap(), 9);
        assert_eq!(lines.lock().unwrap().len(), 307, "3 KiB of lines");
        assert_eq!(executor.restarts(), 0);
    });
}

#[test]
fn what_an_executor_does_not_have_is_refused() {
    as_both(|mut executor| {
        match executor.run(&jam!(Plain<u64>, "imports"), 1, &[]) {
            Err(ExecutorError::Refused {
                source: Refusal::MissingSymbol { symbol, .. }, ..
            }) => {
                assert_eq!(symbol, "exported_to_jams");
            }
            other => panic!("{other:?}"),
        }
        let other = jam!(LoadedJam<&'static mut Table, (), (), u64>, "other_property");
        match executor.run(&other, (), &[]) {
            Err(ExecutorError::Refused {
                source: Refusal::WrongProperty { wanted, .. }, ..
            }) => {
                assert_eq!(wanted, "jam-tests.Table@1");
            }
            other => panic!("{other:?}"),
        }
        goes_on(&mut executor);
        assert_eq!(executor.restarts(), 0);
    });
}

/// Whatever the policy of the process, and also if the signer of the jam was revoked.
#[test]
fn no_policy_applies() {
    let signed = signed(HOSTILE);
    let sum: Sum = Package::parse(&signed).unwrap().find("sum").unwrap();
    receiver().set_verifier(Ann { is_revoked: true });
    for policy in [Policy::Nothing, Policy::Signed] {
        receiver().set_policy(policy);
        assert_eq!(executor().run(&sum, 10, &[1, 2, 3]).unwrap(), 60);
    }
}

#[test]
fn a_truncated_jam_reaches_no_executor() {
    let sum = blob("sum");
    for len in 0..sum.len() {
        let cut = Sum::from_blob(&sum[..len]);
        assert!(matches!(cut, Err(JamError::Unusable { .. })), "{len} bytes: {cut:?}");
    }
}

/// Changed before it arrives, a jam ends its own call at most; changed afterwards, it runs as it arrived.
#[test]
fn a_changed_jam_harms_its_own_call_at_most() {
    as_both(|_| {
        let mut executor =
            Executor::builder().deadline(Duration::from_millis(300)).start().unwrap();
        let sum = blob("sum");
        let (mut ran, mut ended) = (0, 0);
        for at in 0..sum.len() {
            let mut changed = sum.clone();
            changed[at] ^= 1 << (at % 8);
            // What is no blob any more is refused when it is read.
            let Ok(changed) = Sum::from_blob(&changed) else { continue };
            match executor.run(&changed, 10, &[1, 2, 3]) {
                Ok(_) => ran += 1,
                Err(_) => ended += 1,
            }
        }
        assert!(ran > 0 && ended > 0, "{ran} ran, {ended} ended");
        let mut bytes = sum.clone();
        let sum = Sum::from_blob(&bytes).unwrap();
        bytes.fill(0xcc);
        // On a busy machine a call may reach its deadline.
        let run = || match executor.run(&sum, 10, &[1, 2, 3]) {
            Err(ExecutorError::Deadline { .. }) => None,
            other => Some(other.unwrap()),
        };
        assert_eq!(std::iter::repeat_with(run).take(100).flatten().next(), Some(60));
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

#[test]
#[cfg(target_arch = "x86_64")]
fn a_jam_that_pretends_to_have_ended_has_ended() {
    as_both(|_| {
        let lines = Arc::new(Mutex::new(0));
        let seen = lines.clone();
        let builder = Executor::builder().deadline(Duration::from_secs(20));
        let mut executor = builder.log(move |_| *seen.lock().unwrap() += 1).start().unwrap();
        let pretend = jam!(Plain<[u64; 8]>, "pretend");
        // Claims that it returned: it may, and the next call is not its own.
        for _ in 0..3 {
            assert_eq!(executor.run(&pretend, [1, 0, 0, 0, 0, 0, 0, 0], &[]).unwrap(), 42);
            goes_on(&mut executor);
        }
        assert!(*lines.lock().unwrap() > 0, "a log with a false length has what is there");
        match executor.run(&pretend, [1, 3, 0, 0, 0, 0, 0, 0], &[]) {
            Err(ExecutorError::Reply { found, .. }) => assert_eq!(found, "code 3"),
            other => panic!("{other:?}"),
        }
        match executor.run(&pretend, [77, 0, 0, 0, 0, 0, 0, 0], &[]) {
            Err(ExecutorError::Reply { found, .. }) => assert_eq!(found, "no code"),
            other => panic!("{other:?}"),
        }
        // Claims a panic with texts at wild addresses.
        match executor.run(&pretend, [2, u64::MAX, u64::MAX, 8, 1 << 40, 3, 4, 0], &[]) {
            Err(ExecutorError::Panicked { source, .. }) => {
                assert_eq!((source.message.len(), source.file.len(), source.line), (0, 0, 3));
            }
            other => panic!("{other:?}"),
        }
        goes_on(&mut executor);
        assert_eq!(executor.restarts(), 0);
        // The program's system call with other arguments.
        match executor.run(&pretend, [1, 0, 0, 0, 0, 0, 0, 1], &[]) {
            Err(ExecutorError::Denied { call: 1, fault, .. }) => assert_eq!(fault.offset, None),
            other => panic!("{other:?}"),
        }
        // It waits for a call that nobody makes before this one has ended.
        let short = Executor::builder().deadline(Duration::from_millis(50));
        match short.start().unwrap().run(&pretend, [1, 0, 0, 0, 0, 0, 0, 2], &[]) {
            Err(ExecutorError::Deadline { .. }) => {}
            other => panic!("{other:?}"),
        }
        // It makes the setup again.
        match executor.run(&pretend, [1, 0, 0, 0, 0, 0, 0, 3], &[]) {
            Err(ExecutorError::Denied { call: libc::SYS_mmap, .. }) => {}
            other => panic!("{other:?}"),
        }
        goes_on(&mut executor);
    });
}

#[test]
fn memory_for_code_is_used_up_and_renewed() {
    as_both(|mut executor| {
        // Each is another jam, by its name; one place has 64 bytes and more.
        let sum = blob("sum");
        let mut count = 0;
        while executor.restarts() == 0 {
            assert_eq!(executor.run(&renamed(&sum, count), 1, &[1, 2]).unwrap(), 3);
            count += 1;
            assert!(count < 20_000, "no place was ever used up");
        }
        assert!(count > 1000, "{count}");
        assert_eq!(executor.restarts(), 1);
    });
}

/// The same code under a name of the same length.
fn renamed(sum: &[u8], number: u32) -> Sum {
    let mut bytes = sum.to_vec();
    let at = bytes.windows(3).position(|three| three == b"sum").unwrap();
    let letters = (33..127).collect::<Vec<u8>>();
    let letter = |place: u32| letters[(number / 94u32.pow(place) % 94) as usize];
    bytes[at..at + 3].copy_from_slice(&[letter(2), letter(1), letter(0)]);
    Sum::from_blob(&bytes).unwrap()
}

#[test]
fn sizes_are_limited() {
    let start = |builder: gossamer::jam::ExecutorBuilder| builder.start().map(drop);
    assert!(matches!(
        start(Executor::builder().memory(1 << 20)),
        Err(ExecutorError::Size { what: "executor", limit: 0x10_0000, .. })
    ));
    for builder in [
        Executor::builder().scratch(usize::MAX),
        Executor::builder().payload(usize::MAX),
        Executor::builder().stack(1 << 40),
    ] {
        assert!(matches!(start(builder), Err(ExecutorError::Size { .. })));
    }
}

const OWNER: &str = "GOSSAMER_TEST_OWNER";

/// Starts an executor whose jam loops, says its number, and waits to be killed.
#[test]
fn an_executor_ends_with_the_process_that_has_it() {
    if std::env::var_os(OWNER).is_some() {
        let mut executor = Executor::builder().deadline(Duration::from_secs(600)).start().unwrap();
        println!("executor {}", executor.process_id().unwrap());
        drop(executor.run(&jam!(Plain<()>, "endless"), (), &[]));
        return;
    }
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["an_executor_ends_with_the_process_that_has_it", "--exact", "--nocapture"])
        .env(OWNER, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let line = lines.find_map(|line| Some(line.unwrap().split_once("executor ")?.1.to_owned()));
    let executor = line.expect("the number of the executor");
    let stat = || fs::read_to_string(format!("/proc/{executor}/stat")).unwrap_or_default();
    // It has run the jam for some time: one that waits for a call would see the end of its socket.
    let ticks = || stat().split_whitespace().nth(13).map(|ticks| ticks.parse::<u64>().unwrap());
    while ticks().expect("the executor has ended") < 3 {
        thread::sleep(Duration::from_millis(5));
    }
    owner.kill().unwrap();
    owner.wait().unwrap();
    // Gone, or dead and not yet waited for.
    let is_there = || stat().contains("jam-executor") && !stat().contains(") Z ");
    for _ in 0..6000 {
        if !is_there() {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("executor {executor} outlives the process that had it");
}
