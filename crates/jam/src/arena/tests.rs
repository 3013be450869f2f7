use proptest::prelude::*;

use super::*;

fn take(arena: &mut Arena, text: usize, data: usize, align: usize) -> Option<Draft> {
    arena.take(text, data, align).expect("memory")
}

#[test]
fn places_share_no_line_and_keep_their_alignment() {
    let mut arena = Arena::new(1);
    let first = take(&mut arena, 65, 3, 16).unwrap().finish();
    let second = take(&mut arena, 1, 70, 16).unwrap().finish();
    assert_eq!(second.address() - first.address(), 128);
    assert_eq!((first.bytes(), second.bytes()), (256, 256));
    let third = take(&mut arena, 1, 1, 4096).unwrap().finish();
    assert_eq!(third.address() % 4096, 0);
    let gap = take(&mut arena, 64, 0, 1).unwrap().finish();
    assert_eq!(gap.address() - second.address(), 128, "what alignment left is used");
}

#[test]
fn a_full_arena_has_no_place_until_one_is_freed() {
    let mut arena = Arena::new(2);
    let places = [(); 2].map(|()| take(&mut arena, DATA_DISTANCE, 0, 1).unwrap().finish());
    assert!(take(&mut arena, 1, 0, 1).is_none());
    arena.free(&places[1]);
    assert!(take(&mut arena, 1, 0, 1).unwrap().is_used);
    assert!(take(&mut arena, DATA_DISTANCE, 0, 1).is_none());
    assert!(take(&mut arena, DATA_DISTANCE + 1, 0, 1).is_none(), "longer than any place");
}

#[test]
fn what_is_written_is_what_runs_and_reads() {
    let mut arena = Arena::new(1);
    let mut draft = take(&mut arena, 3, 16, 16).unwrap();
    draft.write(&[1, 2, 3], &[9; 16]);
    draft.write_word(8, 0x0102_0304_0506_0708);
    let place = draft.finish();
    assert_eq!(place.chunk.read(place.at, 3), [1, 2, 3]);
    let data = place.chunk.read(DATA_DISTANCE + place.at, 16);
    assert_eq!(data, [9, 9, 9, 9, 9, 9, 9, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
}

#[test]
#[should_panic(expected = "a word outside its place")]
fn a_word_outside_the_place_is_refused() {
    let mut arena = Arena::new(1);
    take(&mut arena, 64, 64, 16).unwrap().write_word(57, 0);
}

proptest! {
    #[test]
    fn places_never_overlap_and_all_memory_comes_back(
        steps in prop::collection::vec((1usize..300_000, 0usize..3, any::<bool>()), 1..60),
    ) {
        let mut arena = Arena::new(2);
        let mut taken: Vec<Place> = Vec::new();
        for (bytes, align, frees) in steps {
            if frees && !taken.is_empty() {
                let place = taken.remove(bytes % taken.len());
                arena.free(&place);
            } else if let Some(draft) = take(&mut arena, bytes, bytes / 3, [16, 64, 4096][align]) {
                let place = draft.finish();
                prop_assert!(place.at + place.bytes <= DATA_DISTANCE);
                for other in &taken {
                    let (a, b) = (place.address(), other.address());
                    prop_assert!(a + place.bytes <= b || b + other.bytes <= a);
                }
                taken.push(place);
            }
            let used: usize = taken.iter().map(Place::bytes).sum();
            prop_assert_eq!(arena.used(), used);
        }
        taken.drain(..).for_each(|place| arena.free(&place));
        prop_assert_eq!(arena.used(), 0);
        for part in &arena.chunks {
            prop_assert!(part.free.len() <= 1, "free neighbours are merged");
        }
    }
}
