//! Arguments that are lent to a call: `Trust::lend`, on every thread, the caller's own included.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::LazyLock;

use gossamer::{AsView, DelegateError, Trust};
use serde::{Deserialize, Serialize};

use crate::support::panic_in;

/// What fills a request's place, the stack, the memory that threads keep, and the bulk path.
const LENGTHS: [usize; 10] = [0, 1, 24, 107, 128, 1_000, 8_100, 8_192, 20_000, 70_000];
const FIBERS: usize = 40;

/// Made once: a byte at a time takes these tests, which are not optimised, half of their time.
static BYTES: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..70_000 + SEEDS).map(|at| (at ^ at >> 8) as u8).collect());
/// A prime, more than there are fibers.
const SEEDS: usize = 1009;

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    // A stride, so that neighbours are not the same bytes, shifted by one.
    BYTES[(len ^ seed) * 101 % SEEDS..][..len].to_vec()
}

/// The results of `call`, made by many fibers at once, so that requests come in runs.
fn call_from_fibers<R: 'static>(call: impl Fn(usize) -> R + 'static) -> Vec<R> {
    let call = Rc::new(call);
    let fibers: Vec<_> = (0..FIBERS)
        .map(|number| {
            let call = call.clone();
            fiber::spawn_local(move || call(number))
        })
        .collect();
    fibers.into_iter().map(|fiber| fiber.join().unwrap()).collect()
}

pub fn lent_arguments_of_all_sizes_are_whole() {
    for trustee in gossamer::threads() {
        let log = Rc::new(trustee.entrust(Vec::<Vec<u8>>::new()));
        for len in LENGTHS {
            let results = call_from_fibers({
                let log = log.clone();
                move |seed| {
                    let (text, value) = ("text".repeat(seed), bytes(len, seed));
                    let arguments = (&*text, &*value, seed as u32);
                    let sizes = log.lend(arguments).apply(|log, (text, value, seed)| {
                        log.push(value.to_vec());
                        (text.len(), value.len(), seed)
                    });
                    let tried = log.lend(Some(&value)).try_apply(|log, value| {
                        log.push(value.unwrap().to_vec());
                    });
                    let arguments = (&value, seed);
                    let hooked = log.lend(arguments).apply_with_prefetch(
                        |log, (value, _), _| gossamer::prefetch(&log[..value.len().min(log.len())]),
                        |log, (value, seed)| {
                            log.push(value.to_vec());
                            (value.len(), seed)
                        },
                    );
                    assert!(!log.lend(true).apply(|_, flag| !flag));
                    tried.unwrap();
                    (sizes, hooked)
                }
            });
            let expected = (0..FIBERS).map(|seed| ((4 * seed, len, seed as u32), (len, seed)));
            assert!(results.into_iter().eq(expected), "{len} bytes");
            let mut seen = log.apply(std::mem::take);
            seen.sort();
            let mut expected: Vec<_> =
                (0..3 * FIBERS).map(|number| bytes(len, number / 3)).collect();
            expected.sort();
            assert!(seen == expected, "{len} bytes");
        }
    }
}

fn name_of(len: usize, seed: usize) -> String {
    format!("{len} {}", "of".repeat(seed))
}

pub fn what_lent_arguments_find_is_seen_where_it_lies() {
    for trustee in gossamer::threads() {
        let values = Rc::new(trustee.entrust(BTreeMap::<String, Vec<u8>>::new()));
        for len in LENGTHS {
            let fill = |seed| {
                let (name, value) = (name_of(len, seed), bytes(len, seed));
                values.lend((&*name, &*value)).apply(|values, (name, value)| {
                    values.insert(name.to_owned(), value.to_vec());
                });
            };
            (0..FIBERS).for_each(fill);
            let calls = values.clone();
            let results = call_from_fibers(move |seed| {
                let name = name_of(len, seed);
                let (mut plain, mut hooked) = (Vec::new(), Vec::new());
                calls.lend((&*name, 1u8)).apply_ref(
                    |values, (name, _)| values.get(name),
                    |found| plain.extend_from_slice(found.unwrap()),
                );
                let found = calls.lend(&name).apply_ref_with_prefetch(
                    |values, name, _| {
                        _ = values.get(*name).map(|value| gossamer::prefetch(&**value))
                    },
                    |values, name| values.get(name),
                    |found| found.map(|found| hooked.extend_from_slice(found)).is_some(),
                );
                let missed = calls.lend((&*name, "?")).apply_ref(
                    |values, (name, more)| values.get(&[name, more].concat()),
                    |found| found.is_none(),
                );
                assert!(found && missed);
                (plain, hooked)
            });
            let expected = (0..FIBERS).map(|seed| (bytes(len, seed), bytes(len, seed)));
            assert!(results.into_iter().eq(expected), "{len} bytes");
        }
        let found = |name: &'static str| {
            let calls = values.clone();
            panic_in(move || {
                calls.lend(name).apply_ref(
                    |values, name| {
                        assert!(name != "fall", "fell at a name");
                        values.get(name)
                    },
                    |found| assert!(found.is_some(), "a view of nothing"),
                );
            })
        };
        assert!(found("fall").contains("fell at a name"));
        assert!(found("none").contains("a view of nothing"));
        assert_eq!(values.apply(|values| values.len()), LENGTHS.len() * FIBERS);
    }
}

/// Notes which calls the hook saw and which were served.
#[derive(Default)]
struct Journal {
    looks: RefCell<Vec<usize>>,
    served: Vec<usize>,
}

pub fn a_hook_sees_lent_arguments_before_they_are_served() {
    for trustee in gossamer::threads() {
        let journal = Rc::new(trustee.entrust_with(|()| Journal::default(), ()));
        let calls = journal.clone();
        call_from_fibers(move |number| {
            calls.lend(&"x".repeat(number)).apply_with_prefetch(
                |journal, text, _| journal.looks.borrow_mut().push(text.len()),
                |journal, text| {
                    let looks = journal.looks.borrow();
                    let looks = looks.iter().filter(|looked| **looked == text.len());
                    let looks = looks.count();
                    assert!(looks == 0 || looks == 2, "{looks} looks");
                    journal.served.push(text.len());
                },
            );
        });
        let (looked, mut served) = journal.apply(|j| (j.looks.take().len(), j.served.clone()));
        served.sort_unstable();
        assert!(served.into_iter().eq(0..FIBERS));
        // Requests of other threads come in runs; on the own thread each call looks ahead.
        assert!(looked > FIBERS, "{looked} looks");
    }
}

pub fn panics_beside_lent_arguments_are_those_of_their_calls() {
    for trustee in gossamer::threads() {
        let sum = Rc::new(trustee.entrust_with(|()| 0u32, ()));
        let calls = sum.clone();
        let results = call_from_fibers(move |number| {
            let text = "x".repeat(number);
            calls.lend((&*text, number)).try_apply(|sum, (text, number)| {
                *sum += 1;
                assert!(number % 5 != 1, "fell at {}", text.len());
                number
            })
        });
        for (number, result) in results.into_iter().enumerate() {
            match result {
                Ok(result) => assert!(result == number && number % 5 != 1),
                Err(DelegateError::Panicked { report, .. }) => {
                    assert!(report.to_string().contains(&format!("fell at {number}")), "{report}");
                }
                Err(error) => panic!("{error}"),
            }
        }
        // A panic of a hook at the trustee changes nothing; a panic of the closure that follows reaches
        // the caller.
        if !sum.is_local() {
            let calls = sum.clone();
            let results = call_from_fibers(move |number| {
                let call = || {
                    calls.lend(number).apply_with_prefetch(
                        |_, number, _| assert!(number % 16 != 3, "a hook that panics"),
                        |sum, number| {
                            *sum += 1;
                            assert!(number % 7 != 2, "fell behind {number}");
                        },
                    );
                };
                if number % 7 == 2 {
                    return panic_in(call).contains(&format!("fell behind {number}"));
                }
                call();
                true
            });
            assert!(results.into_iter().all(|is_right| is_right));
        }
        let rounds = if sum.is_local() { 1 } else { 2 };
        assert_eq!(sum.apply(|sum| *sum), rounds * FIBERS as u32, "each was served once");
    }
}

/// With a trust, of which each record is taken once however often a request is looked at.
struct Order {
    name: String,
    owner: Option<Trust<u32>>,
}

#[derive(Serialize, Deserialize)]
struct OrderView<'a> {
    name: &'a str,
    owner: Option<Trust<u32>>,
}

impl AsView for Order {
    type View<'a> = OrderView<'a>;
    fn as_view(&self) -> OrderView<'_> {
        assert!(self.name != "no view", "no view of this");
        OrderView { name: &self.name, owner: self.owner.clone() }
    }
}

pub fn lent_views_carry_trusts() {
    for trustee in gossamer::threads() {
        let count = gossamer::local_trustee().entrust(0u32);
        let names = Rc::new(trustee.entrust_with(|()| Vec::<String>::new(), ()));
        let (calls, owner) = (names.clone(), count.clone());
        call_from_fibers(move |number| {
            let owner = number.is_multiple_of(3).then(|| owner.clone());
            let order = Order { name: number.to_string(), owner };
            calls.lend(&order).apply_with_prefetch(
                |_, order, _| gossamer::prefetch(order.name),
                |names, order| {
                    names.push(order.name.to_owned());
                    order.owner.inspect(|owner| owner.apply_then(|n| *n += 1, drop)).is_some()
                },
            )
        });
        assert_eq!(names.apply(|names| names.len()), FIBERS);
        crate::support::wait_until("all owners", || count.apply(|n| *n) == 14);
        let order = Order { name: "no view".to_owned(), owner: None };
        let message = panic_in(|| names.lend(&order).apply(|names, _| names.len()));
        assert!(message.contains("no view of this"), "{message}");
        assert_eq!(names.apply(|names| names.len()), FIBERS, "everything goes on");
    }
}
