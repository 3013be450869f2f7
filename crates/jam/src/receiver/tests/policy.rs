//! Whose jams are linked and run.

use super::*;

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
        count: 1,
        done: 0,
        step: 0,
    };
    // Between the look at the policy and the look at the symbols, both change, and a mailbox with a
    // policy of its own links the jam.
    let change = |_: &Shape, _: &mut Call| {
        receiver.set_policy(Policy::Signed);
        // SAFETY: it adds no function that anything could call.
        unsafe { receiver.symbols.add_layer(&[]) };
        receiver.receive_under(Some(Policy::AnyPeer), None, &blob, digest)?;
        Ok(())
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
