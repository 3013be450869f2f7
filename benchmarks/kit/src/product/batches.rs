//! Batches of other kinds than [`ONE_REQUEST`](super::single_thread::ONE_REQUEST), stepped through by
//! the counter: requests with an argument, encoded ones, calls of plain bytes, two kinds in turn, one request
//! alone, calls of fibers that wait for them, and polls that find nothing.

use std::cell::Cell;
use std::hint::black_box;
use std::num::NonZero;
use std::rc::Rc;

use fiber::{Config, Scheduler, spawn_local};
use gossamer::{DelegateError, Trust, local_trustee};
use trust_core::{EnteredNode, Node, PlainCall, Registered};

use super::poll::Trustee;
use super::single_thread::{BATCH, COUNTED_BATCHES, two_nodes};
use crate::count::{Workload, mark};
use crate::work::{Adder, Counter, Section};

/// Batches before the first that is counted.
const WARM_UP_BATCHES: u64 = 1_000;

/// Polls that the counter steps through, of each number of clients: two periods of 33, each with one poll
/// that does more.
pub const COUNTED_POLLS: u64 = 66;

/// Hosts and threads of the racks whose polls are counted.
pub const IDLE_RACKS: [(u32, u32); 3] = [(1, 16), (1, 200), (4, 256)];

thread_local! {
    static REPLIES: Cell<u64> = const { Cell::new(0) };
}

/// Full batches of requests that carry a word.
pub const ARGUMENT: Workload = Workload {
    name: "argument",
    phases: PHASES,
    run: || step_through::<Adder>(BATCH, with_argument),
};

/// Full batches of calls of plain bytes, as those of jams are: of a word, with one word in common.
pub const PLAIN_CALL: Workload = Workload {
    name: "plain-call",
    phases: PHASES,
    run: || step_through::<Adder>(BATCH, with_plain_bytes),
};

/// Requests of each batch of [`ENCODED`], for which it has room.
pub const ENCODED_BATCH: u64 = 16;

/// Batches of requests whose arguments and results are encoded.
pub const ENCODED: Workload = Workload {
    name: "encoded",
    phases: PHASES,
    run: || step_through::<Adder>(ENCODED_BATCH, encoded),
};

/// Full batches of two kinds of requests in turn.
pub const MIXED: Workload =
    Workload { name: "mixed", phases: PHASES, run: || step_through::<Counter>(BATCH, mixed) };

/// Batches of one request.
pub const LONE_REQUEST: Workload =
    Workload { name: "lone-request", phases: PHASES, run: || step_through::<Counter>(1, lone) };

/// Full batches of calls of fibers, each of which waits for its answer: the first phase has the fibers go on
/// and call again, the last one wakes them.
pub const WAITING: Workload = Workload { name: "waiting", phases: PHASES, run: waiting };

/// Polls of a trustee whose clients ask nothing, by number of clients.
pub const IDLE_POLL: Workload = Workload {
    name: "idle-poll",
    phases: &["15 clients", "199 clients", "1023 clients"],
    run: idle,
};

const PHASES: &[&str] = &["enqueue", "serve", "reap"];

fn note(answer: u64) {
    REPLIES.set(REPLIES.get().wrapping_add(answer));
}

fn with_argument(sum: &Trust<Adder>) {
    for seed in 0..BATCH {
        sum.apply_with_then(|sum, seed| sum.run(seed), seed, note);
    }
}

fn encoded(sum: &Trust<Adder>) {
    for seed in 0..ENCODED_BATCH {
        let pair = (seed, !seed);
        sum.apply_with_then(
            |sum, (a, b)| (sum.run(a), b),
            pair,
            |(answer, b): (u64, u64)| {
                note(answer ^ b);
            },
        );
    }
}

/// Adds the word that its bytes are.
struct Add;

impl PlainCall<Adder> for Add {
    const BYTES: Option<usize> = Some(8);
    type Run = ();
    type Reply = u64;
    type Error = String;

    #[inline(always)]
    fn serve(_: &mut (), sum: &mut Adder, _: u64, bytes: &[u8]) -> Result<u64, String> {
        let seed = bytes.first_chunk().ok_or("eight bytes")?;
        Ok(sum.run(u64::from_le_bytes(*seed)))
    }
}

fn with_plain_bytes(sum: &Trust<Adder>) {
    const NAME: NonZero<usize> = NonZero::<usize>::MIN;
    type Ended = Result<Result<u64, String>, DelegateError>;
    let then = |ended: Ended| {
        if let Ok(Ok(answer)) = ended {
            note(answer);
        }
    };
    for seed in 0..BATCH {
        let bytes = seed.to_le_bytes();
        if let Err(then) = sum.plain_call_again::<Add, _>(NAME, &bytes, then) {
            let sent = sum.plain_call_then::<Add, _>((7, Some(NAME)), &bytes, &[], then);
            assert!(sent.is_ok(), "it is of another thread");
        }
    }
}

fn lone(counter: &Trust<Counter>) {
    counter.apply_then(|counter| counter.run(0), note);
}

fn mixed(counter: &Trust<Counter>) {
    for _ in 0..BATCH / 2 {
        counter.apply_then(|counter| counter.run(0), note);
        counter
            .apply_then(|counter| counter.run(0) ^ 1, |answer| REPLIES.set(REPLIES.get() ^ answer));
    }
}

/// Has `fill` send batches of `requests` requests, and marks the phases of each.
fn step_through<T: Section>(requests: u64, fill: impl Fn(&Trust<T>)) {
    let (_registered, client, trustee): (Registered, _, _) = two_nodes().expect("two nodes");
    let property = {
        let _entered = Node::enter(trustee.clone());
        local_trustee().entrust(T::fresh())
    };
    let batch = || {
        on::<0>(&client, |node| {
            fill(&property);
            node.poll();
        });
        on::<1>(&trustee, |node| _ = node.poll());
        on::<2>(&client, |node| _ = node.poll());
    };
    (0..WARM_UP_BATCHES).for_each(|_| batch());
    mark::begin();
    (0..COUNTED_BATCHES).for_each(|_| batch());
    mark::end();
    let _entered = Node::enter(trustee);
    let served = property.apply(|property| property.runs());
    assert_eq!(served, (WARM_UP_BATCHES + COUNTED_BATCHES) * requests, "every batch was served");
    drop(property);
}

/// Has the thread of `node` act, as a phase.
#[inline(always)]
fn on<const PHASE: u16>(node: &Rc<Node>, act: impl FnOnce(&EnteredNode)) {
    let entered = Node::enter(node.clone());
    mark::phase::<PHASE>();
    act(&entered);
    mark::pause();
}

fn waiting() {
    let (_registered, client, trustee): (Registered, _, _) = two_nodes().expect("two nodes");
    let scheduler = Scheduler::new(Config::default()).expect("a scheduler");
    let property = {
        let _entered = Node::enter(trustee.clone());
        Rc::new(local_trustee().entrust(Counter::fresh()))
    };
    scheduler.enter(|| {
        for _ in 0..BATCH {
            let property = property.clone();
            spawn_local(move || {
                loop {
                    black_box(property.apply(|counter| counter.run(0)));
                }
            });
        }
    });
    let batch = || {
        scheduler.enter(|| {
            on::<0>(&client, |node| {
                scheduler.run(usize::MAX);
                node.poll();
            });
        });
        on::<1>(&trustee, |node| _ = node.poll());
        scheduler.enter(|| on::<2>(&client, |node| _ = node.poll()));
    };
    (0..WARM_UP_BATCHES).for_each(|_| batch());
    mark::begin();
    (0..COUNTED_BATCHES).for_each(|_| batch());
    mark::end();
    {
        // Their calls have ended, so that the fibers can be unwound.
        let _entered = Node::enter(client);
        scheduler.abandon();
    }
    let _entered = Node::enter(trustee);
    let served = property.apply(|property| property.runs());
    assert_eq!(served, (WARM_UP_BATCHES + COUNTED_BATCHES) * BATCH, "every batch was served");
    drop(property);
}

fn idle() {
    let trustees = IDLE_RACKS.map(|(hosts, threads)| Trustee::new(hosts, threads).expect("a rack"));
    let [few, many, most] = &trustees;
    let enter = |trustee: &Trustee| Node::enter(trustee.node.clone());
    for trustee in &trustees {
        let node = enter(trustee);
        (0..WARM_UP_BATCHES).for_each(|_| assert!(!node.poll(), "no client sends"));
    }
    mark::begin();
    polls::<0>(&enter(few));
    polls::<1>(&enter(many));
    polls::<2>(&enter(most));
    mark::end();
}

/// Polls of `node`, as a phase.
#[inline(always)]
fn polls<const PHASE: u16>(node: &EnteredNode) {
    mark::phase::<PHASE>();
    (0..COUNTED_POLLS).for_each(|_| _ = node.poll());
    mark::pause();
}
