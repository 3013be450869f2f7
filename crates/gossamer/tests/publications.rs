//! Trusts under names: found from every thread of every kind of rack, of the right type only, until
//! they are taken back or their host is gone.

mod common;

use std::error::Error as _;

use common::{KINDS, Kind, run, within_deadline};
use gossamer::{
    HostId, LookupError, Publication, RemoteSegment, Segment, SegmentError, Trust, lookup, publish,
    spawn_on,
};

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

fn not_found(error: &LookupError) -> bool {
    matches!(error, LookupError::Segment(SegmentError::NotFound { .. }))
}

#[test]
fn every_thread_finds_a_trust_by_its_name() {
    within_deadline("every_thread_finds_a_trust_by_its_name", || {
        for kind in KINDS {
            run(kind, || {
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
            })
            .unwrap_or_else(|error| panic!("{kind:?}: {error:?}"));
        }
    });
}

#[test]
fn a_publication_that_was_dropped_is_not_found() {
    within_deadline("a_publication_that_was_dropped_is_not_found", || {
        for kind in KINDS {
            run(kind, || {
                let missing = lookup::<Orders>("orders").unwrap_err();
                assert!(not_found(&missing), "{missing}");
                assert_eq!(missing.to_string(), "\"orders\" is not published by any host");
                let publisher = published_far_away();
                // Its entry is cached from here on.
                let orders = lookup::<Orders>("orders").unwrap();
                orders.apply(|orders| orders.0.push("old".to_owned()));
                publisher.apply(|(_, publication)| drop(publication.take()));
                let dropped = lookup::<Orders>("orders").unwrap_err();
                assert!(not_found(&dropped), "{dropped}");
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
            })
            .unwrap_or_else(|error| panic!("{kind:?}: {error:?}"));
        }
    });
}

#[test]
fn types_and_kinds_are_told_apart() {
    within_deadline("types_and_kinds_are_told_apart", || {
        for kind in KINDS {
            run(kind, move || {
                let _publisher = published_far_away();
                let wrong = lookup::<Vec<u8>>("orders").unwrap_err();
                let LookupError::OtherType { host, published, expected, .. } = &wrong else {
                    panic!("{wrong}")
                };
                assert_eq!(host.0 > 0, kind != Kind::Threads);
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
            })
            .unwrap_or_else(|error| panic!("{kind:?}: {error:?}"));
        }
    });
}

#[test]
fn two_hosts_with_the_name_are_told_apart_by_options() {
    within_deadline("two_hosts_with_the_name_are_told_apart_by_options", || {
        for kind in KINDS.into_iter().filter(|kind| *kind != Kind::Threads) {
            run(kind, || {
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
                assert_eq!((of(0), of(1)), (1, 0));
            })
            .unwrap_or_else(|error| panic!("{kind:?}: {error:?}"));
        }
    });
}

#[test]
fn outside_a_rack_there_are_no_publications() {
    let missing = lookup::<Orders>("orders").unwrap_err();
    assert!(matches!(missing, LookupError::Segment(SegmentError::NotAttached)), "{missing}");
}
