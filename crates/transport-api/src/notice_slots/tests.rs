//! Ends of notices in every state, also in those that no peer of this build leaves behind.

use proptest::prelude::*;

use super::*;

/// The ends of two threads, and the memories that the second and the first receive in.
struct Pair {
    first: NoticeEnd,
    second: NoticeEnd,
    there: SharedBytes,
    back: SharedBytes,
}

impl Pair {
    fn new() -> Self {
        let [there, back] = [(); 2].map(|()| SharedBytes::heap(NOTICE_SLOTS_BYTES));
        let first = NoticeEnd::new(there.clone(), back.clone(), cmp::Ordering::Less);
        let second = NoticeEnd::new(back.clone(), there.clone(), cmp::Ordering::Greater);
        Self { first, second, there, back }
    }

    /// A pair whose first end has sent one notice, which was in the line, so that the next ones go into
    /// slots.
    fn in_slots() -> Self {
        let pair = Self::new();
        assert_eq!(pair.first.try_send(notice(1)), Ok(true));
        assert_eq!(pair.second.take(), Ok(Some(notice(1))));
        pair
    }

    /// Whether the parker of the second thread finds notice `number`.
    fn is_there(&self, number: u32) -> bool {
        NoticeEnd::is_there((&self.back, 0), (&self.there, 0), cmp::Ordering::Greater, number)
    }
}

fn notice(n: u32) -> Notice {
    let word = u64::from(n);
    Notice { key: RegionKey(word), at: !word & AT, len: word << 8, value: !n }
}

#[test]
fn notices_arrive_in_order_over_many_laps_and_the_wrap_of_their_numbers() {
    let pair = Pair::new();
    let start = u32::MAX - 100 * NOTICE_SLOTS;
    for count in [&pair.first.sent, &pair.first.freed, &pair.first.confirmed] {
        count.store(start, Ordering::Relaxed);
    }
    for count in [&pair.second.taken, &pair.second.published] {
        count.store(start, Ordering::Relaxed);
    }
    pair.there.store(TAKEN, start.into(), Ordering::Relaxed);
    let (mut sent, mut taken) = (0, 0);
    for lap in 0..1000u32 {
        while pair.first.try_send(notice(sent)) == Ok(true) {
            sent += 1;
            if sent % 7 == 0 {
                break;
            }
        }
        for _ in 0..=lap % 9 {
            let is_there = pair.is_there(pair.second.next());
            let Some(arrived) = pair.second.take().expect("an honest sender") else {
                assert!(!is_there);
                break;
            };
            assert!(is_there);
            assert_eq!(arrived, notice(taken));
            taken += 1;
        }
    }
    assert!(sent > 200 * NOTICE_SLOTS / 4 && sent - taken <= NOTICE_SLOTS);
}

#[test]
fn threads_that_answer_each_other_use_the_line_only() {
    let pair = Pair::new();
    for n in 0..1000 {
        assert_eq!(pair.first.try_send(notice(n)), Ok(true));
        assert_eq!(pair.second.take(), Ok(Some(notice(n))));
        assert_eq!(pair.second.try_send(notice(!n)), Ok(true));
        assert_eq!(pair.first.take(), Ok(Some(notice(!n))));
    }
    for memory in [&pair.there, &pair.back] {
        assert!((SLOTS..LINE).step_by(8).all(|at| memory.load(at, Ordering::Relaxed) == 0));
    }
}

/// Numbers far behind would one day seem to be those of later notices.
#[test]
fn places_that_are_not_used_do_not_keep_old_numbers() {
    let recent = |memory: &SharedBytes, at: usize, next: u32| {
        let number = (memory.load(at + 24, Ordering::Relaxed) >> 32) as u32;
        next.wrapping_sub(number).wrapping_sub(1) < RENEWAL + 2 * NOTICE_SLOTS
    };
    let one_way = Pair::in_slots();
    for n in 0..2 * RENEWAL {
        assert_eq!(one_way.first.try_send(notice(n)), Ok(true));
        assert_eq!(one_way.second.take(), Ok(Some(notice(n))));
    }
    assert!(recent(&one_way.back, half(true), one_way.second.next()));
    let both_ways = Pair::new();
    for n in 0..2 * RENEWAL {
        for (from, to) in
            [(&both_ways.first, &both_ways.second), (&both_ways.second, &both_ways.first)]
        {
            assert_eq!(from.try_send(notice(n)), Ok(true));
            assert_eq!(to.take(), Ok(Some(notice(n))));
        }
    }
    let next = both_ways.second.next();
    for memory in [&both_ways.there, &both_ways.back] {
        assert!((0..NOTICE_SLOTS).all(|number| recent(memory, slot(number), next)));
    }
}

/// Whichever notices are under way meanwhile.
#[test]
fn renewal_spares_what_was_not_taken() {
    for under_way in [1, 2, 30, NOTICE_SLOTS - STEP] {
        for first_in_line in [false, true] {
            let pair = if first_in_line { Pair::new() } else { Pair::in_slots() };
            let start = pair.first.sent.load(Ordering::Relaxed);
            for n in start..start + under_way {
                assert_eq!(pair.first.try_send(notice(n)), Ok(true));
            }
            pair.first.renew(start + under_way + 1);
            for n in start..start + under_way {
                assert_eq!(pair.second.take(), Ok(Some(notice(n))));
            }
            assert_eq!(pair.second.take(), Ok(None));
        }
    }
}

/// The notice says that none were taken; meanwhile so many were sent that the bits of both are equal.
#[test]
fn an_old_notice_confirms_nothing_that_was_sent_since() {
    let Pair { first, second, there, .. } = &Pair::new();
    assert_eq!(second.try_send(notice(1)), Ok(true));
    let sent = TOOK + 1;
    for count in [&first.sent, &first.freed] {
        count.store(sent, Ordering::Relaxed);
    }
    for count in [&second.taken, &second.published] {
        count.store(sent, Ordering::Relaxed);
    }
    assert_eq!(first.take(), Ok(Some(notice(1))));
    assert_eq!(first.try_send(notice(2)), Ok(true));
    assert_ne!(there.load(slot(sent + 1) + 24, Ordering::Relaxed), 0, "it is in the ring");
    assert_eq!(second.take(), Ok(Some(notice(2))));
}

#[test]
fn a_notice_in_the_line_is_not_written_over_before_it_was_taken() {
    let pair = Pair::in_slots();
    assert_eq!(pair.second.try_send(notice(1)), Ok(true));
    assert_eq!(pair.first.take(), Ok(Some(notice(1))));
    // The next one goes into the line, and all others do not.
    for n in 2..=600 {
        assert_eq!(pair.first.try_send(notice(n)), Ok(true));
        if n > 40 {
            assert_eq!(pair.second.take(), Ok(Some(notice(n - 39))));
        }
    }
}

proptest! {
    /// Whatever either sends and takes, and whichever is the first; the parker misses nothing.
    #[test]
    fn notices_of_both_directions_arrive_in_order(
        turns in proptest::collection::vec((any::<bool>(), any::<bool>(), 1u32..80), 1..200),
    ) {
        let pair = Pair::new();
        let ends = [&pair.first, &pair.second];
        let (mut sent, mut taken) = ([0; 2], [0; 2]);
        for (is_second, takes, count) in turns {
            let (own, other) = (usize::from(is_second), usize::from(!is_second));
            for _ in 0..count {
                if !takes {
                    sent[own] += u32::from(ends[own].try_send(notice(sent[own])).unwrap());
                    continue;
                }
                prop_assert_eq!(pair.is_there(pair.second.next()), taken[1] < sent[0]);
                if let Some(arrived) = ends[own].take().unwrap() {
                    prop_assert_eq!(arrived, notice(taken[own]));
                    taken[own] += 1;
                } else {
                    prop_assert_eq!(taken[own], sent[other]);
                }
            }
        }
    }

    /// Nothing that a peer leaves in either memory is a panic.
    #[test]
    fn invalid_memory_is_an_error_and_never_a_panic(
        words in proptest::collection::vec((0..NOTICE_SLOTS_BYTES / 8, any::<u64>(), any::<bool>()), 40),
    ) {
        let pair = Pair::new();
        for (at, word, is_there) in words {
            let word = if at % 4 == 3 { word >> 30 << 32 } else { word };
            let memory = if is_there { &pair.there } else { &pair.back };
            memory.store(at * 8, word, Ordering::Relaxed);
            for end in [&pair.first, &pair.second] {
                let _ = end.try_send(notice(1));
                let _ = end.take();
                let _ = end.is_polled();
            }
            pair.is_there(1);
        }
    }
}

#[test]
fn a_thread_notifies_itself() {
    let memory = SharedBytes::heap(NOTICE_SLOTS_BYTES);
    let own = NoticeEnd::new(memory.clone(), memory.clone(), cmp::Ordering::Equal);
    let mut taken = 0;
    for n in 0..1000 {
        assert_eq!(own.try_send(notice(n)), Ok(true));
        let of = (&memory, 0);
        assert!(NoticeEnd::is_there(of, of, cmp::Ordering::Equal, own.next()));
        while n % 40 == 0 && taken <= n {
            assert_eq!(own.take(), Ok(Some(notice(taken))));
            taken += 1;
        }
    }
}

#[test]
fn no_slot_is_free_until_a_quarter_was_taken() {
    let Pair { first, second, .. } = Pair::new();
    for n in 0..NOTICE_SLOTS {
        assert_eq!(first.try_send(notice(n)), Ok(true));
    }
    for _ in 0..STEP {
        assert_eq!(first.try_send(notice(0)), Ok(false));
        assert!(matches!(second.take(), Ok(Some(_))));
    }
    for _ in 0..STEP {
        assert_eq!(first.try_send(notice(0)), Ok(true));
    }
    assert_eq!(first.try_send(notice(0)), Ok(false));
}

/// A receiver takes no more than was sent, and gives nothing back.
#[test]
fn a_count_outside_of_what_was_sent_is_an_error() {
    let laps = u64::from(NOTICE_SLOTS);
    for taken in [4, laps + 6, u64::MAX, 1 << 32] {
        let Pair { first, there, .. } = Pair::new();
        for n in 0..NOTICE_SLOTS {
            assert_eq!(first.try_send(notice(n)), Ok(true));
        }
        there.store(TAKEN, 5, Ordering::Relaxed);
        for n in 0..5 {
            assert_eq!(first.try_send(notice(n)), Ok(true));
        }
        there.store(TAKEN, taken, Ordering::Relaxed);
        assert!(first.try_send(notice(0)).is_err(), "{taken}");
    }
}

/// It would otherwise keep a parker awake that no look at the slots lets sleep.
#[test]
fn a_slot_with_a_later_number_is_an_error() {
    for ahead in [1, 5, NOTICE_SLOTS, u32::MAX / 2] {
        for is_in_line in [false, true] {
            let pair = Pair::in_slots();
            let next = pair.second.next();
            let number = u64::from(next.wrapping_add(ahead));
            let (memory, at) =
                if is_in_line { (&pair.back, half(true)) } else { (&pair.there, slot(next)) };
            memory.store(at + 24, number << 32, Ordering::Relaxed);
            assert!(pair.is_there(next), "{ahead}");
            assert!(pair.second.take().is_err(), "{ahead}");
        }
    }
}

/// A look that consumed it would hide it from the lane, which ends the sender.
#[test]
fn what_is_no_notice_is_an_error_each_time() {
    for is_in_line in [false, true] {
        let pair = if is_in_line { Pair::new() } else { Pair::in_slots() };
        let (memory, at) =
            if is_in_line { (&pair.back, half(true)) } else { (&pair.there, slot(2)) };
        assert_eq!(pair.first.try_send(notice(1)), Ok(true));
        memory.store(at, 3, Ordering::Relaxed);
        for _ in 0..3 {
            assert!(pair.second.take().is_err());
        }
        memory.store(at, KIND, Ordering::Relaxed);
        assert!(matches!(pair.second.take(), Ok(Some(_))), "it is still there");
    }
}

#[test]
fn only_one_means_polled() {
    let Pair { first, second, there, .. } = Pair::new();
    second.set_polled(true);
    assert!(first.is_polled());
    second.set_polled(false);
    assert!(!first.is_polled());
    there.store(POLLED, 2, Ordering::Relaxed);
    assert!(!first.is_polled());
}
