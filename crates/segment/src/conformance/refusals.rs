//! Operations that are refused before anything is sent, and their errors.

use transport_api::conformance::Make;

use crate::conformance::{Player, bytes, play, script};
use crate::{Access, HostId, MAX_OPERATION, RemoteSegment, Rights, Segment, SegmentError};

/// An operation on eight bytes at a place.
type Operation = fn(&RemoteSegment, usize) -> Result<(), SegmentError>;

/// Every operation, with its name and the rights that it needs.
const OPERATIONS: [(&str, u8, Operation); 12] = [
    ("write", 2, |on, at| on.write(at, &[7; 8])),
    ("write_block", 2, |on, at| on.write_block(at, &[7; 8])),
    ("write_notify", 2, |on, at| on.write_notify(at, &[7; 8])),
    ("write_block_notify", 2, |on, at| on.write_block_notify(at, &[7; 8])),
    ("read", 1, |on, at| on.read(at, &mut [0; 8])),
    ("read_block", 1, |on, at| on.read_block(at, &mut [0; 8])),
    ("compare_swap", 4, |on, at| on.compare_swap(at, 0, 7).map(drop)),
    ("fetch_add", 4, |on, at| on.fetch_add(at, 7).map(drop)),
    ("compare_swap_notify", 6, |on, at| on.compare_swap_notify(at, 0, 7).map(drop)),
    ("fetch_add_notify", 6, |on, at| on.fetch_add_notify(at, 7).map(drop)),
    ("element write", 2, |on, at| on.at_byte::<[u8; 8]>(at).write(&[7; 8])),
    ("element read", 1, |on, at| on.at_byte::<[u8; 8]>(at).read().map(drop)),
];

/// Whether an operation is on a word.
fn is_atomic(needs: u8) -> bool {
    needs & Rights::ATOMIC.bits() != 0
}

/// Asserts that nothing has been written, and that the owner has not been notified.
fn is_untouched(owner: &Player, segment: &Segment) {
    owner.linger();
    assert!(bytes(segment).iter().all(|byte| *byte == 0), "something was written");
    let notification = segment.notifications().try_next().expect("a segment");
    assert_eq!(notification, None, "the owner was notified");
}

/// Every operation outside the segment, by one byte and by so much that the sum overflows.
pub fn operations_stay_inside_the_segment(make: Make) {
    let owner = script(|owner| {
        let segment = owner.export("bounds", 64);
        owner.meet();
        owner.meet();
        is_untouched(owner, &segment);
        owner.meet();
        owner.meet();
    });
    let user = script(|user| {
        user.meet();
        let segment = user.open("bounds");
        for (name, _, operation) in OPERATIONS {
            for wrong in [57, 64, 1 << 40, usize::MAX - 7, usize::MAX] {
                let result = operation(&segment, wrong);
                let Err(SegmentError::OutOfBounds { segment, at, count, len }) = &result else {
                    panic!("{name} at {wrong}: {result:?}");
                };
                assert_eq!((*at, *count, *len), (wrong, 8, 64), "{name}");
                assert_eq!(segment.name.as_str(), "bounds");
            }
        }
        for index in [8, 1 << 40, usize::MAX / 8, usize::MAX] {
            let result = segment.at::<u64>(index).write(&1);
            assert!(matches!(result, Err(SegmentError::OutOfBounds { .. })), "{index}: {result:?}");
            let result = segment.at::<u64>(index).read();
            assert!(matches!(result, Err(SegmentError::OutOfBounds { .. })), "{index}: {result:?}");
        }
        // Prefetches nothing there.
        [64, usize::MAX].into_iter().for_each(|place| segment.prefetch_write(place));
        let longer = segment.write_block(0, &[1; 65]);
        assert!(matches!(longer, Err(SegmentError::OutOfBounds { count: 65, .. })), "{longer:?}");
        segment.fence().expect("nothing was started that a fence could find refused");
        user.meet();
        user.meet();
        for (name, _, operation) in OPERATIONS {
            operation(&segment, 56).unwrap_or_else(|error| panic!("{name} at the end: {error}"));
        }
        segment.fence().expect("a fence");
        user.meet();
    });
    play(make, [owner, user]);
}

/// Words are at multiples of eight, values at those of their type's alignment, bytes anywhere.
pub fn words_are_aligned(make: Make) {
    let owner = script(|owner| {
        let segment = owner.export("aligned", 64);
        owner.meet();
        owner.meet();
        let expected = [[0; 12].as_slice(), &[7; 8], &[0; 32], &1u32.to_ne_bytes(), &[0; 8]];
        assert_eq!(bytes(&segment), expected.concat());
        owner.meet();
    });
    let user = script(|user| {
        user.meet();
        let segment = user.open("aligned");
        for at in [1, 4, 12, 55] {
            let (swap, add) = (segment.compare_swap(at, 0, 1), segment.fetch_add(at, 1));
            let and_notify =
                [segment.compare_swap_notify(at, 0, 1), segment.fetch_add_notify(at, 1)];
            for result in and_notify.into_iter().chain([swap, add]) {
                let expected = matches!(
                    &result,
                    Err(SegmentError::Misaligned { at: wrong, align: 8, .. }) if *wrong == at
                );
                assert!(expected, "{at}: {result:?}");
            }
            let result = segment.at_byte::<u64>(at).write(&1);
            assert!(matches!(result, Err(SegmentError::Misaligned { align: 8, .. })), "{result:?}");
            let result = segment.at_byte::<u64>(at).read();
            assert!(matches!(result, Err(SegmentError::Misaligned { align: 8, .. })), "{result:?}");
        }
        let result = segment.at_byte::<u32>(6).write_notify(&1);
        assert!(matches!(result, Err(SegmentError::Misaligned { align: 4, .. })), "{result:?}");
        segment.write(12, &[7; 8]).expect("bytes may be anywhere");
        segment.at_byte::<u32>(52).write(&1).expect("a multiple of four");
        segment.fence().expect("a fence");
        user.meet();
        user.meet();
    });
    play(make, [owner, user]);
}

/// One operation moves at most [`MAX_OPERATION`] bytes; blocks have no such limit.
pub fn operations_have_a_largest_size(make: Make) {
    const LEN: usize = MAX_OPERATION + 1;
    let owner = script(|owner| {
        let segment = owner.export("large", LEN);
        owner.meet();
        owner.meet();
        is_untouched(owner, &segment);
        owner.meet();
        owner.meet();
    });
    let user = script(|user| {
        user.meet();
        let segment = user.open("large");
        let mut bytes = vec![1; LEN];
        let refused = [
            segment.write(0, &bytes),
            segment.write_notify(0, &bytes),
            segment.read(0, &mut bytes),
        ];
        for result in refused {
            let Err(SegmentError::TooLarge { len: LEN, max: MAX_OPERATION }) = result else {
                panic!("{result:?}");
            };
        }
        segment.fence().expect("nothing was started");
        user.meet();
        user.meet();
        segment.write(1, &bytes[1..]).expect("the largest write");
        segment.write_block(0, &bytes).expect("a block");
        segment.read(1, &mut bytes[1..]).expect("the largest read");
        segment.fence().expect("a fence");
        user.meet();
    });
    play(make, [owner, user]);
}

/// Every operation under every combination of rights: it succeeds exactly if it has those it needs.
pub fn operations_need_their_rights(make: Make) {
    let rights = |bits: u8| Rights::from_bits(bits).expect("rights");
    let all = 1..Rights::ALL.bits();
    let name = |bits: u8| format!("rights-{bits}");
    let owner_all = all.clone();
    let owner = script(move |owner| {
        let export = |bits: u8| {
            let builder = owner.segments.builder(&name(bits)).len(64).access(rights(bits));
            builder.export().expect("a segment")
        };
        let segments: Vec<_> = owner_all.map(export).collect();
        owner.meet();
        owner.meet();
        for segment in &segments {
            is_untouched(owner, segment);
        }
        owner.meet();
        owner.meet();
    });
    let user = script(move |user| {
        user.meet();
        let segments: Vec<_> = all.map(|bits| (rights(bits), user.open(&name(bits)))).collect();
        for (has, segment) in &segments {
            assert_eq!(segment.rights(), *has);
            for (name, needs, operation) in OPERATIONS {
                let needs = rights(needs);
                if has.allow(needs) {
                    continue;
                }
                let result = operation(segment, 8);
                let Err(SegmentError::Rights { has: said, needs: wanted, segment }) = &result
                else {
                    panic!("{name} with {has:?}: {result:?}");
                };
                assert_eq!((*said, *wanted), (*has, needs), "{name}");
                assert!(segment.name.as_str().starts_with("rights-"));
            }
            segment.fence().expect("nothing was started");
        }
        user.meet();
        user.meet();
        for (has, segment) in &segments {
            for (name, needs, operation) in OPERATIONS {
                if has.allow(rights(needs)) {
                    let result = operation(segment, if is_atomic(needs) { 8 } else { 13 });
                    result.unwrap_or_else(|error| panic!("{name} with {has:?}: {error}"));
                }
            }
            segment.fence().expect("a fence");
        }
        user.meet();
    });
    play(make, [owner, user]);
}

/// Rights are each host's own; a host without any cannot even open the segment.
pub fn access_is_per_host(make: Make) {
    let owner = script(|owner| {
        owner.meet();
        let access = Access::none().with(HostId(1), Rights::READ);
        let segment = owner.segments.builder("private").len(64).access(access).export();
        let segment = segment.expect("a segment");
        segment.at(0).write(&7u64).expect("a word");
        let access = Access::all(Rights::READ).with(HostId(1), Rights::ALL);
        let public = owner.segments.builder("public").len(64).access(access).export();
        let public = public.expect("a segment");
        owner.meet();
        // The owner's own handles have the rights of its host.
        let own = owner.segments.open("private").map(drop);
        assert!(is_denied(&own), "{own:?}");
        owner.meet();
        assert_eq!(bytes(&segment)[8..], [0; 56], "it was written");
        assert_eq!(public.at::<u64>(0).read().expect("a word"), 5);
        owner.meet();
    });
    let reader = script(|reader| {
        assert_eq!(reader.host(), HostId(1));
        reader.meet();
        reader.meet();
        let segment = reader.open("private");
        assert_eq!(segment.rights(), Rights::READ);
        assert_eq!(segment.at::<u64>(0).read().expect("a read"), 7);
        let result = segment.write(8, &[1]);
        assert!(matches!(result, Err(SegmentError::Rights { .. })), "{result:?}");
        let public = reader.open("public");
        public.at::<u64>(0).write(&5).expect("a write");
        public.fence().expect("a fence");
        reader.meet();
        reader.meet();
    });
    let stranger = script(|stranger| {
        stranger.meet();
        stranger.meet();
        if stranger.host() != HostId(1) {
            let denied = stranger.segments.open("private").map(drop);
            assert!(is_denied(&denied), "{denied:?}");
            let host = stranger.host();
            assert_eq!(
                denied.expect_err("denied").to_string(),
                format!(
                    "cannot open segment \"private\" of host 0: its owner allows {host} no \
                     operation, opening it needs READ, WRITE or ATOMIC; let the owner export it with \
                     access for {host}"
                )
            );
            let public = stranger.open("public");
            let result = public.at::<u64>(0).write(&6);
            assert!(matches!(result, Err(SegmentError::Rights { .. })), "{result:?}");
        }
        stranger.meet();
        stranger.meet();
    });
    play(make, [owner, reader, stranger]);
}

fn is_denied(result: &Result<(), SegmentError>) -> bool {
    matches!(result, Err(SegmentError::Denied { .. }))
}

/// Invalid and taken names, empty segments, and hosts that do not exist.
pub fn bad_exports_and_opens_are_refused(make: Make) {
    let owner = script(|owner| {
        let segments = &owner.segments;
        for wrong in ["", "white space", "ü", &"n".repeat(65)] {
            let result = segments.builder(wrong).len(8).export().map(drop);
            assert!(matches!(result, Err(SegmentError::InvalidName(_))), "{result:?}");
            let result = segments.open(wrong).map(drop);
            assert!(matches!(result, Err(SegmentError::InvalidName(_))), "{result:?}");
        }
        let result = segments.builder("empty").export().map(drop);
        assert!(matches!(result, Err(SegmentError::Empty(_))), "{result:?}");
        let result = segments.options().host(HostId(segments.hosts())).open("far").map(drop);
        assert!(matches!(result, Err(SegmentError::NoSuchHost(_))), "{result:?}");
        let first = owner.export("taken", 8);
        let result = segments.builder("taken").len(8).export().map(drop);
        assert!(matches!(result, Err(SegmentError::NameTaken(_))), "{result:?}");
        first.at(0).write(&1u64).expect("it is still there");
        assert_eq!(owner.open("taken").at::<u64>(0).read().expect("a read"), 1);
    });
    play(make, [owner]);
}
