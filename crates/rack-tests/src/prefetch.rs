//! Calls with a hook that names the memory they will touch: when the hook is called, and that nothing
//! else depends on it.

use std::cell::RefCell;
use std::rc::Rc;

use gossamer::{DelegateError, Step, Trust};

use crate::support::wait_until;

const REQUESTS: u32 = 100;

/// Notes what it is asked for and what it served; the hook cannot change it but through a cell.
#[derive(Default)]
struct Journal {
    /// The numbers that the hook was called with, and whether for the second step.
    looks: RefCell<Vec<(u32, bool)>>,
    /// How often each had been looked at when it was served.
    served: Vec<(u32, usize)>,
}

impl Journal {
    fn look(&self, number: u32, step: Step) {
        self.looks.borrow_mut().push((number, step == Step::Second));
    }

    fn serve(&mut self, number: u32) -> u32 {
        let looks = self.looks.borrow();
        let steps: Vec<_> =
            looks.iter().filter(|look| look.0 == number).map(|look| look.1).collect();
        assert!(steps.chunks(2).all(|two| two == [false, true]), "{steps:?}");
        self.served.push((number, steps.len()));
        number + 1
    }
}

/// Sends requests that come in batches, and returns their results.
fn send_all(
    mut send: impl FnMut(u32, Box<dyn FnOnce(Result<u32, DelegateError>)>),
) -> Vec<Result<u32, DelegateError>> {
    let heard = Rc::new(RefCell::new(Vec::new()));
    for number in 0..REQUESTS {
        let heard = heard.clone();
        send(number, Box::new(move |result| heard.borrow_mut().push(result)));
    }
    wait_until("all results", || heard.borrow().len() == REQUESTS as usize);
    heard.take()
}

pub fn a_hook_sees_requests_before_they_are_served() {
    for trustee in gossamer::threads() {
        let journal = trustee.entrust_with(|()| Journal::default(), ());
        // Of a word, and such that is encoded.
        let hook = |journal: &Journal, &number: &u32, step| journal.look(number, step);
        let results = send_all(|number, then| {
            journal.with_prefetch(hook).try_apply_with_then(|j, n| j.serve(n), number, then);
        });
        let hook = |journal: &Journal, text: &String, step| {
            journal.look(text.len() as u32, step);
        };
        let others = send_all(|number, then| {
            journal.with_prefetch(hook).try_apply_with_then(
                |journal, text| journal.serve(text.len() as u32) - 200,
                "x".repeat(200 + number as usize),
                then,
            );
        });
        for results in [results, others] {
            let results = results.into_iter().map(Result::unwrap);
            assert!(results.eq(1..=REQUESTS));
        }
        let served = journal.apply(|journal| std::mem::take(&mut journal.served));
        assert!(served.iter().map(|one| one.0).eq((0..REQUESTS).chain(200..200 + REQUESTS)));
        // A batch has at least some of them; on the own thread a call that does not wait runs at once.
        let looked_at = served.iter().filter(|one| one.1 == 2).count();
        assert!(journal.is_local() == (looked_at == 0), "{served:?}");
    }
}

pub fn others_run_while_a_call_on_the_own_thread_waits_for_memory() {
    let journal = gossamer::local_trustee().entrust(Journal::default());
    let hook = |journal: &Journal, &number: &u32, step| journal.look(number, step);
    let journal = Rc::new(journal);
    let fibers: Vec<_> = (0..4)
        .map(|number| {
            let journal = journal.clone();
            fiber::spawn_local(move || {
                journal.with_prefetch(hook).apply_with(|j, n| j.serve(n), number)
            })
        })
        .collect();
    let results = fibers.into_iter().map(|fiber| fiber.join().unwrap());
    assert!(results.eq(1..=4));
    let (looks, served) = journal.apply(|j| (j.looks.take(), std::mem::take(&mut j.served)));
    let steps = [false, true].map(|step| (0..4).map(move |number| (number, step)));
    assert!(looks.iter().copied().eq(steps.into_iter().flatten()), "{looks:?}");
    assert!(served.into_iter().eq((0..4).map(|number| (number, 2))));
    let text = gossamer::local_trustee().entrust("text".to_owned());
    let hook = |text: &String, _: &usize, _| gossamer::prefetch(text.as_str());
    let seen = text.with_prefetch(hook).apply_ref_with(
        |text, at| Some(&text[at..]),
        2usize,
        |text| text == Some("xt"),
    );
    assert!(seen);
}

/// The requests after one that panics have been taken out of the slot already.
pub fn panics_beside_a_hook_are_those_of_their_calls() {
    for trustee in gossamer::threads() {
        let sum = trustee.entrust_with(|()| 0u32, ());
        let companion = trustee.entrust_with(|()| 7u32, ());
        // With trusts, which are counted once however often a request is looked at.
        let results = send_all(|number, then| {
            let hook = |_: &u32, (_, number): &(Option<Trust<u32>>, u32), _| {
                assert!(number % 16 != 3, "a hook that panics");
            };
            let companion = number.is_multiple_of(7).then(|| companion.clone());
            sum.with_prefetch(hook).try_apply_with_then(
                |sum, (companion, number)| {
                    *sum += 1;
                    drop(companion);
                    assert!(number % 5 != 1, "fell at {number}");
                    number
                },
                (companion, number),
                then,
            );
        });
        for (number, result) in (0..).zip(results) {
            match result {
                Ok(result) => assert!(result == number && number % 5 != 1),
                Err(DelegateError::Panicked { report, .. }) => {
                    assert!(report.to_string().contains(&format!("fell at {number}")), "{report}");
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(sum.apply(|sum| *sum), REQUESTS, "each was served once");
        assert_eq!(companion.apply(|companion| *companion), 7);
    }
}
