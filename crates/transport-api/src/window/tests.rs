//! Every operation of a window against every set of rights, at every kind of place.

use super::*;

fn window(rights: Rights) -> (Window, SharedBytes, SharedBytes) {
    let (memory, live) = (SharedBytes::heap(64), SharedBytes::heap(8));
    live.store(0, 1, Ordering::Relaxed);
    let window =
        Window::new((1, HostId(0)), (RegionKey(3), rights, 0), memory.clone(), live.clone());
    (window, memory, live)
}

/// What an operation on eight bytes at a place ends with.
type Operation = fn(&Window, usize) -> Result<(), OpError>;

const OPERATIONS: [(Rights, Operation); 11] = [
    (Rights::WRITE, |window, at| window.write_loose(at, &[0; 8], at)),
    (Rights::WRITE, |window, at| window.store_words_down(at, &[7])),
    (Rights::WRITE, |window, at| window.store_words(at, 1, |_| 7)),
    (Rights::READ, |window, at| window.load_words(at, 1, |_, _| ())),
    (Rights::WRITE, |window, at| window.write_from(at, &[0; 8])),
    (Rights::READ, |window, at| window.read_into(at, &mut [0; 8])),
    (Rights::WRITE, |window, at| window.write(at, &SharedBytes::heap(8))),
    (Rights::WRITE, |window, at| window.signal(at, 7)),
    (Rights::READ, |window, at| window.read(at, &SharedBytes::heap(8)).map(drop)),
    (Rights::ATOMIC, |window, at| window.compare_swap(at, 0, 7).map(drop)),
    (Rights::ATOMIC, |window, at| window.fetch_add(at, 7).map(drop)),
];

#[test]
fn an_operation_needs_its_right_and_no_other() {
    for (needs, operation) in OPERATIONS {
        for rights in (0..=Rights::ALL.bits()).filter_map(Rights::from_bits) {
            let (window, memory, _) = window(rights);
            let done = operation(&window, 0);
            if rights.allow(needs) {
                assert_eq!(done, Ok(()));
            } else {
                let key = RegionKey(3);
                assert_eq!(done, Err(OpError::Rights { key, has: rights, needs }));
                assert_eq!(memory.load(0, Ordering::Relaxed), 0, "nothing was done");
            }
            let may_see = rights.allow(Rights::READ | Rights::WRITE);
            assert_eq!(window.bare().is_some(), may_see, "{rights:?}");
        }
    }
}

#[test]
fn an_operation_stays_inside_and_ends_with_the_region() {
    for (_, operation) in OPERATIONS {
        let (window, _, live) = window(Rights::ALL);
        assert_eq!(operation(&window, 56), Ok(()));
        for at in [57, 64, usize::MAX - 3] {
            let refused = operation(&window, at);
            assert!(matches!(refused, Err(OpError::OutOfBounds { len: 64, .. })), "{at}");
        }
        live.store(0, 0, Ordering::Relaxed);
        assert_eq!(
            operation(&window, 0),
            Err(OpError::Revoked { key: RegionKey(3), generation: 0 })
        );
    }
}

#[test]
fn a_read_may_begin_anywhere_and_gives_its_length() {
    let (window, memory, _) = window(Rights::READ);
    memory.write_from(3, b"anywhere");
    let into = SharedBytes::heap(8);
    assert_eq!(window.read(3, &into), Ok(8));
    let mut bytes = [0; 8];
    into.read_into(0, &mut bytes);
    assert_eq!(&bytes, b"anywhere");
}

#[test]
fn words_are_stored_and_loaded_in_order_or_not_at_all() {
    let (window, memory, _) = window(Rights::READ | Rights::WRITE);
    assert_eq!(window.store_words(8, 3, |index| 10 + index as u64), Ok(()));
    let mut loaded = Vec::new();
    assert_eq!(window.load_words(0, 5, |index, word| loaded.push((index, word))), Ok(()));
    assert_eq!(loaded, [(0, 0), (1, 10), (2, 11), (3, 12), (4, 0)]);
    assert_eq!(window.store_words_down(8, &[20, 21]), Ok(()));
    assert_eq!([8, 16, 24].map(|at| memory.load(at, Ordering::Relaxed)), [20, 21, 12]);
    assert_eq!(window.store_words_down(4, &[1, 1]), Err(OpError::Misaligned(4)));
    assert_eq!(window.store_words(4, 2, |_| 1), Err(OpError::Misaligned(4)));
    for (at, count) in [(40, 4), (64, 1), (0, usize::MAX)] {
        let stored = window.store_words(at, count, |_| 1);
        assert!(matches!(stored, Err(OpError::OutOfBounds { len: 64, .. })), "{count} at {at}");
        let loaded = window.load_words(at, count, |_, _| panic!("a word outside"));
        assert!(matches!(loaded, Err(OpError::OutOfBounds { len: 64, .. })), "{count} at {at}");
    }
    assert_eq!(memory.load(40, Ordering::Relaxed), 0, "nothing was stored");
}

#[test]
fn words_are_aligned_and_give_their_old_value() {
    let (window, memory, _) = window(Rights::ALL);
    assert_eq!(window.signal(4, 1), Err(OpError::Misaligned(4)));
    assert_eq!(window.fetch_add(12, 1), Err(OpError::Misaligned(12)));
    assert_eq!(window.compare_swap(1, 0, 1), Err(OpError::Misaligned(1)));
    assert_eq!(window.fetch_add(8, 5), Ok(0));
    assert_eq!(window.compare_swap(8, 4, 9), Ok(5), "and nothing is swapped");
    assert_eq!(window.compare_swap(8, 5, 9), Ok(5));
    assert_eq!(memory.load(8, Ordering::Relaxed), 9);
}
