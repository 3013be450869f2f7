//! Parts of properties that are seen where they lie: `apply_ref` and its relatives, on every thread, the
//! caller's own included.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use gossamer::{AsView, DelegateError, Trust};
use serde::{Deserialize, Serialize};

use crate::support::{panic_in, wait_until};

/// An item of a store, with more than bytes.
struct Item {
    flags: u32,
    data: Vec<u8>,
    /// A trust, which no view may hold.
    owner: Option<Trust<u32>>,
}

#[derive(Serialize, Deserialize)]
struct ItemView<'a> {
    flags: u32,
    data: &'a [u8],
    owner: Option<Trust<u32>>,
}

impl AsView for Item {
    type View<'a> = ItemView<'a>;
    fn as_view(&self) -> ItemView<'_> {
        assert!(self.flags < 100, "no view of {}", self.flags);
        ItemView { flags: self.flags, data: &self.data, owner: self.owner.clone() }
    }
}

type Texts = HashMap<u32, String>;

fn texts() -> Texts {
    [(1, "one".to_owned()), (2, "two".repeat(100)), (3, String::new())].into()
}

pub fn every_form_sees_the_same() {
    let heard = Rc::new(RefCell::new(Vec::new()));
    for trustee in gossamer::threads() {
        let map = trustee.entrust(texts());
        // The view may borrow what the caller has.
        let mut seen = String::new();
        assert!(map.apply_ref(|map| map.get(&1), |text| text.map(|t| seen.push_str(t)).is_some()));
        let text = "two".repeat(100);
        assert!(map.apply_ref_with(|m, key| m.get(&key), 2, |t| t.unwrap() == text));
        assert_eq!(map.try_apply_ref(|map| map.get(&3), |t| t.map(str::len)).unwrap(), Some(0));
        let nothing = map.try_apply_ref_with(|m, key| m.get(&key), 4, |t| t.map(str::len));
        assert_eq!((nothing.unwrap(), &*seen), (None, "one"));

        let note = || {
            let heard = heard.clone();
            move |text: Option<&str>| heard.borrow_mut().push(text.map(str::to_owned))
        };
        map.apply_ref_then(|map| map.get(&1), note());
        map.apply_ref_with_then(|map, key| map.get(&key).map(|text| &text[1..]), 1u32, note());
        let (note_none, note_some) = (note(), note());
        map.try_apply_ref_then(|map| map.get(&4), move |text| note_none(text.unwrap()));
        map.try_apply_ref_with_then(
            |map, key| map.get(&key),
            3u32,
            move |text| note_some(text.unwrap()),
        );
        wait_until("four callbacks", || heard.borrow().len() == 4);
        let expected = [Some("one"), Some("ne"), None, Some("")].map(|t| t.map(str::to_owned));
        assert_eq!(heard.take(), expected);

        let make = |()| vec![Item { flags: 7, data: vec![9; 300], owner: None }];
        let items = trustee.entrust_with(make, ());
        let found = items.apply_ref(
            |items| items.first(),
            |item| item.map(|item| (item.flags, item.data.to_vec(), item.owner.is_none())),
        );
        assert_eq!(found, Some((7, vec![9; 300], true)));
        // Pointers are seen through.
        let boxed = trustee.entrust_with(|()| Arc::<[u8]>::from(&b"bytes"[..]), ());
        assert!(boxed.apply_ref(|bytes| Some(bytes), |bytes| bytes == Some(b"bytes")));
    }
}

/// In the place of the request, after the requests, and by the bulk path; many at once.
pub fn views_of_all_sizes_are_whole() {
    const LENGTHS: [usize; 16] = [
        0,
        1,
        10,
        50,
        107,
        114,
        115,
        116,
        128,
        1_000,
        8_192,
        20_000,
        49_000,
        49_200,
        70_000,
        1 << 20,
    ];
    fn byte(len: usize, at: usize) -> u8 {
        (len ^ at ^ at >> 8) as u8
    }
    fn is_whole(bytes: &[u8], len: usize) -> bool {
        bytes.len() == len && bytes.iter().enumerate().all(|(at, b)| *b == byte(len, at))
    }
    for trustee in gossamer::threads() {
        let make = |()| {
            let of = |len| (len, (0..len).map(|at| byte(len, at)).collect());
            LENGTHS.into_iter().map(of).collect::<HashMap<usize, Vec<u8>>>()
        };
        let map = trustee.entrust_with(make, ());
        for len in LENGTHS {
            assert!(map.apply_ref_with(|m, len| m.get(&len), len, |b| is_whole(b.unwrap(), len)));
        }
        let whole = Rc::new(RefCell::new(0));
        for round in 0..200 {
            let len = LENGTHS[round * 7 % (LENGTHS.len() - 2)];
            let whole = whole.clone();
            // Also with arguments that leave room for the reply.
            let pad = [0u64; 4];
            map.apply_ref_with_then(
                |map, (len, _): (usize, [u64; 4])| map.get(&len),
                (len, pad),
                move |bytes| *whole.borrow_mut() += u32::from(is_whole(bytes.unwrap(), len)),
            );
        }
        wait_until("all views", || *whole.borrow() == 200);
    }
}

fn fall(_: &mut Texts) -> Option<&String> {
    panic!("fell")
}

pub fn panics_of_both_closures_of_a_view() {
    for trustee in gossamer::threads() {
        let map = trustee.entrust(texts());
        let is_fall = |error: DelegateError| {
            matches!(error, DelegateError::Panicked { trustee: at, report }
                if at == trustee.thread() && report.message == "fell")
        };
        assert!(panic_in(|| map.apply_ref(fall, |_| ())).contains("fell"));
        assert!(is_fall(map.try_apply_ref(fall, |_| panic!("not called")).unwrap_err()));
        let heard = Rc::new(RefCell::new(None));
        let hear = heard.clone();
        map.try_apply_ref_then(fall, move |text| *hear.borrow_mut() = text.err());
        wait_until("the failure", || heard.borrow().is_some());
        assert!(is_fall(heard.take().unwrap()));

        // A panic of the view is the caller's own, in every form that waits.
        let trip = |text: Option<&str>| -> usize { panic!("tripped over {}", text.unwrap()) };
        assert_eq!(panic_in(|| map.apply_ref(|m| m.get(&1), trip)), "tripped over one");
        assert_eq!(panic_in(|| map.try_apply_ref(|m| m.get(&1), trip)), "tripped over one");
        // It must not wait; a call that does not wait is fine.
        let other = gossamer::threads().next().unwrap().entrust(5u32);
        let message = panic_in(|| map.apply_ref(|m| m.get(&1), |_| other.apply(|n| *n)));
        assert!(message.contains("must not wait"), "{message}");
        let send = |text: Option<&str>| {
            other.apply_with_then(|n, l| *n += l, text.unwrap().len() as u32, drop)
        };
        map.apply_ref(|m| m.get(&1), send);
        assert_eq!(other.apply(|n| *n), 8);

        let make = |()| {
            let owned = gossamer::local_trustee().entrust(1u32);
            let item = |flags, owner| Item { flags, data: vec![1; 200], owner };
            vec![item(100, None), item(1, Some(owned))]
        };
        let items = trustee.entrust_with(make, ());
        let message = items.try_apply_ref(|i| i.first(), |i| i.is_some()).unwrap_err().to_string();
        assert!(message.contains("no view of 100"), "{message}");
        let view = items.try_apply_ref(|i| i.last(), |i| i.unwrap().owner.is_some());
        if items.is_local() {
            assert!(view.unwrap(), "nothing is encoded");
        } else {
            let error = view.unwrap_err();
            let cause = format!("{:?}", error);
            assert!(cause.contains("a view holds a trust"), "{cause}");
        }
        assert_eq!(map.apply(|map| map.len()), 3, "everything goes on");
    }
}

/// A delegated closure calls with a view on its own thread: when it has ended.
pub fn views_from_delegated_code() {
    for trustee in gossamer::threads() {
        let map = trustee.entrust(texts());
        let heard = trustee.entrust(Vec::<usize>::new());
        trustee.visit_with(
            |(map, heard): (Trust<Texts>, Trust<Vec<usize>>)| {
                map.apply_ref_then(
                    |map| map.get(&2),
                    move |text| {
                        heard.apply_with_then(
                            |heard, len| heard.push(len),
                            text.unwrap().len(),
                            drop,
                        );
                    },
                );
            },
            (map, heard.clone()),
        );
        wait_until("the view", || heard.apply(|heard| heard.clone()) == [300]);
    }
}
