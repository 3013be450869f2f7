//! Malicious peers and peers that take nothing: an owner or an importer of segments neither panics nor
//! hangs, buffers little for them, and keeps serving other hosts.
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gossamer_segment::testing::{REGISTRY_BYTES, Table};
use gossamer_segment::{Attached, Entry, Name, Notify, Published, Rights, SegmentError, Strategy};
use primitive::SharedBytes;
use transport_api::{Event, HostId, Lane, Namespace, Region, RegionKey, RemoteRegion, Tag};

use crate::common::{Host, bounded, faulty, in_fiber, on_each, shm, tcp};

const REGISTRY: RegionKey = RegionKey::new(Namespace::SEGMENTS, 0);
const FIRST: RegionKey = RegionKey::new(Namespace::SEGMENTS, 1);
const SECOND: RegionKey = RegionKey::new(Namespace::SEGMENTS, 2);
const TIMEOUT: Duration = Duration::from_secs(30);

fn poll_until(attached: &Attached, is_over: impl Fn() -> bool) {
    while !is_over() {
        attached.park(Duration::from_millis(1));
    }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// A malicious host: it uses the transport directly, and its registry has entries that are not true.
struct Liar<'a> {
    host: &'a Host,
    lane: Box<dyn Lane>,
    table: Table,
    regions: Vec<Region>,
}

impl Liar<'_> {
    fn new(host: &Host) -> Liar<'_> {
        let transport = &host.transport;
        let lane = transport.lane(0, HostId(0)).expect("a lane");
        let region = transport.export(REGISTRY, REGISTRY_BYTES, Rights::READ.into());
        let region = region.expect("a registry");
        let table = Table::new(region.memory().clone());
        Liar { host, lane, table, regions: vec![region] }
    }

    fn publish(&mut self, text: &str, (number, len, thread): (u64, u64, u32)) {
        let key = RegionKey::new(Namespace::SEGMENTS, number);
        let what = Published::Segment { key, len, notify: Notify::Conditional, thread };
        self.table.insert(Entry { name: name(text), generation: 0, what }).expect("room");
    }

    fn export(&mut self, number: u64, len: usize) {
        let key = RegionKey::new(Namespace::SEGMENTS, number);
        let region = self.host.transport.export(key, len, Rights::ALL.into());
        self.regions.push(region.expect("a region"));
    }

    /// Polls until `is_over`; hands what arrives to `each`.
    fn serve(&mut self, is_over: &AtomicBool, mut each: impl FnMut(&mut dyn Lane, Event)) {
        while !is_over.load(Ordering::Relaxed) {
            let mut events = Vec::new();
            self.lane.poll(&mut |event| events.push(event));
            events.into_iter().for_each(|event| each(&mut *self.lane, event));
            let _ = self.lane.flush();
            thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Sets a flag when it is dropped, so that a failed assertion ends the peer's thread, too.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A notification may arrive after its segment was revoked and its name exported again with a shorter
/// length. That is no violation, because the writer could not know.
#[test]
fn a_late_notification_is_no_violation() {
    bounded(|| {
        let hosts = shm(2, 1);
        let step = AtomicU32::new(0);
        let at = |number| step.load(Ordering::Acquire) >= number;
        thread::scope(|scope| {
            let (step, user) = (&step, &hosts[1]);
            scope.spawn(move || {
                let attached = user.segments.attach(0).expect("attached");
                let options = user.segments.options().timeout(TIMEOUT);
                let remote = options.clone().open("notified").expect("a segment");
                step.store(1, Ordering::Release);
                poll_until(&attached, || step.load(Ordering::Acquire) >= 2);
                remote.write_notify(4000, &[7; 8]).expect("a write");
                step.store(3, Ordering::Release);
                poll_until(&attached, || step.load(Ordering::Acquire) >= 4);
                let remote = options.uncached().open("notified").expect("a segment");
                remote.write_notify(8, &[7; 8]).expect("a write");
                poll_until(&attached, || step.load(Ordering::Acquire) >= 5);
            });
            let attached = hosts[0].segments.attach(0).expect("attached");
            let export = |len| hosts[0].segments.builder("notified").len(len).export();
            let segment = export(4096).expect("a segment");
            poll_until(&attached, || at(1));
            step.store(2, Ordering::Release);
            while !at(3) {
                // Without a poll, so that the notification is not taken yet.
                thread::yield_now();
            }
            drop(segment);
            let segment = export(64).expect("a segment");
            step.store(4, Ordering::Release);
            let notification =
                segment.notified_timeout(TIMEOUT).expect("a segment").expect("a peer");
            assert_eq!((notification.from, notification.offset), (HostId(1), 8));
            step.store(5, Ordering::Release);
        });
    });
}

/// Many fibers write to a host that acknowledges nothing: together they start at most 512 KiB.
#[test]
fn fibers_do_not_pile_up_writes_for_a_host_that_acknowledges_none() {
    const FIBERS: usize = 64;
    const PIECE: usize = 64 << 10;
    bounded(|| {
        let hosts = tcp(2, 1);
        let is_over = Arc::new(AtomicBool::new(false));
        let (owner, there) = (hosts[1].clone(), is_over.clone());
        let owner = thread::spawn(move || {
            let attached = owner.segments.attach(0).expect("attached");
            let builder = owner.segments.builder("slow").len(PIECE);
            let _segment = builder.export().expect("a segment");
            poll_until(&attached, || there.load(Ordering::Relaxed));
        });
        let (user, faults) = faulty(&hosts[0]);
        in_fiber(&user.clone(), 0, move || {
            let _ends = Ends(&is_over);
            let remote = user.segments.options().timeout(TIMEOUT).open("slow");
            let remote = Rc::new(remote.expect("a segment"));
            faults.no_events.store(true, Ordering::Relaxed);
            let begun = Rc::new(Cell::new(0));
            let fibers: Vec<_> = (0..FIBERS)
                .map(|_| {
                    let (remote, begun) = (remote.clone(), begun.clone());
                    fiber::spawn_local(move || {
                        for _ in 0..2 {
                            remote.write(0, &[7; PIECE]).expect("a write");
                            begun.set(begun.get() + PIECE);
                        }
                    })
                })
                .collect();
            fiber::sleep(Duration::from_millis(100));
            let most = begun.get();
            faults.no_events.store(false, Ordering::Relaxed);
            fibers.into_iter().for_each(|fiber| fiber.join().expect("no panic"));
            remote.fence().expect("all have arrived");
            assert_eq!(begun.get(), FIBERS * 2 * PIECE);
            assert!(most <= 512 << 10, "{most} bytes in flight");
        });
        owner.join().expect("no panic");
    });
}

/// A clerk that answers a lookup with the entry of another name is lost as a violator; one that never
/// answers is an error after a timeout.
#[test]
fn a_clerk_that_answers_wrongly_or_never_is_an_error() {
    const FOUND: Tag = Tag::new(Namespace::SEGMENTS, 2);
    on_each(3, 1, |hosts| {
        let is_over = AtomicBool::new(false);
        let ready = AtomicU32::new(0);
        thread::scope(|scope| {
            let (is_over, ready) = (&is_over, &ready);
            for (number, host) in (1..).zip(&hosts[1..]) {
                scope.spawn(move || {
                    let mut liar = Liar::new(host);
                    ready.fetch_add(1, Ordering::Release);
                    liar.serve(is_over, |lane, event| {
                        let Event::Bulk { from, payload, .. } = event else { return };
                        if number == 2 {
                            return;
                        }
                        let key = RegionKey::new(Namespace::SEGMENTS, 1);
                        let (len, notify) = (64, Notify::Never);
                        let what = Published::Segment { key, len, notify, thread: 0 };
                        let entry = Entry { name: name("other"), generation: 0, what };
                        let mut answer = payload[..8].to_vec();
                        for word in entry.encode() {
                            answer.extend_from_slice(&word.to_ne_bytes());
                        }
                        lane.bulk(from.thread, FOUND, answer).expect("a payload");
                    });
                });
            }
            let _ends = Ends(is_over);
            let attached = hosts[0].segments.attach(0).expect("attached");
            poll_until(&attached, || ready.load(Ordering::Acquire) == 2);
            let lookup = |host| {
                let options = hosts[0].segments.options().strategy(Strategy::Ask);
                options.host(HostId(host)).lookup("wanted")
            };
            let lied = lookup(1);
            assert!(matches!(lied, Err(SegmentError::PeerLost(HostId(1), _))), "{lied:?}");
            let silent = lookup(2);
            let Err(SegmentError::Unanswered { host: HostId(2), .. }) = &silent else {
                panic!("{silent:?}");
            };
        });
    });
}

/// Registry entries with a wrong length or a thread that does not exist.
#[test]
fn false_registry_entries_are_errors() {
    on_each(2, 1, |hosts| {
        let is_over = AtomicBool::new(false);
        let is_ready = AtomicBool::new(false);
        thread::scope(|scope| {
            let (is_over, is_ready) = (&is_over, &is_ready);
            scope.spawn(move || {
                let mut liar = Liar::new(&hosts[1]);
                liar.export(1, 64);
                liar.publish("longer", (1, isize::MAX as u64, 0));
                liar.publish("shorter", (1, 1, 0));
                liar.publish("thread", (1, 64, 255));
                is_ready.store(true, Ordering::Release);
                liar.serve(is_over, |_, _| ());
            });
            let _ends = Ends(is_over);
            let attached = hosts[0].segments.attach(0).expect("attached");
            poll_until(&attached, || is_ready.load(Ordering::Acquire));
            for text in ["longer", "shorter"] {
                let opened = hosts[0].segments.open(text);
                assert!(matches!(opened, Err(SegmentError::Revoked { .. })), "{opened:?}");
            }
            let remote = hosts[0].segments.open("thread").expect("a segment");
            remote.write(0, &[7; 8]).expect("a write");
            remote.fence().expect("it is there");
            for refused in [remote.write_notify(0, &[9; 8]), remote.write_block_notify(0, &[8; 8])]
            {
                assert!(matches!(refused, Err(SegmentError::Refused { .. })), "{refused:?}");
            }
            // The atomic has taken effect, so it succeeds although no thread can be notified.
            assert_eq!(remote.fetch_add_notify(0, 1).expect("done"), u64::from_ne_bytes([8; 8]));
            let word = u64::from_ne_bytes([8; 8]) + 1;
            assert_eq!(remote.at::<u64>(0).read().expect("as good as before"), word);
        });
    });
}

/// A peer that sends a notification of bytes outside the segment, or of a segment that was never
/// exported, is lost as a violator; the owner continues.
#[test]
fn false_notifications_end_only_their_sender() {
    let lies: [fn(&mut dyn Lane, &RemoteRegion, &RemoteRegion); 3] = [
        |lane, notified, _| {
            let nothing = SharedBytes::heap(8).slice(0, 0);
            lane.write_notify(notified, 64, &nothing, 0, u32::MAX).expect("a notification");
        },
        |lane, notified, _| {
            let nothing = SharedBytes::heap(8).slice(0, 0);
            lane.write_notify(notified, 60, &nothing, 0, 5).expect("a notification");
        },
        |lane, _, unknown| {
            let word = SharedBytes::heap(8);
            lane.write_notify(unknown, 0, &word, 0, 0).expect("a notification");
        },
    ];
    for lie in lies {
        for rack in [shm, tcp] {
            bounded(move || {
                let hosts = rack(2, 1);
                let is_over = AtomicBool::new(false);
                let is_ready = AtomicBool::new(false);
                thread::scope(|scope| {
                    let (is_over, is_ready, hosts) = (&is_over, &is_ready, &hosts);
                    scope.spawn(move || {
                        while !is_ready.load(Ordering::Acquire) {
                            thread::yield_now();
                        }
                        let mut liar = Liar::new(&hosts[1]);
                        let import = |key| {
                            let transport = &hosts[1].transport;
                            transport.import(HostId(0), key, TIMEOUT).expect("a region")
                        };
                        let unknown = RegionKey::new(Namespace::SEGMENTS, 1 << 40);
                        let (notified, unknown) = (import(FIRST), import(unknown));
                        lie(&mut *liar.lane, &notified, &unknown);
                        liar.lane.flush().expect("a peer");
                        liar.serve(is_over, |_, _| ());
                    });
                    let _ends = Ends(is_over);
                    let attached = hosts[0].segments.attach(0).expect("attached");
                    let segment =
                        hosts[0].segments.builder("notified").len(64).export().expect("one");
                    let key = RegionKey::new(Namespace::SEGMENTS, 1 << 40);
                    let _unknown = hosts[0].transport.export(key, 64, Rights::ALL.into());
                    is_ready.store(true, Ordering::Release);
                    let options = hosts[0].segments.options().host(HostId(1));
                    let end = Instant::now() + TIMEOUT;
                    loop {
                        attached.park(Duration::from_millis(1));
                        match options.clone().uncached().lookup("nothing") {
                            Err(SegmentError::PeerLost(HostId(1), _)) => break,
                            other => assert!(Instant::now() < end, "{other:?}"),
                        }
                    }
                    assert_eq!(segment.notifications().try_next().expect("a segment"), None);
                    let own = hosts[0].segments.options().host(HostId(0)).open("notified");
                    own.expect("its own").at::<u64>(1).write_notify(&5).expect("a write");
                    let notification = segment.notified().expect("a notification");
                    assert_eq!((notification.from, notification.offset), (HostId(0), 8));
                });
            });
        }
    }
}

/// A peer notifies of a segment that takes no notifications: the data arrives, the notification is
/// dropped, and the peer stays.
#[test]
fn notifications_of_a_segment_that_takes_none_are_dropped() {
    on_each(2, 1, |hosts| {
        let (is_over, is_ready) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            let (is_over, is_ready) = (&is_over, &is_ready);
            scope.spawn(move || {
                while !is_ready.load(Ordering::Acquire) {
                    thread::yield_now();
                }
                let mut peer = Liar::new(&hosts[1]);
                let word = SharedBytes::heap(8);
                word.write_from(0, &[7; 8]);
                for key in [FIRST, SECOND] {
                    let region = hosts[1].transport.import(HostId(0), key, TIMEOUT);
                    let region = region.expect("a region");
                    peer.lane.write_notify(&region, 0, &word, 0, 0).expect("a notification");
                }
                peer.lane.flush().expect("a peer");
                peer.serve(is_over, |_, _| ());
            });
            let _ends = Ends(is_over);
            let _attached = hosts[0].segments.attach(0).expect("attached");
            let builder = hosts[0].segments.builder("quiet").len(64);
            let quiet = builder.notify(Notify::Never).export().expect("a segment");
            let loud = hosts[0].segments.builder("loud").len(64).export().expect("a segment");
            is_ready.store(true, Ordering::Release);
            // The second of the two, in their order.
            let arrived = loud.notified_timeout(TIMEOUT).expect("a segment").expect("a peer");
            assert_eq!((arrived.from, arrived.offset, arrived.len), (HostId(1), 0, 8));
            assert_eq!(quiet.notifications().try_next().expect("a segment"), None);
            let mut word = [0; 8];
            quiet.read(0, &mut word).expect("its own memory");
            assert_eq!(word, [7; 8]);
        });
    });
}
