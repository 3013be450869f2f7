//! Revocation that holds: it ends when no thread of any host can be in the middle of an operation on
//! the region any more, and waits for no thread that is gone.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use gossamer_transport_shm::ShmTransport;
use transport_api::{Event, HostId, Lane, OpError, RegionError, RegionKey, Rights, Transport};

/// How long anything here may take before it counts as hung.
const DEADLINE: Duration = Duration::from_secs(20);

/// Long enough for a revocation to end that nothing delays.
const WHILE: Duration = Duration::from_millis(50);

const KEY: RegionKey = RegionKey(1);
const TOKEN: u64 = 7;

fn lane(transport: &ShmTransport, thread: u32, peer: u32) -> Box<dyn Lane> {
    transport.lane(thread, HostId(peer)).expect("a lane")
}

/// Polls `lane` for up to `time`, until an import or a revocation that `TOKEN` names has ended: its
/// error, if it has one.
fn ends(lane: &mut dyn Lane, time: Duration) -> Option<Result<(), RegionError>> {
    let (start, mut end) = (Instant::now(), None);
    while end.is_none() && start.elapsed() < time {
        lane.poll(&mut |event| match event {
            Event::Completed { token: TOKEN, .. } => end = Some(Ok(())),
            Event::Imported { token: TOKEN, result } => end = Some(result.map(drop)),
            Event::Failed { token: Some(TOKEN), error: OpError::NotQuiet { key, hosts } } => {
                end = Some(Err(RegionError::NotQuiet { key, hosts }));
            }
            _ => {}
        });
        thread::yield_now();
    }
    end
}

fn hosts() -> [Arc<ShmTransport>; 2] {
    let hosts = ShmTransport::in_process(2, 2).expect("a rack");
    hosts.try_into().unwrap_or_else(|_| panic!("two hosts"))
}

#[test]
fn a_revocation_waits_for_every_importing_thread() {
    let [owner, importer] = hosts();
    let region = owner.export(KEY, 64, Rights::ALL.into()).expect("an export");
    let remote = importer.import(HostId(0), KEY, DEADLINE).expect("an import");
    let mut lanes = [0, 1].map(|thread| lane(&importer, thread, 0));
    let mut own = lane(&owner, 0, 0);
    lanes[0].signal(&remote, 0, 1).expect("a signal");
    owner.begin_revoke(0, KEY, TOKEN).expect("a revocation");
    assert!(lanes[0].signal(&remote, 0, 2).is_err(), "no operation starts any more");
    assert!(ends(&mut *own, WHILE).is_none(), "two threads may be in an operation");
    lanes[0].poll(&mut |_| ());
    assert!(ends(&mut *own, WHILE).is_none(), "one thread may be in an operation");
    lanes[1].poll(&mut |_| ());
    assert!(matches!(ends(&mut *own, DEADLINE), Some(Ok(()))));
    drop(region);
}

#[test]
fn a_revocation_waits_for_threads_of_the_owner() {
    let rack = ShmTransport::threads(2).expect("a rack");
    let _region = rack.export(KEY, 64, Rights::ALL.into()).expect("an export");
    let _remote = rack.import(HostId(0), KEY, DEADLINE).expect("an import");
    let (mut own, mut other) = (lane(&rack, 0, 0), lane(&rack, 1, 0));
    rack.begin_revoke(0, KEY, TOKEN).expect("a revocation");
    assert!(ends(&mut *own, WHILE).is_none(), "a thread may be in an operation");
    other.poll(&mut |_| ());
    assert!(matches!(ends(&mut *own, DEADLINE), Some(Ok(()))));
}

#[test]
fn a_revocation_waits_for_no_thread_without_a_lane() {
    let [owner, importer] = hosts();
    let _region = owner.export(KEY, 64, Rights::ALL.into()).expect("an export");
    let _remote = importer.import(HostId(0), KEY, DEADLINE).expect("an import");
    let idle = lane(&importer, 0, 0);
    let mut own = lane(&owner, 0, 0);
    owner.begin_revoke(0, KEY, TOKEN).expect("a revocation");
    assert!(ends(&mut *own, WHILE).is_none(), "a thread may be in an operation");
    drop(idle);
    assert!(matches!(ends(&mut *own, DEADLINE), Some(Ok(()))), "the thread has no lane");
}

/// Whether a revocation has ended because `busy` may still use the region.
fn is_not_quiet(end: &Option<Result<(), RegionError>>, busy: HostId) -> bool {
    matches!(end, Some(Err(RegionError::NotQuiet { key: KEY, hosts })) if *hosts == [busy])
}

/// Where hosts are threads of one process, a host that is lost may use the region for ever.
#[test]
fn a_host_that_is_lost_may_use_the_region_while_its_process_runs() {
    for is_lost_before in [false, true] {
        let [owner, importer] = hosts();
        let _region = owner.export(KEY, 64, Rights::ALL.into()).expect("an export");
        let remote = importer.import(HostId(0), KEY, DEADLINE).expect("an import");
        let mut second = lane(&importer, 1, 0);
        let mut own = lane(&owner, 0, 0);
        let mut to_importer = lane(&owner, 0, 1);
        if is_lost_before {
            importer.sever();
            let (start, mut is_lost) = (Instant::now(), false);
            while !is_lost {
                to_importer.poll(&mut |event| is_lost |= matches!(event, Event::Peer(_)));
                assert!(start.elapsed() < DEADLINE, "its loss goes unnoticed");
            }
            second.signal(&remote, 0, 2).expect("a signal: the region is mapped");
        }
        owner.begin_revoke(0, KEY, TOKEN).expect("a revocation");
        assert!(ends(&mut *own, WHILE).is_none(), "a thread may be in an operation");
        importer.sever();
        let end = ends(&mut *own, DEADLINE);
        assert!(is_not_quiet(&end, HostId(1)), "{end:?}");
        second.poll(&mut |_| ());
    }
}

/// A host whose service thread has ended watches no process: it claims nothing of its peers, and its
/// own threads count as before.
#[test]
fn a_revocation_without_a_service_thread_ends_and_claims_nothing() {
    let [owner, importer] = hosts();
    let export = || owner.export(KEY, 64, Rights::ALL.into()).expect("an export");
    let mut own = lane(&owner, 0, 0);
    let mut other = lane(&owner, 1, 0);
    let region = export();
    let _remote = importer.import(HostId(0), KEY, DEADLINE).expect("an import");
    let _importing = lane(&importer, 0, 0);
    owner.begin_revoke(0, KEY, TOKEN).expect("a revocation");
    assert!(ends(&mut *own, WHILE).is_none(), "a thread may be in an operation");
    owner.sever();
    let end = ends(&mut *own, DEADLINE);
    assert!(is_not_quiet(&end, HostId(1)), "{end:?}");
    drop(region);

    let region = export();
    let _own_import = owner.import(HostId(0), KEY, DEADLINE).expect("an import");
    owner.begin_revoke(0, KEY, TOKEN).expect("a revocation");
    assert!(ends(&mut *own, WHILE).is_none(), "the other thread may be in an operation");
    other.poll(&mut |_| ());
    assert!(matches!(ends(&mut *own, DEADLINE), Some(Ok(()))), "only own threads used it");
    drop(region);
}

#[test]
fn a_revocation_waits_for_no_thread_that_closes_its_lane_and_polls_another() {
    let [owner, importer] = hosts();
    let _region = owner.export(KEY, 64, Rights::ALL.into()).expect("an export");
    let _remote = importer.import(HostId(0), KEY, DEADLINE).expect("an import");
    let (asked, mut own) = (lane(&importer, 0, 0), lane(&owner, 0, 0));
    owner.begin_revoke(0, KEY, TOKEN).expect("a revocation");
    assert!(ends(&mut *own, WHILE).is_none(), "a thread may be in an operation");
    let mut later = lane(&importer, 0, 1);
    drop(asked);
    assert!(ends(&mut *own, WHILE).is_none(), "the thread may still be in one");
    later.poll(&mut |_| ());
    assert!(matches!(ends(&mut *own, DEADLINE), Some(Ok(()))), "it has polled its other lane");
}

/// A rack of one host has no service thread, whatever waits in it.
#[test]
fn an_import_of_an_own_region_times_out_and_is_answered() {
    let rack = ShmTransport::threads(1).expect("a rack");
    let mut own = lane(&rack, 0, 0);
    rack.begin_import(0, HostId(0), KEY, WHILE, TOKEN).expect("an import");
    let end = ends(&mut *own, DEADLINE);
    assert!(matches!(end, Some(Err(RegionError::Unknown { .. }))), "{end:?}");
    rack.begin_import(0, HostId(0), KEY, DEADLINE * 2, TOKEN).expect("an import");
    assert!(ends(&mut *own, WHILE).is_none(), "it is not exported");
    let _region = rack.export(KEY, 64, Rights::ALL.into()).expect("an export");
    assert!(matches!(ends(&mut *own, DEADLINE), Some(Ok(()))));
}
