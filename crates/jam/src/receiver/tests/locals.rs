//! Local Functions that calls name by their handles.

use jam_abi::{Element, ImportSlot, LocalFunction, LocalImport, PackageData, code};
use jam_format::{ElementKind, NewElement, encode_package};
use primitive::sync::Ordering;

use super::*;
use crate::handles;
use crate::local::Locals;
use crate::receiver::running::Running;

/// Where the import of [`adds`] is: `receiver_test_add`, or what overrides it.
static ADD: ImportSlot = ImportSlot::new(std::ptr::null_mut());

/// Calls its import with the property and the argument.
///
/// # Safety
/// The call is of [`call_of`], and [`ADD`] is filled.
unsafe fn adds(call: *mut Call) -> u32 {
    let address = ADD.load(Ordering::Acquire);
    // SAFETY: the receiver fills the slot with a function of the import's types, for Local Functions.
    let add: extern "C-unwind" fn(*mut u64, u64) -> u64 = unsafe { std::mem::transmute(address) };
    // SAFETY: property, argument and reply have a word each.
    unsafe {
        let call = &mut *call;
        let sum = add(call.property.cast(), call.args.cast::<u64>().read());
        call.reply.cast::<u64>().write(sum);
        call.reply_len = 8;
    }
    code::DONE
}

/// Adds the argument to the property without any import.
///
/// # Safety
/// The call is of [`call_of`].
unsafe fn sums(call: *mut Call) -> u32 {
    // SAFETY: property, argument and reply have a word each.
    unsafe {
        let call = &mut *call;
        let sum = call.property.cast::<u64>().read() + call.args.cast::<u64>().read();
        call.reply.cast::<u64>().write(sum);
        call.reply_len = 8;
    }
    code::DONE
}

fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// The receiver of a program that was built with one package, of one jam with this code and Local
/// Function; and the word of a call of host 5 for that.
fn receiver_of(text: &[u8], local: LocalFunction) -> (&'static Receiver, u64) {
    let blob = blob(text).encode().unwrap();
    let (kind, machine, name) = (ElementKind::Jam, Machine::X86_64, "test");
    let element = NewElement { kind, machine, name, bytes: &blob };
    let bytes = leak(encode_package("p", &[element]).unwrap());
    let package = leak(PackageData { name: "p", bytes, jams: &[], rieds: &[] });
    let (signature, property) = (SIGNATURE, "");
    let element = Element { package, id: 0, name, signature, property, local: Some(local) };
    let package = leak(PackageData { jams: leak([leak(element)]), ..*package });
    let mut receiver = Receiver::new(CHUNKS);
    receiver.locals = Locals::of(&[package]);
    let handle = receiver.handle(&Digest::of(&blob), true);
    assert!(handles::is_local(handle));
    (leak(receiver), handles::word(handle, 5))
}

/// Has the call with this word add 4 to a property of 2.
fn run(running: &mut Running, word: u64) -> Result<u64, Failure> {
    let (context, mut property) = (running.context(5), 2);
    let (args, mut reply) = ([4, 0], [0; 2]);
    let mut call = call_of(&context, &mut property, &args, &[], &mut reply);
    let ended = match running.again(word) {
        // SAFETY: the Local Functions of this file take such calls, and `SIGNATURE` was compared.
        Some(again) => unsafe { again.run(&mut call) },
        // SAFETY: the Local Functions of this file take such calls.
        None => unsafe { running.run(word, SIGNATURE, &mut call) },
    };
    ended.map_err(|failure| *failure)?;
    Ok(reply[0])
}

/// Calls one after another share what the first has found: not its imports, if those have changed.
#[test]
fn a_local_function_behind_itself_calls_what_was_loaded_in_between() {
    let import = leak(LocalImport::new("receiver_test_add", add_signature(), &ADD));
    let local = LocalFunction { entry: adds, imports: leak([import]) };
    let (receiver, word) = receiver_of(sum(), local);
    let mut running = Running::at(receiver);
    for _ in 0..3 {
        assert_eq!(run(&mut running, word), Ok(6));
        assert!(running.again(word).is_some());
        let layer = double(receiver);
        for _ in 0..2 {
            assert_eq!(run(&mut running, word), Ok(8), "it was overridden");
        }
        receiver.symbols().remove_layer(layer);
    }
    assert_eq!(run(&mut running, word), Ok(6));
    receiver.gatekeeper.set(Policy::Nothing);
    assert!(matches!(refusal(run(&mut running, word)), Refusal::Policy { .. }));
}

/// Programs that were built from other code have other functions in the places of their tables.
#[test]
fn a_handle_of_a_local_function_of_another_program_runs_none() {
    let local = LocalFunction { entry: sums, imports: &[] };
    let (_, others) = receiver_of(import(), local);
    let (receiver, word) = receiver_of(sum(), local);
    assert_eq!(handles::local_place(others), handles::local_place(word));
    let run = |word| run(&mut Running::at(receiver), word);
    assert_eq!(run(word), Ok(6));
    assert_eq!(refusal(run(others)), Refusal::NotLocal);
    for bit in (0..10).chain(11..56) {
        assert_eq!(refusal(run(word ^ 1 << bit)), Refusal::NotLocal, "bit {bit}");
    }
}
