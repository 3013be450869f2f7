//! Calls that name a jam by its handle, or by its code.

use super::*;
use crate::handles;
use crate::receiver::running::Running;

/// Has `enter` run a call with the argument 4.
fn run_with(
    receiver: &'static Receiver,
    property: &mut u64,
    enter: impl FnOnce(&mut Running, &mut Call) -> Result<(), Box<Failure>>,
) -> Result<u64, Failure> {
    let (context, args, mut reply) = (receiver.context(5), [4, 0], [0; 2]);
    let mut call = call_of(&context, property, &args, &[], &mut reply);
    enter(&mut Running::at(receiver), &mut call).map_err(|failure| *failure)?;
    Ok(reply[0])
}

#[test]
fn a_handle_finds_the_jam_that_it_was_given_for_or_none() {
    let receiver = open_receiver(CHUNKS);
    let run = |handle, signature, property: &mut u64| {
        run_with(receiver, property, |running, call| {
            // SAFETY: the jams of these files take such calls.
            unsafe { running.run(handle, signature, call) }
        })
    };
    let bytes = imports("receiver_test_add", add_signature());
    let digest = receive(receiver, &bytes).unwrap();
    let handle = receiver.handle(&digest, false);
    assert_eq!(run(handle, SIGNATURE, &mut 1), Ok(5));
    let wrong = refusal(run(handle, 78, &mut 1));
    assert_eq!(
        wrong,
        Refusal::WrongEntry { wanted: SignatureHash(78), found: SignatureHash(SIGNATURE) }
    );
    for unknown in [0, handle + 1, handle ^ 1 << 11, handle ^ 1 << 55, u64::MAX >> 8 & !(1 << 10)] {
        assert_eq!(run(unknown, SIGNATURE, &mut 1), Err(Failure::NeedCode), "{unknown:x}");
    }
    let layer = double(receiver);
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

/// Calls one after another share what the first has found, as long as that still holds.
#[test]
fn a_call_behind_another_runs_the_same_only_while_that_may_run() {
    let receiver = open_receiver(CHUNKS);
    let bytes = imports("receiver_test_add", add_signature());
    let digest = receive(receiver, &bytes).unwrap();
    let word = handles::word(receiver.handle(&digest, false), 5);
    let mut running = Running::at(receiver);
    let context = receiver.context(5);
    let run = |running: &mut Running, word| {
        let (mut property, args, mut reply) = (1, [4, 0], [0; 2]);
        let mut call = call_of(&context, &mut property, &args, &[], &mut reply);
        // SAFETY: the jams of these files take such calls.
        unsafe { running.run(word, SIGNATURE, &mut call) }.map_err(|failure| *failure)?;
        Ok(reply[0])
    };
    let run_again = |running: &Running, word| {
        let again = running.again(word)?;
        let (mut property, args, mut reply) = (2, [4, 0], [0; 2]);
        let mut call = call_of(again.context(), &mut property, &args, &[], &mut reply);
        // SAFETY: as above, and `SIGNATURE` was compared.
        unsafe { again.run(&mut call) }.expect("it runs");
        Some((reply[0], again.context().sender))
    };
    assert_eq!(run_again(&running, word), None, "nothing has run");
    assert_eq!(run(&mut running, word), Ok(5));
    assert_eq!(run_again(&running, word), Some((6, 5)));
    let of_another = handles::word(handles::of_word(word).0, 6);
    assert_eq!(run_again(&running, of_another), None, "the sender is another");
    assert_eq!(run(&mut running, of_another), Ok(5));
    assert_eq!(run_again(&running, of_another), Some((6, 6)));
    assert_eq!(run_again(&running, word), None);
    let layer = double(receiver);
    assert_eq!(run_again(&running, of_another), None, "its import is another function");
    assert_eq!(run(&mut running, word), Ok(8), "linked again");
    assert_eq!(run_again(&running, word), None, "outside meanwhile");
    // Else it would be at the process's receiver.
    running = Running::at(receiver);
    assert_eq!(run(&mut running, word), Ok(8));
    assert_eq!(run_again(&running, word), Some((8, 5)));
    receiver.symbols().remove_layer(layer);
    assert_eq!(run(&mut running, word), Ok(5));
    running = Running::at(receiver);
    assert_eq!(run(&mut running, word), Ok(5));
    assert_eq!(run_again(&running, word), Some((6, 5)));
    receiver.gatekeeper.set(Policy::Nothing);
    assert_eq!(run_again(&running, word), None, "the policy is another");
    receiver.gatekeeper.set(Policy::AnyPeer);
    assert_eq!(run_again(&running, word), Some((6, 5)));
    receiver.cache.clear();
    assert_eq!(run_again(&running, word), None, "it was evicted");
    assert_eq!(run(&mut running, word), Err(Failure::NeedCode));
}

#[test]
fn the_code_that_a_call_carries_is_what_runs() {
    let receiver = open_receiver(CHUNKS);
    let (adds, sums) =
        (imports("receiver_test_add", add_signature()), blob(sum()).encode().unwrap());
    let run = |code: &[u8], claimed: &[u8], signature| {
        let claimed = Digest::of(claimed);
        run_with(receiver, &mut 1, |running, call| {
            // SAFETY: the jams of these files take such calls.
            unsafe { running.run_with_code(&claimed, code, signature, call) }
        })
    };
    let is_forged = |ended| matches!(refusal(ended), Refusal::Digest { .. });
    assert!(is_forged(run(&sums, &adds, SIGNATURE)), "nothing is linked yet");
    assert_eq!(receiver.size().1, 0);
    for _ in 0..2 {
        assert_eq!(run(&adds, &adds, SIGNATURE), Ok(5));
        assert_eq!(receiver.size().1, 1);
    }
    let mut changed = adds.clone();
    let text = adds.windows(import().len()).position(|part| part == import()).unwrap();
    changed[text + import().len() - 1] ^= 1;
    assert!(is_forged(run(&changed, &adds, SIGNATURE)), "the digest is that of linked code");
    assert!(is_forged(run(&sums, &adds, SIGNATURE)));
    for len in 0..adds.len() {
        assert!(run(&adds[..len], &adds, SIGNATURE).is_err(), "{len} bytes of it");
    }
    assert_eq!(run(&adds, &adds, SIGNATURE), Ok(5));
    assert_eq!(run(&[&adds[..], &[0; 40]].concat(), &adds, SIGNATURE), Ok(5), "a proof behind it");
    let wrong = refusal(run(&adds, &adds, 78));
    assert_eq!(
        wrong,
        Refusal::WrongEntry { wanted: SignatureHash(78), found: SignatureHash(SIGNATURE) }
    );
    let layer = double(receiver);
    assert_eq!(run(&adds, &adds, SIGNATURE), Ok(8), "linked again");
    receiver.symbols().remove_layer(layer);
    assert_eq!(run(&adds, &adds, SIGNATURE), Ok(5));
    receiver.set_policy(Policy::Nothing);
    assert!(matches!(refusal(run(&adds, &adds, SIGNATURE)), Refusal::Policy { .. }));
}

/// A mailbox with a policy of its own has linked it: the process's calls do not run it.
#[test]
fn a_jam_that_only_a_mailbox_admits_does_not_run_by_its_handle_or_its_code() {
    let receiver = open_receiver(CHUNKS);
    receiver.set_policy(Policy::Signed);
    let bytes = imports("receiver_test_add", add_signature());
    let digest = Digest::of(&bytes);
    receiver.receive_under(Some(Policy::AnyPeer), None, &bytes, digest).unwrap();
    let handle = receiver.handle(&digest, false);
    assert_ne!(handle, 0, "it is linked");
    let by_handle = || {
        run_with(receiver, &mut 1, |running, call| {
            // SAFETY: the jams of these files take such calls.
            unsafe { running.run(handle, SIGNATURE, call) }
        })
    };
    let by_code = || {
        run_with(receiver, &mut 1, |running, call| {
            // SAFETY: the jams of these files take such calls.
            unsafe { running.run_with_code(&digest, &bytes, SIGNATURE, call) }
        })
    };
    assert_eq!(by_handle(), Err(Failure::NeedCode));
    assert!(matches!(refusal(by_code()), Refusal::Policy { .. }));
    assert_eq!(run(receiver, &digest, &mut 1, 4), Err(Failure::NeedCode), "nor by its digest");
    receiver.admit([digest]);
    assert_eq!((by_code(), by_handle()), (Ok(5), Ok(5)));
}
