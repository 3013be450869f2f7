//! Segments and names: memory that fibers of every host and threads outside the rack share, and trusts
//! that are found by their names.

use std::error::Error as _;
use std::thread;

use gossamer::{
    Access, HostId, LookupError, Notify, Publication, RemoteSegment, Rights, Segment, SegmentError,
    Trust, lookup, publish, spawn_on, spawn_on_with,
};

use crate::support::wait_until;

#[path = "../../gossamer/examples/ticker.rs"]
mod ticker;

#[derive(Default)]
struct Orders(Vec<String>);

/// A trust that the last thread of the rack has published as "orders".
fn published_far_away() -> Trust<(Trust<Orders>, Option<Publication>)> {
    let far = gossamer::threads().last().unwrap();
    let make = |()| {
        let orders = gossamer::local_trustee().entrust(Orders::default());
        let publication = publish("orders", &orders).unwrap();
        (orders, Some(publication))
    };
    far.entrust_with(make, ())
}

fn is_not_found(error: &LookupError) -> bool {
    matches!(error, LookupError::Segment(SegmentError::NotFound { .. }))
}

/// The last host of the rack.
fn last_host() -> HostId {
    gossamer::threads().last().unwrap().thread().host
}

pub fn fibers_of_every_thread_share_a_segment() {
    let owner = Segment::builder("sums").len(4096).export().unwrap();
    let add = || {
        let me = gossamer::local_trustee().trustee().number() as usize;
        let sums = RemoteSegment::open("sums").unwrap();
        sums.at::<u64>(me).write(&(me as u64 + 1)).unwrap();
        (0..10).for_each(|_| assert!(sums.fetch_add(1024, 1).is_ok()));
        sums.fence().unwrap();
        sums.at::<u64>(me).read().unwrap()
    };
    let fibers: Vec<_> = gossamer::threads().map(|t| spawn_on(t, add)).collect();
    let count = fibers.len() as u64;
    for (number, fiber) in fibers.into_iter().enumerate() {
        assert_eq!(fiber.join().unwrap(), number as u64 + 1);
        assert_eq!(owner.at::<u64>(number).read().unwrap(), number as u64 + 1);
    }
    assert_eq!(owner.at::<u64>(128).read().unwrap(), 10 * count);
    owner.revoke().unwrap();
    let gone = RemoteSegment::open("sums");
    assert!(matches!(gone, Err(SegmentError::NotFound { .. })), "{gone:?}");
}

pub fn errors_and_hosts_travel_with_a_question_mark() {
    let _private = Segment::builder("private").len(64).access(Access::none()).export().unwrap();
    let try_open = |name: String| -> Result<HostId, SegmentError> {
        RemoteSegment::open(&name)?;
        Ok(gossamer::local_host())
    };
    for thread in gossamer::threads() {
        let host = thread.thread().host;
        assert_eq!(spawn_on(thread, gossamer::local_host).join().unwrap(), host);
        let run = |name: &str| spawn_on_with(thread, try_open, name.to_owned()).join().unwrap();
        let missing = run("missing").unwrap_err();
        assert!(matches!(missing, SegmentError::NotFound { .. }), "{missing}");
        let denied = run("private").unwrap_err();
        assert_eq!(
            denied.to_string(),
            format!(
                "cannot open segment \"private\" of host 0: its owner allows {host} no operation, \
                 opening it needs READ, WRITE or ATOMIC; let the owner export it with access for \
                 {host}"
            )
        );
    }
}

pub fn access_is_by_host_and_notifications_park_the_fiber() {
    let last = last_host();
    let owner = Segment::builder("prices")
        .len(64 << 10)
        .access(Access::read().write_for([last]))
        .notify(Notify::Conditional)
        .export()
        .unwrap();
    let here = RemoteSegment::open_at(HostId(0), "prices").unwrap();
    if last != HostId(0) {
        assert_eq!(here.rights(), Rights::READ);
        let refused = here.write(0, &[1]).unwrap_err();
        assert!(matches!(refused, SegmentError::Rights { .. }), "{refused}");
    }
    let far = gossamer::threads().last().unwrap();
    let writer = spawn_on(far, || {
        let prices = RemoteSegment::open("prices").unwrap();
        prices.at::<u64>(8).write(&7).unwrap();
        prices.at::<u64>(9).write_notify(&8).unwrap();
        prices.fence().unwrap();
    });
    let notification = owner.notified().unwrap();
    assert_eq!((notification.from, notification.offset, notification.len), (last, 72, 8));
    assert_eq!((owner.at::<u64>(8).read().unwrap(), owner.at::<u64>(9).read().unwrap()), (7, 8));
    writer.join().unwrap();
}

pub fn threads_outside_the_rack_use_segments_in_order() {
    let far = gossamer::threads().last().unwrap();
    let owner = far.entrust_with(|()| Segment::builder("far").len(4096).export().unwrap(), ());
    let segments = gossamer::segments();
    let outside = thread::spawn(move || {
        let near = segments.builder("near").len(64).export().unwrap();
        near.at(0).write(&1u64).unwrap();
        let far = segments.open("far").unwrap();
        // The last of the writes is what stays.
        (0..=1000u64).for_each(|n| far.at::<u64>(3).write(&n).unwrap());
        far.fence().unwrap();
        assert_eq!(segments.open("near").unwrap().at::<u64>(0).read().unwrap(), 1);
        far.fetch_add(24, 5).unwrap()
    });
    wait_until("the thread", || outside.is_finished());
    assert_eq!(outside.join().unwrap(), 1000);
    assert_eq!(owner.apply(|owner| owner.at::<u64>(3).read().unwrap()), 1005);
}

pub fn every_thread_finds_a_trust_by_its_name() {
    let publisher = published_far_away();
    let order = || {
        let orders = lookup::<Orders>("orders").unwrap();
        let again = lookup::<Orders>("orders").unwrap();
        orders.apply_with(|orders, order| orders.0.push(order), "one".to_owned());
        again.apply_with(|orders, order| orders.0.push(order), "two".to_owned());
    };
    let fibers: Vec<_> = gossamer::threads().map(|t| spawn_on(t, order)).collect();
    let count = fibers.len();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
    let orders = lookup::<Orders>("orders").unwrap();
    assert_eq!(orders.apply(|orders| orders.0.len()), 2 * count);
    drop(publisher);
    assert_eq!(orders.apply(|orders| orders.0.len()), 2 * count, "it keeps its trust");
}

pub fn a_publication_that_was_dropped_is_not_found() {
    let missing = lookup::<Orders>("orders").unwrap_err();
    assert!(is_not_found(&missing), "{missing}");
    assert_eq!(
        missing.to_string(),
        "\"orders\" is not published by any host: check the name, or wait for it with a `timeout`"
    );
    let publisher = published_far_away();
    // Its entry is cached from here on.
    let orders = lookup::<Orders>("orders").unwrap();
    orders.apply(|orders| orders.0.push("old".to_owned()));
    publisher.apply(|(_, publication)| drop(publication.take()));
    let dropped = lookup::<Orders>("orders").unwrap_err();
    assert!(is_not_found(&dropped), "{dropped}");
    // The same name again, from the same host: the cached entry leads to nothing.
    publisher.apply(|(orders, publication)| {
        *publication = Some(publish("orders", orders).unwrap());
        let taken = publish("orders", orders).unwrap_err();
        assert!(matches!(taken, SegmentError::NameTaken(_)), "{taken}");
    });
    let orders = lookup::<Orders>("orders").unwrap();
    assert_eq!(orders.apply(|orders| orders.0.len()), 1);
    publisher.apply(|(_, publication)| {
        drop(publication.take());
        let other = gossamer::local_trustee().entrust(Orders::default());
        *publication = Some(publish("orders", &other).unwrap());
    });
    let orders = lookup::<Orders>("orders").unwrap();
    assert_eq!(orders.apply(|orders| orders.0.len()), 0, "the new one");
}

pub fn types_and_kinds_are_told_apart() {
    let _publisher = published_far_away();
    let wrong = lookup::<Vec<u8>>("orders").unwrap_err();
    let LookupError::OtherType { host, published, expected, .. } = &wrong else {
        panic!("{wrong}")
    };
    assert_eq!(*host, last_host());
    assert!(published.ends_with("Orders") && expected.ends_with("Vec<u8>"), "{wrong}");
    assert!(wrong.to_string().starts_with("\"orders\" of host "), "{wrong}");
    assert!(wrong.source().is_none());
    let segment = RemoteSegment::open("orders").unwrap_err();
    assert_eq!(segment.to_string(), format!("\"orders\" of {host} is not a segment"));
    let _prices = Segment::builder("prices").len(64).export().unwrap();
    let trust = lookup::<Orders>("prices").unwrap_err();
    assert_eq!(trust.to_string(), "\"prices\" of host 0 is not a trust");
    let number = gossamer::entrust(0u8);
    let taken = publish("prices", &number).unwrap_err();
    assert!(matches!(taken, SegmentError::NameTaken(_)), "{taken}");
    let invalid = publish("no name", &number).unwrap_err();
    assert!(matches!(invalid, SegmentError::InvalidName(_)), "{invalid}");
}

pub fn two_hosts_with_the_name_are_told_apart_by_options() {
    let HostId(last) = last_host();
    if last == 0 {
        return;
    }
    let _far = published_far_away();
    let near = gossamer::entrust(Orders(vec!["near".to_owned()]));
    let publication = publish("orders", &near).unwrap();
    assert_eq!(publication.name().as_str(), "orders");
    let ambiguous = lookup::<Orders>("orders").unwrap_err();
    assert!(
        matches!(ambiguous, LookupError::Segment(SegmentError::Ambiguous { .. })),
        "{ambiguous}"
    );
    let of = |host| {
        let options = gossamer::segments().options().host(HostId(host));
        let orders = gossamer::lookup_with::<Orders>(&options, "orders").unwrap();
        orders.apply(|orders| orders.0.len())
    };
    assert_eq!((of(0), of(last)), (1, 0));
}

pub fn the_example_of_an_exchange_has_a_good_day() {
    let day = ticker::trade(500).unwrap();
    assert_eq!(day.traders.len(), last_host().0 as usize + 1);
    let bought: u32 = day.traders.iter().map(|trader| trader.bought).sum();
    assert_eq!(bought + day.left, 8 * 500, "nothing is sold twice");
    for (host, trader) in (0..).zip(&day.traders) {
        assert_eq!((trader.host, trader.torn), (host, 0));
        assert!(trader.moved >= 25, "woken after a move of {}", trader.moved);
    }
    assert_eq!(day.alarms, day.traders.len() as u64, "one for each that asked");
    assert!(day.ticks > 25);
}
