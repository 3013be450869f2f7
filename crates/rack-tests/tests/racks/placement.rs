//! Where fibers and values go that name no trustee, on every kind of rack and under every policy.

use std::collections::BTreeMap;

use gossamer::{Placement, Rack, ThreadId, Trust, local_host, local_trustee, trustees};

use crate::common::{KINDS, Kind, run_as, within_deadline};

/// Runs `main` on every kind of rack with these settings.
fn on_every_rack(name: &'static str, settings: fn() -> Rack, main: fn(Kind)) {
    within_deadline(name, move || {
        for kind in KINDS {
            let ended = run_as(kind, settings().check_leaks(true), move || main(kind));
            ended.unwrap_or_else(|error| panic!("{kind:?}: {error:?}"));
        }
    });
}

/// How many fibers started without a trustee run on each thread.
fn fibers(count: usize) -> BTreeMap<ThreadId, usize> {
    let fibers: Vec<_> = (0..count)
        .map(|_| gossamer::spawn_with(|()| local_trustee().trustee().thread(), ()))
        .collect();
    tally(fibers.into_iter().map(|fiber| fiber.join().unwrap()))
}

/// How many values made without a trustee are on each thread.
fn values(count: usize) -> BTreeMap<ThreadId, usize> {
    let values: Vec<Trust<usize>> =
        (0..count).map(|number| gossamer::entrust_with(|number| number, number)).collect();
    for (number, value) in values.iter().enumerate() {
        assert_eq!(value.apply(|value| *value), number);
    }
    tally(values.iter().map(|value| value.trustee().thread()))
}

fn tally(threads: impl Iterator<Item = ThreadId>) -> BTreeMap<ThreadId, usize> {
    let mut tally = BTreeMap::new();
    threads.for_each(|thread| *tally.entry(thread).or_default() += 1);
    tally
}

/// Two for each of these threads.
fn two_each(threads: impl Iterator<Item = ThreadId>) -> BTreeMap<ThreadId, usize> {
    threads.map(|thread| (thread, 2)).collect()
}

#[test]
fn by_default_all_threads_of_the_rack_take_turns() {
    on_every_rack("by default", Rack::new, |kind| {
        let all: Vec<_> = gossamer::threads().map(|trustee| trustee.thread()).collect();
        assert_eq!(fibers(2 * all.len()), two_each(all.iter().copied()), "{kind:?}");
        assert_eq!(values(2 * all.len()), two_each(all.iter().copied()), "{kind:?}");
        // What cannot travel stays, and takes no turn.
        let host = local_host();
        let stays = |thread: ThreadId| assert_eq!(thread.host, host, "{kind:?}");
        for _ in 0..all.len() {
            stays(gossamer::entrust(0).trustee().thread());
            stays(gossamer::spawn(|| local_trustee().trustee().thread()).join().unwrap());
        }
    });
}

#[test]
fn the_next_of_two_goes_to_another_host() {
    on_every_rack("the next of two", Rack::new, |kind| {
        if kind != Kind::Threads {
            assert_eq!(values(2).keys().map(|thread| thread.host.0).collect::<Vec<_>>(), [0, 1]);
            assert_eq!(fibers(2).keys().map(|thread| thread.host.0).collect::<Vec<_>>(), [0, 1]);
        }
    });
}

#[test]
fn on_the_own_host_only_its_threads_take_turns() {
    let settings = || Rack::new().placement(Placement::OwnHost);
    on_every_rack("on the own host", settings, |kind| {
        let here = local_host();
        let all = gossamer::threads().map(|trustee| trustee.thread());
        let own: Vec<_> = all.filter(|thread| thread.host == here).collect();
        assert_eq!(fibers(2 * own.len()), two_each(own.iter().copied()), "{kind:?}");
        assert_eq!(values(2 * own.len()), two_each(own.iter().copied()), "{kind:?}");
    });
}

#[test]
fn dedicated_trustees_of_all_hosts_take_the_values_and_the_others_the_fibers() {
    on_every_rack(
        "dedicated trustees",
        || Rack::new().dedicated_trustees(1),
        |kind| {
            let holders: Vec<_> = trustees().map(|trustee| trustee.thread()).collect();
            assert_eq!(values(2 * holders.len()), two_each(holders.iter().copied()), "{kind:?}");
            let all = gossamer::threads().map(|trustee| trustee.thread());
            let workers: Vec<_> = all.filter(|thread| !holders.contains(thread)).collect();
            assert_eq!(fibers(2 * workers.len()), two_each(workers.iter().copied()), "{kind:?}");
        },
    );
}
