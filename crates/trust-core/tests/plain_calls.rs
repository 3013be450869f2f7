//! Calls of plain bytes between two threads: bytes of every length arrive as they were, results and
//! errors come back, in order with all other calls. Each test runs over mapped memory, and over memory
//! that is mapped nowhere, where batches have checksums and arrive piece by piece.
#![cfg(not(loom))]

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use gossamer_trust_core::{
    DelegateError, EnteredNode, Incident, Node, PlainCall, PlainCalls, Trust, Wiring,
    local_trustee, served,
};
use primitive::limits::MESSAGE_BYTES;
use transport_api::Transport;
use transport_shm::ShmTransport;

/// What calls were served with.
type Log = Vec<(u64, Vec<u8>)>;

/// Notes its arguments. The result is the word, and how many such calls have stood one after another.
struct Note<const BYTES: usize>;

impl<const BYTES: usize> PlainCall<Log> for Note<BYTES> {
    const BYTES: Option<usize> = if BYTES == 0 { None } else { Some(BYTES) };
    type Run = u64;
    type Reply = [u64; 3];
    type Error = (String, Option<Trust<Log>>);

    fn serve(
        run: &mut u64,
        log: &mut Log,
        word: u64,
        bytes: &[u8],
    ) -> Result<[u64; 3], Self::Error> {
        assert_eq!(bytes.as_ptr().addr() % 16, 0);
        assert!(served::<String>().is_none(), "the property is of another type");
        match word {
            13 => Err(("unlucky".to_owned(), served())),
            14 => panic!("fell over"),
            _ => {
                *run += 1;
                log.push((word, bytes.to_vec()));
                Ok([word, *run, bytes.len() as u64])
            }
        }
    }
}

/// How two threads reach each other's memory.
type Memory = fn(Arc<ShmTransport>) -> Arc<dyn Transport>;

macro_rules! over_mapped_and_unmapped_memory {
    ($($test:ident,)*) => {
        mod mapped {
            $(#[test]
            fn $test() {
                super::$test(|threads| threads);
            })*
        }
        mod unmapped {
            $(#[test]
            fn $test() {
                super::$test(|threads| transport_api::conformance::Altered::unmapped(threads));
            })*
        }
    };
}

over_mapped_and_unmapped_memory! {
    bytes_of_every_length_arrive_in_order,
    calls_of_so_many_bytes_run_behind_each_other,
    a_word_that_comes_again_belongs_to_each_of_its_calls,
    errors_and_panics_come_back_for_their_calls,
    errors_and_panics_of_a_word_that_comes_again_come_back_for_their_calls,
    each_call_of_a_run_has_its_own_end,
    errors_that_are_larger_than_a_batch_come_back_for_their_calls,
    a_panic_after_the_last_call_of_a_run_is_of_no_request,
    a_run_that_miscounts_its_calls_panics,
    a_call_with_the_key_of_the_one_before_has_its_word,
    a_call_of_more_bytes_than_a_message_has_is_an_error,
    calls_under_way_end_when_the_node_closes,
    a_property_of_the_own_thread_is_left_to_the_caller,
}

/// Runs `test` on a thread with a log on another, which serves it.
fn with_log(memory: Memory, test: impl FnOnce(&EnteredNode, &Trust<Log>)) {
    drop(incidents_with_log(memory, test));
}

/// As [`with_log`]; the incidents of the thread that serves.
fn incidents_with_log(
    memory: Memory,
    test: impl FnOnce(&EnteredNode, &Trust<Log>),
) -> Vec<Incident> {
    let transport = memory(ShmTransport::threads(2).expect("a rack"));
    let wiring = Wiring::connect(transport, 0, Duration::from_secs(10)).expect("a wired rack");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        let (wiring, is_over) = (&wiring, &is_over);
        let trustee = scope.spawn(move || {
            let node = Node::enter(wiring.node(1).expect("a node"));
            sender.send(local_trustee().entrust(Log::new())).expect("a receiver");
            while !is_over.load(SeqCst) {
                node.poll();
                node.poll_lanes();
                thread::yield_now();
            }
            node.close();
            node.clear();
            node.take_incidents()
        });
        let node = Node::enter(wiring.node(0).expect("a node"));
        let log = receiver.recv().expect("a trust");
        // Also if the test panics: the other thread would serve for ever.
        let over = SetAtEnd(is_over);
        test(&node, &log);
        node.close();
        drop(log);
        drop(over);
        trustee.join().expect("it serves to the end")
    })
}

struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Polls until `is_done`.
fn poll(node: &EnteredNode, is_done: impl Fn() -> bool) {
    while !is_done() {
        node.poll();
        node.poll_lanes();
        thread::yield_now();
    }
}

/// How a call ends at the sender.
type FullResult = Result<Result<[u64; 3], (String, Option<Trust<Log>>)>, DelegateError>;

type Ended = Result<Result<[u64; 3], String>, String>;

/// Makes a call, whose end goes to the list.
fn call<const BYTES: usize>(
    log: &Trust<Log>,
    word: u64,
    (head, tails): (&[u8], &[&[u8]]),
    ended: &Rc<RefCell<Vec<Ended>>>,
) {
    let ended = ended.clone();
    let note = move |result: FullResult| {
        let result = result.map(|result| {
            result.map_err(|(text, trust)| {
                // It is a trust of the same property.
                trust.expect("a trust").apply_then(|log| log.push((0, vec![])), |()| ());
                text
            })
        });
        ended.borrow_mut().push(result.map_err(|error| error.to_string()));
    };
    assert!(log.plain_call_then::<Note<BYTES>, _>((word, None), head, tails, note).is_ok());
}

fn bytes_of_every_length_arrive_in_order(memory: Memory) {
    with_log(memory, |node, log| {
        let ended = Rc::new(RefCell::new(Vec::new()));
        let bytes: Vec<u8> = (0..20_000).map(|at| at as u8 ^ (at >> 8) as u8).collect();
        let lens = [0, 1, 7, 8, 9, 100, 127, 128, 129, 1000, 8000, 8176, 8190, 8200, 20_000];
        let mut expected = Vec::new();
        for (number, len) in (100..).zip(lens.into_iter().cycle().take(90)) {
            let (head, tail) = (&bytes[..number as usize % 3 * 8], &bytes[..len]);
            let last: &[u8] = if number % 2 == 0 { &[1, 2, 3] } else { &[] };
            call::<0>(log, number, (head, &[tail, last]), &ended);
            let mut sent = [head, tail].concat();
            sent.resize(
                if last.is_empty() { sent.len() } else { sent.len().next_multiple_of(8) },
                0,
            );
            expected.push((number, [&sent, last].concat()));
        }
        poll(node, || ended.borrow().len() == expected.len());
        for (ended, (number, bytes)) in ended.take().into_iter().zip(&expected) {
            let [word, _, len] = ended.unwrap().unwrap();
            assert!(word == *number && len as usize >= bytes.len());
        }
        let served = Rc::new(RefCell::new(Vec::new()));
        let taken = served.clone();
        log.apply_then(std::mem::take, move |log| *taken.borrow_mut() = log);
        poll(node, || !served.borrow().is_empty());
        let served = served.take();
        assert_eq!(served.len(), expected.len());
        for ((word, got), (number, sent)) in served.iter().zip(&expected) {
            assert_eq!((*word, &got[..sent.len()]), (*number, &sent[..]));
            assert!(got.len() < sent.len() + 24, "whole words, and at least those of the result");
        }
    });
}

fn calls_of_so_many_bytes_run_behind_each_other(memory: Memory) {
    with_log(memory, |node, log| {
        let ended = Rc::new(RefCell::new(Vec::new()));
        for word in 100..140 {
            call::<11>(log, word, (&[word as u8; 11], &[]), &ended);
        }
        poll(node, || ended.borrow().len() == 40);
        let ended = ended.take().into_iter().map(|ended| ended.unwrap().unwrap());
        let (words, runs): (Vec<_>, Vec<_>) =
            ended.map(|[word, run, len]| ((word, len), run)).unzip();
        assert_eq!(words, (100..140).map(|word| (word, 11)).collect::<Vec<_>>());
        assert!(runs.iter().max() > Some(&1), "a batch has several: {runs:?}");
    });
}

fn a_word_that_comes_again_belongs_to_each_of_its_calls(memory: Memory) {
    with_log(memory, |node, log| {
        let ended = Rc::new(RefCell::new(Vec::new()));
        let words = [5, 5, 5, 7, 7, 5, 0, 0, 5, 13, 13, 5, 5, 14, 14, 5, 9, 5, 5];
        let bytes = |at: usize, len| vec![at as u8; len];
        let mut expected = Vec::new();
        for round in 0..200 {
            // Rounds of few calls, too, after which a batch may end anywhere.
            for (at, word) in words.into_iter().enumerate().take(1 + round % words.len()) {
                let len = match (at + round) % 7 {
                    0 | 1 => 8,
                    2 | 3 => 11,
                    4 => 9000,
                    _ => 8 * (at + 1),
                };
                let sent = bytes(at, len);
                match (at + round) % 7 {
                    0 | 1 => call::<8>(log, word, (&sent, &[]), &ended),
                    2 | 3 => call::<11>(log, word, (&sent, &[]), &ended),
                    _ => call::<0>(log, word, (&[], &[&sent]), &ended),
                }
                if (at + round) % 5 == 0 {
                    // Calls of other kinds between them, by the codec and past it.
                    log.apply_with_then(|_, text: String| text, "five".to_owned(), |_| ());
                    log.apply_with_then(|_, number: u64| number, 5, |_| ());
                }
                expected.push((word, sent));
            }
        }
        poll(node, || ended.borrow().len() == expected.len());
        for (ended, (word, _)) in ended.take().into_iter().zip(&expected) {
            match (word, ended) {
                (13, ended) => assert_eq!(ended, Ok(Err("unlucky".to_owned()))),
                (14, ended) => assert!(ended.unwrap_err().contains("fell over")),
                (_, ended) => assert_eq!(ended.unwrap().unwrap()[0], *word),
            }
        }
        let served = Rc::new(RefCell::new(Vec::new()));
        let taken = served.clone();
        log.apply_then(std::mem::take, move |log| *taken.borrow_mut() = log);
        poll(node, || !served.borrow().is_empty());
        // Without those that use the trusts which come back.
        let served = served.take().into_iter().filter(|(_, bytes)| !bytes.is_empty());
        let expected = expected.into_iter().filter(|(word, _)| !matches!(word, 13 | 14));
        for ((word, got), (number, sent)) in served.zip(expected) {
            assert_eq!((word, &got[..sent.len()]), (number, &sent[..]));
        }
    });
}

fn errors_and_panics_come_back_for_their_calls(memory: Memory) {
    with_log(memory, |node, log| {
        let ended = Rc::new(RefCell::new(Vec::new()));
        for word in [1, 13, 2, 14, 13, 3] {
            call::<8>(log, word, (&[7; 8], &[]), &ended);
        }
        poll(node, || ended.borrow().len() == 6);
        let ended = ended.take();
        let words = [0, 2, 5].map(|at: usize| ended[at].as_ref().unwrap().as_ref().unwrap()[0]);
        assert_eq!(words, [1, 2, 3]);
        for at in [1, 4] {
            assert_eq!(ended[at], Ok(Err("unlucky".to_owned())));
        }
        assert!(ended[3].as_ref().unwrap_err().contains("fell over"), "{:?}", ended[3]);
        let noted = Rc::new(RefCell::new(0));
        let count = noted.clone();
        log.apply_then(|log| log.len() as u64, move |len| *count.borrow_mut() = len);
        poll(node, || *noted.borrow() > 0);
        assert_eq!(*noted.borrow(), 5, "two of the trusts that came back were used");
    });
}

/// Those with the word of the call before are of a run.
fn errors_and_panics_of_a_word_that_comes_again_come_back_for_their_calls(memory: Memory) {
    with_log(memory, |node, log| {
        let ended = Rc::new(RefCell::new(Vec::new()));
        for word in [13, 13, 13, 1, 1, 14, 14, 14, 2, 2] {
            call::<8>(log, word, (&[7; 8], &[]), &ended);
        }
        poll(node, || ended.borrow().len() == 10);
        let ended = ended.take();
        for (at, word) in [(3, 1), (4, 1), (8, 2), (9, 2)] {
            assert_eq!(ended[at].as_ref().unwrap().as_ref().unwrap()[0], word, "call {at}");
        }
        for failed in &ended[..3] {
            assert_eq!(*failed, Ok(Err("unlucky".to_owned())));
        }
        for panicked in &ended[5..8] {
            assert!(panicked.as_ref().unwrap_err().contains("fell over"), "{panicked:?}");
        }
    });
}

/// The key of a word stands for it until a call has another word, or goes by the codec; in later batches, too.
fn a_call_with_the_key_of_the_one_before_has_its_word(memory: Memory) {
    with_log(memory, |node, log| {
        let ended = Rc::new(RefCell::new(Vec::new()));
        let end = || {
            let ended = ended.clone();
            move |result: FullResult| ended.borrow_mut().push(result.unwrap().unwrap()[0])
        };
        let [five, seven] = [8, 16].map(|key: usize| std::num::NonZero::new(key).unwrap());
        let entrusted = Rc::new(RefCell::new(None));
        let noted = entrusted.clone();
        let note = move |other: Trust<Log>| *noted.borrow_mut() = Some(other);
        log.apply_then(|_| local_trustee().entrust(Log::new()), note);
        poll(node, || entrusted.borrow().is_some());
        let other = entrusted.take().unwrap();
        let first = |word, key| {
            assert!(log.plain_call_then::<Note<11>, _>((word, key), &[1; 11], &[], end()).is_ok());
        };
        let again = |key| log.plain_call_again::<Note<11>, _>(key, &[2; 11], end());
        assert!(again(five).is_err(), "there is no call before");
        first(5, Some(five));
        assert!(again(five).is_ok() && again(five).is_ok() && again(seven).is_err());
        log.apply_with_then(|_, number: u64| number, 5, |_| ());
        assert!(again(five).is_ok(), "a word of the codec is no word of a call");
        // The run of five is open when the call of seven comes.
        assert!(again(five).is_ok() && again(five).is_ok());
        first(7, Some(seven));
        assert!(again(five).is_err() && again(seven).is_ok());
        first(7, None);
        assert!(again(seven).is_ok(), "it is the word that has the key");
        first(5, None);
        assert!(again(seven).is_err() && again(five).is_err(), "the last word has no key");
        first(5, Some(five));
        let of_other = other.plain_call_again::<Note<11>, _>(five, &[2; 11], end());
        assert!(of_other.is_err(), "it is the key of a word of another property");
        log.apply_with_then(|_, text: String| text, "five".to_owned(), |_| ());
        assert!(again(five).is_err(), "a call by the codec may be what replaces the word");
        first(5, Some(five));
        for _ in 0..60 {
            assert!(again(five).is_ok(), "more than a batch has");
        }
        poll(node, || ended.borrow().len() == 73);
        assert!(again(five).is_ok(), "in a batch of its own");
        poll(node, || ended.borrow().len() == 74);
        let ended = ended.take();
        assert_eq!(ended[..13], [5, 5, 5, 5, 5, 5, 7, 7, 7, 7, 5, 5, 5]);
        assert!(ended[13..].iter().all(|word| *word == 5), "{ended:?}");
    });
}

/// A call of twelve bytes, the first of which says how it ends. The result is the sum of the others, and
/// how many calls of the run have ended before.
struct Picky;

const FAILS: u8 = 1;
const PANICS: u8 = 2;

impl PlainCall<Log> for Picky {
    const BYTES: Option<usize> = Some(12);
    type Run = u64;
    type Reply = [u64; 2];
    type Error = String;

    fn serve(run: &mut u64, _: &mut Log, _: u64, bytes: &[u8]) -> Result<[u64; 2], String> {
        match bytes[0] {
            FAILS => return Err(format!("fails with {bytes:?}")),
            PANICS => panic!("panics with {bytes:?}"),
            _ => {}
        }
        *run += 1;
        Ok([bytes[1..].iter().map(|byte| u64::from(*byte)).sum(), *run])
    }
}

/// Calls that a trustee serves as one run: each has its own result, and one that fails or panics does not
/// keep those after it from being served.
fn each_call_of_a_run_has_its_own_end(memory: Memory) {
    with_log(memory, |node, log| {
        let ended = Rc::new(RefCell::new(Vec::new()));
        let sent: Vec<[u8; 12]> = (0..300)
            .map(|call: u32| std::array::from_fn(|at| (call as usize * 7 + at * 31) as u8 % 251))
            .collect();
        for bytes in &sent {
            let ended = ended.clone();
            let note = move |end: Result<Result<[u64; 2], String>, DelegateError>| {
                ended.borrow_mut().push(end.map_err(|error| error.to_string()));
            };
            assert!(log.plain_call_then::<Picky, _>((7, None), bytes, &[], note).is_ok());
        }
        poll(node, || ended.borrow().len() == sent.len());
        let mut counts = [0; 3];
        for (ended, bytes) in ended.take().into_iter().zip(&sent) {
            counts[usize::from(bytes[0].min(3)) % 3] += 1;
            match bytes[0] {
                FAILS => assert_eq!(ended, Ok(Err(format!("fails with {bytes:?}")))),
                PANICS => {
                    let error = ended.unwrap_err();
                    assert!(error.contains(&format!("panics with {bytes:?}")), "{error}");
                }
                _ => {
                    let sum: u64 = bytes[1..].iter().map(|byte| u64::from(*byte)).sum();
                    assert_eq!(ended.unwrap().unwrap()[0], sum, "{bytes:?}");
                }
            }
        }
        assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    });
}

/// Calls that fail, each with its number and so many letters that a batch has room for one of them.
struct Verbose<const BYTES: usize>;

impl<const BYTES: usize> PlainCall<Log> for Verbose<BYTES> {
    const BYTES: Option<usize> = if BYTES == 0 { None } else { Some(BYTES) };
    type Run = ();
    type Reply = u64;
    type Error = String;

    fn serve(_: &mut (), _: &mut Log, _: u64, bytes: &[u8]) -> Result<u64, String> {
        Err(format!("{bytes:?}{}", "x".repeat(40_000)))
    }
}

/// Of calls in a run, and of those with heads of their own, which are the same.
fn errors_that_are_larger_than_a_batch_come_back_for_their_calls(memory: Memory) {
    with_log(memory, |node, log| {
        let ended = Rc::new(RefCell::new(Vec::new()));
        let sent: Vec<[u8; 8]> = (0..20).map(|number| [number; 8]).collect();
        for bytes in &sent {
            let ended = ended.clone();
            let note = move |end: Result<Result<u64, String>, DelegateError>| {
                ended.borrow_mut().push(end.unwrap().unwrap_err());
            };
            let is_sent = match bytes[0] < 10 {
                true => log.plain_call_then::<Verbose<8>, _>((7, None), bytes, &[], note).is_ok(),
                false => log.plain_call_then::<Verbose<0>, _>((7, None), bytes, &[], note).is_ok(),
            };
            assert!(is_sent);
        }
        poll(node, || ended.borrow().len() == sent.len());
        for (error, bytes) in ended.take().into_iter().zip(&sent) {
            let (number, letters) = error.split_at(error.len() - 40_000);
            assert_eq!(number, format!("{bytes:?}"));
            assert!(letters.bytes().all(|letter| letter == b'x'));
        }
    });
}

/// Calls of a word, which are its result, of a kind whose runs panic after their last calls.
struct Late;

impl PlainCall<Log> for Late {
    const BYTES: Option<usize> = Some(8);
    type Run = ();
    type Reply = u64;
    type Error = String;

    fn serve(_: &mut (), _: &mut Log, _: u64, bytes: &[u8]) -> Result<u64, String> {
        Ok(u64::from_le_bytes(*bytes.first_chunk().expect("eight bytes")))
    }

    fn serve_run(
        log: &mut Log,
        word: u64,
        calls: &mut PlainCalls<'_, '_, u64>,
    ) -> Result<(), String> {
        let mut bytes = [0; 8];
        while calls.left() > 0 {
            calls.copy_arguments(&mut bytes);
            calls.end(&Self::serve(&mut (), log, word, &bytes)?);
        }
        panic!("after the last call");
    }
}

/// All calls of the run have their results, and the request after it is served: the trustee reports the
/// panic.
fn a_panic_after_the_last_call_of_a_run_is_of_no_request(memory: Memory) {
    let incidents = incidents_with_log(memory, |node, log| {
        let ended = Rc::new(RefCell::new(Vec::new()));
        for number in 0..30_u64 {
            let noted = ended.clone();
            let note = move |end: Result<Result<u64, String>, DelegateError>| {
                noted.borrow_mut().push(end.map_err(|error| error.to_string()));
            };
            let bytes = number.to_le_bytes();
            assert!(log.plain_call_then::<Late, _>((7, None), &bytes, &[], note).is_ok());
            if number % 10 == 9 {
                let noted = ended.clone();
                log.apply_with_then(
                    |_, number: u64| number,
                    100,
                    move |number| noted.borrow_mut().push(Ok(Ok(number))),
                );
            }
        }
        poll(node, || ended.borrow().len() == 33);
        let ended: Vec<u64> = ended.take().into_iter().map(|end| end.unwrap().unwrap()).collect();
        let sent = (0..30)
            .flat_map(|number| [number].into_iter().chain((number % 10 == 9).then_some(100)));
        assert_eq!(ended, sent.collect::<Vec<u64>>());
    });
    assert!(!incidents.is_empty());
    for incident in incidents {
        assert!(
            matches!(&incident, Incident::Unobserved { error: DelegateError::Panicked { report, .. }, .. }
                if report.message == "after the last call"),
            "{incident:?}"
        );
    }
}

/// Calls of a kind that does with its runs what it must not, which the word says.
struct Greedy;

const MORE_IN_PLACE: u64 = 1;
const ONE_MORE: u64 = 2;
const ARGUMENTS_OF_ONE_MORE: u64 = 3;
const FAILS_AFTER_THE_LAST: u64 = 4;
const ENDS_NONE: u64 = 5;

impl PlainCall<Log> for Greedy {
    const BYTES: Option<usize> = Some(8);
    type Run = ();
    type Reply = u64;
    type Error = String;

    fn serve(_: &mut (), _: &mut Log, word: u64, _: &[u8]) -> Result<u64, String> {
        Ok(word)
    }

    fn serve_run(
        _: &mut Log,
        word: u64,
        calls: &mut PlainCalls<'_, '_, u64>,
    ) -> Result<(), String> {
        match word {
            MORE_IN_PLACE => calls.end_in_place(calls.left() + 1),
            ENDS_NONE => {}
            _ => {
                while calls.left() > 0 {
                    calls.end(&word);
                }
            }
        }
        match word {
            ONE_MORE => calls.end(&word),
            ARGUMENTS_OF_ONE_MORE => calls.copy_arguments(&mut [0; 8]),
            FAILS_AFTER_THE_LAST => return Err("too late".to_owned()),
            _ => {}
        }
        Ok(())
    }
}

/// Calls that have ended before keep their results, and the trustee reports the panic; the others end with it.
fn a_run_that_miscounts_its_calls_panics(memory: Memory) {
    let cases = [
        (MORE_IN_PLACE, false, "more calls have ended than there are"),
        (ONE_MORE, true, "there is no call left"),
        (ARGUMENTS_OF_ONE_MORE, true, "there is no call left"),
        (FAILS_AFTER_THE_LAST, true, "failed after the last call"),
        (ENDS_NONE, false, "ended no call"),
    ];
    for (word, have_results, message) in cases {
        let incidents = incidents_with_log(memory, |node, log| {
            let ended = Rc::new(RefCell::new(Vec::new()));
            for _ in 0..10 {
                let noted = ended.clone();
                let note = move |end: Result<Result<u64, String>, DelegateError>| {
                    noted.borrow_mut().push(end.map_err(|error| error.to_string()));
                };
                assert!(log.plain_call_then::<Greedy, _>((word, None), &[1; 8], &[], note).is_ok());
            }
            poll(node, || ended.borrow().len() == 10);
            for (at, ended) in ended.take().into_iter().enumerate() {
                match (at, ended) {
                    // The first has a head of its own.
                    (0, ended) => assert_eq!(ended, Ok(Ok(word))),
                    (_, Ok(result)) => assert!(have_results && result == Ok(word), "{word}"),
                    (_, Err(error)) => assert!(!have_results && error.contains(message), "{error}"),
                }
            }
        });
        let messages = incidents.iter().filter(|incident| {
            matches!(incident, Incident::Unobserved { error: DelegateError::Panicked { report, .. }, .. }
                if report.message.contains(message))
        });
        assert_eq!(messages.count() > 0, have_results, "{word}: {incidents:?}");
    }
}

fn a_call_of_more_bytes_than_a_message_has_is_an_error(memory: Memory) {
    with_log(memory, |node, log| {
        let ended = Rc::new(RefCell::new(Vec::new()));
        let part = vec![0; MESSAGE_BYTES >> 10];
        call::<0>(log, 5, (&[1; 8], &[&part[..]; 1 << 10]), &ended);
        let error = ended.take().pop().expect("an end").unwrap_err();
        assert!(error.contains("cannot encode the arguments"), "{error}");
        call::<0>(log, 6, (&[1; 8], &[]), &ended);
        poll(node, || ended.borrow().len() == 1);
        assert_eq!(ended.take().pop().unwrap().unwrap().unwrap()[0], 6);
    });
}

fn calls_under_way_end_when_the_node_closes(memory: Memory) {
    let ended = Rc::new(RefCell::new(Vec::new()));
    with_log(memory, |node, log| {
        for _ in 0..300 {
            call::<0>(log, 5, (&[], &[&[1; 200]]), &ended);
        }
        node.close();
        assert_eq!(ended.borrow().len(), 300);
        call::<0>(log, 5, (&[], &[&[1; 200]]), &ended);
        let error = ended.borrow()[300].clone().unwrap_err();
        assert!(error.contains("the rack has ended"), "{error}");
    });
}

fn a_property_of_the_own_thread_is_left_to_the_caller(memory: Memory) {
    with_log(memory, |_, _| {
        let own = local_trustee().entrust(Log::new());
        assert!(own.plain_call::<Note<0>>(1, &[], &[]).is_none());
        let callback = |_: Result<Result<_, _>, _>| unreachable!("nothing is sent");
        assert!(own.plain_call_then::<Note<0>, _>((1, None), &[], &[], callback).is_err());
    });
}
