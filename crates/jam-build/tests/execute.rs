//! Blobs run: what an Injected Function returns, and asks of its receiver, is what the Local Function
//! of the same source does. The loader here is for tests: it has none of a receiver's checks, and all
//! of its memory can be written and executed.
//!
//! Where the environment variable `JAM_TEST_BLOBS` names a folder, blobs come from there: the machine
//! that runs this test needs no compiler then.

mod common;

extern crate jam_abi as jam;

use std::cell::{Cell, RefCell};
use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::ptr::{null_mut, without_provenance_mut};

use common::{JAMS, OTHER_TARGET, TARGET, blob, builder, built};
use jam::{Call, Context, ContextData, Entry, Slice, code};
use jam_build::{Builder, Error};
use jam_format::{DATA_DISTANCE, Machine, Package, Parsed};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

#[path = "jams/indirect_put.rs"]
#[allow(unreachable_pub)]
mod indirect_put;
#[path = "jams/torture.rs"]
#[allow(unreachable_pub)]
mod torture;

/// What a jam has asked of the receiver.
#[derive(Debug, Default, PartialEq)]
struct Receiver {
    logged: Vec<String>,
    written: Vec<(u64, Vec<u8>)>,
}

thread_local! {
    static RECEIVER: RefCell<Receiver> = RefCell::default();
    /// What [`change_argument`] changes.
    static NEXT_ARGUMENT: Cell<*mut i64> = const { Cell::new(null_mut()) };
}

fn taken() -> Receiver {
    RECEIVER.take()
}

/// # Safety
/// `text` is of `len` bytes of UTF-8.
unsafe extern "C" fn log(_: *const ContextData, text: *const u8, len: usize) {
    // SAFETY: as the caller promises.
    let text = unsafe { <&[u8] as jam::Abi>::from_repr(Slice::new(text.cast_mut(), len)) };
    let text = String::from_utf8(text.to_vec()).expect("UTF-8");
    RECEIVER.with_borrow_mut(|receiver| receiver.logged.push(text));
}

extern "C" fn remainder(dividend: f64, divisor: f64) -> f64 {
    dividend % divisor
}

extern "C" fn triple(value: u64) -> u64 {
    value.wrapping_mul(3)
}

/// Keys 100 to 115, each at the slot that its hash says or after it.
extern "C" fn table_key(_: *const u8, slot: u64) -> u64 {
    100 + slot
}

extern "C" fn table_place(_: *const u8, slot: u64) -> u64 {
    slot * 1000
}

extern "C" fn table_slots(_: *const u8) -> u64 {
    16
}

extern "C" fn table_write(_: *mut u8, place: u64, bytes: Slice<u8>) -> bool {
    // SAFETY: the jam passed a slice.
    let bytes = unsafe { <&[u8] as jam::Abi>::from_repr(bytes) };
    RECEIVER.with_borrow_mut(|receiver| receiver.written.push((place, bytes.to_vec())));
    bytes.len() <= 64
}

/// Changes the next argument of a run where its caller has it, as a peer does that writes to its batch.
extern "C" fn change_argument() {
    let next = NEXT_ARGUMENT.get();
    // SAFETY: the test has room for as many calls as its run makes.
    unsafe { next.write_volatile(100) };
    NEXT_ARGUMENT.set(next.wrapping_add(2));
}

extern "C" fn results_push(_: *mut u8, _: i64) -> u64 {
    0
}

extern "C" fn weight_of(index: u64) -> i64 {
    index as i64 + 1
}

extern "C" fn text_equal(text: Slice<u8>, other: *mut u8, len: usize) -> bool {
    // SAFETY: the jam passed slices.
    let (text, other) = unsafe {
        (
            <&[u8] as jam::Abi>::from_repr(text),
            <&[u8] as jam::Abi>::from_repr(Slice::new(other, len)),
        )
    };
    text == other
}

/// Ends the process: returning to the jam is not possible.
extern "C" fn panicked(
    message: *mut u8,
    message_len: usize,
    file: *mut u8,
    file_len: usize,
    line: u32,
    _: u32,
) -> ! {
    let text = |start, len| {
        // SAFETY: the jam passed text.
        let text = unsafe { <&[u8] as jam::Abi>::from_repr(Slice::new(start, len)) };
        String::from_utf8_lossy(text).into_owned()
    };
    println!("panic at {}:{line}: {:?}", text(file, file_len), text(message, message_len));
    std::process::exit(PANICKED)
}

const PANICKED: i32 = 42;

// SAFETY: these are functions of the C library, with their types.
unsafe extern "C" {
    fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8;
    fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8;
    fn memset(to: *mut u8, byte: i32, len: usize) -> *mut u8;
    fn memcmp(one: *const u8, other: *const u8, len: usize) -> i32;
    fn bcmp(one: *const u8, other: *const u8, len: usize) -> i32;
}

#[cfg(target_arch = "aarch64")]
// SAFETY: it is a function of the compiler's library, with its type.
unsafe extern "C" {
    fn __clear_cache(start: *mut u8, end: *mut u8);
}

fn address(name: &str) -> *const () {
    match name {
        "__jam_panic" => panicked as *const (),
        "bcmp" => bcmp as *const (),
        "change_argument" => change_argument as *const (),
        "memcmp" => memcmp as *const (),
        "memcpy" => memcpy as *const (),
        "memmove" => memmove as *const (),
        "memset" => memset as *const (),
        "remainder" => remainder as *const (),
        "results_push" => results_push as *const (),
        "table_key" => table_key as *const (),
        "table_place" => table_place as *const (),
        "table_slots" => table_slots as *const (),
        "table_write" => table_write as *const (),
        "text_equal" => text_equal as *const (),
        "triple" => triple as *const (),
        "weight_of" => weight_of as *const (),
        _ => panic!("no import {name}"),
    }
}

/// A blob in memory, ready to run.
struct Loaded {
    memory: *mut u8,
    entry: Entry,
}

const MEMORY: usize = 2 << 20;

impl Loaded {
    fn new(bytes: &[u8]) -> Self {
        let blob = Parsed::parse(bytes).expect("a blob");
        let all = ProtFlags::READ | ProtFlags::WRITE | ProtFlags::EXEC;
        // SAFETY: the memory is new.
        let memory = unsafe { mmap_anonymous(null_mut(), MEMORY, all, MapFlags::PRIVATE) };
        let memory = memory.expect("memory").cast::<u8>();
        let mut image = vec![0; DATA_DISTANCE as usize + blob.data().len()];
        image[..blob.text().len()].copy_from_slice(blob.text());
        let data = &mut image[DATA_DISTANCE as usize..];
        data.copy_from_slice(blob.data());
        let mut put = |place: usize, value: usize| {
            data[place..place + 8].copy_from_slice(&value.to_le_bytes());
        };
        for (slot, import) in blob.imports().enumerate() {
            put(slot * 8, address(import.name).addr());
        }
        for relocation in blob.relocations() {
            put(relocation.place as usize, memory.addr() + relocation.value as usize);
        }
        // SAFETY: the memory is longer than an image, as a blob is limited; the entry is in it, and
        // every address in it is filled.
        let entry = unsafe {
            memory.copy_from_nonoverlapping(image.as_ptr(), image.len());
            #[cfg(target_arch = "aarch64")]
            __clear_cache(memory, memory.add(image.len()));
            std::mem::transmute::<*mut u8, Entry>(memory.add(blob.entry() as usize))
        };
        Self { memory, entry }
    }

    fn run(&self, args: &[u64], payload: &[u8]) -> i64 {
        let mut reply = [0_i64; 2];
        let context = context();
        // Aligned to 16, as a receiver has them.
        let payload_words = aligned(payload);
        let args_words: Vec<u128> =
            aligned(&args.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>());
        let mut call = Call {
            property: without_provenance_mut(16),
            args: args_words.as_ptr().cast(),
            args_len: args.len() * 8,
            payload: payload_words.as_ptr().cast(),
            payload_len: payload.len(),
            reply: reply.as_mut_ptr().cast(),
            reply_capacity: 8,
            reply_len: 0,
            context: &context,
            count: 1,
            done: 0,
            step: 0,
        };
        // SAFETY: it is a jam whose types the test knows.
        let code = unsafe { (self.entry)(&mut call) };
        assert_eq!((code, call.reply_len), (code::DONE, 8));
        reply[0]
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: nothing runs in it.
        unsafe { munmap(self.memory.cast(), MEMORY) }.expect("it was mapped");
    }
}

fn aligned(bytes: &[u8]) -> Vec<u128> {
    let words = bytes.chunks(16).map(|chunk| {
        let mut word = [0; 16];
        word[..chunk.len()].copy_from_slice(chunk);
        u128::from_ne_bytes(word)
    });
    words.chain([0]).collect()
}

fn context() -> ContextData {
    ContextData { sender: 7, reserved: 0, log, receiver: null_mut() }
}

/// Fills the slots of a Local Function's imports.
fn resolve(imports: &[&jam::LocalImport]) {
    for import in imports {
        // SAFETY: the test has functions of these types.
        unsafe { import.resolve(address(import.name())) };
    }
}

#[test]
fn torture_does_the_same_in_both_forms() {
    resolve(torture::jam_imports::ALL);
    let jam = Loaded::new(&blob("torture.rs"));
    let payload: Vec<u8> = (0..1000_u32).map(|i| (i * 7 % 251) as u8).collect();
    for index in 0..16 {
        let args = torture::TortureArgs { index, divisor: index * 3 + 1 };
        let data = context();
        // SAFETY: the data lives as long as the context.
        let context = unsafe { Context::new(&data) };
        let local = torture::torture(&context, args, &payload);
        let asked = taken();
        assert_eq!(jam.run(&[args.index, args.divisor], &payload), local, "index {index}");
        assert_eq!(taken(), asked);
        assert!(asked.logged[0].starts_with("jam says "), "{asked:?}");
    }
}

#[test]
fn indirect_put_does_the_same_in_both_forms() {
    resolve(indirect_put::jam_imports::ALL);
    let jam = Loaded::new(&blob("indirect_put.rs"));
    for (key, len) in [(100, 4), (115, 0), (107, 64), (107, 65), (99, 4)] {
        let payload: Vec<u8> = (0..len).collect();
        let result = jam.run(&[key, 5], &payload);
        let written = taken().written;
        match key {
            99 => assert_eq!((result, written), (-1, vec![])),
            _ => {
                let place = (key - 100) * 1000 + 5;
                let expected = if len <= 64 { place as i64 } else { -2 };
                assert_eq!((result, written), (expected, vec![(place, payload.clone())]));
            }
        }
        // SAFETY: the table is not looked at.
        let table = unsafe { &mut *without_provenance_mut(16) };
        let args = indirect_put::PutArgs { key, offset: 5 };
        assert_eq!(indirect_put::indirect_put(table, args, &payload), result);
        taken();
    }
}

/// What a package for two machines has for this one runs.
#[test]
fn a_package_for_two_machines() {
    if env::var_os("JAM_TEST_BLOBS").is_some() {
        eprintln!("SKIPPED: this machine has no compilers");
        return;
    }
    let (folder, builder) = builder(TARGET);
    let jams = folder.path().join("jams");
    fs::create_dir(&jams).expect("a folder");
    fs::copy("tests/jams/indirect_put.rs", jams.join("indirect_put.rs")).expect("a source");
    let other = Builder::new(OTHER_TARGET, folder.path().join("other")).expect("a known target");
    let package = match builder.and(other).build(&jams) {
        Err(Error::NoLibrary { target }) => {
            eprintln!("SKIPPED: rustc has no library for {target}: rustup target add {target}");
            return;
        }
        package => built(package),
    };
    let package = Package::parse(&package.bytes).expect("a package");
    assert_eq!(package.elements().len(), 2);
    let own = package.element(0, Machine::CURRENT.expect("a machine of jams")).expect("a jam");
    assert_eq!(Loaded::new(own.bytes).run(&[107, 5], &[1, 2, 3]), 7005);
    assert_eq!(taken().written, [(7005, vec![1, 2, 3])]);
}

#[test]
fn a_jam_in_c_calls_both_kinds_of_addresses() {
    run_weighted_sum(&blob("weighted_sum.c"));
}

#[test]
#[ignore = "needs clang: cargo test -p gossamer-jam-build --test execute clang -- --ignored"]
fn a_jam_in_c_that_clang_compiles_does_the_same() {
    let (_folder, builder) = builder(TARGET);
    let jam = built(builder.cc("clang").build_jam(Path::new(JAMS).join("weighted_sum.c")));
    run_weighted_sum(&jam.blob);
}

fn run_weighted_sum(blob: &[u8]) {
    let jam = Loaded::new(blob);
    let payload: Vec<u8> = [10_i32, 20, -30, 40].iter().flat_map(|v| v.to_le_bytes()).collect();
    assert_eq!(jam.run(&[0], &payload), 10 + 40 - 90 + 160);
    assert_eq!(jam.run(&[1], &payload), -30 + 40);
    assert_eq!(taken().logged, ["sum is stored", "sum is stored"]);
}

/// The entry in C copies the arguments of each call, since a peer can write to those of a run.
#[test]
fn a_jam_in_c_has_arguments_of_its_own() {
    if env::var_os("JAM_TEST_BLOBS").is_some() {
        eprintln!("SKIPPED: this machine has no compilers");
        return;
    }
    let (folder, builder) = builder(TARGET);
    let source = folder.path().join("twice.c");
    let text = "#include \"jam.h\"\n\
                JAM_IMPORT(void, change_argument, (void));\n\
                JAM_SIGNATURE(void, int64_t, void);\n\
                int64_t JAM_ENTRY(jam_call *call) {\n\
                const volatile int64_t *argument = call->args;\n\
                int64_t before = *argument;\n\
                change_argument();\n\
                return before + *argument;\n\
                }";
    fs::write(&source, text).expect("a source");
    let jam = Loaded::new(&built(builder.build_jam(&source)).blob);
    // Each result lies in front of its argument.
    let mut room: [i64; 6] = [0, 7, 0, 8, 0, 9];
    let (first, context) = (room.as_mut_ptr(), context());
    let mut call = Call {
        property: null_mut(),
        args: first.wrapping_add(1).cast(),
        args_len: 8,
        payload: first.cast(),
        payload_len: 0,
        reply: first.cast(),
        reply_capacity: 8,
        reply_len: 0,
        context: &context,
        count: 3,
        done: 0,
        step: 16,
    };
    NEXT_ARGUMENT.set(first.wrapping_add(1));
    // SAFETY: there is room for three calls with the types of the source.
    let code = unsafe { (jam.entry)(&mut call) };
    assert_eq!((code, call.done), (code::DONE, 3));
    assert_eq!(room, [14, 100, 16, 100, 18, 100]);
}

#[test]
fn a_panic_says_file_and_line() {
    const CHILD: &str = "JAM_TEST_PANIC";
    if env::var_os(CHILD).is_some() {
        let jam = Loaded::new(&blob("torture.rs"));
        unreachable!("{}", jam.run(&[16, 1], &[1, 2, 3]));
    }
    let mut child = Command::new(env::current_exe().expect("this program"));
    child.args(["--exact", "a_panic_says_file_and_line", "--nocapture"]).env(CHILD, "1");
    let output = child.output().expect("the child runs");
    let printed = String::from_utf8_lossy(&output.stdout);
    let source = include_str!("jams/torture.rs");
    let line = 1 + source.lines().position(|line| line.contains("TABLE[index]")).expect("a line");
    let expected = format!("panic at tests/jams/torture.rs:{line}: \"\"");
    assert!(printed.contains(&expected), "{printed} does not contain {expected}");
    assert_eq!(output.status.code(), Some(PANICKED));
}
