//! Calls that name a jam by its handle, or by its code.

use super::*;
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
    assert_eq!(wrong, Refusal::WrongEntry { wanted: 78, found: SIGNATURE });
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
    assert_eq!(wrong, Refusal::WrongEntry { wanted: 78, found: SIGNATURE });
    let layer = double(receiver);
    assert_eq!(run(&adds, &adds, SIGNATURE), Ok(8), "linked again");
    receiver.symbols().remove_layer(layer);
    assert_eq!(run(&adds, &adds, SIGNATURE), Ok(5));
    receiver.set_policy(Policy::Nothing);
    assert!(matches!(refusal(run(&adds, &adds, SIGNATURE)), Refusal::Policy { .. }));
}
