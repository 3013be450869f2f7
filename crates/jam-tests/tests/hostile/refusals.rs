//! What an executor does not run, and what it runs of jams that were changed or are many.

use std::time::Duration;

use gossamer::jam::{
    Executor, ExecutorError, JamError, LoadedJam, Package, Policy, Refusal, receiver,
};
use gossamer_jam_tests::HOSTILE;

use crate::signed::{Ann, signed};
use crate::{Plain, Sum, Table, as_both, blob, executor, goes_on};

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
