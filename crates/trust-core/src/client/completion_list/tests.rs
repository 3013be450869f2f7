//! Tests of the list of completions.

use std::cell::RefCell;
use std::rc::Rc;

use primitive::sync::Ordering;

use super::*;
use crate::error::DelegateError;
use crate::wire::words::WORD;

struct Note<const N: usize>(Rc<RefCell<Vec<usize>>>, [u8; N]);
impl<const N: usize> Completion for Note<N> {
    fn complete(self, _: Outcome<'_>) {
        self.0.borrow_mut().push(N);
    }
}
#[repr(align(64))]
struct Aligned(Rc<RefCell<Vec<usize>>>);
impl Completion for Aligned {
    fn complete(self, _: Outcome<'_>) {
        self.0.borrow_mut().push(64);
    }
}
fn add<C: Completion + 'static>(to: &Completions, at: usize, request_words: usize, completion: C) {
    let room = to.room::<C>().expect("room for one more");
    to.push(room, at, request_words, completion);
}

const ERROR: DelegateError = DelegateError::NoRack(std::borrow::Cow::Borrowed("a test"));

#[test]
fn a_list_takes_as_many_as_it_may_and_runs_all_of_them() {
    for most in [BATCH_REQUESTS, 5 * BATCH_REQUESTS] {
        let log = Rc::new(RefCell::new(vec![]));
        let completions = Completions::new(most);
        while completions.room::<Note<0>>().is_some() {
            add(&completions, 8, 0, Note(log.clone(), []));
        }
        assert_eq!((completions.len(), completions.count()), (most, most));
        drop(completions);
        assert_eq!(log.borrow().len(), most);
    }
}

#[test]
fn completions_of_all_shapes_run_in_order_and_once() {
    let log = Rc::new(RefCell::new(vec![]));
    let completions = Completions::default();
    add(&completions, 8, 0, Note(log.clone(), [0; 0]));
    add(&completions, 24, 1, Note(log.clone(), [0; 9]));
    add(&completions, 40, 2, Aligned(log.clone()));
    add(&completions, 56, 3, Note(log.clone(), [0; 300]));
    assert_eq!(completions.len(), 4);
    for at in [8, 24, 40, 56] {
        let next = completions.next().expect("one more");
        assert_eq!(next.at, at);
        completions.run(next, Outcome::Failed(&ERROR));
    }
    assert!(completions.next().is_none());
    assert_eq!(completions.len(), 0);
    completions.clear();
    assert_eq!(*log.borrow(), [0, 9, 64, 300]);
    add(&completions, 8, 0, Note(log.clone(), [0; 1]));
    drop(completions);
    assert_eq!(*log.borrow(), [0, 9, 64, 300, 1], "the rest completes with the failure");
    assert_eq!(Rc::strong_count(&log), 1, "nothing is leaked");
}

/// Notes the word of its result, and panics if that is 13.
struct Value<const N: usize>(Rc<RefCell<Vec<(usize, u64)>>>);
impl<const N: usize> Completion for Value<N> {
    fn complete(self, outcome: Outcome<'_>) {
        let word = outcome.at_hand().expect("a result in its place");
        self.0.borrow_mut().push((N, word));
        assert_ne!(word, 13, "on purpose");
    }
}

#[test]
fn results_in_place_reach_their_completions_one_by_one_and_in_runs() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let trustee = ThreadId { host: transport_api::HostId(0), thread: 0 };
    let (pair, log) = (SharedBytes::heap(128), Rc::new(RefCell::new(vec![])));
    let expected =
        [(1, 10), (2, 11), (1, 12), (1, 13), (1, 14), (2, 13), (1, 16), (2, 17), (2, 18)];
    let completions = Completions::default();
    for (at, (kind, word)) in expected.into_iter().enumerate() {
        pair.store(at * WORD, word, Ordering::Relaxed);
        match kind {
            1 => add(&completions, at, 0, Value::<1>(log.clone())),
            _ => add(&completions, at, 0, Value::<2>(log.clone())),
        }
    }
    let mut panics = 0;
    loop {
        let run = || completions.run_next(|_| (), &pair, trustee);
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(true) => {}
            Ok(false) => break,
            Err(_) => panics += 1,
        }
    }
    assert_eq!((&log.borrow()[..], panics), (&expected[..], 2));
    completions.clear();
    assert_eq!(Rc::strong_count(&log), 1, "each is taken once");
}

#[test]
fn a_completion_of_a_run_finds_none_of_the_others_to_take() {
    struct Looks(Rc<Completions>, Rc<RefCell<Vec<usize>>>);
    impl Completion for Looks {
        fn complete(self, _: Outcome<'_>) {
            assert!(self.0.next().is_none(), "the run is under way");
            self.1.borrow_mut().push(self.0.len());
        }
    }
    let trustee = ThreadId { host: transport_api::HostId(0), thread: 0 };
    let (list, log) = (Rc::new(Completions::default()), Rc::default());
    for at in 0..3 {
        add(&list, at, 0, Looks(list.clone(), Rc::clone(&log)));
    }
    assert!(list.run_next(|_| (), &SharedBytes::heap(64), trustee));
    assert_eq!((&log.borrow()[..], list.len()), (&[0; 3][..], 0));
}

#[test]
fn a_list_that_is_moved_leaves_an_empty_one() {
    let log = Rc::new(RefCell::new(vec![]));
    let [filling, in_flight] = [(); 2].map(|()| Completions::default());
    for round in 1..4 {
        add(&filling, 8, 0, Note(log.clone(), [0; 0]));
        add(&filling, 9, 0, Note(log.clone(), [0; 90]));
        filling.move_to(&in_flight);
        assert_eq!((filling.count(), in_flight.count()), (0, 2));
        while let Some(next) = in_flight.next() {
            in_flight.run(next, Outcome::Failed(&ERROR));
        }
        in_flight.clear();
        assert_eq!(log.borrow().len(), 2 * round);
    }
}
