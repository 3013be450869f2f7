//! What the cases share: tables, and packages that only the sender has.
#![allow(dead_code, reason = "each test program uses a part")]

use gossamer::jam::{LoadedJam, Mode, Package};
use gossamer::{Delegable, Trust};
use gossamer_jam_tests::jams::indirect_put;
use gossamer_jam_tests::{HOSTILE, Table, UNSEEN};

pub(crate) const MODES: [Mode; 4] = [Mode::Automatic, Mode::Cached, Mode::Injected, Mode::Local];

pub(crate) type Price = LoadedJam<&'static mut indirect_put::Table, u64, (), u64>;
pub(crate) type NoArgs = LoadedJam<&'static mut indirect_put::Table, (), (), u64>;

/// A table on each thread of the rack.
pub(crate) fn tables() -> Vec<Trust<Table>> {
    gossamer::trustees().map(|t| t.entrust_with(|()| Table::new(1 << 20), ())).collect()
}

/// Runs `what` on every host.
pub(crate) fn on_every_host(what: impl FnOnce() + Delegable) {
    gossamer::threads().for_each(|thread| gossamer::spawn_on(thread, what).join().unwrap());
}

/// A jam of the package that no process of the program has.
pub(crate) fn unseen(name: &str) -> Vec<u8> {
    Package::parse(UNSEEN).unwrap().blob(name).unwrap().to_vec()
}

/// A jam of the package whose jams break rules.
pub(crate) fn hostile(name: &str) -> Vec<u8> {
    Package::parse(HOSTILE).unwrap().blob(name).unwrap().to_vec()
}
