//! What a region does not allow, and what becomes of operations on one that is revoked.

use super::*;

/// A frame with one wrong thing, against a region of [`LEN`] bytes.
#[test]
fn what_a_region_does_not_allow_is_refused_and_not_done() {
    let write = |name: Name, at: u64| Header { word: 1, at, ..on(Kind::Write, name, 0) };
    let wrong: [(Header, &[u8]); 13] = [
        (write(ALL, LEN as u64 - 7), &[1; 8]),
        (write(ALL, u64::MAX), &[1; 8]),
        (write(READABLE, 0), &[1; 8]),
        (on(Kind::Signal, ALL, 12), &[]),
        (on(Kind::Signal, ALL, LEN), &[]),
        (on(Kind::Signal, READABLE, 0), &[]),
        (on(Kind::Tagged, ALL, 12), &[1; 8]),
        (on(Kind::Tagged, ALL, LEN - 8), &[1; 8]),
        (on(Kind::Tagged, ALL, usize::MAX & !7), &[1; 8]),
        (on(Kind::Tagged, READABLE, 0), &[1; 8]),
        (Header { word: 1, ..on(Kind::Add, READABLE, 0) }, &[]),
        (Header { word: LEN as u64 + 1, ..on(Kind::Read, ALL, 0) }, &[]),
        (on(Kind::Swap, ALL, 4), &[1; 8]),
    ];
    for (header, body) in wrong {
        let mut end = End::new(0);
        let mut bytes = Vec::new();
        header.encode_with(body, &mut bytes);
        assert!(end.feed(&bytes).is_err(), "{header:?}");
        for region in &end.fake.regions {
            assert!(contents(&region.memory).iter().all(|byte| *byte == 0), "{header:?} wrote");
        }
        assert!(end.machine.outgoing().is_empty(), "{header:?} was answered");
    }
}

/// A notification of bytes that its sender may not have written.
#[test]
fn a_notification_is_refused_where_the_write_before_it_would_be() {
    let notify = |name: Name, at: u64, len: u64| {
        let (mut end, mut bytes) = (End::new(0), Vec::new());
        let header = Header { word: 7, at, ..on(Kind::Notify, name, 0) };
        header.encode_with(&[len, 0].map(u64::to_le_bytes).concat(), &mut bytes);
        let fed = end.feed(&bytes);
        (fed.is_ok(), end.fake.events.len())
    };
    assert_eq!(notify(ALL, 0, LEN as u64), (true, 1));
    assert_eq!(notify(ALL, LEN as u64, 0), (true, 1));
    for (at, len) in [(0, LEN as u64 + 1), (LEN as u64, 1), (u64::MAX, 2), (1, u64::MAX)] {
        assert_eq!(notify(ALL, at, len), (false, 0), "{len} bytes at {at}");
    }
    assert_eq!(notify(READABLE, 0, 8), (false, 0), "it may not write there");
    let later = Name { generation: ALL.generation + 1, ..ALL };
    assert_eq!(notify(later, 0, 8), (true, 0), "there never was such a region");
}

/// Whatever happens to the region between the two.
#[test]
fn a_notification_arrives_if_and_only_if_its_write_does() {
    let values = |end: &mut End| -> Vec<u32> {
        let value = |(_, event)| match event {
            Event::Notified { value, .. } => value,
            other => panic!("{other:?} is no notification"),
        };
        end.fake.events.drain(..).map(value).collect()
    };
    let (mut a, mut b) = (End::new(1), End::new(0));
    let word = SharedBytes::heap(8);
    let write = |end: &mut End, name, value| {
        end.machine.write(name, 0, &word);
        end.machine.notify(name, 0, 8, 0, value);
    };
    write(&mut a, ALL, 1);
    // The notification is behind the write, and arrives after the revocation.
    let frame = a.machine.outgoing().len();
    a.send(&mut b, frame - 8).expect("no violation");
    assert!(values(&mut b).is_empty());
    b.fake.regions[0].revoke();
    b.machine.forget(ALL.key);
    write(&mut a, ALL, 2);
    a.machine.announce(ALL, 0, 8, 0, 3);
    write(&mut a, REVOKED, 4);
    write(&mut a, ALL, 5);
    a.machine.announce(REVOKED, 0, 8, 0, 6);
    exchange(&mut a, &mut b, &[usize::MAX]);
    assert_eq!(values(&mut b), [1, 3, 6]);
    // Those that were dropped cost the stream nothing.
    (0..3).for_each(|_| b.machine.taken(0, bulk::cost_of(0)));
    b.machine.wake(0);
    exchange(&mut a, &mut b, &[usize::MAX]);
    a.machine.outbound.granted(0, 1).expect_err("everything was granted");
}

#[test]
fn revoked_regions_are_reported_and_answers_keep_their_order() {
    let (mut a, mut b) = (End::new(1), End::new(0));
    let into = SharedBytes::heap(LEN);
    a.machine.write(REVOKED, 0, &SharedBytes::heap(200_000));
    a.machine.read(REVOKED, 0, &into, 1);
    a.machine.fetch_add(ALL, 0, 1, 2);
    a.machine.compare_swap(REVOKED, 0, [0, 1], 3);
    a.machine.notify(REVOKED, 0, 8, 0, 1);
    exchange(&mut a, &mut b, &[usize::MAX]);
    let error = || OpError::Revoked { key: RegionKey(1), generation: 3 };
    let expected = [
        Event::Failed { token: None, error: error() },
        Event::Failed { token: Some(1), error: error() },
        Event::Completed { token: 2, value: 0 },
        Event::Failed { token: Some(3), error: error() },
    ];
    assert_eq!(a.take_events(), expected.map(|event| format!("1 {event:?}")));
    assert!(b.take_events().is_empty(), "a notification of nothing");
    // A revocation while operations are under way: first the region is dead, then it is not found.
    let steps: [fn(&mut End); 2] = [
        |b| b.fake.regions.iter().for_each(|region| region.revoke()),
        |b| {
            b.fake.regions.clear();
            b.machine.forget(ALL.key);
        },
    ];
    for (token, step) in (4..).zip(steps) {
        step(&mut b);
        a.machine.fetch_add(ALL, 0, 1, token);
        exchange(&mut a, &mut b, &[usize::MAX]);
        let Name { key, generation } = ALL;
        let error = OpError::Revoked { key, generation };
        let failed = Event::Failed { token: Some(token), error };
        assert_eq!(a.take_events(), [format!("1 {failed:?}")]);
    }
}

#[test]
fn a_fence_tells_of_refusals_since_the_last_one_however_many() {
    const MANY: u64 = 100_000;
    let (mut a, mut b) = (End::new(1), End::new(0));
    a.machine.signal(ALL, 0, 7);
    a.machine.fence(1);
    for _ in 0..MANY {
        a.machine.signal(REVOKED, 0, 1);
    }
    a.machine.fence(2);
    a.machine.fence(3);
    exchange(&mut a, &mut b, &[usize::MAX]);
    let events = a.take_events();
    let fences: Vec<_> = events.iter().filter(|event| !event.contains("token: None")).collect();
    let refused = Event::Failed {
        token: Some(2),
        error: OpError::Revoked { key: RegionKey(1), generation: 3 },
    };
    let expected =
        [Event::Completed { token: 1, value: 0 }, refused, Event::Completed { token: 3, value: 0 }];
    assert_eq!(fences, expected.map(|event| format!("1 {event:?}")).iter().collect::<Vec<_>>());
    assert!((events.len() as u64) < MANY, "not every refusal is reported by itself");
}

/// More regions than a connection remembers: each is found again, and one that is revoked is refused, also if it
/// is remembered behind others.
#[test]
fn of_many_regions_only_what_is_exported_is_written() {
    const REGIONS: u64 = 10;
    let name = |key: u64, generation| Name { key: RegionKey(key), generation };
    let (mut a, mut b) = (End::new(1), End::new(0));
    b.fake = Fake::new(
        std::array::from_fn::<_, { REGIONS as usize }, _>(|key| (name(key as u64, 1), Rights::ALL)),
        LEN,
    );
    let word = |b: &End, key: usize| b.fake.regions[key].memory.load(0, Ordering::Acquire);
    let write = |a: &mut End, b: &mut End, name, word| {
        a.machine.signal(name, 0, word);
        exchange(a, b, &[LEN]);
        a.take_events()
    };
    let order = (0..REGIONS).chain([9, 4, 3, 4, 0, 1, 9, 9, 2]);
    for (number, key) in (1..).zip(order) {
        assert!(write(&mut a, &mut b, name(key, 1), number).is_empty());
        assert_eq!(word(&b, key as usize), number, "region {key}");
    }
    // The third in the list.
    b.fake.regions[1].revoke();
    let refused = write(&mut a, &mut b, name(1, 1), 77);
    assert!(matches!(&refused[..], [it] if it.contains("Revoked")), "{refused:?}");
    let memory = SharedBytes::heap(LEN);
    b.fake.regions[1] = Arc::new(Exported::new((RegionKey(1), 2), Rights::ALL.into(), memory));
    let refused = write(&mut a, &mut b, name(1, 1), 78);
    assert!(matches!(&refused[..], [it] if it.contains("Revoked")), "{refused:?}");
    assert_eq!(word(&b, 1), 0);
    assert!(write(&mut a, &mut b, name(1, 2), 79).is_empty());
    assert_eq!(word(&b, 1), 79);
}
