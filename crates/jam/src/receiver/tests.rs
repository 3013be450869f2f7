//! Jams written in assembly, so that these tests need no compiler: what a receiver does with good
//! ones and with hostile ones.

mod figures;
mod locals;
mod memory;
mod policy;
mod running;

use jam_abi::{Call, ContextData};
use jam_format::{Blob, Import, Machine, Relocation};

use super::*;
use crate::error::SignatureHash;
use crate::receiver::thread::Thread;
use crate::shape::Shape;
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

/// A call of the jams of these tests, whose argument and result have a word each, of all that it is
/// given.
fn call_of(
    context: &ContextData,
    property: &mut u64,
    args: &[u64; 2],
    payload: &[u8],
    reply: &mut [u64; 2],
) -> Call {
    Call {
        property: std::ptr::from_mut(property).cast(),
        args: args.as_ptr().cast(),
        args_len: 8,
        payload: payload.as_ptr(),
        payload_len: payload.len(),
        reply: reply.as_mut_ptr().cast(),
        reply_capacity: 8,
        reply_len: 0,
        context: std::ptr::from_ref(context),
        count: 1,
        done: 0,
        step: 0,
    }
}

fn run(
    receiver: &Receiver,
    digest: &Digest,
    property: &mut u64,
    args: u64,
) -> Result<u64, Failure> {
    let (context, args, mut reply) = (receiver.context(5), [args, 0], [0; 2]);
    let mut call = call_of(&context, property, &args, &[1; 3], &mut reply);
    // SAFETY: the jams of this file take such calls.
    unsafe { receiver.run(digest, SIGNATURE, &mut call) }?;
    assert_eq!(call.reply_len, 8);
    Ok(reply[0])
}

/// Has `receiver_test_add` double its argument from now on; the layer.
fn double(receiver: &Receiver) -> u64 {
    extern "C" fn doubles(_: *mut u64, by: u64) -> u64 {
        by * 2
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
    unsafe { receiver.symbols().add_layer(&[function]) }
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
    assert_eq!(
        refusal(wrong),
        Refusal::WrongEntry { wanted: SignatureHash(78), found: SignatureHash(SIGNATURE) }
    );
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
    assert_eq!(panicked.message, "unlucky");
    assert!(panicked.file.ends_with("receiver/tests.rs") && panicked.line > 0, "{panicked}");
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
        assert_eq!(panicked.to_string(), "no room, at jams/put.rs:7:9");
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
            signature: SignatureHash(5),
            types: String::new()
        }
    );
    let wrong = receive(receiver, &imports("receiver_test_add", 5)).unwrap_err();
    let (symbol, found) = ("receiver_test_add".to_owned(), SignatureHash(add_signature()));
    assert_eq!(
        wrong,
        Refusal::WrongSignature {
            symbol,
            wanted: SignatureHash(5),
            found,
            wanted_types: String::new(),
            found_types: "(&mut u64, u64) -> u64".to_owned(),
        }
    );
    let arm = Blob { machine: Machine::Aarch64, text: &[0; 4], ..blob(&[]) }.encode().unwrap();
    let (wanted, found) = ("aarch64".to_owned(), "x86_64".to_owned());
    assert_eq!(receive(receiver, &arm), Err(Refusal::Machine { wanted, found }));
    assert_eq!(receiver.size(), (0, 0), "none of it was linked");
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
