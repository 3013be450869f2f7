//! Doubles what the table says, counts how often, and fails if it is told to.

use std::sync::atomic::{AtomicU64, Ordering};

ried::property! {
    /// The table of the program.
    pub struct Table = "jam-tests.Table@1";
}

ried::interface! {
    import {
        fn table_slot(table: &mut Table, key: u64) -> u64;
        fn table_panic(table: &mut Table, code: u64) -> u64;
    }
    export {
        /// Twice the place of a key.
        pub fn table_scale(table: &mut Table, key: u64) -> u64 {
            CALLS.fetch_add(1, Ordering::Relaxed);
            table_slot(table, key) * 2
        }

        /// How often the process has called `table_scale`, and dropped something in `scale_fail`.
        pub fn scale_calls() -> u64 {
            CALLS.load(Ordering::Relaxed) << 32 | DROPS.load(Ordering::Relaxed)
        }

        /// 1 panics here, 2 in the program, anything else nowhere.
        pub fn scale_fail(table: &mut Table, how: u64) -> u64 {
            let _counts = Counts(vec![how]);
            match how {
                1 => panic!("as ried was told: {how}"),
                2 => table_panic(table, how),
                _ => how,
            }
        }
    }
    start = begin;
}

static CALLS: AtomicU64 = AtomicU64::new(0);
static DROPS: AtomicU64 = AtomicU64::new(0);

/// Counts that destructors of the ried run.
struct Counts(Vec<u64>);

impl Drop for Counts {
    fn drop(&mut self) {
        DROPS.fetch_add(self.0.len() as u64, Ordering::Relaxed);
    }
}

fn begin(host: &ried::Host) -> Result<(), String> {
    host.log("doubled begins");
    Ok(())
}
