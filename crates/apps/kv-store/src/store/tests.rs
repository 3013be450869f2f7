//! Responses to each request, memory accounting and eviction order.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;

const NOW: Seconds = 1_700_000_000;

/// A store with a memory limit of its own.
fn limited(bytes: usize) -> Store {
    Store::sharing(&Arc::new(MemoryLimit::new(bytes, 1)))
}

fn set(store: &mut Store, key: &str, data: &str) -> Response {
    store.store(Verb::Set, key.as_bytes(), 0, 0, data.as_bytes(), NOW)
}

fn get_at(store: &mut Store, key: &str, now: Seconds) -> Option<String> {
    match store.execute(Request::Get { key: key.into(), max_bytes: u32::MAX }, now) {
        Response::Value { data, .. } => Some(String::from_utf8(data.to_vec()).unwrap()),
        Response::Miss => None,
        other => panic!("{other:?}"),
    }
}

fn get(store: &mut Store, key: &str) -> Option<String> {
    get_at(store, key, NOW)
}

fn cas_of(store: &mut Store, key: &str) -> u64 {
    match store.execute(Request::Get { key: key.into(), max_bytes: u32::MAX }, NOW) {
        Response::Value { cas, .. } => cas,
        other => panic!("{other:?}"),
    }
}

fn change(store: &mut Store, key: &str, direction: Direction, delta: u64) -> Response {
    store.execute(Request::Arithmetic { key: key.into(), direction, delta }, NOW)
}

#[test]
fn each_verb_has_its_condition() {
    let mut store = Store::default();
    let mut put = |verb, data: &str| store.store(verb, b"k", 3, 0, data.as_bytes(), NOW);
    assert_eq!(put(Verb::Replace, "x"), Response::NotStored);
    assert_eq!(put(Verb::Append, "x"), Response::NotStored);
    assert_eq!(put(Verb::Cas(1), "x"), Response::NotFound);
    assert_eq!(put(Verb::Add, "b"), Response::Stored);
    assert_eq!(put(Verb::Add, "x"), Response::NotStored);
    assert_eq!(put(Verb::Append, "c"), Response::Stored);
    assert_eq!(put(Verb::Prepend, "a"), Response::Stored);
    assert_eq!(get(&mut store, "k").as_deref(), Some("abc"));
    let cas = cas_of(&mut store, "k");
    let mut put = |verb, data: &str| store.store(verb, b"k", 4, 0, data.as_bytes(), NOW);
    assert_eq!(put(Verb::Cas(cas + 1), "x"), Response::Exists);
    assert_eq!(put(Verb::Cas(cas), "y"), Response::Stored);
    assert_eq!(put(Verb::Cas(cas), "z"), Response::Exists);
    assert_eq!(get(&mut store, "k").as_deref(), Some("y"));
}

#[test]
fn a_read_of_more_than_it_asked_for_learns_the_size_and_changes_nothing() {
    let mut store = Store::default();
    set(&mut store, "k", "abc");
    let get = |max_bytes| Request::Get { key: Key::new(b"k"), max_bytes };
    let gat = |max_bytes| Request::GetAndTouch { key: Key::new(b"k"), exptime: -1, max_bytes };
    assert_eq!(store.execute(get(2), NOW), Response::Large { bytes: 3 });
    assert_eq!(store.execute(gat(2), NOW), Response::Large { bytes: 3 });
    assert_eq!(store.stats().cmd_get, 0);
    assert!(matches!(store.execute(gat(3), NOW), Response::Value { .. }));
    assert_eq!(store.execute(get(2), NOW), Response::Miss, "expired by the touch");
}

#[test]
fn responses_share_the_data_and_keep_it_when_the_item_changes() {
    let mut store = Store::default();
    set(&mut store, "k", "12");
    let read = |store: &mut Store| match store
        .execute(Request::Get { key: Key::new(b"k"), max_bytes: u32::MAX }, NOW)
    {
        Response::Value { data, .. } => data,
        other => panic!("{other:?}"),
    };
    let (first, second) = (read(&mut store), read(&mut store));
    assert!(std::ptr::eq(&*first, &*second), "one allocation for both responses");
    assert_eq!(change(&mut store, "k", Direction::Increment, 1), Response::Number(13));
    assert!(store.write_at((store.hash(b"k"), b"k"), 1, b"4", NOW));
    assert_eq!((&*first, &*second, &*read(&mut store)), (&b"12"[..], &b"12"[..], &b"14"[..]));
}

#[test]
fn appending_keeps_flags_and_expiry() {
    let mut store = Store::default();
    store.store(Verb::Set, b"k", 5, 10, b"a", NOW);
    store.store(Verb::Append, b"k", 9, 100, b"b", NOW);
    let value = store.execute(Request::Get { key: Key::new(b"k"), max_bytes: u32::MAX }, NOW + 9);
    assert!(matches!(value, Response::Value { flags: 5, .. }), "{value:?}");
    assert_eq!(get_at(&mut store, "k", NOW + 10), None);
}

#[test]
fn items_expire_lazily_and_touch_moves_the_deadline() {
    let mut store = Store::default();
    store.store(Verb::Set, b"k", 0, 10, b"v", NOW);
    let touch = |exptime| Request::Touch { key: Key::new(b"k"), exptime };
    assert_eq!(store.execute(touch(20), NOW), Response::Touched);
    assert_eq!(get_at(&mut store, "k", NOW + 19).as_deref(), Some("v"));
    let gat = Request::GetAndTouch { key: Key::new(b"k"), exptime: -1, max_bytes: u32::MAX };
    assert!(matches!(store.execute(gat, NOW + 19), Response::Value { .. }));
    assert_eq!(store.len(), 1, "a dead item stays until its key is accessed");
    assert_eq!(get_at(&mut store, "k", NOW + 19), None);
    assert_eq!(store.len(), 0);
    assert_eq!(store.memory(), 0);
    assert_eq!(store.execute(touch(20), NOW), Response::NotFound);
    assert_eq!(store.stats().get_expired, 1);
}

#[test]
fn a_dead_item_can_be_added_but_not_replaced() {
    let mut store = Store::default();
    store.store(Verb::Set, b"k", 0, -1, b"v", NOW);
    assert_eq!(store.store(Verb::Replace, b"k", 0, 0, b"w", NOW), Response::NotStored);
    store.store(Verb::Set, b"k", 0, -1, b"v", NOW);
    assert_eq!(store.store(Verb::Add, b"k", 0, 0, b"w", NOW), Response::Stored);
}

#[test]
fn a_flush_hides_everything_before_it_and_nothing_after() {
    let mut store = Store::default();
    set(&mut store, "old", "v");
    assert_eq!(store.control(Control::FlushAll { exptime: 0 }, NOW), Response::Done);
    set(&mut store, "new", "v");
    assert_eq!(get(&mut store, "old"), None);
    assert_eq!(get(&mut store, "new").as_deref(), Some("v"));
    assert!(store.peek(b"old", NOW).is_none());
    assert_eq!(store.stats().get_flushed, 1);
}

#[test]
fn a_delayed_flush_waits() {
    let mut store = Store::default();
    set(&mut store, "a", "v");
    store.control(Control::FlushAll { exptime: 10 }, NOW);
    set(&mut store, "b", "v");
    assert_eq!(get_at(&mut store, "a", NOW + 9).as_deref(), Some("v"));
    assert!(store.peek(b"b", NOW + 10).is_none());
    assert_eq!(get_at(&mut store, "b", NOW + 10), None);
    assert_eq!(get_at(&mut store, "a", NOW + 10), None);
    store.store(Verb::Set, b"c", 0, 0, b"v", NOW + 10);
    assert_eq!(get_at(&mut store, "c", NOW + 99).as_deref(), Some("v"));
}

#[test]
fn numbers_wrap_up_stop_at_zero_and_keep_their_width_going_down() {
    use Direction::{Decrement, Increment};
    let mut store = Store::default();
    assert_eq!(change(&mut store, "n", Increment, 1), Response::NotFound);
    set(&mut store, "n", "9");
    assert_eq!(change(&mut store, "n", Increment, 1), Response::Number(10));
    assert_eq!(get(&mut store, "n").as_deref(), Some("10"));
    assert_eq!(change(&mut store, "n", Decrement, 1), Response::Number(9));
    assert_eq!(get(&mut store, "n").as_deref(), Some("9 "));
    assert_eq!(change(&mut store, "n", Decrement, 100), Response::Number(0));
    set(&mut store, "n", "18446744073709551615");
    assert_eq!(change(&mut store, "n", Increment, 1), Response::Number(0));
    set(&mut store, "n", "12a");
    assert_eq!(change(&mut store, "n", Increment, 1), Response::NotNumeric);
    set(&mut store, "n", "");
    assert_eq!(change(&mut store, "n", Increment, 1), Response::NotNumeric);
}

#[test]
fn sizes_are_limited() {
    let mut store = Store::default();
    // The largest that memcached 1.6.18 stores with a key of one byte.
    let big = vec![b'x'; 1_048_516];
    assert_eq!(store.store(Verb::Set, b"k", 1, 0, &big, NOW), Response::TooLarge);
    assert_eq!(store.store(Verb::Set, b"k", 0, 0, &big, NOW), Response::Stored);
    assert_eq!(store.store(Verb::Append, b"k", 0, 0, b"x", NOW), Response::NotStored);
    let more = [&big[..], b"x"].concat();
    assert_eq!(store.store(Verb::Set, b"j", 0, 0, &more, NOW), Response::TooLarge);
    let key = [b'k'; KEY_BYTES_MAX + 1];
    assert_eq!(store.store(Verb::Set, &key, 0, 0, b"", NOW), Response::TooLarge);
}

#[test]
fn a_request_of_another_host_with_too_long_a_key_makes_no_item() {
    let mut store = Store::default();
    let key = || Key::from(&[b'k'; 300][..]);
    let steps = || vec![wire::Step::Vivify(0)];
    let requests = [
        Request::MetaGet {
            key: key(),
            binary_key: false,
            max_bytes: Some(100),
            no_update: false,
            steps: steps(),
        },
        Request::MetaArithmetic {
            key: key(),
            direction: Direction::Increment,
            delta: 1,
            compare: 0,
            initial: 7,
            steps: steps(),
        },
    ];
    for request in requests {
        assert_eq!(store.execute(request, NOW), Response::TooLarge);
    }
    assert_eq!(store.stats().total_items, 0);
}

#[test]
fn the_least_recently_used_items_are_evicted() {
    let each = item::Item::memory_for(1 + 100);
    let mut store = limited(3 * each);
    let data = "x".repeat(100);
    for key in ["a", "b", "c"] {
        set(&mut store, key, &data);
    }
    // The second read makes an item active; the first does not.
    for key in ["a", "a", "b"] {
        get(&mut store, key);
    }
    set(&mut store, "d", &data);
    assert!(store.peek(b"b", NOW).is_none(), "the least recently used that is not active");
    assert!(store.peek(b"a", NOW).is_some() && store.peek(b"c", NOW).is_some());
    assert_eq!((store.stats().evictions, store.stats().moves_to_warm), (1, 1));
    // A value that by itself exceeds the limit removes its own predecessor and nothing else.
    let huge = "x".repeat(3 * each);
    assert_eq!(set(&mut store, "a", &huge), Response::OutOfMemory);
    assert_eq!(get(&mut store, "a"), None);
    assert_eq!(store.len(), 2);
}

#[test]
fn items_that_have_expired_make_room_before_live_ones() {
    let each = item::Item::memory_for(4 + 100);
    let mut store = limited(100 * each);
    let data = "x".repeat(100);
    let put = |store: &mut Store, number: usize, exptime, now| {
        let key = format!("{number:04}");
        store.store(Verb::Set, key.as_bytes(), 0, exptime, data.as_bytes(), now)
    };
    (0..50).for_each(|number| drop(put(&mut store, number, 0, NOW)));
    (50..80).for_each(|number| drop(put(&mut store, number, 5, NOW)));
    // The expired ones are newer than the live ones, so the order of use does not tell.
    (80..120).for_each(|number| drop(put(&mut store, number, 0, NOW + 5)));
    assert_eq!((store.stats().evictions, store.stats().crawler_reclaimed), (0, 30));
    assert_eq!(store.len(), 90);
    // Unless that is disabled.
    store.control(Control::Set(Setting::Crawler(false)), NOW);
    (120..130).for_each(|number| drop(put(&mut store, number, 1, NOW + 5)));
    (130..140).for_each(|number| drop(put(&mut store, number, 0, NOW + 10)));
    assert_eq!((store.stats().evictions, store.stats().crawler_reclaimed), (10, 30));
}

#[test]
fn hot_items_are_evicted_before_warm_ones() {
    let each = item::Item::memory_for(1 + 100);
    let mut store = limited(3 * each);
    let lru = LruSettings { hot_percent: 40, warm_percent: 100, ..LruSettings::default() };
    store.control(Control::SetLru(lru), NOW);
    let data = "x".repeat(100);
    for key in ["a", "b", "c"] {
        set(&mut store, key, &data);
        // Active, so each moves to Warm when Hot is full.
        (0..2).for_each(|_| drop(get(&mut store, key)));
    }
    set(&mut store, "d", &data);
    set(&mut store, "e", &data);
    assert!(store.peek(b"d", NOW).is_none() && store.peek(b"e", NOW).is_some());
}

#[test]
fn without_segments_a_read_counts_once_a_minute() {
    let each = item::Item::memory_for(1 + 100);
    let mut store = limited(2 * each);
    let flat = LruSettings { segmented: false, ..LruSettings::default() };
    store.control(Control::SetLru(flat), NOW);
    let data = "x".repeat(100);
    let mut keys = ["a", "b", "c", "d"].into_iter();
    for key in keys.by_ref().take(2) {
        set(&mut store, key, &data);
    }
    get_at(&mut store, "a", NOW + 60);
    let put = |store: &mut Store, key: &str, now| {
        store.store(Verb::Set, key.as_bytes(), 0, 0, data.as_bytes(), now)
    };
    put(&mut store, "c", NOW + 61);
    assert!(store.peek(b"a", NOW).is_none(), "read too soon after it was stored");
    get_at(&mut store, "b", NOW + 61);
    put(&mut store, "d", NOW + 62);
    assert!(store.peek(b"b", NOW).is_some() && store.peek(b"c", NOW).is_none());
}

#[test]
fn items_that_expire_soon_stay_in_a_segment_of_their_own() {
    let mut store = limited(1 << 20);
    let lru = LruSettings { temporary_ttl: Some(60), ..LruSettings::default() };
    store.control(Control::SetLru(lru), NOW);
    store.store(Verb::Set, b"soon", 0, 60, b"", NOW);
    store.store(Verb::Set, b"later", 0, 61, b"", NOW);
    let Response::Items(report) = store.control(Control::Items, NOW + 5) else { panic!() };
    assert_eq!(report.counts[3], 1);
    assert_eq!(report.counts.iter().sum::<u64>(), 2);
    assert_eq!(report.ages[3], 5);
}

#[test]
fn a_crawl_removes_dead_items_in_parts() {
    let mut store = Store::default();
    for number in 0..10 {
        let exptime = if number % 2 == 0 { 5 } else { 0 };
        store.store(Verb::Set, format!("k{number}").as_bytes(), 0, exptime, b"v", NOW);
    }
    let (mut from, mut parts) = (Some(0), 0);
    while let Some(at) = from {
        let crawl = Control::Crawl { from: at, count: 3 };
        let Response::Crawled { next } = store.control(crawl, NOW + 5) else { panic!() };
        (from, parts) = (next, parts + 1);
    }
    assert_eq!((parts, store.len()), (4, 5));
    assert_eq!(store.stats().crawler_reclaimed, 5);
    let endless = store.control(Control::Crawl { from: 0, count: 0 }, NOW);
    assert_eq!(endless, Response::Crawled { next: None });
}

#[test]
fn a_smaller_memory_limit_evicts() {
    let each = item::Item::memory_for(1 + 100);
    let mut store = limited(4 * each);
    for key in ["a", "b", "c", "d"] {
        set(&mut store, key, &"x".repeat(100));
    }
    let shrink = |store: &mut Store| store.control(Control::Shrink { count: 1 }, NOW);
    store.control(Control::MemoryLimit { bytes: 2 * each as u64 }, NOW);
    assert_eq!((store.len(), shrink(&mut store)), (4, Response::Busy));
    assert_eq!((store.len(), shrink(&mut store)), (3, Response::Done));
    assert_eq!((store.len(), store.stats().evictions), (2, 2));
    assert!(store.memory() <= 2 * each);
}

#[test]
fn insertions_evict_a_few_items_beyond_a_lowered_limit() {
    let each = item::Item::memory_for(4 + 100);
    let mut store = limited(100 * each);
    let put = |store: &mut Store, number: usize| {
        set(store, &format!("{number:04}"), &"x".repeat(100));
    };
    (0..100).for_each(|number| put(&mut store, number));
    store.control(Control::MemoryLimit { bytes: 50 * each as u64 }, NOW);
    put(&mut store, 100);
    assert_eq!(store.len(), 92, "one for the new item, and eight more");
    (101..110).for_each(|number| put(&mut store, number));
    assert_eq!(store.len(), 50);
    assert_eq!(store.control(Control::Shrink { count: 1 }, NOW), Response::Done);
}

#[test]
fn one_crawl_runs_at_a_time_and_a_setting_ends_it() {
    let mut store = Store::default();
    set(&mut store, "k", "v");
    assert_eq!(store.control(Control::BeginCrawl, NOW), Response::Done);
    assert_eq!(store.control(Control::BeginCrawl, NOW), Response::Busy);
    assert_eq!((store.stats().lru_crawler_starts, store.stats().lru_crawler_running), (1, 1));
    store.control(Control::EndCrawl, NOW);
    assert_eq!(store.control(Control::BeginCrawl, NOW), Response::Done);
    store.control(Control::Set(Setting::Crawler(false)), NOW);
    store.control(Control::Crawl { from: 0, count: 1 }, NOW);
    assert_eq!(store.stats().crawler_items_checked, 0);
}

#[test]
fn refused_writes_are_counted() {
    let mut store = Store::default();
    store.control(Control::CountPrefixes(true), NOW);
    set(&mut store, "p:k", "v");
    let mut refused = |reason, meta| {
        store.execute(Request::Refused { key: Key::new(b"p:k"), reason, meta }, NOW);
        (store.stats().cmd_set, store.stats().store_too_large, store.len())
    };
    assert_eq!(refused(Refusal::BadData, false), (2, 0, 1));
    assert_eq!(refused(Refusal::TooLarge { removes: false }, false), (2, 1, 1));
    assert_eq!(refused(Refusal::TooLarge { removes: true }, true), (2, 2, 0));
    let all = Control::Prefixes { from: Vec::new(), count: 10 };
    let Response::Prefixes { counters, .. } = store.control(all, NOW) else { panic!() };
    assert_eq!(counters[0].1.sets, 3, "meta commands do not count");
}

#[test]
fn sizes_and_prefixes_are_counted_on_request() {
    let mut store = Store::default();
    set(&mut store, "before:k", "v");
    store.control(Control::CountSizes(true), NOW);
    store.control(Control::CountPrefixes(true), NOW);
    set(&mut store, "p:k", "v");
    get(&mut store, "p:k");
    get(&mut store, "p:none");
    let all = Control::Sizes { from: 0, count: 10 };
    let Response::Sizes(Some(sizes)) = store.control(all.clone(), NOW) else { panic!() };
    assert_eq!(sizes.iter().map(|(_, count)| count).sum::<u64>(), 1);
    store.execute(Request::Delete { key: Key::new(b"p:k") }, NOW);
    store.execute(Request::Delete { key: Key::new(b"before:k") }, NOW);
    assert_eq!(store.control(all, NOW), Response::Sizes(Some(Vec::new())));
    let all = Control::Prefixes { from: Vec::new(), count: 10 };
    let Response::Prefixes { counters, counting: true } = store.control(all.clone(), NOW) else {
        panic!()
    };
    let of = |prefix: &[u8]| counters.iter().find(|(name, _)| name == prefix).unwrap().1;
    assert_eq!(of(b"p"), prefixes::PrefixStats { gets: 2, hits: 1, sets: 1, deletes: 1 });
    assert_eq!(of(b"before").deletes, 1);
    store.control(Control::CountPrefixes(false), NOW);
    get(&mut store, "p:k");
    // They stay, and nothing is added.
    assert_eq!(store.control(all, NOW), Response::Prefixes { counters, counting: false });
}

#[test]
fn counters_add_up() {
    let mut store = Store::default();
    set(&mut store, "k", "v");
    get(&mut store, "k");
    get(&mut store, "none");
    store.execute(Request::Delete { key: Key::new(b"k") }, NOW);
    let mut stats = store.stats();
    stats.add(&stats.clone());
    let of = |name| stats.each().find(|(n, _)| *n == name).unwrap().1;
    assert_eq!((of("cmd_get"), of("get_hits"), of("get_misses")), (4, 2, 2));
    assert_eq!((of("cmd_set"), of("delete_hits"), of("curr_items")), (2, 2, 0));
    store.control(Control::ResetStats, NOW);
    assert_eq!(store.stats().cmd_get, 0);
}

#[derive(Clone, Debug)]
enum Step {
    Request(Request),
    Flush,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let key = (0..6u8).prop_map(|k| Key::new(&vec![b'a' + k; 1 + usize::from(k)]));
    let data = prop::collection::vec(prop::sample::select(&b"0123456789 x"[..]), 0..60);
    let exptime = prop::sample::select(vec![0, 0, 0, 5, 50, -1]);
    let verb = prop_oneof![
        4 => Just(Verb::Set),
        1 => Just(Verb::Add),
        1 => Just(Verb::Replace),
        1 => Just(Verb::Append),
        1 => Just(Verb::Prepend),
        1 => (1..20u64).prop_map(Verb::Cas),
    ];
    let up = prop::sample::select(vec![Direction::Increment, Direction::Decrement]);
    prop_oneof![
        6 => (verb, key.clone(), exptime.clone(), data).prop_map(|(verb, key, exptime, data)| {
            Step::Request(Request::Store { verb, key, flags: 0, exptime, data, meta: None })
        }),
        4 => key.clone().prop_map(|key| Step::Request(Request::Get { key, max_bytes: u32::MAX })),
        1 => key.clone().prop_map(|key| Step::Request(Request::Delete { key })),
        1 => key.clone().prop_map(|key| {
            let reason = Refusal::TooLarge { removes: true };
            Step::Request(Request::Refused { key, reason, meta: false })
        }),
        1 => (key.clone(), exptime.clone())
            .prop_map(|(key, exptime)| Step::Request(Request::Touch { key, exptime })),
        1 => (key.clone(), exptime)
            .prop_map(|(key, exptime)| Step::Request(Request::GetAndTouch { key, exptime, max_bytes: u32::MAX })),
        2 => (key, up, any::<u64>()).prop_map(|(key, direction, delta)| {
            Step::Request(Request::Arithmetic { key, direction, delta })
        }),
        1 => Just(Step::Flush),
        1 => (0..20u64).prop_map(Step::Wait),
    ]
}

proptest! {
    /// With a limit so tight that almost every write evicts: the limit holds after each step, the
    /// counted memory is that of the items, and what was just stored is there.
    #[test]
    fn memory_is_counted_exactly(
        steps in prop::collection::vec(step(), 1..120)
    ) {
        let limit = 3 * item::Item::memory_for(64);
        let mut tight = limited(limit);
        let mut now = NOW;
        for step in steps {
            match step {
                Step::Request(request) => {
                    let key = request.key().to_vec();
                    let stored = matches!(&request, Request::Store { exptime: 0.., .. });
                    let response = tight.execute(request, now);
                    if stored && response == Response::Stored {
                        prop_assert!(tight.peek(&key, now).is_some(), "what was stored is there");
                    }
                }
                Step::Flush => {
                    tight.control(Control::FlushAll { exptime: 0 }, now);
                    prop_assert!((b'a'..b'g').all(|k| tight.peek(&[k], now).is_none()));
                }
                Step::Wait(seconds) => now += seconds,
            }
            prop_assert!(tight.memory() <= limit);
            prop_assert_eq!(tight.memory(), tight.memory_recounted());
        }
    }
}
