//! Launched closures run at once, amid the requests that are served: a trustee and its clients in turn
//! on one thread.
#![cfg(not(loom))]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use fiber::{Config, FiberId, Scheduler};
use gossamer_trust_core::{DelegateError, EnteredNode, Latch, Node, Trust, Wiring, local_trustee};
use transport_shm::ShmTransport;

thread_local! {
    /// The fiber of the closure that waits.
    static WAITS: Cell<Option<FiberId>> = const { Cell::new(None) };
    /// A trust for closures, which capture nothing.
    static HELD: RefCell<Option<Trust<Latch<u64>>>> = const { RefCell::new(None) };
}

/// Gets the results of calls.
type Then = Rc<dyn Fn(Result<u64, DelegateError>)>;

/// A callback that hands its result to `then`.
fn tell(then: &Then) -> impl FnOnce(Result<u64, DelegateError>) + 'static {
    let then = then.clone();
    move |result| then(result)
}

/// A trustee with fibers, and two clients without.
struct Scene {
    trustee: Rc<Node>,
    clients: [Rc<Node>; 2],
    fibers: Scheduler,
    latch: Option<Trust<Latch<u64>>>,
    ended: Rc<RefCell<Vec<Result<u64, DelegateError>>>>,
    _wiring: Wiring,
}

impl Scene {
    fn new() -> Scene {
        let rack = ShmTransport::threads(3).unwrap();
        let wiring = Wiring::connect(rack, 0, Duration::from_secs(10)).expect("a wired rack");
        let node = |thread| wiring.node(thread).expect("a node");
        let mut scene = Scene {
            trustee: node(0),
            clients: [node(1), node(2)],
            fibers: Scheduler::new(Config::default()).expect("a scheduler"),
            latch: None,
            ended: Rc::default(),
            _wiring: wiring,
        };
        let latch = scene.at_trustee(|| local_trustee().entrust(Latch::new(0)));
        scene.latch = Some(latch);
        scene
    }

    fn latch(&self) -> &Trust<Latch<u64>> {
        self.latch.as_ref().expect("it is there until the end")
    }

    /// Runs `act` as the trustee.
    fn as_trustee<R>(&self, act: impl FnOnce(&EnteredNode) -> R) -> R {
        let entered = Node::enter(self.trustee.clone());
        self.fibers.enter(|| act(&entered))
    }

    /// Runs `act` as the trustee, then polls it.
    fn at_trustee<R>(&self, act: impl FnOnce() -> R) -> R {
        self.as_trustee(|node| {
            let result = act();
            node.poll();
            result
        })
    }

    /// Runs the ready fibers of the trustee, as it polls.
    fn run_fibers(&self) {
        self.at_trustee(|| self.fibers.run(64));
    }

    /// Has a client do something that tells the result, and hands over its requests.
    fn send(&self, client: usize, send: fn(&Trust<Latch<u64>>, Then)) {
        let ended = self.ended.clone();
        let then = Rc::new(move |result| ended.borrow_mut().push(result));
        self.at_client(client, || send(self.latch(), then));
    }

    fn at_client<R>(&self, client: usize, act: impl FnOnce() -> R) -> R {
        let entered = Node::enter(self.clients[client].clone());
        let result = act();
        entered.poll();
        result
    }

    /// The results that a client has got by now, after a poll of its.
    fn ended(&self, client: usize) -> Vec<u64> {
        self.at_client(client, || ());
        self.ended.borrow_mut().drain(..).map(|result| result.expect("a result")).collect()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let latch = self.latch.take();
        self.at_trustee(|| drop(latch));
    }
}

fn add(value: &mut u64) -> u64 {
    *value += 1;
    *value
}

/// Parks until [`Scene::wake`], then adds.
fn add_later(value: &mut u64) -> u64 {
    park();
    add(value)
}

/// Parks until [`Scene::wake`].
fn park() {
    WAITS.set(fiber::current());
    while WAITS.get().is_some() {
        fiber::park();
    }
}

impl Scene {
    /// Lets the fiber go on that has [parked](park).
    fn wake(&self) {
        self.fibers.unpark(WAITS.take().expect("a fiber that waits"));
    }
}

/// Only fibers wait: the launch is refused, and leaves no call that the end of the rack would wait for.
#[test]
fn a_launch_outside_a_fiber_is_refused_and_awaits_nothing() {
    let scene = Scene::new();
    scene.at_client(0, || {
        let refused = scene.latch().try_launch(add);
        assert!(matches!(refused, Err(DelegateError::NoRack(_))), "{refused:?}");
    });
    assert_eq!(scene.clients[0].outstanding().1, 0);
}

#[test]
fn a_launch_that_does_not_wait_is_answered_with_its_batch() {
    let scene = Scene::new();
    scene.send(0, |latch, then| (0..3).for_each(|_| latch.try_launch_then(add, tell(&then))));
    scene.at_trustee(|| ());
    assert_eq!(scene.fibers.live(), 0);
    assert_eq!(scene.ended(0), [1, 2, 3]);
    assert_eq!(scene.trustee.traffic().requests_out, 0, "no reply is a request");
}

#[test]
fn a_launch_that_waits_is_answered_when_it_ends() {
    let scene = Scene::new();
    scene.send(0, |latch, then| {
        latch.try_launch_then(add_later, tell(&then));
        // It waits for the latch.
        latch.try_launch_then(|value| 10 * add(value), |_| {});
    });
    scene.at_trustee(|| ());
    assert_eq!(scene.fibers.live(), 2);
    assert!(scene.ended(0).is_empty());
    scene.wake();
    scene.run_fibers();
    assert_eq!(scene.ended(0), [1]);
    scene.run_fibers();
    assert_eq!(scene.trustee.traffic().requests_out, 2);
    assert_eq!(scene.fibers.live(), 0);
}

/// The client takes the reply of the request, which says that the result comes later, after that.
#[test]
fn a_result_may_overtake_the_word_that_it_comes_later() {
    let scene = Scene::new();
    scene.send(0, |latch, then| latch.try_launch_then(add_later, tell(&then)));
    scene.at_trustee(|| ());
    scene.wake();
    scene.run_fibers();
    scene.run_fibers();
    assert_eq!(scene.ended(0), [1]);
    assert_eq!(scene.clients[0].outstanding().1, 0, "nothing is awaited any more");
}

#[test]
fn a_launched_closure_may_use_and_drop_its_own_property() {
    let scene = Scene::new();
    let own = scene.at_trustee(|| scene.latch().clone());
    HELD.set(Some(own));
    scene.send(0, |latch, then| {
        latch.try_launch_then(
            |_| {
                let held = HELD.take().expect("a trust");
                let is_locked = held.apply(|latch| latch.try_lock().is_none());
                drop(held);
                u64::from(is_locked)
            },
            tell(&then),
        );
    });
    scene.at_trustee(|| ());
    assert_eq!(scene.ended(0), [1], "its latch is held meanwhile");
}

/// A bare `park` in a closure that a launched one has delegated in turn: while that property is in use,
/// nothing is served. The requests after it, and those of others, are served afterwards.
#[test]
fn nothing_is_served_while_a_launched_closure_waits_inside_another() {
    let scene = Scene::new();
    let own = scene.at_trustee(|| local_trustee().entrust(Latch::new(0)));
    HELD.set(Some(own));
    scene.send(0, |latch, then| {
        latch.try_launch_then(
            |value| {
                let held = HELD.take().expect("a trust");
                held.apply(|_| park());
                add(value)
            },
            tell(&then),
        );
        latch.try_apply_then(|_| 7, tell(&then));
    });
    scene.send(1, |latch, then| latch.try_apply_then(|_| 8, tell(&then)));
    scene.as_trustee(|node| {
        node.poll();
        let begun = node.traffic();
        for _ in 0..3 {
            scene.fibers.run(64);
            node.poll();
        }
        assert_eq!(node.traffic(), begun, "it waits, and nothing is served");
        assert_eq!(begun.requests_in, 0);
        scene.wake();
        for _ in 0..3 {
            scene.fibers.run(64);
            node.poll();
        }
    });
    let mut ended = scene.ended(0);
    ended.extend(scene.ended(1));
    ended.sort_unstable();
    assert_eq!(ended, [1, 7, 8]);
}

/// What its destructor does at the trustee; that of the caller's own does nothing.
struct OnDrop(Option<fn()>);

impl serde::Serialize for OnDrop {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }
}

impl<'de> serde::Deserialize<'de> for OnDrop {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::Deserialize::deserialize(deserializer)
            .map(|()| OnDrop(Some(|| DROPPED.replace(nothing)())))
    }
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        if let Some(act) = self.0 {
            act();
        }
    }
}

fn nothing() {}

thread_local! {
    /// What the destructor of an argument does.
    static DROPPED: Cell<fn()> = const { Cell::new(nothing) };
    /// A property that closures use in closures on itself.
    static OWN: RefCell<Option<Trust<u64>>> = const { RefCell::new(None) };
    /// How often code ran that must not.
    static MISUSES: Cell<u32> = const { Cell::new(0) };
}

impl Scene {
    /// A scene whose trustee can start no fiber, and its property [`OWN`].
    fn without_stacks() -> (Scene, Trust<u64>) {
        let mut scene = Scene::new();
        let config = Config { stack_bytes: 1 << 50, ..Config::default() };
        scene.fibers = Scheduler::new(config).expect("a scheduler");
        let own = scene.at_trustee(|| local_trustee().entrust(7));
        OWN.set(Some(own.clone()));
        (scene, own)
    }
}

/// Delegates a closure on [`OWN`], which delegated code must not do.
fn use_own() {
    OWN.with_borrow(|own| {
        own.as_ref().expect("a trust").apply(|value| {
            MISUSES.set(MISUSES.get() + 1);
            *value = 0;
        });
    });
}

#[test]
fn arguments_of_a_launch_that_does_not_start_are_dropped_in_delegated_context() {
    let (scene, own) = Scene::without_stacks();
    DROPPED.set(|| {
        let used = std::panic::catch_unwind(use_own);
        assert!(used.is_err(), "a destructor of arguments has waited amid the requests");
    });
    let error = Rc::new(RefCell::new(String::new()));
    let note = error.clone();
    scene.at_client(0, || {
        let then = move |result: Result<u64, DelegateError>| {
            *note.borrow_mut() = result.expect_err("no stack").to_string();
        };
        scene.latch().try_launch_with_then(|value, _: OnDrop| add(value), OnDrop(None), then);
    });
    scene.at_trustee(|| ());
    scene.at_client(0, || ());
    assert!(error.borrow().contains("cannot start a fiber"), "{}", error.borrow());
    assert_eq!(MISUSES.get(), 0);
    scene.at_trustee(|| drop((OWN.take(), own)));
}

/// The request after such a launch is served in delegated context: it cannot get the property once
/// more that it has.
#[test]
fn a_panic_of_arguments_of_a_launch_that_does_not_start_keeps_the_context() {
    let (scene, own) = Scene::without_stacks();
    DROPPED.set(|| panic!("a panic on purpose"));
    let ended = Rc::new(RefCell::new(Vec::new()));
    scene.at_client(0, || {
        let tell = || {
            let ended = ended.clone();
            move |result: Result<u64, DelegateError>| {
                ended.borrow_mut().push(result.expect_err("a panic").to_string());
            }
        };
        scene.latch().try_launch_with_then(|value, _: OnDrop| add(value), OnDrop(None), tell());
        let twice = |value: &mut u64| {
            use_own();
            *value
        };
        own.try_apply_then(twice, tell());
    });
    scene.at_trustee(|| ());
    scene.at_client(0, || ());
    let ended = ended.borrow();
    assert_eq!(MISUSES.get(), 0, "two `&mut` to one property: {ended:?}");
    assert!(ended[0].contains("a panic on purpose"), "{ended:?}");
    assert!(ended[1].contains("would wait inside"), "{ended:?}");
    scene.at_trustee(|| drop((OWN.take(), own)));
}

#[test]
fn launches_run_in_the_fibers_of_one_scheduler() {
    let mut scene = Scene::new();
    let send = |scene: &Scene| {
        scene.send(0, |latch, then| {
            let waits = |value: &mut u64| {
                park();
                add(value)
            };
            latch.try_launch_then(waits, tell(&then));
        });
        scene.at_trustee(|| ());
        scene.at_client(0, || ());
    };
    send(&scene);
    let others = std::mem::replace(&mut scene.fibers, Scheduler::new(Config::default()).unwrap());
    send(&scene);
    let refused = scene.ended.take().pop().expect("a result").expect_err("a second scheduler");
    assert!(refused.to_string().contains("more than one fiber scheduler"), "{refused}");
    scene.fibers = others;
}

/// Before and after the reply of its request, which says that the result comes later.
#[test]
fn a_fiber_that_waits_for_a_launch_names_it() {
    let scene = Scene::new();
    let fibers = Scheduler::new(Config::default()).expect("a scheduler");
    HELD.set(Some(scene.latch().clone()));
    let awaited = || {
        scene.at_client(0, || {
            let asked = fibers.enter(|| fiber::spawn_local(fiber::waiting_fibers));
            while fibers.run(64) > 0 {}
            let waiting = asked.join().expect("an answer");
            waiting.iter().map(|fiber| fiber.what().to_string()).collect::<Vec<_>>()
        })
    };
    scene.at_client(0, || {
        let launch = || {
            let latch = HELD.take().expect("a trust");
            latch.launch(|value| {
                park();
                add(value)
            })
        };
        fibers.enter(|| drop(fiber::spawn_local(launch)));
        fibers.run(64);
    });
    let is_named = |said: Vec<String>| {
        let [said] = &said[..] else { panic!("{said:?}") };
        assert!(said.contains("the reply of `launch` on property 1 of thread 0"), "{said}");
    };
    is_named(awaited());
    scene.at_trustee(|| ());
    scene.at_client(0, || ());
    is_named(awaited());
    scene.wake();
    scene.run_fibers();
    scene.at_client(0, || ());
    assert!(awaited().is_empty());
    scene.at_trustee(|| ());
}
