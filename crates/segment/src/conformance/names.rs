//! Lookups of names: at one host and at all, present and missing, cached, by every strategy.

use std::time::Duration;

use transport_api::HostId;
use transport_api::conformance::Make;

use crate::conformance::{DEADLINE, Player, play, script};
use crate::engine::run;
use crate::lookup::{self, Query};
use crate::table::{Entry, Published, SLOTS, Strategy, home_slot};
use crate::{Name, Notify, Segment, SegmentError};

/// The host of player 1, in racks of several hosts.
const SECOND: HostId = HostId(1);

fn is_not_found<T>(result: &Result<T, SegmentError>) -> bool {
    matches!(result, Err(SegmentError::NotFound { .. }))
}

/// A name that no host publishes is not found, before and after a host has published another name.
pub fn a_name_that_is_not_published_is_not_found(make: Make) {
    let owner = script(|owner| {
        owner.meet();
        // No host has a registry yet.
        owner.meet();
        let _other = owner.export("other", 8);
        owner.meet();
        owner.meet();
    });
    let user = script(|user| {
        let look = || {
            for host in (0..user.segments.hosts()).map(HostId) {
                let result = user.segments.options().host(host).open("unknown").map(drop);
                let Err(SegmentError::NotFound { hosts, .. }) = &result else {
                    panic!("{result:?}");
                };
                assert_eq!(hosts[..], [host]);
            }
            let result = user.segments.open("unknown").map(drop);
            assert!(is_not_found(&result), "{result:?}");
            assert_eq!(
                result.unwrap_err().to_string(),
                "\"unknown\" is not published by any host: check the name, or wait for it with a `timeout`"
            );
        };
        user.meet();
        look();
        user.meet();
        user.meet();
        look();
        assert!(user.segments.open("other").is_ok());
        user.meet();
    });
    play(make, [owner, user]);
}

/// Two hosts publish one name: opening it is an error unless the options name the host.
pub fn a_name_of_two_hosts_is_ambiguous(make: Make) {
    let owner = |number: u64| {
        script(move |owner: &Player| {
            let segment = owner.export("both", 8);
            segment.at(0).write(&number).expect("a word");
            owner.meet();
            owner.meet();
            // The segment of host 1 is now the only one of that name.
            if number == 0 {
                drop(segment);
            }
            owner.meet();
            owner.meet();
        })
    };
    let user = script(|user| {
        user.meet();
        let options = user.segments.options();
        // Repeated, because a cached entry must not resolve the ambiguity.
        for _ in 0..3 {
            let result = user.segments.open("both").map(drop);
            let Err(SegmentError::Ambiguous { hosts, .. }) = &result else { panic!("{result:?}") };
            assert_eq!(hosts[..], [HostId(0), SECOND]);
            let result = options.clone().uncached().open("both").map(drop);
            assert!(matches!(result, Err(SegmentError::Ambiguous { .. })), "{result:?}");
            for host in [HostId(0), SECOND] {
                let segment = options.clone().host(host).open("both").expect("one of them");
                assert_eq!(segment.owner(), host);
                let number = segment.at::<u64>(0).read().expect("a read");
                assert_eq!(number, u64::from(host.0));
            }
        }
        user.meet();
        user.meet();
        user.until("the only one", || {
            user.segments.open("both").is_ok_and(|segment| segment.owner() == SECOND)
        });
        user.meet();
    });
    play(make, [owner(0), owner(1), user]);
}

/// An outdated entry of the cache is looked up again, whatever differs.
pub fn a_cached_name_is_checked_when_it_is_opened(make: Make) {
    const EXPORTS: [(usize, Notify); 5] = [
        (64, Notify::Conditional),
        // The same length: only the generation differs from the export before.
        (64, Notify::Always),
        (64, Notify::Never),
        (128, Notify::Never),
        (64, Notify::Always),
    ];
    let owner = script(|owner| {
        for (len, notify) in EXPORTS {
            let builder = owner.segments.builder("cached").len(len).notify(notify);
            let segment = builder.export().expect("a segment");
            owner.meet();
            owner.meet();
            segment.revoke().expect("a revocation");
        }
        owner.meet();
        owner.meet();
    });
    let user = script(|user| {
        for (generation, (len, notify)) in (0..).zip(EXPORTS) {
            user.meet();
            for is_forced in [false, false, true, false] {
                let options = user.segments.options();
                let options = if is_forced { options.uncached() } else { options };
                let segment = options.open("cached").expect("an open segment");
                assert_eq!(
                    (segment.generation(), segment.len(), segment.notify_mode()),
                    (generation, len, notify)
                );
            }
            user.meet();
        }
        user.meet();
        let result = user.segments.open("cached").map(drop);
        assert!(is_not_found(&result), "{result:?}");
        user.meet();
    });
    play(make, [owner, user]);
}

/// A refresh drops entries of names that are gone, and keeps and updates the others.
pub fn a_refresh_forgets_what_is_gone(make: Make) {
    let owner = script(|owner| {
        let export = |name: &&str| owner.export(name, 8);
        let mut segments: Vec<Segment> = ["a", "b", "c", "d"].iter().map(export).collect();
        owner.meet();
        owner.meet();
        drop(segments.remove(2));
        drop(segments.remove(1));
        segments.push(owner.export("b", 16));
        owner.meet();
        owner.meet();
    });
    let user = script(|user| {
        user.meet();
        let opened = ["a", "b", "c", "d"].map(|name| user.open(name));
        assert_eq!(user.segments.refresh().expect("a refresh"), 4);
        user.meet();
        user.meet();
        assert_eq!(user.segments.refresh().expect("a refresh"), 3, "c is gone");
        assert_eq!(user.open("b").len(), 16);
        assert!(is_not_found(&user.segments.open("c")));
        drop(opened);
        user.meet();
    });
    play(make, [owner, user]);
}

/// `count` names with the same home slot.
fn colliding(count: usize) -> Vec<String> {
    let home = |name: &String| home_slot(&Name::new(name).expect("a name"), SLOTS);
    let names = (0..).map(|n| format!("name-{n}"));
    let first = home(&"name-0".to_owned());
    names.filter(|name| home(name) == first).take(count).collect()
}

/// Every strategy finds every name of a long chain of collisions, and reports a missing one.
pub fn colliding_names_are_found_by_every_strategy(make: Make) {
    const COUNT: usize = 6;
    const STRATEGIES: [Strategy; 6] = [
        Strategy::Probe,
        Strategy::Ask,
        Strategy::ProbeThenAsk(0),
        Strategy::ProbeThenAsk(1),
        Strategy::ProbeThenAsk(3),
        Strategy::ProbeThenAsk(100),
    ];
    let names = colliding(COUNT + 1);
    let names_of_owner = names.clone();
    let owner = script(move |owner| {
        let names = &names_of_owner[..COUNT];
        let mut segments: Vec<_> =
            (1..).zip(names).map(|(number, name)| owner.export(name, number * 8)).collect();
        owner.meet();
        owner.meet();
        // Leaves a gap that lookups of later names must pass.
        drop(segments.remove(2));
        owner.meet();
        owner.meet();
    });
    let user = script(move |user| {
        let look = |missing: &[usize]| {
            for strategy in STRATEGIES {
                let options = user.segments.options().uncached().strategy(strategy);
                for (index, name) in names.iter().enumerate() {
                    for options in [options.clone(), options.clone().host(HostId(0))] {
                        let found = options.open(name);
                        if missing.contains(&index) {
                            assert!(is_not_found(&found), "{name} by {strategy:?}: {found:?}");
                        } else {
                            let found = found
                                .unwrap_or_else(|error| panic!("{name} by {strategy:?}: {error}"));
                            assert_eq!(found.len(), (index + 1) * 8, "{name} by {strategy:?}");
                        }
                    }
                }
            }
        };
        user.meet();
        look(&[COUNT]);
        user.meet();
        user.meet();
        look(&[2, COUNT]);
        user.meet();
    });
    play(make, [owner, user]);
}

/// An entry whose numbers all derive from `number`.
fn entry(name: Name, number: u32) -> Entry {
    let id = u64::from(number);
    let what = Published::Trust { thread: number % 100, id: !id };
    Entry { name, generation: number, what }
}

/// The owner publishes and withdraws an entry as fast as it can: a lookup finds all of it or none.
pub fn an_entry_is_never_torn(make: Make) {
    const LOOKUPS: u64 = 150;
    let name = Name::new("hammered").expect("a name");
    let owner = script(move |owner| {
        // The registry exists, and the name has a neighbour in the table.
        let _other = owner.export("other", 8);
        owner.meet();
        let (clerk, transport) = (&owner.segments.0.clerk, &owner.segments.0.transport);
        let mut number = 0;
        while !owner.is_awaited() {
            number += 1;
            clerk.add(&**transport, entry(name, number)).expect("a new name");
            if number.is_multiple_of(16) {
                owner.attached.poll();
            }
            clerk.remove(&name, number);
        }
        owner.meet();
    });
    let user = script(move |user| {
        user.meet();
        let mut found = 0;
        let strategies = [Strategy::Probe, Strategy::ProbeThenAsk(1), Strategy::Ask];
        let mut last = 0;
        for n in 0_usize.. {
            if n as u64 >= user.times(LOOKUPS) && found > 0 {
                break;
            }
            let query = Query { is_forced: true, strategy: strategies[n % 16 % 3] };
            let result = run(&user.segments.0, move |engine| {
                lookup::lookup(engine, &name, Some(HostId(0)), query)
            });
            match result {
                Ok(there) => {
                    let number = there.entry.generation;
                    assert_eq!(there.entry, entry(name, number));
                    assert!(number >= last, "{number} after {last}");
                    last = number;
                    found += 1;
                }
                Err(SegmentError::NotFound { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        user.meet();
    });
    play(make, [owner, user]);
}

/// An open with a timeout waits for a name that is exported later.
pub fn an_open_waits_for_a_later_export(make: Make) {
    let owner = script(|owner| {
        owner.meet();
        owner.linger();
        let _early = owner.export("other", 8);
        owner.linger();
        let segment = owner.export("later", 8);
        owner.meet();
        segment.revoke().expect("a revocation");
        owner.meet();
    });
    let user = script(|user| {
        user.meet();
        let brief =
            user.segments.options().timeout(Duration::from_millis(3)).open("never").map(drop);
        assert!(is_not_found(&brief), "{brief:?}");
        let segment = user.segments.options().timeout(DEADLINE).open("later");
        assert_eq!(segment.expect("an open segment").len(), 8);
        user.meet();
        user.meet();
    });
    play(make, [owner, user]);
}

/// The registry holds `SLOTS` names; a further export fails, until a name is withdrawn.
pub fn a_host_has_room_for_a_limited_number_of_names(make: Make) {
    let owner = script(|owner| {
        let first = owner.export("first", 8);
        let (clerk, transport) = (&owner.segments.0.clerk, &owner.segments.0.transport);
        // Entries only: no segments stand behind these names.
        let names: Vec<_> =
            (1..SLOTS).map(|n| Name::new(&format!("name-{n}")).expect("a name")).collect();
        for name in &names {
            clerk.add(&**transport, entry(*name, 3)).expect("room");
        }
        let full = owner.segments.builder("one-more").len(8).export().map(drop);
        assert!(matches!(full, Err(SegmentError::NamesFull(SLOTS))), "{full:?}");
        owner.meet();
        owner.meet();
        clerk.remove(&names[77], 3);
        let last = owner.export("one-more", 8);
        assert!(last.generation() > 0, "the refused export had a number");
        drop(first);
        owner.meet();
        owner.meet();
    });
    let user = script(|user| {
        user.meet();
        assert_eq!(user.open("first").len(), 8);
        let other = user.segments.open("name-1").map(drop);
        assert!(matches!(other, Err(SegmentError::OtherKind { .. })), "{other:?}");
        user.meet();
        user.meet();
        let options = user.segments.options().host(HostId(0)).strategy(Strategy::ProbeThenAsk(2));
        assert_eq!(options.open("one-more").expect("an open segment").len(), 8);
        user.meet();
    });
    play(make, [owner, user]);
}
