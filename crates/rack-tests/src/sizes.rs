//! Arguments and results of all sizes: in the slot, after it, and by the bulk path.

use std::cell::RefCell;
use std::rc::Rc;

use gossamer::Trustee;
use serde_bytes::ByteBuf;

use crate::support::wait_until;

/// Around every limit: words, what is encoded on the stack, what travels inside a slot, batches and
/// slots; and some far beyond, with small ones between them.
const SIZES: [usize; 26] = [
    0,
    1,
    20 << 20,
    7,
    8,
    9,
    65_536,
    15,
    16,
    17,
    70_000,
    0,
    120,
    128,
    136,
    8_184,
    8_192,
    8_193,
    1 << 20,
    3,
    16_384,
    40_000,
    0,
    65_528,
    5 << 20,
    2,
];

fn others() -> impl Iterator<Item = Trustee> {
    let me = gossamer::local_trustee().trustee();
    gossamer::threads().filter(move |trustee| *trustee != me)
}

fn payload(len: usize) -> ByteBuf {
    let mut bytes = vec![len as u8; len];
    if let [first, .., last] = &mut *bytes {
        (*first, *last) = (b'<', b'>');
    }
    ByteBuf::from(bytes)
}

fn check(bytes: &[u8], len: usize) {
    assert_eq!(bytes.len(), len);
    if let [first, middle @ .., last] = bytes {
        assert!(len < 2 || (*first, *last) == (b'<', b'>'));
        assert!(middle.iter().all(|byte| *byte == len as u8));
    }
}

pub fn arguments_of_all_sizes_keep_their_order() {
    let trustee = others().last().expect("another thread");
    let log = trustee.entrust(Vec::<usize>::new());
    for len in SIZES {
        log.apply_with_then(
            |log, (len, bytes): (usize, ByteBuf)| {
                check(&bytes, len);
                log.push(len);
            },
            (len, payload(len)),
            |()| {},
        );
    }
    assert_eq!(log.apply(|log| log.clone()), SIZES);
}

/// Every word of a request is the request's number, and so is every word of its result: one that is
/// served, or taken, before all of it is there has words of an earlier one.
pub fn batches_are_taken_whole_or_not_at_all() {
    const REQUESTS: u64 = 3000;
    for trustee in others() {
        let torn = trustee.entrust(0u64);
        let back = Rc::new(RefCell::new(0));
        for number in 0..REQUESTS {
            // From one word to more than the caches' lines that are written at a time.
            let words = vec![number; 1 + (number * 7 % 61) as usize];
            let back = back.clone();
            torn.apply_with_then(
                |torn, words: Vec<u64>| {
                    *torn += u64::from(words.iter().any(|word| *word != words[0]));
                    words
                },
                words,
                move |words| {
                    assert!(words.iter().all(|word| *word == number), "{number}: {words:?}");
                    *back.borrow_mut() += 1;
                },
            );
            // Now and then a batch that is shorter than it may be.
            if number % 11 == 0 {
                torn.apply(|_| ());
            }
        }
        assert_eq!((torn.apply(|torn| *torn), *back.borrow()), (0, REQUESTS));
    }
}

pub fn results_of_all_sizes_come_back() {
    for trustee in others() {
        // One that is far away in every rack gets the largest.
        let largest = if Some(trustee) == others().last() { usize::MAX } else { 100_000 };
        let sizes: Vec<usize> = SIZES.into_iter().filter(|len| *len <= largest).collect();
        let echo = trustee.entrust(());
        let results = Rc::new(RefCell::new(Vec::new()));
        for len in &sizes {
            let results = results.clone();
            echo.apply_with_then(
                |_, bytes: ByteBuf| bytes,
                payload(*len),
                move |bytes| {
                    check(&bytes, bytes.len());
                    results.borrow_mut().push(bytes.len());
                },
            );
        }
        for _ in 0..50 {
            // More results than find room after their requests.
            echo.apply_then(
                |_| payload(4000),
                |bytes| {
                    check(&bytes, 4000);
                },
            );
        }
        wait_until("all results", || results.borrow().len() == sizes.len());
        assert_eq!(*results.borrow(), sizes);
        let fibers: Vec<_> = [0usize, 9_000, 3, 200_000, 100]
            .into_iter()
            .map(|len| {
                let echo = echo.clone();
                gossamer::spawn(move || {
                    let back = echo.apply_with(|_, bytes: ByteBuf| bytes, payload(len));
                    check(&back, len);
                })
            })
            .collect();
        fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    }
}

/// A payload that came by the bulk path belongs to its request alone, whatever becomes of that.
pub fn bulk_requests_that_are_refused_do_not_disturb_others() {
    for trustee in others() {
        let sum = trustee.entrust(0u64);
        let fall = |_: &mut u64, _: ByteBuf| -> u64 { panic!("heavy") };
        let failures = Rc::new(RefCell::new(0));
        for i in 0..20u64 {
            let count = failures.clone();
            sum.try_apply_with_then(fall, payload(50_000), move |result| {
                *count.borrow_mut() += u32::from(result.is_err());
            });
            sum.apply_with_then(
                |sum, (n, pad): (u64, ByteBuf)| (*sum += n, pad.len()).1,
                (i, payload(9)),
                |_| {},
            );
        }
        assert_eq!(sum.apply(|sum| *sum), 190);
        assert_eq!(*failures.borrow(), 20);
    }
}
