//! A request that fails, or would wait where it must not, ends its caller with a panic *of the caller's
//! line*: that is what a debugger, a panic hook and the standard message show.

mod common;

use std::cell::Cell;
use std::panic;
use std::time::{Duration, Instant};

use gossamer::{
    Barrier, JoinHandle, Latch, Rack, Sharded, Trust, Trustee, delegate, local_trustee,
};
use serde::{Deserialize, Serialize, Serializer, ser};

thread_local! {
    /// Where the last panic of this thread was.
    static LAST: Cell<Option<(String, u32)>> = const { Cell::new(None) };
}

/// Where `body` panics.
fn place_of<R>(body: impl FnOnce() -> R) -> (String, u32) {
    common::panic_in(body);
    LAST.take().expect("the hook was called")
}

/// Checks that the call panics, and at the line it stands in.
macro_rules! raises_here {
    ($call:expr) => {
        assert_eq!(place_of(|| $call), (file!().to_owned(), line!()))
    };
}

/// A value that cannot be sent.
#[derive(Clone, Deserialize)]
struct Unsendable;

impl Serialize for Unsendable {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(ser::Error::custom("cannot be sent"))
    }
}

#[test]
fn failures_are_panics_of_the_line_that_delegated() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        LAST.set(panic.location().map(|place| (place.file().to_owned(), place.line())));
        before(panic);
    }));
    common::within_deadline("places", || {
        let (number, latch) = Rack::new().threads(2).run(inside).expect("a rack");
        // The rack has ended, and this thread belongs to none.
        raises_here!(number.apply(|n| *n));
        raises_here!(number.apply_with(|n, m: u8| *n = m, 2));
        raises_here!(number.apply_then(|n| *n, |_| {}));
        raises_here!(latch.launch(|n| *n));
        raises_here!(latch.launch_then(|n| *n, |_| {}));
        raises_here!(number.trustee().spawn_with(|()| (), ()));
        raises_here!(gossamer::spawn(|| ()));
        raises_here!(gossamer::entrust(1));
        raises_here!(local_trustee());
        raises_here!(Trustee::from_number(0));
        raises_here!(Barrier::new(2));
    });
}

fn inside() -> (Trust<u8>, Trust<Latch<u8>>) {
    let me = local_trustee().trustee();
    let other = gossamer::threads().find(|trustee| *trustee != me).expect("another thread");
    let number = other.entrust(1u8);
    let latch = other.entrust_with(Latch::new, 1u8);
    raises_here!(number.apply(|_| Unsendable));
    raises_here!(number.apply_with(|_, _: Unsendable| (), Unsendable));
    raises_here!(latch.launch(|_| Unsendable));
    raises_here!(latch.launch_with(|_, _: Unsendable| (), Unsendable));
    raises_here!(other.entrust_with(|_: Unsendable| (), Unsendable));
    raises_here!(other.visit_with(|_: Unsendable| (), Unsendable));
    raises_here!(other.visit(|| Unsendable));
    raises_here!(other.entrust(Unsendable));
    let value = Unsendable;
    raises_here!(delegate!(number, [value] | _number | size_of_val(&value)));
    raises_here!(Sharded::<u8, ()>::new_with(|_: Unsendable| (), Unsendable));
    // A property of this thread, so that the hook's note is this thread's, too.
    let here = local_trustee().entrust(());
    here.apply_with(
        |(), (number, latch)| inside_a_closure(&number, &latch),
        (number.clone(), latch.clone()),
    );
    (number, latch)
}

/// A fiber that does not end before the rack does.
fn never_ends() -> JoinHandle<()> {
    gossamer::spawn(|| gossamer::sleep(Duration::from_secs(3600)))
}

/// Calls that would wait in a delegated closure.
fn inside_a_closure(number: &Trust<u8>, latch: &Trust<Latch<u8>>) {
    const SECOND: Duration = Duration::from_secs(1);
    raises_here!(number.apply(|n| *n));
    raises_here!(number.apply_with(|n, m: u8| *n = m, 2));
    raises_here!(drop(number.try_apply(|n| *n)));
    raises_here!(drop(number.apply_timeout(|n| *n, SECOND)));
    raises_here!(number.lend("text").apply(|n, text| *n = text.len() as u8));
    raises_here!(number.apply_ref(|n| Some(n), |n| n.is_some()));
    raises_here!(latch.launch(|n| *n));
    raises_here!(latch.launch_shared(|n| *n));
    raises_here!(drop(latch.launch_timeout(|n| *n, SECOND)));
    raises_here!(number.trustee().visit(|| ()));
    raises_here!(local_trustee().trustee().visit(|| ()));
    raises_here!(number.trustee().entrust_with(|n: u8| n, 1));
    raises_here!(gossamer::flush());
    let own = Latch::new(1);
    let _held = own.lock();
    raises_here!(drop(own.lock()));
    raises_here!(gossamer::fence());
    // Waits of fibers, which send no request.
    raises_here!(gossamer::yield_now());
    raises_here!(gossamer::sleep(SECOND));
    raises_here!(gossamer::sleep_until(Instant::now() + SECOND));
    raises_here!(gossamer::interval(SECOND).tick());
    raises_here!(drop(never_ends().join()));
    raises_here!(drop(never_ends().join_timeout(SECOND)));
    raises_here!(gossamer::scope(|_| ()));
    raises_here!(gossamer::block_on(std::future::pending::<()>()));
    raises_here!(gossamer::select! { () = gossamer::after(SECOND) => () });
    raises_here!(drop(number.apply_later(|n| *n).wait()));
}
