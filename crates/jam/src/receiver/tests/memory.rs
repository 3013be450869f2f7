//! Which jams are evicted, and when their memory is used again.

use super::*;

/// A jam that adds the length of the payload, padded, and different from others by its data.
fn padded(number: u64, bytes: usize) -> Vec<u8> {
    let mut text = sum().to_vec();
    text.resize(bytes, 0xcc);
    Blob { data: &number.to_le_bytes(), ..blob(&text) }.encode().unwrap()
}

#[test]
fn the_least_recently_used_jam_gives_its_place_to_a_new_one() {
    // One chunk, which has room for three.
    let receiver = open_receiver(1);
    let jams: Vec<Vec<u8>> = (0..4).map(|number| padded(number, 300_000)).collect();
    let digests: Vec<Digest> = jams.iter().map(|jam| Digest::of(jam)).collect();
    let is_there = |at: usize| run(receiver, &digests[at], &mut 0, 4) == Ok(7);
    jams[..3].iter().for_each(|jam| assert!(receive(receiver, jam).is_ok()));
    assert!(is_there(0) && is_there(1) && is_there(2));
    receive(receiver, &padded(9, 64)).unwrap();
    assert!(is_there(0) && is_there(2));
    receive(receiver, &jams[3]).unwrap();
    assert!(is_there(3) && is_there(0) && is_there(2) && !is_there(1));
    receive(receiver, &jams[1]).unwrap();
    assert!(is_there(1));
    let too_large = receive(receiver, &padded(0, 900_000));
    assert!(too_large.is_ok(), "the others give way: {too_large:?}");
    assert!(receiver.size().1 < 4);
}

#[test]
fn a_jam_is_linked_anew_in_an_arena_that_has_room_for_one() {
    let receiver = open_receiver(1);
    let mut text = import().to_vec();
    text.resize(700_000, 0xcc);
    let imports = [Import { name: "receiver_test_add", signature: add_signature() }];
    let large = Blob { imports: &imports, data: &[0; 8], ..blob(&text) }.encode().unwrap();
    let digest = receive(receiver, &large).unwrap();
    assert_eq!(run(receiver, &digest, &mut 1, 4), Ok(5));
    let other = receive(receiver, &padded(1, 64)).unwrap();
    double(receiver);
    assert_eq!(run(receiver, &digest, &mut 1, 4), Ok(8), "its own place is free first");
    assert_eq!(run(receiver, &other, &mut 0, 4), Ok(7), "nobody gives way to it");
}

#[test]
fn a_thread_that_stays_inside_costs_few_jams_their_places() {
    let receiver = open_receiver(1);
    // More than there is room for.
    (0..30).for_each(|number| assert!(receive(receiver, &padded(number, 50_000)).is_ok()));
    let (bytes, full) = receiver.size();
    assert!(full > 15 && full < 30);
    let inside = Thread::current(receiver).runner.enter();
    for number in 30..33 {
        let refused = receive(receiver, &padded(number, 50_000)).unwrap_err();
        assert!(matches!(refused, Refusal::NoRoom { .. }), "{refused}");
        assert_eq!(receiver.size().1, full - 8, "no more of them are given up");
    }
    drop(inside);
    (33..41).for_each(|number| assert!(receive(receiver, &padded(number, 50_000)).is_ok()));
    assert_eq!(receiver.size(), (bytes, full), "their places are free again");
}

#[test]
fn threads_run_jams_whose_memory_is_reused_all_the_time() {
    let receiver = open_receiver(1);
    let jams: Vec<Vec<u8>> = (0..9).map(|number| padded(number, 200_000)).collect();
    let digests: Vec<Digest> = jams.iter().map(|jam| Digest::of(jam)).collect();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (jams, digests) = (&jams, &digests);
            scope.spawn(move || {
                let mut runs = 0;
                for turn in 0..300 {
                    let at = (turn * 7 + thread * 3) % jams.len();
                    let run = || run(receiver, &digests[at], &mut 0, turn as u64);
                    let mut ended = run();
                    if ended.is_err() {
                        assert_eq!(ended, Err(Failure::NeedCode));
                        // A thread that the system has interrupted inside a jam keeps the memory
                        // of all that were evicted since it began.
                        while let Err(refusal) = receive(receiver, &jams[at]) {
                            assert!(matches!(refusal, Refusal::NoRoom { .. }), "{refusal:?}");
                            std::thread::yield_now();
                        }
                        // At once: a thread that has the processor for itself comes to each jam when
                        // the others have taken its place.
                        ended = run();
                    }
                    match ended {
                        Ok(sum) => {
                            assert_eq!(sum, turn as u64 + 3);
                            runs += 1;
                        }
                        Err(failure) => assert_eq!(failure, Failure::NeedCode),
                    }
                }
                assert!(runs > 0);
            });
        }
    });
    assert!(receiver.size().0 <= 2 << 20);
}
