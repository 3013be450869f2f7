//! Runs of requests that are the same but for their arguments: each is served and answered in its turn,
//! whatever stands between them, and however it ends.
#![cfg(not(loom))]

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use gossamer_trust_core::{DelegateError, Node, Trust, Wiring, local_trustee};
use transport_api::Transport;
use transport_api::conformance::Altered;
use transport_shm::ShmTransport;

/// What the trustee has seen, and how it answers.
#[derive(Default)]
struct Log(Vec<u64>);

impl Log {
    fn note(&mut self, number: u64) -> u64 {
        self.0.push(number);
        number * 2
    }
}

fn turn<R>(node: &Rc<Node>, act: impl FnOnce() -> R) -> R {
    let entered = Node::enter(node.clone());
    let result = act();
    entered.poll();
    result
}

/// Numbers below `bound`, always the same ones.
struct Dice(u64);
impl Dice {
    fn roll(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// The end of a call, in words.
fn said<U: std::fmt::Debug>(result: Result<U, DelegateError>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(DelegateError::Panicked { report, .. }) => format!("panic {report:?}"),
        Err(error) => format!("error {error:?}"),
    }
}

/// Makes call `number`, of one of several kinds, and returns how it ends.
fn call(
    log: &Trust<Log>,
    kind: u64,
    number: u64,
    answers: &Rc<RefCell<Vec<(u64, String)>>>,
) -> String {
    let answers = answers.clone();
    let note = move |end: String| answers.borrow_mut().push((number, end));
    match kind {
        0 => log.try_apply_with_then(|log, n: u64| log.note(n), number, move |end| note(said(end))),
        1 => log.try_apply_with_then(
            |log, n: u64| {
                assert!(log.note(n) % 5 != 0, "five");
            },
            number,
            move |end| note(said(end)),
        ),
        2 => {
            let wide = [number; 4];
            log.try_apply_with_then(
                |log, n: u32| log.note(u64::from(n)) > 100,
                number as u32,
                move |end| note(if wide == [number; 4] { said(end) } else { "moved".to_owned() }),
            );
        }
        3 => log.try_apply_with_then(
            |log, text: String| log.note(text.parse().unwrap()).to_string(),
            number.to_string(),
            move |end| note(said(end)),
        ),
        _ => log.try_apply_then(|log| log.0.len() as u64, move |end| note(said(end))),
    }
    match kind {
        0 => format!("{}", number * 2),
        1 if number.is_multiple_of(5) => "panic".to_owned(),
        1 => "()".to_owned(),
        2 => format!("{}", number * 2 > 100),
        3 => format!("\"{}\"", number * 2),
        _ => String::new(),
    }
}

/// Has a client make `calls` of random kinds, in runs of up to `longest`, over two properties.
fn every_call_ends_in_its_turn(wiring: &[&Wiring; 2], threads: [u32; 2], longest: u64) {
    const CALLS: u64 = 3_000;
    let [client, trustee] = [0, 1].map(|side| wiring[side].node(threads[side]).expect("a node"));
    let entrust = || local_trustee().entrust(Log::default());
    let logs: [Trust<Log>; 2] = turn(&trustee, || [entrust(), entrust()]);
    let (answers, mut dice) = (Rc::default(), Dice(longest));
    let (mut expected, mut seen) = (vec![], [vec![], vec![]]);
    while (expected.len() as u64) < CALLS {
        let (kind, which) = (dice.roll(5), dice.roll(2) as usize);
        let many = 1 + dice.roll(longest);
        turn(&client, || {
            for _ in 0..many {
                let number = expected.len() as u64;
                if kind < 4 {
                    seen[which].push(number);
                }
                let end = call(&logs[which], kind, number, &answers);
                let end = if kind < 4 { end } else { format!("{}", seen[which].len()) };
                expected.push((number, end));
            }
            let made = expected.len() - answers.borrow().len();
            assert!(logs[which].outstanding() >= made, "{} of {made}", logs[which].outstanding());
        });
        if dice.roll(3) > 0 {
            turn(&trustee, || ());
            turn(&client, || ());
        }
    }
    while client.traffic().unanswered > 0 {
        turn(&trustee, || ());
        turn(&client, || ());
    }
    let answers = answers.take();
    assert_eq!(answers.len(), expected.len());
    for ((number, said), (expected_number, end)) in answers.iter().zip(&expected) {
        assert_eq!(number, expected_number, "answers come in the order of the calls");
        match &end[..] {
            "panic" => assert!(said.starts_with("panic") && said.contains("five"), "{said}"),
            _ => assert_eq!(said, end, "call {number}"),
        }
    }
    turn(&trustee, || {
        for (log, seen) in logs.iter().zip(&seen) {
            assert_eq!(&log.apply(|log| std::mem::take(&mut log.0)), seen);
        }
        drop(logs);
    });
    for _ in 0..10 {
        turn(&client, || ());
        turn(&trustee, || ());
    }
}

#[test]
fn calls_in_runs_end_in_their_turn_where_memory_is_mapped() {
    for longest in [1, 2, 5, 100] {
        let rack = ShmTransport::threads(2).expect("a rack");
        let wiring = Wiring::connect(rack, 0, Duration::from_secs(10)).expect("a wired rack");
        every_call_ends_in_its_turn(&[&wiring; 2], [0, 1], longest);
    }
}

#[test]
fn calls_in_runs_end_in_their_turn_where_it_is_not() {
    let hosts = ShmTransport::in_process(2, 1).expect("a rack");
    let connecting: Vec<_> = hosts
        .into_iter()
        .map(|host| {
            let host: Arc<dyn Transport> = Altered::unmapped(host);
            std::thread::spawn(move || Wiring::connect(host, 0, Duration::from_secs(10)))
        })
        .collect();
    let wirings: Vec<_> = connecting
        .into_iter()
        .map(|wiring| wiring.join().expect("no panic").expect("a wired rack"))
        .collect();
    every_call_ends_in_its_turn(&[&wirings[0], &wirings[1]], [0, 0], 3_000);
}
