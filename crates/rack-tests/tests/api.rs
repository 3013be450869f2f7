//! Every behaviour of a rack over the threads of one process, over hosts that share memory, over
//! hosts whose transport copies, and over TCP, with TLS and without.

mod common;

use behaviours::behaviours;

macro_rules! on_every_kind {
    ($($module:ident: $name:ident;)*) => {
        on_every_kind! { threads, Threads: $($module $name)* }
        on_every_kind! { hosts, Hosts: $($module $name)* }
        on_every_kind! { copies, Copies: $($module $name)* }
        on_every_kind! { tcp, Tcp: $($module $name)* }
        on_every_kind! { tls, Tls: $($module $name)* }
    };
    ($of:ident, $kind:ident: $($module:ident $name:ident)*) => {
        mod $of {
            use crate::common::{self, Kind};
            $(
                #[test]
                fn $name() {
                    common::behaves(Kind::$kind, stringify!($name), behaviours::$module::$name);
                }
            )*
        }
    };
}

behaviours!(on_every_kind);

/// The last member to come finds the parts of all others and does not wait for them; if it then computes
/// without a pause, the others must have its part.
#[test]
fn a_member_that_goes_on_at_once_has_sent_its_part() {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::{Duration, Instant};

    static PASSED: AtomicUsize = AtomicUsize::new(0);
    let member = |team: &gossamer::Team, ()| {
        if team.index() > 0 {
            team.barrier();
            PASSED.fetch_add(1, Relaxed);
            return;
        }
        // The others come first. If they do not, this one waits for them, which is no error.
        gossamer::sleep(Duration::from_millis(50));
        team.barrier();
        let deadline = Instant::now() + Duration::from_secs(20);
        while PASSED.load(Relaxed) + 1 < team.len() {
            assert!(Instant::now() < deadline, "the others wait for member 0, which computes");
            std::thread::yield_now();
        }
    };
    gossamer::Rack::new().threads(3).run(move || gossamer::Team::run(member, ())).unwrap();
}
