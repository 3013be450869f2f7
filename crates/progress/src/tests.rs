//! The engine over fake lanes that the test drives, in one thread.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering::{Greater, Less};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use fiber::{Config, LocalJoinHandle, Scheduler, spawn_local};
use primitive::SharedBytes;
use primitive::sync::Ordering;
use transport_api::{
    Event, HostId, Lane, LossReason, NOTICE_SLOTS_BYTES, Namespace, Notice, NoticeEnd, NoticeInbox,
    NoticeOutbox, OpError, PeerEvent, RegionError, RegionKey, RemoteRegion, Tag, ThreadId, Watch,
};

use crate::TakenNotification::{Beside, MustPoll, Nothing, Taken};
use crate::{Notification, Owner, Progress, TakenNotification, Violation};

/// The operations that a fake lane has seen, and the events it reports next.
#[derive(Default)]
struct Wire {
    /// The tokens of the fences that were started.
    fences: Vec<u64>,
    flushes: usize,
    polls: usize,
    /// How often it was asked what to watch.
    looks: usize,
    events: VecDeque<Event>,
    slots: Slots,
    /// Words to watch, of all lanes and of each.
    word: Option<SharedBytes>,
    /// What comes once the words are noted.
    late: Option<Notice>,
    /// Whether operations are refused.
    refuses: bool,
}

/// Both ends of the notice slots from host 1.
struct Slots(Arc<NoticeOutbox>, NoticeInbox, SharedBytes);

impl Default for Slots {
    fn default() -> Self {
        let [memory, back] = [(); 2].map(|()| SharedBytes::heap(NOTICE_SLOTS_BYTES));
        let park_word = SharedBytes::heap(8);
        // The line is in `memory`.
        let sends = Arc::new(NoticeEnd::new(memory.clone(), back.clone(), Greater));
        let receives = Arc::new(NoticeEnd::new(back, memory.clone(), Less));
        let outbox = NoticeOutbox::new(sends, (1, HostId(1)), park_word, drop);
        Slots(outbox, NoticeInbox::new(from(1), receives), memory)
    }
}

struct FakeLane(HostId, Arc<Mutex<Wire>>);

impl FakeLane {
    fn wire(&self) -> std::sync::MutexGuard<'_, Wire> {
        self.1.lock().unwrap()
    }
}

impl Lane for FakeLane {
    fn peer(&self) -> HostId {
        self.0
    }
    fn write(&mut self, _: &RemoteRegion, _: usize, _: &SharedBytes) -> Result<(), OpError> {
        Ok(())
    }
    fn signal(&mut self, _: &RemoteRegion, _: usize, _: u64) -> Result<(), OpError> {
        Ok(())
    }
    fn read(&mut self, _: &RemoteRegion, _: usize, _: &SharedBytes, _: u64) -> Result<(), OpError> {
        Ok(())
    }
    fn compare_swap(
        &mut self,
        _: &RemoteRegion,
        _: usize,
        _: u64,
        _: u64,
        _: u64,
    ) -> Result<(), OpError> {
        Ok(())
    }
    fn fetch_add(&mut self, _: &RemoteRegion, _: usize, _: u64, _: u64) -> Result<(), OpError> {
        Ok(())
    }
    fn write_notify(
        &mut self,
        _: &RemoteRegion,
        _: usize,
        _: &SharedBytes,
        _: u32,
        _: u32,
    ) -> Result<(), OpError> {
        Ok(())
    }
    fn notify(
        &mut self,
        _: &RemoteRegion,
        _: usize,
        _: usize,
        _: u32,
        _: u32,
    ) -> Result<(), OpError> {
        Ok(())
    }
    fn fence(&mut self, token: u64) -> Result<(), OpError> {
        let mut wire = self.wire();
        if wire.refuses {
            return Err(OpError::Misaligned(3));
        }
        wire.fences.push(token);
        Ok(())
    }
    fn bulk(&mut self, _: u32, _: Tag, _: Vec<u8>) -> Result<(), OpError> {
        Ok(())
    }
    fn waiting_notifications(&self, _: u32) -> usize {
        0
    }
    fn waiting_bulk(&self, _: Namespace) -> usize {
        0
    }
    fn flush(&mut self) -> Result<(), OpError> {
        self.wire().flushes += 1;
        Ok(())
    }
    fn wake(&mut self, _: u32) {}
    fn poll(&mut self, sink: &mut dyn FnMut(Event)) -> bool {
        let mut wire = self.wire();
        wire.polls += 1;
        let mut any = !wire.events.is_empty();
        wire.events.drain(..).for_each(&mut *sink);
        while let Ok(Some(Notification { from, key, at, len, value })) = wire.slots.1.take() {
            sink(Event::Notified { from, key, at, len, value });
            any = true;
        }
        any
    }
    fn watch(&self, each: &mut dyn FnMut(Watch)) -> bool {
        let wire = &mut *self.wire();
        wire.looks += 1;
        if let Some(word) = &wire.word {
            each(Watch::Word(word, 0));
            each(Watch::Word(word, 8 + 8 * self.0.0 as usize));
        }
        each(Watch::Inbox(&wire.slots.1));
        if let Some(late) = wire.late.take() {
            assert_eq!(wire.slots.0.send(late), Ok(true));
        }
        wire.events.is_empty()
    }
}

/// What a look of a thread finds.
fn take(progress: &Progress) -> TakenNotification {
    progress.take_notified(Namespace::BARE)
}

/// A thread with lanes to two hosts, whose memory is mapped.
struct Thread {
    progress: Rc<Progress>,
    fibers: Scheduler,
    wires: [Arc<Mutex<Wire>>; 2],
}

impl Thread {
    fn new() -> Thread {
        let wires: [Arc<Mutex<Wire>>; 2] = Default::default();
        let lane = |host: u32| -> Box<dyn Lane> {
            Box::new(FakeLane(HostId(host), wires[host as usize].clone()))
        };
        let progress = Progress::new(vec![lane(0), lane(1)], true);
        let fibers = Scheduler::new(Config::default()).unwrap();
        Thread { progress, fibers, wires }
    }

    fn wire(&self, host: usize) -> std::sync::MutexGuard<'_, Wire> {
        self.wires[host].lock().unwrap()
    }

    /// A fiber that waits for a fence to `host`.
    fn fence(&self, host: u32) -> LocalJoinHandle<Result<u64, OpError>> {
        let progress = self.progress.clone();
        self.fibers.enter(|| {
            spawn_local(move || {
                let fence = progress.begin(HostId(host), |lane, token| lane.fence(token))?;
                fence.wait()
            })
        })
    }

    fn report(&self, host: usize, event: Event) {
        self.wire(host).events.push_back(event);
    }

    /// Host 1 notifies over the lane of `host`.
    fn notify(&self, host: usize, notification: Notification) {
        assert_eq!(self.wire(host).slots.0.send(notice(notification)), Ok(true));
    }

    fn round(&self) {
        self.fibers.enter(|| {
            self.fibers.run(100);
            self.progress.poll();
            self.fibers.run(100);
        });
    }

    fn poll_if_due(&self) -> bool {
        self.progress.count_round() && self.progress.poll()
    }

    fn owner(&self, namespace: Namespace) -> Rc<Log> {
        let log = Rc::new(Log::default());
        let owner: Rc<dyn Owner> = log.clone();
        self.progress.add_owner(namespace, Rc::downgrade(&owner));
        log
    }
}

/// An owner that records its events.
#[derive(Default)]
struct Log {
    bulk: RefCell<Vec<(Tag, usize)>>,
    notified: RefCell<Vec<Notification>>,
    refused: RefCell<Vec<OpError>>,
    gone: RefCell<Vec<PeerEvent>>,
    violated: Cell<bool>,
}

impl Owner for Log {
    fn bulk(&self, _: ThreadId, tag: Tag, payload: Vec<u8>) -> Result<(), Violation> {
        self.bulk.borrow_mut().push((tag, payload.len()));
        if self.violated.get() { Err(Violation("too much".into())) } else { Ok(()) }
    }
    fn notified(&self, notification: Notification) -> Result<(), Violation> {
        self.notified.borrow_mut().push(notification);
        Ok(())
    }
    fn refused(&self, _: HostId, error: &OpError) {
        self.refused.borrow_mut().push(error.clone());
    }
    fn peer_gone(&self, event: &PeerEvent) {
        self.gone.borrow_mut().push(event.clone());
    }
}

fn from(host: u32) -> ThreadId {
    ThreadId { host: HostId(host), thread: 0 }
}

fn lost(host: u32) -> PeerEvent {
    PeerEvent::Lost(HostId(host), LossReason::Connection("the cable is out".into()))
}

fn is_lost_by_protocol(gone: &[PeerEvent], host: u32) -> bool {
    matches!(gone, [PeerEvent::Lost(of, LossReason::Protocol(_))] if *of == HostId(host))
}

#[test]
fn a_fiber_parks_until_its_operation_ends() {
    let thread = Thread::new();
    let fence = thread.fence(1);
    thread.round();
    assert!(!fence.is_finished(), "nothing has been reported");
    assert_eq!((thread.wire(1).flushes, thread.wire(0).flushes), (1, 0), "flushed once");
    let token = thread.wire(1).fences[0];
    thread.report(1, Event::Completed { token, value: 7 });
    thread.round();
    assert_eq!(fence.join().unwrap(), Ok(7));
    assert_eq!(thread.progress.tokens().len(), 0);
}

#[test]
fn a_fiber_gets_the_error_of_its_operation_and_no_others() {
    let thread = Thread::new();
    let (failed, fine) = (thread.fence(1), thread.fence(1));
    thread.round();
    let tokens = thread.wire(1).fences.clone();
    thread.report(1, Event::Completed { token: tokens[1], value: 1 });
    thread.report(1, Event::Failed { token: Some(tokens[0]), error: OpError::Misaligned(5) });
    thread.round();
    assert_eq!(failed.join().unwrap(), Err(OpError::Misaligned(5)));
    assert_eq!(fine.join().unwrap(), Ok(1));
}

#[test]
fn an_operation_that_cannot_be_started_leaves_no_token() {
    let thread = Thread::new();
    thread.wire(1).refuses = true;
    let fence = thread.fence(1);
    thread.round();
    assert_eq!(fence.join().unwrap(), Err(OpError::Misaligned(3)));
    assert_eq!((thread.progress.under_way(), thread.progress.tokens().len()), (0, 0));
    assert!(!thread.progress.is_urgent());
}

#[test]
fn an_operation_is_refused_once_although_its_host_is_given_up_meanwhile() {
    let thread = Thread::new();
    let other = thread.progress.begin(HostId(0), |lane, token| lane.fence(token));
    let refused = thread.progress.begin_with(HostId(1), |_| {
        thread.progress.give_up(HostId(1), Violation("too much".into()));
        Err(OpError::Misaligned(3))
    });
    assert!(matches!(refused, Err(OpError::Misaligned(3))));
    assert_eq!((thread.progress.under_way(), thread.progress.tokens().len()), (1, 1));
    drop(other);
}

#[test]
fn lanes_are_polled_in_every_round_while_operations_are_under_way() {
    let thread = Thread::new();
    let polls = |rounds: usize| {
        let before = thread.wire(1).polls;
        (0..rounds).for_each(|_| {
            thread.poll_if_due();
        });
        thread.wire(1).polls - before
    };
    assert_eq!(polls(66), 2);
    let fence = thread.fence(1);
    thread.round();
    assert_eq!(polls(66), 66);
    let token = thread.wire(1).fences[0];
    thread.report(1, Event::Completed { token, value: 0 });
    thread.round();
    assert!(fence.is_finished());
    assert_eq!(polls(66), 2);
}

#[test]
fn what_is_started_without_a_token_is_flushed_by_the_next_round() {
    let thread = Thread::new();
    thread.poll_if_due();
    thread.progress.start(HostId(1), |lane| lane.wake(0));
    assert!(thread.poll_if_due(), "a flush is progress");
    assert_eq!(thread.wire(1).flushes, 1);
    assert!(!thread.progress.is_urgent());
}

#[test]
fn what_is_flushed_at_once_waits_for_no_round() {
    let thread = Thread::new();
    thread.poll_if_due();
    thread.progress.start(HostId(1), |lane| lane.wake(0));
    thread.progress.flush_lane(HostId(0)).unwrap();
    let waits = [0, 1].map(|host| thread.progress.is_unflushed(HostId(host)));
    assert_eq!(waits, [false, true], "another lane was flushed");
    thread.progress.flush_lane(HostId(1)).unwrap();
    assert!(!thread.progress.is_unflushed(HostId(1)) && !thread.progress.is_urgent());
    thread.round();
    assert_eq!(thread.wire(1).flushes, 1);
}

#[test]
fn the_loss_of_a_host_ends_all_of_its_operations_and_no_others() {
    let thread = Thread::new();
    let owners = [Namespace::BARE, Namespace::DELEGATION].map(|name| thread.owner(name));
    let fences: Vec<_> = (0..5).map(|_| thread.fence(1)).collect();
    let other = thread.fence(0);
    let import = thread.progress.begin_import(HostId(1), |_| Ok::<_, RegionError>(()));
    thread.round();
    thread.report(1, Event::Peer(lost(1)));
    thread.report(1, Event::Peer(lost(1)));
    thread.round();
    for fence in fences {
        assert_eq!(fence.join().unwrap(), Err(OpError::PeerLost(HostId(1), lost(1).reason())));
    }
    match import.unwrap().wait() {
        Err(RegionError::PeerLost(HostId(1), _)) => {}
        other => panic!("{:?}", other.map(|region| region.key())),
    }
    for owner in owners {
        assert_eq!(*owner.gone.borrow(), [lost(1)], "called once");
    }
    assert!(!other.is_finished());
    assert_eq!(thread.progress.under_way(), 1);
    // What begins afterwards ends at once.
    let (late, started) = (thread.fence(1), thread.wire(1).fences.len());
    thread.round();
    assert!(matches!(late.join().unwrap(), Err(OpError::PeerLost(HostId(1), _))));
    assert_eq!(thread.wire(1).fences.len(), started, "nothing was started");
}

#[test]
fn arrivals_go_to_the_owner_of_their_name_space() {
    let thread = Thread::new();
    let (bare, delegation) = (thread.owner(Namespace::BARE), thread.owner(Namespace::DELEGATION));
    let tags = [Tag::new(Namespace::BARE, 9), Tag::new(Namespace::DELEGATION, 1)];
    for tag in tags {
        thread.report(1, Event::Bulk { from: from(1), tag, payload: vec![0; 3] });
    }
    let key = RegionKey::new(Namespace::BARE, 4);
    let (at, len, value) = (8, 16, 5);
    thread.report(1, Event::Notified { from: from(1), key, at, len, value });
    let error = OpError::Revoked { key: RegionKey::new(Namespace::DELEGATION, 2), generation: 0 };
    thread.report(1, Event::Failed { token: None, error: error.clone() });
    thread.round();
    assert_eq!(*bare.bulk.borrow(), [(tags[0], 3)]);
    assert_eq!(*delegation.bulk.borrow(), [(tags[1], 3)]);
    let expected = Notification { from: from(1), key, at, len, value };
    assert_eq!(*bare.notified.borrow(), [expected]);
    assert_eq!((bare.refused.take(), delegation.refused.take()), (vec![], vec![error]));
    assert!(bare.gone.borrow().is_empty());
}

/// A notification by host 1, and the event that reports it.
fn notification(key: RegionKey, at: u64) -> Notification {
    Notification { from: from(1), key, at, len: 8, value: 3 }
}

fn notice(Notification { key, at, len, value, .. }: Notification) -> Notice {
    Notice { key, at, len, value }
}

#[test]
fn an_owner_takes_its_notifications_without_a_poll_unless_other_events_wait() {
    let thread = Thread::new();
    let (bare, other) = (thread.owner(Namespace::BARE), thread.owner(Namespace::DELEGATION));
    let take = || take(&thread.progress);
    assert_eq!(take(), Nothing);
    let first = notification(RegionKey::new(Namespace::BARE, 4), 0);
    thread.notify(1, first);
    assert_eq!(take(), Taken(first));
    assert_eq!(take(), Nothing);
    let second = notification(RegionKey::new(Namespace::DELEGATION, 4), 8);
    thread.notify(1, second);
    assert_eq!(take(), Beside(second), "another owner's");
    thread.progress.hand_on(second);
    assert_eq!((bare.notified.take(), other.notified.take()), (vec![], vec![second]));
    let tag = Tag::new(Namespace::BARE, 9);
    thread.report(1, Event::Bulk { from: from(1), tag, payload: vec![] });
    assert_eq!(take(), MustPoll);
    assert_eq!(thread.wire(1).polls, 0);
    thread.round();
    assert_eq!(take(), Nothing);
    // An operation is under way: polls bring its end.
    let _fence = thread.fence(0);
    thread.round();
    assert_eq!(take(), MustPoll);
}

#[test]
fn lanes_are_asked_when_a_word_that_they_watch_has_changed_or_they_are_used() {
    let thread = Thread::new();
    let _owner = thread.owner(Namespace::BARE);
    let word = SharedBytes::heap(24);
    for wire in 0..2 {
        thread.wire(wire).word = Some(word.clone());
    }
    let take = || take(&thread.progress);
    let looks = || [0, 1].map(|wire| std::mem::take(&mut thread.wire(wire).looks) > 0);
    let of = |at| notification(RegionKey::new(Namespace::BARE, 4), at);
    thread.wire(1).late = Some(notice(of(0)));
    assert_eq!(take(), Taken(of(0)), "it came while the words were noted");
    assert_eq!((take(), looks()), (Nothing, [true, true]));
    for (at, lane) in [(0, 0), (8, 0), (16, 1)] {
        assert_eq!((take(), looks()), (Nothing, [false, false]), "nothing has changed");
        thread.notify(lane, of(at));
        assert_eq!((take(), looks()), (Taken(of(at)), [false, false]));
        word.store(at as usize, 1, Ordering::Relaxed);
        thread.notify(lane, of(at));
        assert_eq!((take(), looks()), (Taken(of(at)), [false, false]), "it is older than a word");
        assert_eq!((take(), looks()), (Nothing, [true, true]), "a word has changed");
    }
    let uses: [&dyn Fn(); 3] = [
        &|| drop(thread.progress.lane(HostId(0)).borrow_mut()),
        &|| assert!(!thread.progress.poll()),
        &|| thread.progress.start(HostId(1), |_| ()),
    ];
    for (number, lane_is_used) in uses.into_iter().enumerate() {
        thread.round();
        assert_eq!((take(), looks()), (Nothing, [true, true]), "{number}");
        lane_is_used();
        // It came with the use of the lane, and has changed no word.
        let tag = Tag::new(Namespace::BARE, 9);
        thread.report(1, Event::Bulk { from: from(1), tag, payload: vec![] });
        assert_eq!(take(), MustPoll, "{number}");
    }
}

#[test]
fn what_is_no_notice_is_left_to_the_lane() {
    let thread = Thread::new();
    let key = RegionKey::new(Namespace::BARE, 4);
    assert_eq!(take(&thread.progress), Nothing);
    thread.notify(1, notification(key, 0));
    let memory = thread.wire(1).slots.2.clone();
    let kind = NOTICE_SLOTS_BYTES - 32;
    memory.store(kind, 99, Ordering::Relaxed);
    for _ in 0..3 {
        assert_eq!(take(&thread.progress), MustPoll);
    }
}

#[test]
fn an_owner_takes_no_notification_of_a_host_that_is_lost() {
    let thread = Thread::new();
    let bare = thread.owner(Namespace::BARE);
    thread.report(1, Event::Peer(lost(1)));
    thread.round();
    let notification = notification(RegionKey::new(Namespace::BARE, 4), 0);
    thread.notify(1, notification);
    assert_eq!(take(&thread.progress), Beside(notification));
    thread.progress.hand_on(notification);
    assert_eq!(bare.notified.take(), vec![]);
}

#[test]
fn no_notification_overtakes_those_that_a_poll_hands_out() {
    /// Looks for more inside a notification.
    struct Greedy(Rc<Progress>, RefCell<Vec<TakenNotification>>);
    impl Owner for Greedy {
        fn bulk(&self, _: ThreadId, _: Tag, _: Vec<u8>) -> Result<(), Violation> {
            Ok(())
        }
        fn notified(&self, notification: Notification) -> Result<(), Violation> {
            let mut all = self.1.borrow_mut();
            all.push(Taken(notification));
            all.push(take(&self.0));
            Ok(())
        }
        fn peer_gone(&self, _: &PeerEvent) {}
    }
    let thread = Thread::new();
    let greedy = Rc::new(Greedy(thread.progress.clone(), RefCell::default()));
    let owner: Rc<dyn Owner> = greedy.clone();
    thread.progress.add_owner(Namespace::BARE, Rc::downgrade(&owner));
    let of = |at| notification(RegionKey::new(Namespace::BARE, 4), at);
    thread.notify(0, of(0));
    thread.notify(1, of(8));
    thread.round();
    assert_eq!(greedy.1.take(), [Taken(of(0)), MustPoll, Taken(of(8)), MustPoll]);
    assert_eq!(take(&thread.progress), Nothing);
}

#[test]
fn arrivals_without_an_owner_cost_the_peer_the_rack() {
    for (tag, key) in [(true, false), (false, true)] {
        let thread = Thread::new();
        let owner = thread.owner(Namespace::BARE);
        let fence = thread.fence(1);
        thread.round();
        if tag {
            let tag = Tag::new(Namespace::TRANSPORT, 1);
            thread.report(1, Event::Bulk { from: from(1), tag, payload: vec![] });
        }
        if key {
            let key = RegionKey::new(Namespace::DELEGATION, 1);
            thread.report(1, Event::Notified { from: from(1), key, at: 0, len: 0, value: 0 });
        }
        // What else such a host sends is ignored.
        let tag = Tag::new(Namespace::BARE, 1);
        thread.report(1, Event::Bulk { from: from(1), tag, payload: vec![] });
        thread.round();
        assert!(is_lost_by_protocol(&owner.gone.borrow(), 1));
        assert!(owner.bulk.borrow().is_empty());
        assert!(matches!(fence.join().unwrap(), Err(OpError::PeerLost(HostId(1), _))));
    }
}

#[test]
fn a_host_is_lost_if_its_owner_says_so() {
    let thread = Thread::new();
    let owner = thread.owner(Namespace::BARE);
    owner.violated.set(true);
    let tag = Tag::new(Namespace::BARE, 1);
    thread.report(0, Event::Bulk { from: from(0), tag, payload: vec![] });
    thread.round();
    assert!(is_lost_by_protocol(&owner.gone.borrow(), 0));
}

#[test]
fn ends_of_operations_that_are_not_under_way_cost_the_peer_the_rack() {
    for again in [false, true] {
        let thread = Thread::new();
        let owner = thread.owner(Namespace::BARE);
        let fence = thread.fence(1);
        thread.round();
        let token = thread.wire(1).fences[0];
        if again {
            thread.report(1, Event::Completed { token, value: 4 });
            thread.report(1, Event::Completed { token, value: 5 });
        } else {
            thread.report(0, Event::Completed { token, value: 4 });
        }
        thread.round();
        assert!(is_lost_by_protocol(&owner.gone.borrow(), u32::from(again)));
        assert_eq!(fence.is_finished(), again, "another host does not end it");
    }
}

#[test]
fn an_owner_that_is_gone_owns_nothing() {
    let thread = Thread::new();
    let kept = thread.owner(Namespace::BARE);
    drop(thread.owner(Namespace::DELEGATION));
    let tag = Tag::new(Namespace::DELEGATION, 1);
    thread.report(1, Event::Bulk { from: from(1), tag, payload: vec![] });
    thread.round();
    assert!(is_lost_by_protocol(&kept.gone.borrow(), 1));
    drop(thread.owner(Namespace::DELEGATION));
}

#[test]
#[should_panic(expected = "already has an owner")]
fn a_name_space_has_one_owner() {
    let thread = Thread::new();
    let _first = thread.owner(Namespace::BARE);
    thread.owner(Namespace::BARE);
}

#[test]
fn an_import_ends_with_its_event() {
    let thread = Thread::new();
    let key = RegionKey::new(Namespace::BARE, 1);
    let token = Cell::new(0);
    let begin = |word| {
        token.set(word);
        Ok::<_, RegionError>(())
    };
    let import = thread.progress.begin_import(HostId(1), begin).unwrap();
    assert!(!import.has_ended());
    let denied = RegionError::Denied { owner: HostId(1), key };
    thread.report(1, Event::Imported { token: token.get(), result: Err(denied) });
    thread.round();
    assert!(import.has_ended());
    assert!(matches!(import.wait(), Err(RegionError::Denied { .. })));
}

#[test]
fn a_fiber_that_is_unwound_leaves_no_waiter() {
    let Thread { progress, fibers, wires } = Thread::new();
    let thread = Thread { progress: progress.clone(), fibers, wires: wires.clone() };
    drop(thread.fence(1));
    thread.round();
    let token = thread.wire(1).fences[0];
    assert_eq!(progress.under_way(), 1);
    assert_eq!(thread.fibers.abandon(), 1);
    assert_eq!(progress.under_way(), 1, "the operation goes on");
    // Another fiber may have the id's place by now; no fiber is woken.
    wires[1].lock().unwrap().events.push_back(Event::Completed { token, value: 3 });
    progress.poll();
    assert_eq!((progress.under_way(), progress.tokens().len()), (0, 0));
}

#[test]
fn a_destructor_of_a_fiber_that_is_unwound_does_not_wait() {
    struct Fences(Rc<Progress>, Rc<RefCell<Option<Result<u64, OpError>>>>);
    impl Drop for Fences {
        fn drop(&mut self) {
            let fence = self.0.begin(HostId(0), |lane, token| lane.fence(token));
            *self.1.borrow_mut() = Some(fence.and_then(crate::Operation::wait));
        }
    }
    let thread = Thread::new();
    let got = Rc::new(RefCell::new(None));
    let fences = Fences(thread.progress.clone(), got.clone());
    thread.fibers.enter(|| {
        drop(spawn_local(move || {
            let _fences = fences;
            fiber::park();
        }));
    });
    thread.round();
    drop(thread.fibers);
    assert!(matches!(got.take(), Some(Err(OpError::PeerLost(HostId(0), _)))));
}

#[test]
fn an_operation_that_is_dropped_gives_its_token_back_when_it_ends() {
    let thread = Thread::new();
    for ended_first in [false, true] {
        let fence = thread.progress.begin(HostId(1), |lane, token| lane.fence(token)).unwrap();
        let token = *thread.wire(1).fences.last().unwrap();
        thread.report(1, Event::Completed { token, value: 0 });
        if ended_first {
            thread.round();
            assert!(fence.has_ended());
            drop(fence);
        } else {
            drop(fence);
            assert!(thread.progress.is_urgent(), "its end is still waited for");
            thread.round();
        }
        assert_eq!((thread.progress.under_way(), thread.progress.tokens().len()), (0, 0));
    }
}

#[test]
fn the_end_of_the_rack_ends_every_operation() {
    let thread = Thread::new();
    let fences = [thread.fence(0), thread.fence(1)];
    thread.round();
    thread.fibers.enter(|| thread.progress.close());
    let late = thread.fence(1);
    thread.fibers.run(100);
    for fence in fences.into_iter().chain([late]) {
        let error = fence.join().unwrap().expect_err("the rack has ended");
        let error = format!("{error:?}");
        assert!(error.contains("the rack has ended"), "{error}");
    }
}
