//! Jams that break rules, each in an executor: the outcome that docs/jams.md promises for it, after
//! which the executor goes on. Each test runs as the user who started it and, if that is root, as an
//! ordinary user as well.

/// The jam of this name, of type `$jam`.
macro_rules! jam {
    ($jam:ty, $name:literal) => {
        <$jam>::from_blob(&crate::blob($name)).unwrap()
    };
}

mod ends;
#[allow(dead_code, reason = "only `measure` is used here")]
#[path = "../../examples/executor.rs"]
mod executor_example;
mod isolation;
mod refusals;
#[path = "../common/signed.rs"]
mod signed;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use gossamer::jam::{Executor, LoadedJam, Package, property};
use gossamer_jam_tests::HOSTILE;

property! {
    /// What an executor gives a jam.
    pub struct Scratch = "gossamer.Scratch@1";
    /// What programs have.
    pub struct Table = "jam-tests.Table@1";
}

type Plain<A> = LoadedJam<(), A, (), u64>;
type Scratched<A> = LoadedJam<&'static mut Scratch, A, (), u64>;
type Sum = LoadedJam<(), u64, u32, u64>;

/// An ordinary user.
const NOBODY: u32 = 65534;

fn blob(name: &str) -> Vec<u8> {
    let package = Package::parse(HOSTILE).unwrap();
    package.blob(name).unwrap_or_else(|| panic!("no jam {name}")).to_vec()
}

fn executor() -> Executor {
    Executor::builder().scratch(100_000).deadline(Duration::from_secs(20)).start().unwrap()
}

/// Runs `test` with an executor as this user and, if that is root, as an ordinary one.
fn as_both(test: impl Fn(Executor) + Send + Sync + 'static) {
    let test = Arc::new(test);
    let as_user = |user: Option<u32>| {
        let test = test.clone();
        let run = move || {
            if let Some(user) = user {
                rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(user)).unwrap();
            }
            test(executor());
        };
        thread::spawn(run).join().unwrap_or_else(|_| panic!("failed as user {user:?}"));
    };
    as_user(None);
    if rustix::process::getuid().is_root() {
        as_user(Some(NOBODY));
    }
}

/// That it runs an honest jam.
fn goes_on(executor: &mut Executor) {
    assert_eq!(executor.run(&jam!(Sum, "sum"), 10, &[1, 2, 3]).unwrap(), 60);
}

#[test]
fn the_example_measures_every_round() {
    let counts = executor_example::Counts { rounds: 2, calls: 3, starts: 2 };
    let times = executor_example::measure(&counts).unwrap();
    assert!(times.iter().all(|(_, times)| times.len() == 2), "{times:?}");
}
