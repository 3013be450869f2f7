//! Trusts in the arguments of requests that are never sent are given back, so that their properties
//! die with their last trust.
#![cfg(not(loom))]

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use fiber::{Config, Scheduler, spawn_local};
use gossamer_trust_core::{
    Deferred, DelegateError, EnteredNode, Node, PlainCall, Trust, Wiring, local_trustee,
};
use transport_shm::ShmTransport;

/// More requests than may be under way.
const MANY: usize = 500;

/// The property that arguments refer to.
struct Referred;

type Log = Vec<Vec<u8>>;

/// A client and a trustee on this thread, and a log that the trustee holds. The trustee does not poll.
fn client_and_log() -> (Wiring, Rc<Node>, Trust<Log>) {
    let transport = ShmTransport::threads(2).expect("a rack");
    let wiring = Wiring::connect(transport, 0, Duration::from_secs(10)).expect("a wired rack");
    let trustee = Node::enter(wiring.node(1).expect("a node"));
    let log = local_trustee().entrust(Log::new());
    drop(trustee);
    let client = wiring.node(0).expect("a node");
    (wiring, client, log)
}

/// Leaves no room for requests of the log's thread.
fn fill(log: &Trust<Log>) {
    for _ in 0..MANY {
        log.try_apply_then(Vec::clear, |_| {});
    }
}

/// A call with a trust, and `bytes` of arguments.
fn call_with_trust(log: &Trust<Log>, bytes: usize) {
    let arguments = (local_trustee().entrust(Referred), vec![7; bytes]);
    let push = |log: &mut Log, (_, bytes): (Trust<Referred>, Vec<u8>)| log.push(bytes);
    log.try_apply_with_then(push, arguments, |ended| assert!(ended.is_err(), "not sent"));
}

fn alive(client: &EnteredNode) -> usize {
    client.alive().len()
}

#[test]
fn a_call_that_is_withdrawn_gives_its_trusts_back() {
    let (_wiring, client, log) = client_and_log();
    let fibers = Scheduler::new(Config::default()).expect("a scheduler");
    let entered = Node::enter(client);
    fill(&log);
    let calls = fibers.enter(|| {
        spawn_local(move || {
            for bytes in [1, 100_000] {
                let arguments = (local_trustee().entrust(Referred), vec![7; bytes]);
                let push = |log: &mut Log, (_, bytes): (Trust<Referred>, Vec<u8>)| log.push(bytes);
                let ended = log.apply_with_timeout(push, arguments, Duration::ZERO);
                assert!(matches!(ended, Err(DelegateError::TimedOut { .. })), "{ended:?}");
            }
        })
    });
    while !calls.is_finished() {
        fibers.run(64);
        fibers.expire(Instant::now());
        entered.poll();
    }
    calls.join().expect("no panic");
    assert_eq!(alive(&entered), 0);
}

#[test]
fn calls_that_have_found_no_room_give_their_trusts_back_at_the_end() {
    let (_wiring, client, log) = client_and_log();
    let entered = Node::enter(client);
    fill(&log);
    [1, 100_000].into_iter().for_each(|bytes| call_with_trust(&log, bytes));
    assert_eq!(alive(&entered), 2, "the calls hold them");
    entered.close();
    assert_eq!(alive(&entered), 0);
}

#[test]
fn calls_that_come_after_the_end_give_their_trusts_back() {
    let (_wiring, client, log) = client_and_log();
    let entered = Node::enter(client);
    entered.close();
    [1, 100_000].into_iter().for_each(|bytes| call_with_trust(&log, bytes));
    assert_eq!(alive(&entered), 0);
}

thread_local! {
    /// What the trustee has not answered yet.
    static LATER: Cell<Option<Deferred<Trust<Referred>>>> = const { Cell::new(None) };
}

#[test]
fn a_later_reply_that_cannot_be_sent_gives_its_trusts_back() {
    let transport = ShmTransport::threads(2).expect("a rack");
    let wiring = Wiring::connect(transport, 0, Duration::from_secs(10)).expect("a wired rack");
    let (client, trustee) = (wiring.node(0).expect("a node"), wiring.node(1).expect("a node"));
    let entered = Node::enter(trustee.clone());
    let log = local_trustee().entrust(Log::new());
    drop(entered);
    let entered = Node::enter(client);
    let keep = |_: &mut Log, (), later: Deferred<Trust<Referred>>| LATER.set(Some(later));
    log.apply_deferred_then(keep, (), drop);
    entered.poll();
    drop(entered);
    let entered = Node::enter(trustee);
    entered.poll();
    entered.close();
    let before = alive(&entered);
    LATER.take().expect("a wait").reply(local_trustee().entrust(Referred));
    assert_eq!(alive(&entered), before);
}

struct Note;

impl PlainCall<Log> for Note {
    const BYTES: Option<usize> = None;
    type Run = ();
    type Reply = u64;
    type Error = ();

    fn serve(_: &mut (), log: &mut Log, _: u64, bytes: &[u8]) -> Result<u64, ()> {
        log.push(bytes.to_vec());
        Ok(0)
    }
}

#[test]
fn bytes_that_look_like_a_trust_drop_none() {
    let (_wiring, client, log) = client_and_log();
    let entered = Node::enter(client);
    let kept = local_trustee().entrust(Referred);
    // A message without a body and with one record: of the first property of thread 0, by the id that
    // its trust is counted by.
    let (header, record) = (1 << 44, (1u128 << 32).to_le_bytes());
    let call = || log.plain_call_then::<Note, _>((header, None), &record, &[], |_| {});
    fill(&log);
    assert!(call().is_ok());
    entered.close();
    assert!(call().is_ok());
    assert_eq!(alive(&entered), 1);
    drop(kept);
    assert_eq!(alive(&entered), 0);
}
