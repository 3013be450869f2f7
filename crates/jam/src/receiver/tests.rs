//! Jams written in assembly, so that these tests need no compiler: what a receiver does with good
//! ones and with hostile ones.

use jam_format::{Blob, Features, Import, Machine, Relocation};

use super::*;
use crate::symbols::LoadedFunction;

/// Machine code between two labels of a section of its own, which refers to its data by the distance
/// that the arena keeps.
macro_rules! jam_text {
    ($name:ident, $start:literal, $end:literal, $($line:literal),* $(,)?) => {
        // SAFETY: bytes of a read-only section; nothing here runs them where they are.
        std::arch::global_asm!(
            ".pushsection .rodata.jam_tests,\"a\",@progbits",
            concat!($start, ":"),
            $($line,)*
            concat!($end, ":"),
            ".popsection",
        );

        #[allow(clippy::disallowed_methods, reason = "read-only data of the test")]
        fn $name() -> &'static [u8] {
            // SAFETY: the labels above, of which only the addresses are used.
            unsafe extern "C" {
                #[link_name = $start]
                static START: [u8; 0];
                #[link_name = $end]
                static END: [u8; 0];
            }
            // SAFETY: the bytes between the labels, which nothing writes.
            unsafe {
                let (start, end) = (&raw const START, &raw const END);
                std::slice::from_raw_parts(start.cast(), end.addr() - start.addr())
            }
        }
    };
}

jam_text!(
    sum,
    "jam_test_sum",
    "jam_test_sum_end",
    // args + length of the payload
    "mov rax, [rdi + 8]",
    "mov rax, [rax]",
    "add rax, [rdi + 32]",
    "mov rcx, [rdi + 40]",
    "mov [rcx], rax",
    "mov qword ptr [rdi + 56], 8",
    "xor eax, eax",
    "ret",
);

jam_text!(
    import,
    "jam_test_import",
    "jam_test_import_end",
    // import(property, args)
    "push rbx",
    "mov rbx, rdi",
    "mov rsi, [rdi + 8]",
    "mov rsi, [rsi]",
    "mov rdi, [rdi]",
    "call [rip + jam_test_import + 0x100000]",
    "mov rcx, [rbx + 40]",
    "mov [rcx], rax",
    "mov qword ptr [rbx + 56], 8",
    "xor eax, eax",
    "pop rbx",
    "ret",
);

jam_text!(
    panics,
    "jam_test_panics",
    "jam_test_panics_end",
    // __jam_panic("no room", "jams/put.rs", 7, 9), through a relocated pointer
    "push rbx",
    "mov rdi, [rip + jam_test_panics + 0x100008]",
    "mov esi, 7",
    "lea rdx, [rdi + 8]",
    "mov ecx, 11",
    "mov r8d, 7",
    "mov r9d, 9",
    "call [rip + jam_test_panics + 0x100000]",
    "ud2",
);

jam_text!(
    logs,
    "jam_test_logs",
    "jam_test_logs_end",
    "push rbx",
    "mov rbx, rdi",
    "mov rdi, [rdi + 64]",
    "lea rsi, [rip + jam_test_logs + 0x100000]",
    "mov edx, 5",
    "call [rdi + 8]",
    "mov eax, 3",
    "pop rbx",
    "ret",
);

crate::export! {
    fn receiver_test_add(property: &mut u64, by: u64) -> u64 {
        assert!(by != 13, "unlucky");
        *property += by;
        *property
    }
}

const SIGNATURE: u64 = 77;

fn add_signature() -> u64 {
    let name = |export: &&crate::Export| export.name() == "receiver_test_add";
    crate::exports().iter().find(name).unwrap().signature()
}

fn blob<'a>(text: &'a [u8]) -> Blob<'a> {
    Blob {
        name: "test",
        text,
        entry_signature: SIGNATURE,
        args_bytes: 8,
        element_bytes: 1,
        reply_bytes: 8,
        ..Blob::new(Machine::X86_64)
    }
}

fn imports(name: &str, signature: u64) -> Vec<u8> {
    let imports = [Import { name, signature }];
    Blob { imports: &imports, data: &[0; 8], ..blob(import()) }.encode().unwrap()
}

/// A receiver that runs everything, and lives as long as the process, as the real one does.
fn open_receiver(max_bytes: usize) -> &'static Receiver {
    let receiver = Box::leak(Box::new(Receiver::new(max_bytes)));
    receiver.set_policy(Policy::AnyPeer);
    receiver
}

fn receive(receiver: &Receiver, blob: &[u8]) -> Result<Digest, Refusal> {
    let digest = Digest::of(blob);
    receiver.receive(blob, digest).map(|()| digest)
}

fn run(
    receiver: &Receiver,
    digest: &Digest,
    property: &mut u64,
    args: u64,
) -> Result<u64, Failure> {
    let (args, mut reply) = ([args, 0], [0u64; 2]);
    let context = receiver.context(5);
    let mut call = Call {
        property: std::ptr::from_mut(property).cast(),
        args: args.as_ptr().cast(),
        args_len: 8,
        payload: [1u8; 3].as_ptr(),
        payload_len: 3,
        reply: reply.as_mut_ptr().cast(),
        reply_capacity: 8,
        reply_len: 0,
        context: &raw const context,
    };
    // SAFETY: the jams of this file take such calls.
    unsafe { receiver.run(digest, SIGNATURE, &mut call) }?;
    assert_eq!(call.reply_len, 8);
    Ok(reply[0])
}

fn refusal<T: std::fmt::Debug>(result: Result<T, Failure>) -> Refusal {
    match result {
        Err(Failure::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_jam_runs_once_it_is_received() {
    let receiver = open_receiver(CHUNKS);
    let bytes = blob(sum()).encode().unwrap();
    let digest = Digest::of(&bytes);
    assert_eq!(run(receiver, &digest, &mut 0, 1), Err(Failure::NeedCode));
    receive(receiver, &bytes).unwrap();
    receive(receiver, &bytes).unwrap();
    assert_eq!(receiver.size().1, 1, "the second time it is there");
    for args in [0, 5] {
        assert_eq!(run(receiver, &digest, &mut 0, args), Ok(args + 3));
    }
    let on_another = std::thread::spawn(move || run(receiver, &digest, &mut 0, 9));
    assert_eq!(on_another.join().unwrap(), Ok(12));
    // SAFETY: pointers and numbers, for all of which zero is a value.
    let mut call = unsafe { std::mem::zeroed::<Call>() };
    // SAFETY: nothing runs: the signature is another, so the call is not looked at.
    let wrong = unsafe { receiver.run(&digest, 78, &mut call) };
    assert_eq!(refusal(wrong), Refusal::WrongEntry { wanted: 78, found: SIGNATURE });
}

const CHUNKS: usize = 4 << 20;

#[test]
fn imports_are_called_with_the_property_and_their_panics_leave_the_jam() {
    let receiver = open_receiver(CHUNKS);
    let digest = receive(receiver, &imports("receiver_test_add", add_signature())).unwrap();
    let mut property = 40;
    assert_eq!(run(receiver, &digest, &mut property, 2), Ok(42));
    let panicked = run(receiver, &digest, &mut property, 13).unwrap_err();
    let Failure::Panicked(panicked) = panicked else { panic!("{panicked:?}") };
    assert_eq!(panicked.to_string(), "unlucky");
    assert_eq!(run(receiver, &digest, &mut property, 1), Ok(43), "it goes on");
}

#[test]
fn a_panic_of_a_jam_says_where() {
    let receiver = open_receiver(CHUNKS);
    let mut data = [0; 48];
    data[16..].copy_from_slice(b"no room.jams/put.rs.............");
    let bytes = Blob {
        imports: &[Import { name: "__jam_panic", signature: 0 }],
        relocations: &[Relocation { place: 8, value: jam_format::DATA_DISTANCE + 16 }],
        data: &data,
        ..blob(panics())
    };
    let digest = receive(receiver, &bytes.encode().unwrap()).unwrap();
    for _ in 0..2 {
        let panicked = run(receiver, &digest, &mut 0, 0).unwrap_err();
        let Failure::Panicked(panicked) = panicked else { panic!("{panicked:?}") };
        assert_eq!(panicked.to_string(), "no room at jams/put.rs:7:9");
    }
}

#[test]
fn a_jam_logs_and_a_code_is_an_error() {
    use std::sync::{Arc, Mutex};
    let receiver = open_receiver(CHUNKS);
    let lines = Arc::new(Mutex::new(Vec::new()));
    let log = lines.clone();
    receiver.set_log(move |host, line| {
        log.lock().unwrap().push((host, line.to_owned()));
        panic!("a log that panics ends no jam");
    });
    let bytes = Blob { data: b"hello", ..blob(logs()) }.encode().unwrap();
    let digest = receive(receiver, &bytes).unwrap();
    assert_eq!(refusal(run(receiver, &digest, &mut 0, 0)), Refusal::Entry { code: 3 });
    assert_eq!(*lines.lock().unwrap(), [(5, "hello".to_owned())]);
}

#[test]
fn hostile_bytes_are_refused() {
    let receiver = open_receiver(CHUNKS);
    let good = imports("receiver_test_add", add_signature());
    let digest = Digest::of(&good);
    for len in 0..good.len() {
        let truncated = receive(receiver, &good[..len]);
        assert!(matches!(truncated, Err(Refusal::Malformed { .. })), "{len}: {truncated:?}");
    }
    let forged = receiver.receive(&blob(sum()).encode().unwrap(), digest);
    assert!(matches!(forged, Err(Refusal::Digest { .. })), "{forged:?}");
    for at in 0..good.len() {
        let mut changed = good.clone();
        changed[at] ^= 1;
        assert!(receiver.receive(&changed, digest).is_err(), "byte {at}");
    }
    let missing = receive(receiver, &imports("not_exported", 5)).unwrap_err();
    assert_eq!(
        missing,
        Refusal::MissingSymbol {
            symbol: "not_exported".into(),
            signature: 5,
            types: String::new()
        }
    );
    let wrong = receive(receiver, &imports("receiver_test_add", 5)).unwrap_err();
    let (symbol, found) = ("receiver_test_add".to_owned(), add_signature());
    assert_eq!(
        wrong,
        Refusal::WrongSignature {
            symbol,
            wanted: 5,
            found,
            wanted_types: String::new(),
            found_types: "(&mut u64, u64) -> u64".to_owned(),
        }
    );
    let arm = Blob { machine: Machine::Aarch64, text: &[0; 4], ..blob(&[]) }.encode().unwrap();
    let (wanted, found) = ("aarch64".to_owned(), "x86_64".to_owned());
    assert_eq!(receive(receiver, &arm), Err(Refusal::Machine { wanted, found }));
    let newest = Features::from_names(Machine::X86_64, ["avx512bf16", "sha", "gfni"]).unwrap();
    let lacking = newest.missing_from(crate::features::of_host());
    if !lacking.is_empty() {
        let needs = Blob { features: newest, ..blob(sum()) }.encode().unwrap();
        let refused = receive(receiver, &needs);
        let missing = lacking.names(Machine::X86_64).collect::<Vec<_>>().join(", ");
        assert_eq!(refused, Err(Refusal::Features { missing }));
    }
    assert_eq!(receiver.size(), (0, 0), "none of it was linked");
}

#[test]
fn the_policy_decides_whose_code_is_linked() {
    let receiver = Receiver::new(CHUNKS);
    let bytes = blob(sum()).encode().unwrap();
    assert!(matches!(receive(&receiver, &bytes), Err(Refusal::Policy { .. })));
    receiver.admit([Digest::of(&bytes)]);
    let digest = receive(&receiver, &bytes).unwrap();
    assert_eq!(receiver.size().1, 1);
    receiver.set_policy(Policy::Nothing);
    assert_eq!(receiver.size(), (0, 0), "what was linked is given up");
    assert!(receiver.receive(&bytes, digest).is_err());
}

#[test]
fn a_policy_that_changes_while_a_jam_is_received_counts() {
    let receiver = open_receiver(CHUNKS);
    let bytes = blob(sum()).encode().unwrap();
    let frame = Frame::new(&bytes, Digest::of(&bytes)).parse().unwrap();
    let verified = frame.verify(receiver.gate(None)).unwrap();
    receiver.set_policy(Policy::Nothing);
    let added = receiver.cache.add(&verified, &receiver.symbols, receiver.gate(None));
    assert!(matches!(added, Err(Refusal::Policy { .. })), "{added:?}");
    assert_eq!(receiver.size(), (0, 0));
}

#[test]
fn what_another_policy_has_linked_meanwhile_does_not_run() {
    let receiver = open_receiver(1 << 20);
    let blob = blob(sum()).encode().unwrap();
    let digest = receive(receiver, &blob).unwrap();
    let (args, mut reply) = (5_u64, 0_u64);
    let context = receiver.context(0);
    let args = (&raw const args).cast::<u8>();
    let mut call = Call {
        property: std::ptr::null_mut(),
        args,
        args_len: 8,
        payload: args,
        payload_len: 0,
        reply: (&raw mut reply).cast(),
        reply_capacity: 8,
        reply_len: 0,
        context: &raw const context,
    };
    // Between the look at the policy and the look at the symbols, both change, and a mailbox with a
    // policy of its own links the jam.
    let change = |_: &Shape, _: &mut Call| {
        receiver.set_policy(Policy::Signed);
        // SAFETY: it adds no function that anything could call.
        unsafe { receiver.symbols.add_layer(&[]) };
        receiver.receive_under(Some(Policy::AnyPeer), &blob, digest).map_err(Failure::from)
    };
    // SAFETY: the call is one of this jam.
    let ended = unsafe { receiver.run_checked(&digest, receiver.gate(None), &mut call, change) };
    assert_eq!((ended, reply), (Err(Failure::NeedCode), 0));
}

#[test]
fn a_ried_that_starts_keeps_no_policy_waiting() {
    let receiver = open_receiver(1 << 20);
    receive(receiver, &blob(sum()).encode().unwrap()).unwrap();
    let starting = receiver.rieds.starting();
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        receiver.set_policy(Policy::Signed);
        done.send(()).unwrap();
    });
    let waited = is_done.recv_timeout(std::time::Duration::from_secs(20));
    assert!(waited.is_ok(), "it waits for the ried");
    assert_eq!(receiver.size().1, 0);
    drop(starting);
}

#[test]
fn the_policy_decides_whether_local_functions_run() {
    let receiver = open_receiver(CHUNKS);
    // SAFETY: pointers and numbers, for all of which zero is a value.
    let mut call = unsafe { std::mem::zeroed::<Call>() };
    // SAFETY: nothing runs: there is no such jam, so the call is not looked at.
    let mut local = || unsafe { receiver.run_local(&Digest::of(b"none"), SIGNATURE, &mut call) };
    assert_eq!(refusal(local()), Refusal::NotLocal);
    receiver.set_policy(Policy::Nothing);
    let refused = refusal(local());
    assert!(matches!(refused, Refusal::Policy { .. }), "{refused}");
}

#[test]
fn symbols_that_change_change_what_linked_jams_call() {
    extern "C" fn doubles(_: *mut u64, by: u64) -> u64 {
        by * 2
    }
    let receiver = open_receiver(CHUNKS);
    let digest = receive(receiver, &imports("receiver_test_add", add_signature())).unwrap();
    assert_eq!(run(receiver, &digest, &mut 1, 4), Ok(5));
    let function = LoadedFunction {
        name: "receiver_test_add".to_owned(),
        types: "",
        signature: add_signature(),
        injected: doubles as *const () as usize,
        local: doubles as *const () as usize,
    };
    // SAFETY: a function with these types, which does not unwind and is never unloaded.
    let layer = unsafe { receiver.symbols().add_layer(std::slice::from_ref(&function)) };
    assert_eq!(run(receiver, &digest, &mut 1, 4), Ok(8));
    assert_eq!(receiver.size().1, 1, "the old one is gone");
    receiver.symbols().remove_layer(layer);
    assert_eq!(run(receiver, &digest, &mut 1, 4), Ok(5));

    let only_loaded = LoadedFunction { name: "receiver_test_loaded".to_owned(), ..function };
    // SAFETY: a function with these types, which does not unwind and is never unloaded.
    let layer = unsafe { receiver.symbols().add_layer(&[only_loaded]) };
    let digest = receive(receiver, &imports("receiver_test_loaded", add_signature())).unwrap();
    assert_eq!(run(receiver, &digest, &mut 1, 4), Ok(8));
    receiver.symbols().remove_layer(layer);
    let gone = refusal(run(receiver, &digest, &mut 1, 4));
    assert!(matches!(gone, Refusal::MissingSymbol { .. }), "{gone}");
}

/// A jam that adds the length of the payload, padded, and different from others by its data.
fn padded(number: u64, bytes: usize) -> Vec<u8> {
    let mut text = sum().to_vec();
    text.resize(bytes, 0xcc);
    Blob { data: &number.to_le_bytes(), ..blob(&text) }.encode().unwrap()
}

#[test]
fn the_least_recently_used_jam_gives_its_place_to_a_new_one() {
    // One chunk, which has room for three.
    let receiver = open_receiver(1);
    let jams: Vec<Vec<u8>> = (0..4).map(|number| padded(number, 300_000)).collect();
    let digests: Vec<Digest> = jams.iter().map(|jam| Digest::of(jam)).collect();
    let is_there = |at: usize| run(receiver, &digests[at], &mut 0, 4) == Ok(7);
    jams[..3].iter().for_each(|jam| assert!(receive(receiver, jam).is_ok()));
    assert!(is_there(0) && is_there(1) && is_there(2));
    receive(receiver, &padded(9, 64)).unwrap();
    assert!(is_there(0) && is_there(2));
    receive(receiver, &jams[3]).unwrap();
    assert!(is_there(3) && is_there(0) && is_there(2) && !is_there(1));
    receive(receiver, &jams[1]).unwrap();
    assert!(is_there(1));
    let too_large = receive(receiver, &padded(0, 900_000));
    assert!(too_large.is_ok(), "the others give way: {too_large:?}");
    assert!(receiver.size().1 < 4);
}

#[test]
fn a_jam_is_linked_anew_in_an_arena_that_has_room_for_one() {
    extern "C" fn doubles(_: *mut u64, by: u64) -> u64 {
        by * 2
    }
    let receiver = open_receiver(1);
    let mut text = import().to_vec();
    text.resize(700_000, 0xcc);
    let imports = [Import { name: "receiver_test_add", signature: add_signature() }];
    let large = Blob { imports: &imports, data: &[0; 8], ..blob(&text) }.encode().unwrap();
    let digest = receive(receiver, &large).unwrap();
    assert_eq!(run(receiver, &digest, &mut 1, 4), Ok(5));
    let other = receive(receiver, &padded(1, 64)).unwrap();
    let address = doubles as *const () as usize;
    let function = LoadedFunction {
        name: "receiver_test_add".to_owned(),
        types: "",
        signature: add_signature(),
        injected: address,
        local: address,
    };
    // SAFETY: a function with these types, which does not unwind and is never unloaded.
    unsafe { receiver.symbols().add_layer(&[function]) };
    assert_eq!(run(receiver, &digest, &mut 1, 4), Ok(8), "its own place is free first");
    assert_eq!(run(receiver, &other, &mut 0, 4), Ok(7), "nobody gives way to it");
}

#[test]
fn a_thread_that_stays_inside_costs_few_jams_their_places() {
    let receiver = open_receiver(1);
    // More than there is room for.
    (0..30).for_each(|number| assert!(receive(receiver, &padded(number, 50_000)).is_ok()));
    let (bytes, full) = receiver.size();
    assert!(full > 15 && full < 30);
    let inside = Thread::current(receiver).runner.enter();
    for number in 30..33 {
        let refused = receive(receiver, &padded(number, 50_000)).unwrap_err();
        assert!(matches!(refused, Refusal::NoRoom { .. }), "{refused}");
        assert_eq!(receiver.size().1, full - 8, "no more of them are given up");
    }
    drop(inside);
    (33..41).for_each(|number| assert!(receive(receiver, &padded(number, 50_000)).is_ok()));
    assert_eq!(receiver.size(), (bytes, full), "their places are free again");
}

#[test]
fn threads_run_jams_whose_memory_is_reused_all_the_time() {
    let receiver = open_receiver(1);
    let jams: Vec<Vec<u8>> = (0..9).map(|number| padded(number, 200_000)).collect();
    let digests: Vec<Digest> = jams.iter().map(|jam| Digest::of(jam)).collect();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (jams, digests) = (&jams, &digests);
            scope.spawn(move || {
                let mut runs = 0;
                for turn in 0..300 {
                    let at = (turn * 7 + thread * 3) % jams.len();
                    match run(receiver, &digests[at], &mut 0, turn as u64) {
                        Ok(sum) => {
                            assert_eq!(sum, turn as u64 + 3);
                            runs += 1;
                        }
                        Err(failure) => {
                            assert_eq!(failure, Failure::NeedCode);
                            receive(receiver, &jams[at]).unwrap();
                        }
                    }
                }
                assert!(runs > 0);
            });
        }
    });
    assert!(receiver.size().0 <= 2 << 20);
}

#[test]
#[ignore = "prints figures: cargo test --release -p gossamer-jam --lib figures -- --ignored --nocapture"]
fn figures() {
    use std::hint::black_box;
    use std::time::Instant;
    fn median(name: &str, count: u32, mut run: impl FnMut()) {
        let mut times: Vec<f64> = (0..41)
            .map(|_| {
                let start = Instant::now();
                (0..count).for_each(|_| run());
                start.elapsed().as_nanos() as f64 / f64::from(count)
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!("{:9.1} ns (least {:9.1})  {name}", times[20], times[0]);
    }
    // As large as Indirect Put: 560 bytes.
    let mut text = import().to_vec();
    text.resize(380, 0xcc);
    let numbered = |number: u64| {
        let mut data = [0; 64];
        data[56..].copy_from_slice(&number.to_le_bytes());
        let imports = [
            Import { name: "receiver_test_add", signature: add_signature() },
            Import { name: "strlen", signature: 0 },
        ];
        Blob { imports: &imports, data: &data, ..blob(&text) }.encode().unwrap()
    };
    let blobs: Vec<Vec<u8>> = (0..200).map(numbered).collect();
    let digests: Vec<Digest> = blobs.iter().map(|blob| Digest::of(blob)).collect();
    println!("blob of {} bytes", blobs[0].len());
    median("digest", 500, || {
        black_box(Digest::of(black_box(&blobs[0])));
    });
    median("parse", 500, || {
        black_box(jam_format::Parsed::parse(black_box(&blobs[0]))).unwrap();
    });
    // One for each round, with its first chunk there.
    let first = blob(sum()).encode().unwrap();
    let receivers: Vec<_> = (0..41).map(|_| open_receiver(CHUNKS)).collect();
    receivers.iter().for_each(|receiver| assert!(receive(receiver, &first).is_ok()));
    let mut arrivals = receivers.iter().flat_map(|receiver| {
        blobs.iter().zip(&digests).map(move |(blob, digest)| (receiver, blob, digest))
    });
    median("receive: parse, digest, link", 200, || {
        let (receiver, blob, digest) = arrivals.next().expect("one for each time");
        receiver.receive(blob, *digest).unwrap();
    });
    let receiver = receivers[0];
    let digest = receive(receiver, &blob(sum()).encode().unwrap()).unwrap();
    let mut property = 0;
    let context = receiver.context(5);
    let (args, mut reply) = ([1u64, 0], [0u64; 2]);
    let mut call = Call {
        property: std::ptr::from_mut(&mut property).cast(),
        args: args.as_ptr().cast(),
        args_len: 8,
        payload: [1u8; 3].as_ptr(),
        payload_len: 3,
        reply: reply.as_mut_ptr().cast(),
        reply_capacity: 8,
        reply_len: 0,
        context: &raw const context,
    };
    // SAFETY: the jams of this file take such calls.
    median("a cached call: look up, enter, run", 10_000, || unsafe {
        receiver.run(black_box(&digest), SIGNATURE, black_box(&mut call)).unwrap();
    });
    let thread = Thread::current(receiver);
    median("of it: inside and look up", 10_000, || {
        let inside = thread.runner.enter();
        black_box(receiver.cache.find(black_box(&digest), &inside).is_some());
    });
    let inside = thread.runner.enter();
    let linked = receiver.cache.find(&digest, &inside).unwrap();
    // SAFETY: the jams of this file take such calls, and this thread is inside.
    median("of it: enter and run", 10_000, || unsafe {
        black_box(linked.run(black_box(&mut call)).is_ok());
    });
}

#[test]
fn a_handle_finds_the_jam_that_it_was_given_for_or_none() {
    extern "C" fn doubles(_: *mut u64, by: u64) -> u64 {
        by * 2
    }
    let receiver = open_receiver(CHUNKS);
    let run = |handle, signature, property: &mut u64| {
        let (args, mut reply) = ([4_u64, 0], [0_u64; 2]);
        let context = receiver.context(5);
        let mut call = Call {
            property: std::ptr::from_mut(property).cast(),
            args: args.as_ptr().cast(),
            args_len: 8,
            payload: args.as_ptr().cast(),
            payload_len: 0,
            reply: reply.as_mut_ptr().cast(),
            reply_capacity: 8,
            reply_len: 0,
            context: &raw const context,
        };
        let mut running = by_handle::Running::at(receiver);
        // SAFETY: the jams of this file take such calls.
        unsafe { running.run(handle, signature, &mut call) }.map_err(|failure| *failure)?;
        Ok(reply[0])
    };
    let bytes = imports("receiver_test_add", add_signature());
    let digest = receive(receiver, &bytes).unwrap();
    let handle = receiver.handle(&digest, false);
    assert_eq!(run(handle, SIGNATURE, &mut 1), Ok(5));
    let wrong = refusal(run(handle, 78, &mut 1));
    assert_eq!(wrong, Refusal::WrongEntry { wanted: 78, found: SIGNATURE });
    for unknown in [0, handle + 1, handle ^ 1 << 11, handle ^ 1 << 55, u64::MAX >> 8 & !(1 << 10)] {
        assert_eq!(run(unknown, SIGNATURE, &mut 1), Err(Failure::NeedCode), "{unknown:x}");
    }
    let address = doubles as *const () as usize;
    let function = LoadedFunction {
        name: "receiver_test_add".to_owned(),
        types: "",
        signature: add_signature(),
        injected: address,
        local: address,
    };
    // SAFETY: a function with these types, which does not unwind and is never unloaded.
    let layer = unsafe { receiver.symbols().add_layer(&[function]) };
    assert_eq!(run(handle, SIGNATURE, &mut 1), Ok(8), "linked again, it keeps its handle");
    receiver.symbols().remove_layer(layer);
    assert_eq!(run(handle, SIGNATURE, &mut 1), Ok(5));
    receiver.set_policy(Policy::AnyPeer);
    assert_eq!(run(handle, SIGNATURE, &mut 1), Err(Failure::NeedCode), "it was evicted");
    let other = receive(receiver, &blob(sum()).encode().unwrap()).unwrap();
    assert_eq!(receiver.handle(&digest, false), 0);
    assert_ne!(receiver.handle(&other, false), handle);
    assert_eq!(run(handle, SIGNATURE, &mut 1), Err(Failure::NeedCode), "the place is another's");
    receive(receiver, &bytes).unwrap();
    assert_eq!(run(handle, SIGNATURE, &mut 1), Err(Failure::NeedCode), "a linking of its own");
    assert_eq!(run(receiver.handle(&digest, false), SIGNATURE, &mut 1), Ok(5));
    let local = u64::MAX >> 8;
    assert_eq!(refusal(run(local, SIGNATURE, &mut 1)), Refusal::NotLocal);
}
