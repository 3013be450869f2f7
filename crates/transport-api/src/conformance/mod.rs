//! The suite that every backend passes, instantiated by one macro.
//!
//! ```text
//!   // tests/conformance.rs of a backend
//!   fn rack(hosts: u32, threads: u32) -> Rack { .. }
//!   gossamer_transport_api::conformance!(rack);
//! ```
//!
//! A test has two sides: A is thread 0 of the first host, B is thread 1 of the last one. A backend
//! that has only one host runs both sides on it, by `conformance!(rack, one_host)`, which leaves out
//! the tests of a peer's end. A test that does not end within [`DEADLINE`] fails.
//!
//! Reading order: `order` (what a signal and a fence cover, atomics), `memory` (bounds, rights,
//! revocation), `grants` (rights per host, quiet regions, imports that do not block), `reexport`
//! (memory that is exported again), `bulk` (payloads and notifications), `life` (sleep, goodbye, loss,
//! cells). For tests of the layers above: `altered` (a transport that differs from another one as a
//! test asks), [`within`] and [`conformance_tests`](crate::conformance_tests).

mod altered;
pub mod bulk;
pub mod grants;
pub mod life;
pub mod memory;
pub mod order;
pub mod reexport;

use std::panic::resume_unwind;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

pub use altered::{Altered, Faults};
use primitive::SharedBytes;

use crate::{
    Event, HostId, Lane, OpError, Parker, Region, RegionKey, RemoteRegion, Rights, Transport,
};

/// How long a test may take before it counts as hung.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// How long a test waits for anything else once it has been told that its peer has ended.
const AFTER_END: Duration = Duration::from_secs(10);

/// A rack under test, made by the tests of a backend.
pub struct Rack {
    /// The hosts, by number.
    pub hosts: Vec<Arc<dyn Transport>>,
    /// Ends a host without a goodbye, as a crash would.
    pub kill: Box<dyn Fn(HostId) + Send + Sync>,
}

/// Makes a rack of `hosts` hosts (or of one, if the backend has only one) with `threads` threads
/// each.
pub type Make = fn(hosts: u32, threads: u32) -> Rack;

/// Instantiates the whole suite for the racks that a [`Make`](crate::conformance::Make) makes.
/// Attributes in front of the function apply to every test: a backend that needs a device passes
/// `#[ignore = ".."]`.
#[macro_export]
macro_rules! conformance {
    ($(#[$attribute:meta])* $make:path) => {
        $crate::conformance!($(#[$attribute])* $make, one_host);
        $crate::conformance_tests! {
            [$(#[$attribute])*] $make, [$crate::conformance]:
            life {
                a_goodbye_is_not_a_loss, a_loss_is_reported_and_final, a_loss_wakes_a_sleeper,
                a_thread_that_knows_of_a_loss_sleeps, what_was_sent_before_a_goodbye_arrives,
            }
        }
    };
    ($(#[$attribute:meta])* $make:path, one_host) => {
        $crate::conformance_tests! {
            [$(#[$attribute])*] $make, [$crate::conformance]:
            order {
                a_signal_covers_every_earlier_write, a_signalled_write_is_never_torn, a_tag_covers_its_parts,
                atomics_lose_nothing, lanes_of_two_threads_do_not_mix, a_word_is_never_torn,
                a_fence_covers_earlier_writes, a_fence_reports_a_refusal_once,
            }
            memory {
                a_region_starts_zeroed_and_reads_back, operations_stay_inside_the_region,
                operations_need_their_rights, words_are_aligned, regions_belong_to_their_peer,
                a_revoked_region_is_refused, a_dropped_region_is_revoked,
                revoking_under_fire_ends_the_fire, an_import_waits_for_its_export,
                what_does_not_exist_is_named,
            }
            grants {
                rights_are_each_hosts_own, an_inhibited_region_is_not_written,
                a_quiet_region_is_not_written, an_import_does_not_block, an_import_wakes_its_thread,
            }
            reexport {
                reexported_memory_keeps_its_bytes, a_stale_import_of_reexported_memory_is_refused,
                rights_are_withdrawn_and_given_back, broader_access_is_refused,
                a_live_region_is_not_reexported, a_region_of_another_transport_is_not_reexported,
                a_writer_is_inhibited_under_fire, a_notification_outlives_a_change_of_access,
            }
            bulk {
                payloads_of_every_size_arrive_whole, payloads_keep_their_order_among_many,
                payloads_wait_for_room_without_blocking, a_bulk_payload_wakes_its_receiver,
                a_notification_follows_its_data, a_notification_says_how_much,
                a_notification_wakes_its_receiver,
                notifications_wait_for_their_receiver_and_are_counted,
                payloads_that_wait_are_counted, bad_payloads_are_refused,
            }
            life {
                no_wake_is_lost, a_wake_travels_with_its_flush,
                a_wake_travels_between_threads_of_one_number, a_wake_travels_behind_what_has_left,
                an_unpark_wakes_a_sleeper,
                a_wake_during_the_last_look_is_kept,
                a_sleeper_wakes_by_itself, a_cell_goes_back_and_forth,
            }
        }
    };
}

/// For the macros of suites: makes a test of each named function of each named module of `$suite`. A
/// function takes the [`Make`](crate::conformance::Make) `$make`. The first bracket has the
/// attributes of every test.
///
/// ```text
///   conformance_tests! { [#[ignore = ".."]] rack, [$crate::conformance]: names { one, another } }
/// ```
#[macro_export]
macro_rules! conformance_tests {
    (@test [$(#[$attribute:meta])*] $make:path, [$($suite:tt)+]: $module:ident $test:ident) => {
        #[test]
        $(#[$attribute])*
        fn $test() { $($suite)+::$module::$test($make) }
    };
    (@module $attributes:tt $make:path, $suite:tt: $module:ident { $($test:ident),* }) => {
        $($crate::conformance_tests!(@test $attributes $make, $suite: $module $test);)*
    };
    ($attributes:tt $make:path, $suite:tt: $($module:ident { $($test:ident),* $(,)? })+) => {
        $($crate::conformance_tests!(@module $attributes $make, $suite: $module { $($test),* });)+
    };
}

/// Runs `test`, and fails if it takes longer than [`DEADLINE`].
fn bounded(test: impl FnOnce() + Send + 'static) {
    within(DEADLINE, test);
}

/// Runs `test` on a thread of its own, and returns when it has ended. For suites and tests of other
/// crates, too.
///
/// # Panics
/// If `test` does, with its panic, or if it takes longer than `limit`; its thread then runs on.
pub fn within(limit: Duration, test: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    let body = thread::spawn(move || {
        test();
        // The receiver is gone if the limit has passed.
        let _ = done.send(());
    });
    if let Err(mpsc::RecvTimeoutError::Timeout) = ended.recv_timeout(limit) {
        panic!("the test did not end within {limit:?}");
    }
    if let Err(panic) = body.join() {
        resume_unwind(panic)
    }
}

/// Runs both closures, each on its own thread, and returns when both have ended. Panics as they do.
fn together(a: impl FnOnce() + Send, b: impl FnOnce() + Send) {
    thread::scope(|scope| {
        for side in [scope.spawn(a), scope.spawn(b)] {
            if let Err(panic) = side.join() {
                resume_unwind(panic)
            }
        }
    });
}

/// The key of the region that every port exports so that lanes to it can be
/// [probed](Port::outcome).
const PROBE: RegionKey = RegionKey(u64::MAX);

/// The token of probes, which no test uses for other operations.
const PROBE_TOKEN: u64 = u64::MAX;

/// A side of a test: a thread with a lane to the opposite side.
struct Port {
    transport: Arc<dyn Transport>,
    thread: u32,
    peer: HostId,
    peer_thread: u32,
    lane: Box<dyn Lane>,
    probe: Option<RemoteRegion>,
    _probe: Option<Region>,
    events: Vec<Event>,
}

impl Port {
    fn open(transport: &Arc<dyn Transport>, thread: u32, peer: HostId, peer_thread: u32) -> Port {
        let transport = transport.clone();
        let lane = transport.lane(thread, peer).expect("a lane");
        // Fails for side B of a rack of one host, where side A has exported it.
        let _probe = transport.export(PROBE, 64, Rights::READ.into()).ok();
        let (probe, events) = (None, Vec::new());
        Port { transport, thread, peer, peer_thread, lane, probe, _probe, events }
    }

    /// Both sides of a rack: thread 0 of the first host and thread 1 of the last.
    fn pair(rack: &Rack) -> (Port, Port) {
        let (first, last) = (&rack.hosts[0], &rack.hosts[rack.hosts.len() - 1]);
        let a = Port::open(first, 0, last.local(), 1);
        let b = Port::open(last, 1, first.local(), 0);
        (a, b)
    }

    /// As [`pair`](Self::pair), but threads with the same number, unless there is only one host.
    fn pair_of_one_number(rack: &Rack) -> (Port, Port) {
        let (first, last) = (&rack.hosts[0], &rack.hosts[rack.hosts.len() - 1]);
        if first.local() == last.local() {
            return Port::pair(rack);
        }
        (Port::open(first, 1, last.local(), 1), Port::open(last, 1, first.local(), 1))
    }

    fn import(&mut self, key: u64) -> RemoteRegion {
        self.transport.import(self.peer, RegionKey(key), DEADLINE).expect("an import")
    }

    fn export(&mut self, key: u64, len: usize, rights: Rights) -> Region {
        self.transport.export(RegionKey(key), len, rights.into()).expect("an export")
    }

    fn poll(&mut self) -> bool {
        let events = &mut self.events;
        self.lane.poll(&mut |event| events.push(event))
    }

    /// Polls until `done` finds something among the events that no caller has taken yet. Fails soon if
    /// that leaves the end of the peer there, behind which its lane reports nothing.
    fn until<T>(&mut self, what: &str, mut done: impl FnMut(&mut Vec<Event>) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            self.poll();
            if let Some(found) = done(&mut self.events) {
                return found;
            }
            let ended = self.events.iter().find(|event| matches!(event, Event::Peer(_)));
            let most = if ended.is_some() { AFTER_END } else { DEADLINE / 2 };
            assert!(start.elapsed() < most, "waited in vain for {what}; its peer: {ended:?}");
            thread::yield_now();
        }
    }

    /// As [`until`](Self::until), but sleeps after each poll that finds nothing: a lost wake hangs.
    fn until_woken<T>(
        &mut self,
        what: &str,
        parker: &mut dyn Parker,
        mut done: impl FnMut(&mut Vec<Event>) -> Option<T>,
    ) -> T {
        loop {
            let moved = self.poll();
            if let Some(found) = done(&mut self.events) {
                return found;
            }
            self.check_peer(what);
            if !moved {
                parker.park(DEADLINE, &mut || false);
            }
        }
    }

    /// Fails if the lane has reported the end of the peer. A thread that sleeps in between must ask:
    /// nothing wakes it any more, so it would look as if a wake had been lost.
    fn check_peer(&self, what: &str) {
        let ended = self.events.iter().find(|event| matches!(event, Event::Peer(_)));
        assert!(ended.is_none(), "waited in vain for {what}; its peer: {ended:?}");
    }

    /// Polls until the word at `at` of `memory` satisfies `done`, and returns it. Loads the word
    /// much more often than it polls.
    fn until_word(&mut self, memory: &SharedBytes, at: usize, done: impl Fn(u64) -> bool) -> u64 {
        const LOOKS: u32 = 300;
        self.until("a word", |_| {
            let look = |_| memory.load(at, primitive::sync::Ordering::Acquire);
            (0..LOOKS).map(look).find(|word| done(*word))
        })
    }

    /// Waits for the completion of `token`, and returns its value.
    fn completion(&mut self, token: u64) -> Result<u64, OpError> {
        self.until("a completion", |events| {
            let found = events.iter().position(|event| match event {
                Event::Completed { token: t, .. } => *t == token,
                Event::Failed { token: t, .. } => t.is_none_or(|t| t == token),
                _ => false,
            })?;
            match events.remove(found) {
                Event::Completed { value, .. } => Some(Ok(value)),
                Event::Failed { error, .. } => Some(Err(error)),
                _ => None,
            }
        })
    }

    /// Takes the next bulk payload: sender, tag, bytes.
    fn next_bulk(&mut self) -> (crate::ThreadId, u64, Vec<u8>) {
        self.until("a bulk payload", bulk_in)
    }

    /// Starts `operation` and returns its outcome, whether the backend reports it at once or later:
    /// waits for a read that is started behind it on the same lane.
    fn outcome(
        &mut self,
        operation: impl FnOnce(&mut dyn Lane) -> Result<(), OpError>,
    ) -> Result<(), OpError> {
        operation(&mut *self.lane)?;
        let probe = match &self.probe {
            Some(probe) => probe.clone(),
            None => self.transport.import(self.peer, PROBE, DEADLINE).expect("the probe"),
        };
        self.probe = Some(probe.clone());
        self.lane.read(&probe, 0, &SharedBytes::heap(8), PROBE_TOKEN)?;
        self.lane.flush()?;
        // Including the probe's completion, which the next call would otherwise take for its own.
        let mut until_then: Vec<_> = self.until("the end of an operation", |events| {
            let is_probe = |event: &Event| {
                matches!(event, Event::Completed { token, .. } if *token == PROBE_TOKEN)
            };
            let ended = events.iter().position(is_probe)?;
            Some(events.drain(..=ended).collect())
        });
        until_then.pop();
        let mut failure = None;
        // Other events, such as the end of an import, stay for their tests.
        let others = until_then.into_iter().filter_map(|event| match event {
            Event::Failed { error, .. } => {
                failure.get_or_insert(error);
                None
            }
            other => Some(other),
        });
        self.events.splice(..0, others);
        failure.map_or(Ok(()), Err)
    }
}

/// Takes the first bulk payload from `events`: sender, tag, bytes.
fn bulk_in(events: &mut Vec<Event>) -> Option<(crate::ThreadId, u64, Vec<u8>)> {
    let found = events.iter().position(|event| matches!(event, Event::Bulk { .. }))?;
    match events.remove(found) {
        Event::Bulk { from, tag, payload } => Some((from, tag.0, payload)),
        _ => None,
    }
}

/// New local memory that holds `bytes`.
fn filled(bytes: &[u8]) -> SharedBytes {
    let memory = SharedBytes::heap(bytes.len().max(8)).slice(0, bytes.len());
    memory.write_from(0, bytes);
    memory
}

/// All bytes of `memory`.
fn bytes(memory: &SharedBytes) -> Vec<u8> {
    let mut out = vec![0; memory.len()];
    memory.read_into(0, &mut out);
    out
}
